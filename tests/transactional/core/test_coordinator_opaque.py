"""The coordinator of an opaque spout: it emits perhaps other tuples each time, from where the one before ended.

``"?"`` is the metadata before the emitters have been there; ``"m2"`` is what they say of transaction 2, and
``"M2"`` what they say when it is emitted anew and differs.
"""

from tests.transactional.core.stories import begin_opaque
from txtopo.errors import PoisonTransaction
from txtopo.testing.scenario import (
    EXHAUSTED,
    WAITING,
    Scenario,
    ask,
    begun,
    cancel,
    clean_up,
    commit,
    committed,
    dead_letter_written,
    failed,
    group_ended,
    job_ended,
    limits,
    lost,
    processed,
    progressed,
    recovered,
    run,
    stop,
    ticked,
    write_dead_letter,
)
from txtopo.transactional.core.actions import StopReason
from txtopo.transactional.core.spout_policy import OPAQUE

# The chain of metadata.


def test_metadata_is_known_when_it_is_processed() -> None:
    """Nothing is saved before; each job goes on from what the one before emitted."""
    with Scenario(limits(pending=3, job=2, spout=OPAQUE)) as story:
        begin_opaque(story, 2)
        story >> processed("1:1", "m1") << commit(1, "1:1", metadata="m1")
        story >> processed("2:1", "m2") << ask(3, 1, previous="m2")
        story >> committed("1:1") << clean_up(1)
        story >> job_ended(1)
        story >> begun(3, metadata="?") << run(2, "3:1", metadata="?", previous="m2")


def test_one_job_at_a_time() -> None:
    """A job can't begin before it is known where the one before ended, however many jobs there may be."""
    with Scenario(limits(pending=4, job=2, jobs=4, spout=OPAQUE)) as story:
        begin_opaque(story, 2)
        story >> processed("1:1", "m1") << commit(1, "1:1", metadata="m1")
        story >> ticked(10)  # 2 is being processed: the spout is not asked what follows
        story >> processed("2:1", "m2") << ask(3, 2, previous="m2")
        story >> begun(3, 4, metadata="?")
        story >> job_ended(1) << run(2, "3:1", "4:1", metadata="?", previous="m2")


def test_a_new_leader_goes_on_from_what_is_committed() -> None:
    """The first job of a run goes on from the last committed transaction's metadata."""
    with Scenario(limits(pending=2, spout=OPAQUE)) as story:
        story >> recovered(7, epoch=2, metadata="m7") << ask(8, 2, previous="m7")
        story >> begun(8, 9, metadata="?") << run(1, "8:1@2", "9:1@2", metadata="?", previous="m7")


# Rolling back.


def test_a_failure_rolls_back_all_later_ones() -> None:
    """N and all later ones are begun anew, from what N - 1 emitted; the rest of their job is stopped (promise 5)."""
    with Scenario(limits(pending=4, spout=OPAQUE)) as story:
        begin_opaque(story, 4)
        story >> processed("1:1", "m1") << commit(1, "1:1", metadata="m1")
        story >> processed("3:1", "m3")
        story >> failed("2:1") << ask(2, 3, previous="m1") << cancel(1)
        story >> processed("4:1", "m4")  # late: it went on from 3:1, which is no more
        story >> job_ended(1)
        story >> begun(2, 3, 4, metadata="?")
        story << run(2, "2:2", "3:2", "4:2", metadata="?", previous="m1")
        story >> processed("2:2", "M2")
        story >> committed("1:1") << clean_up(1)
        story >> group_ended(1) << commit(2, "2:2", metadata="M2")


def test_a_failure_in_the_commit_phase_rolls_back_its_followers() -> None:
    """Those before it commit; it and its followers, those of its group too, are emitted anew."""
    with Scenario(limits(pending=3, spout=OPAQUE)) as story:
        begin_opaque(story, 3)
        story >> processed("3:1", "m") >> processed("2:1", "m")
        story >> processed("1:1", "m") << commit(1, "1:1", "2:1", "3:1", metadata="m")
        story >> job_ended(1)
        story >> committed("1:1") << clean_up(1) << ask(4, 1, previous="m")
        story >> failed("2:1")
        story >> group_ended(1)
        story >> begun(4, metadata="?") << ask(2, 3, previous="m")  # 4 would have come behind 3:1


