"""The coordinator at both ends of a run: recovery, and every way to stop."""

import pytest

from tests.transactional.core.stories import begin
from txtopo.errors import InternalError, LostLead, PoisonTransaction, UserCodeError
from txtopo.testing.scenario import (
    EXHAUSTED,
    Scenario,
    abandon,
    activated,
    ask,
    begun,
    cancel,
    clean_up,
    commit,
    committed,
    deactivated,
    failed,
    fenced,
    group_ended,
    job_ended,
    limits,
    lost,
    processed,
    progressed,
    recovered,
    rule_broken,
    run,
    save,
    stop,
    stop_requested,
    ticked,
    write_dead_letter,
)
from txtopo.transactional.core.actions import StopReason
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.record.facts import Trouble

BUG = UserCodeError("a bug")

# Recovery.


def test_recovery_goes_on_with_what_was_begun() -> None:
    """Begun transactions are processed anew from their durable metadata, by attempts above all earlier ones."""
    with Scenario(limits(pending=4)) as story:
        story >> recovered(5, 6, 7, epoch=3)
        story << ask(8, 2) << run(1, "6:1@3", "7:1@3")
        story >> begun(8) << save(8) << ask(9, 1) << run(2, "8:1@3")
        story >> processed("6:1@2")  # of an earlier leader
        story >> processed("6:1@3") << commit(1, "6:1@3")


def test_recovery_of_more_than_may_be_pending() -> None:
    """The bound was lowered: of what was begun, no more than may be pending runs at a time."""
    with Scenario(limits(pending=2)) as story:
        story >> recovered(0, 1, 2, 3, 4, epoch=2) << run(1, "1:1@2", "2:1@2")
        story >> processed("1:1@2") << commit(1, "1:1@2")
        story >> committed("1:1@2") << clean_up(1) << run(2, "3:1@2")
        story >> group_ended(1)
        story >> processed("2:1@2") << commit(2, "2:1@2")
        story >> committed("2:1@2") << clean_up(2) << run(3, "4:1@2")
        story >> group_ended(2)
        story >> processed("3:1@2") << commit(3, "3:1@2")
        story >> committed("3:1@2") << clean_up(3) << ask(5, 1)


def test_a_gap_in_what_was_recovered_is_our_bug() -> None:
    """Recovery hands in all begun transactions above the committed one."""
    with pytest.raises(InternalError, match="transaction 3 begun after 1"):
        Coordinator(limits()).handle(recovered(0, 1, 3))


def test_recovery_comes_once() -> None:
    """A coordinator leads one incarnation; a new lead is a new coordinator."""
    story = Scenario(limits()) >> recovered() << ask(1, 4)
    with pytest.raises(AssertionError, match="recovers once"):
        story.coordinator.handle(recovered())
    with pytest.raises(AssertionError, match="counted from 1"):
        Coordinator(limits()).handle(recovered(epoch=0))


# The end of the input.


def test_exhausted() -> None:
    """The run ends when the source has ended and all of it is committed."""
    with Scenario(limits(pending=4)) as story:
        story >> recovered() << ask(1, 4)
        story >> begun(1, source=EXHAUSTED) << save(1) << run(1, "1:1")
        story >> processed("1:1") << commit(1, "1:1")
        story >> job_ended(1)
        story >> committed("1:1") << clean_up(1)
        story >> group_ended(1) << stop(StopReason.EXHAUSTED)
        assert story.coordinator.has_stopped


def test_exhausted_at_once() -> None:
    """A source without anything ends the run at once."""
    with Scenario(limits()) as story:
        story >> recovered() << ask(1, 4)
        story >> begun(source=EXHAUSTED) << stop(StopReason.EXHAUSTED)


def test_until() -> None:
    """Nothing above the transaction asked for is begun; the run ends when it is committed."""
    with Scenario(limits(pending=4, until=2)) as story:
        story >> recovered() << ask(1, 2)
        story >> begun(1, 2) << save(1, 2) << run(1, "1:1", "2:1")
        story >> processed("2:1")
        story >> processed("1:1") << commit(1, "1:1", "2:1")
        story >> committed("1:1", "2:1") << clean_up(2)
        story >> group_ended(1) << cancel(1) << stop(StopReason.UNTIL)


def test_until_what_is_committed_already() -> None:
    """There is nothing to do."""
    with Scenario(limits(until=5)) as story:
        story >> recovered(5, 6) << stop(StopReason.UNTIL)


def test_until_leaves_what_an_earlier_run_began_above_it() -> None:
    """What lies above the transaction asked for is not processed, although it was begun."""
    with Scenario(limits(until=2, job=1, jobs=4)) as story:
        story >> recovered(0, 1, 2, 3, 4, epoch=2) << run(1, "1:1@2") << run(2, "2:1@2")


# Asked to stop.


def test_a_stop_is_asked_for() -> None:
    """Jobs are stopped; what is not committed is replayed by the next run."""
    with Scenario(limits(pending=2)) as story:
        begin(story, 2)
        story >> stop_requested() << cancel(1) << stop(StopReason.REQUESTED)


def test_a_stop_waits_for_the_group() -> None:
    """What commits just now commits; nothing else is begun, processed or committed."""
    with Scenario(limits(pending=3)) as story:
        begin(story, 3)
        story >> processed("1:1") << commit(1, "1:1")
        story >> stop_requested()
        story >> failed("2:1")
        story >> processed("3:1")
        story >> job_ended(1)
        story >> committed("1:1") << clean_up(1)
        story >> group_ended(1) << stop(StopReason.REQUESTED)


def test_a_group_that_hangs_is_abandoned_while_it_is_waited_for() -> None:
    """A stop does not wait for ever."""
    with Scenario(limits(pending=1)) as story:
        begin(story, 1)
        story >> processed("1:1") << commit(1, "1:1")
        story >> job_ended(1)
        story >> stop_requested()
        story >> ticked(1_000) << abandon(1)
        story >> failed("1:1")
        story >> group_ended(1) << stop(StopReason.REQUESTED)


def test_a_stop_before_recovery_is_kept() -> None:
    """It is carried out as soon as there is something to stop."""
    with Scenario(limits()) as story:
        story >> stop_requested()
        story >> recovered() << stop(StopReason.REQUESTED)


# Activation.


def test_deactivated() -> None:
    """No transaction begins; what has begun is processed, replayed and committed. Activated, it goes on."""
    with Scenario(limits(pending=3)) as story:
        story >> recovered() << ask(1, 3)
        story >> begun(1, 2) << save(1, 2) << ask(3, 1) << run(1, "1:1", "2:1")
        story >> deactivated()
        story >> begun(3) << save(3) << run(2, "3:1")  # it was asked for before
        story >> failed("1:1") << run(3, "1:2")
        story >> processed("2:1")
        story >> processed("1:2") << commit(1, "1:2", "2:1")
        story >> committed("1:2", "2:1") << clean_up(2)
        story >> ticked(500)
        story >> activated() << ask(4, 2)


def test_deactivated_before_recovery() -> None:
    """What an earlier leader has begun is finished, and nothing else begins."""
    with Scenario(limits(pending=3)) as story:
        story >> deactivated()
        story >> recovered(5, 6) << run(1, "6:1")
        story >> processed("6:1") << commit(1, "6:1")
        story >> job_ended(1)
        story >> committed("6:1") << clean_up(6)
        story >> stop_requested()
        story >> group_ended(1) << stop(StopReason.REQUESTED)


# Errors.


def test_a_broken_rule_stops_the_run_with_its_error() -> None:
    """A bug in the user's code is not replayed (promise 4)."""
    with Scenario(limits(pending=1)) as story:
        begin(story, 1)
        story >> rule_broken(BUG) << cancel(1) << stop(StopReason.FAILED, BUG)


def test_what_a_broken_rule_takes_along_has_not_failed() -> None:
    """The end of the job in which a bug was found is no failure of its transactions, for logs and displays."""
    with Scenario(limits(pending=1)) as story:
        begin(story, 1)
        story >> rule_broken(BUG) << cancel(1) << stop(StopReason.FAILED, BUG)
        story.coordinator.handle(job_ended(1))
        assert not any(isinstance(fact, Trouble) and fact.times for fact in story.coordinator.facts)