def test_a_job_is_not_stopped_while_it_is_of_use() -> None:
    """2 and 3 are rolled back, but 1 is still being processed in their job."""
    with Scenario(limits(pending=3, spout=OPAQUE)) as story:
        begin_opaque(story, 3)
        story >> failed("2:1")
        story >> processed("1:1", "m1") << commit(1, "1:1", metadata="m1") << ask(2, 2, previous="m1") << cancel(1)


def test_a_timeout_rolls_back() -> None:
    """The job is stopped, and what it held is begun anew; it starts when the job is over."""
    with Scenario(limits(pending=2, spout=OPAQUE)) as story:
        begin_opaque(story, 2)
        story >> progressed("1:1", "2:1")
        story >> ticked(1_000) << cancel(1) << ask(1, 2)
        story >> begun(1, 2, metadata="?")
        story >> lost(1, "cancelled") << run(2, "1:2", metadata="?")


def test_the_first_of_a_lost_job_goes_alone() -> None:
    """After a pause; the others follow from where it ends."""
    with Scenario(limits(pending=3, spout=OPAQUE)) as story:
        begin_opaque(story, 3)
        story >> lost(1) << ask(1, 3)
        story >> begun(1, 2, 3, metadata="?")
        story >> ticked(100) << run(2, "1:2", metadata="?")
        story >> processed("1:2", "m1") << commit(1, "1:2", metadata="m1")
        story >> job_ended(2) << run(3, "2:2", "3:2", metadata="?", previous="m1")


# The end of the source.


def test_a_rollback_takes_the_end_of_the_source_back() -> None:
    """A source that was exhausted after 1 is not when 1 is emitted anew."""
    with Scenario(limits(pending=2, job=1, spout=OPAQUE)) as story:
        begin_opaque(story, 1)
        story >> processed("1:1", "m1") << commit(1, "1:1", metadata="m1") << ask(2, 1, previous="m1")
        story >> job_ended(1)
        story >> begun(source=EXHAUSTED)
        story >> failed("1:1") << ask(1, 1)
        story >> group_ended(1)
        story >> begun(1, metadata="?") << run(2, "1:2", metadata="?")


def test_an_answer_from_before_a_rollback_does_not_count() -> None:
    """The source's answer, told as a history.

    1. 1 is processed, and the source is asked what follows it.
    2. 1 fails in the commit phase: it is rolled back, and nothing is begun any more.
    3. The source answers: exhausted. That was true of what follows 1:1. The run once ended here, without 1.
    """
    for answer in (begun(source=EXHAUSTED), begun(source=WAITING), begun(2, metadata="?")):
        with Scenario(limits(pending=2, job=1, spout=OPAQUE)) as story:
            begin_opaque(story, 1)
            story >> processed("1:1", "m1") << commit(1, "1:1", metadata="m1") << ask(2, 1, previous="m1")
            story >> job_ended(1)
            story >> failed("1:1")
            story >> group_ended(1)
            story >> answer << ask(1, 1)
            story >> begun(1, metadata="?") << run(2, "1:2", metadata="?")


def test_the_source_ends_when_all_is_committed() -> None:
    """It says so once all is processed; the run ends once all is committed."""
    with Scenario(limits(pending=2, job=1, spout=OPAQUE)) as story:
        begin_opaque(story, 1)
        story >> processed("1:1", "m1") << commit(1, "1:1", metadata="m1") << ask(2, 1, previous="m1")
        story >> begun(source=EXHAUSTED)
        story >> job_ended(1)
        story >> committed("1:1") << clean_up(1)
        story >> group_ended(1) << stop(StopReason.EXHAUSTED)


# Giving up.