def test_a_bug_is_the_only_failure_of_its_job() -> None:
    """The bug and the end of its job come together."""
    with Scenario(limits(pending=2)) as story:
        begin(story, 2)
        story.coordinator.handle(rule_broken(BUG), job_ended(1))
        assert not any(isinstance(fact, Trouble) and fact.times for fact in story.coordinator.facts)


def test_a_broken_rule_lets_the_group_end() -> None:
    """What commits just now commits, then the run stops."""
    with Scenario(limits(pending=2)) as story:
        begin(story, 2)
        story >> processed("1:1") << commit(1, "1:1")
        story >> rule_broken(BUG)
        story >> committed("1:1") << clean_up(1)
        story >> group_ended(1) << cancel(1) << stop(StopReason.FAILED, BUG)


def test_a_rule_broken_in_the_commit_phase() -> None:
    """Its transaction is not written; the group ends without it, and the run stops."""
    with Scenario(limits(pending=2, tries=1, skip=True)) as story:
        begin(story, 2)
        story >> processed("2:1")
        story >> processed("1:1") << commit(1, "1:1", "2:1")
        story >> job_ended(1)
        story >> committed("1:1") << clean_up(1) << ask(3, 1)
        story >> rule_broken(BUG)
        story >> group_ended(1) << stop(StopReason.FAILED, BUG)


def test_a_rule_broken_by_a_dead_letter() -> None:
    """A letter that can't be written stops the run, and is not taken for committed."""
    with Scenario(limits(pending=1, tries=1, skip=True)) as story:
        begin(story, 1)
        story >> failed("1:1") << write_dead_letter(1, "1:2", tries=1)
        story >> job_ended(1)
        story >> rule_broken(BUG)
        story >> group_ended(1) << stop(StopReason.FAILED, BUG)
        assert story.coordinator.committed == 0


def test_an_error_comes_before_a_request() -> None:
    """A run that was asked to stop and then fails has failed; the first error is told."""
    with Scenario(limits(pending=1)) as story:
        begin(story, 1)
        story >> processed("1:1") << commit(1, "1:1")
        story >> job_ended(1)
        story >> stop_requested()
        story >> rule_broken(BUG)
        story >> rule_broken(UserCodeError("a later bug"))
        story >> stop_requested()
        story >> group_ended(1) << stop(StopReason.FAILED, BUG)


def test_a_poison_transaction_found_while_stopping() -> None:
    """A request to stop does not hide that a transaction can't be committed."""
    with Scenario(limits(pending=1, tries=1)) as story:
        begin(story, 1)
        story >> processed("1:1") << commit(1, "1:1")
        story >> job_ended(1)
        story >> stop_requested()
        story >> failed("1:1")
        story >> group_ended(1)
        assert isinstance(story.take_stop().error, PoisonTransaction)


def test_fenced_stops_at_once() -> None:
    """Another one leads: nothing is waited for, and nothing more is done (promise 11)."""
    lost_lead = LostLead("another coordinator leads")
    with Scenario(limits(pending=2)) as story:
        begin(story, 2)
        story >> processed("1:1") << commit(1, "1:1")
        story >> fenced(lost_lead) << cancel(1) << stop(StopReason.FAILED, lost_lead)


def test_after_a_stop_nothing_is_said() -> None:
    """Whatever the run loop hands in late finds a closed door."""
    with Scenario(limits(pending=1)) as story:
        begin(story, 1)
        story >> processed("1:1") << commit(1, "1:1")
        story >> fenced(BUG) << cancel(1) << stop(StopReason.FAILED, BUG)
        story >> committed("1:1") >> group_ended(1) >> job_ended(1) >> lost(1)
        story >> ticked(9_999) >> progressed("1:1") >> stop_requested() >> rule_broken(BUG)
        assert story.coordinator.committed == 0


def test_what_comes_with_a_lost_lead_does_not_count() -> None:
    """The end of a group that comes together with the loss of the lead is as one that comes later."""
    with Scenario(limits(pending=1)) as story:
        begin(story, 1)
        story >> processed("1:1") << commit(1, "1:1")
        error = LostLead("another coordinator leads")
        said = story.coordinator.handle(fenced(error), group_ended(1))
        assert said == [cancel(1), stop(StopReason.FAILED, error)]