def test_skip_with_known_metadata() -> None:
    """It emitted its whole batch, then failed: the letter says what, and the next one goes on behind it."""
    with Scenario(limits(pending=3, tries=1, skip=True, spout=OPAQUE)) as story:
        begin_opaque(story, 3)
        story >> failed("1:1", metadata="m1")
        story << write_dead_letter(1, "1:2", tries=1, metadata="m1") << ask(2, 2, previous="m1") << cancel(1)
        story >> lost(1, "cancelled")
        story >> begun(2, 3, metadata="?") << run(2, "2:2", "3:2", metadata="?", previous="m1")
        story >> processed("2:2", "m2")
        story >> dead_letter_written("1:2") << clean_up(1)
        story >> group_ended(1) << commit(2, "2:2", metadata="m2")


def test_skip_in_the_commit_phase() -> None:
    """What fails there has been processed, so its metadata is known."""
    with Scenario(limits(pending=1, tries=1, skip=True, spout=OPAQUE)) as story:
        begin_opaque(story, 1)
        story >> processed("1:1", "m1") << commit(1, "1:1", metadata="m1")
        story >> failed("1:1")
        story >> group_ended(1) << write_dead_letter(2, "1:2", tries=1, metadata="m1")
        story >> dead_letter_written("1:2") << clean_up(1) << ask(2, 1, previous="m1")


def test_a_rollback_takes_a_given_up_one_with_it() -> None:
    """What was given up behind N went on from N: it is begun anew too."""
    with Scenario(limits(pending=2, tries=2, skip=True, spout=OPAQUE)) as story:
        begin_opaque(story, 2)
        story >> failed("1:1", metadata="m1") << ask(1, 2) << cancel(1)
        story >> job_ended(1)
        story >> begun(1, 2, metadata="?") << run(2, "1:2", "2:2", metadata="?")
        story >> processed("1:2", "m1") << commit(1, "1:2", metadata="m1")
        story >> failed("2:2", metadata="m2") << ask(2, 1, previous="m1")
        story >> job_ended(2)
        story >> begun(2, metadata="?") << run(3, "2:3", metadata="?", previous="m1")
        story >> failed("2:3", metadata="m2")  # given up, in its turn
        story >> job_ended(3)
        story >> failed("1:2")  # given up too: 2 goes on behind it, and is begun anew
        story << ask(2, 1, previous="m1")
        story >> group_ended(1) << write_dead_letter(2, "1:3", tries=2, metadata="m1")


def test_skip_without_metadata_stops_the_run() -> None:
    """Nobody knows where its batch ends, so nothing can follow: the run stops, whatever the policy."""
    with Scenario(limits(pending=2, tries=1, skip=True, spout=OPAQUE)) as story:
        begin_opaque(story, 2)
        story >> failed("1:1", "bad record") << cancel(1)
        said = story.take_stop()
        assert said.reason is StopReason.FAILED
        assert isinstance(said.error, PoisonTransaction)
        assert (said.error.txid, said.error.cause) == (1, "bad record")
        assert "set the policy to SKIP" not in said.error.message


def test_skip_without_metadata_lets_the_group_end() -> None:
    """What commits just now commits, then the run stops."""
    with Scenario(limits(pending=2, tries=1, skip=True, spout=OPAQUE)) as story:
        begin_opaque(story, 2)
        story >> processed("1:1", "m1") << commit(1, "1:1", metadata="m1")
        story >> failed("2:1")
        story >> committed("1:1") << clean_up(1)
        story >> group_ended(1) << cancel(1)
        assert isinstance(story.take_stop().error, PoisonTransaction)


def test_wait_begins_nothing_behind_a_given_up_one() -> None:
    """Nobody knows where its batch ends. The spout was once asked to go on from ``"?"``."""
    with Scenario(limits(pending=3, job=2, tries=1, spout=OPAQUE)) as story:
        begin_opaque(story, 2)
        story >> processed("1:1", "m1") << commit(1, "1:1", metadata="m1")
        story >> failed("2:1")
        story >> committed("1:1") << clean_up(1)
        story >> group_ended(1) << cancel(1)
        assert isinstance(story.take_stop().error, PoisonTransaction)
