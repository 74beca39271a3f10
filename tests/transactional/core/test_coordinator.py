"""The coordinator when all goes well: beginning, jobs, groups, order, the source."""

from typing import Any

import pytest

from tests.transactional.core.stories import begin
from txtopo.errors import InternalError
from txtopo.testing.scenario import (
    EXHAUSTED,
    READY,
    WAITING,
    Scenario,
    ask,
    begun,
    cancel,
    clean_up,
    commit,
    committed,
    deactivated,
    failed,
    group_ended,
    job_ended,
    limits,
    processed,
    recovered,
    run,
    save,
    stop,
    stop_requested,
    ticked,
)
from txtopo.transactional.core.actions import StopReason
from txtopo.transactional.core.coordinator import Coordinator

# Beginning.


def test_nothing_is_done_before_recovery() -> None:
    """A coordinator does nothing before it knows what is durable."""
    with Scenario(limits()) as story:
        story >> ticked(10_000)
        story >> recovered() << ask(1, 4)


def test_the_spout_is_asked_once_at_a_time() -> None:
    """While the spout's coordinator is at work it is not asked again."""
    with Scenario(limits(pending=4)) as story:
        story >> recovered() << ask(1, 4)
        story >> ticked(10_000)
        story >> begun(1) << save(1) << ask(2, 3) << run(1, "1:1")
        story >> ticked(10_001)


def test_metadata_is_saved_before_it_is_used() -> None:
    """The order of what is said: durable metadata first, then tuples (promise 2)."""
    with Scenario(limits(pending=2)) as story:
        story >> recovered() << ask(1, 2)
        story >> begun(1, 2) << save(1, 2) << run(1, "1:1", "2:1")


def test_a_spout_may_begin_fewer_than_asked_for() -> None:
    """What was begun starts at once; the rest is asked for again, from where it stands now."""
    with Scenario(limits(pending=4)) as story:
        story >> recovered() << ask(1, 4)
        story >> begun(1, 2) << save(1, 2) << ask(3, 2) << run(1, "1:1", "2:1")
        story >> begun(3, source=WAITING) << save(3) << ask(4, 1) << run(2, "3:1")


def test_a_source_that_waits_is_asked_again_at_once() -> None:
    """The waiting is done by the request, which comes back when there is something, or after a while."""
    with Scenario(limits(pending=4)) as story:
        story >> recovered(now_ms=1_000) << ask(1, 4)
        story >> ticked(1_049)
        story >> begun(source=WAITING) << ask(1, 4)
        story >> begun(1, source=WAITING) << save(1) << ask(2, 3) << run(1, "1:1")


def test_pending_transactions_are_bounded() -> None:
    """No more transactions are begun than may be pending; a commit makes room for one."""
    with Scenario(limits(pending=2)) as story:
        begin(story, 2)
        story >> ticked(10)
        story >> processed("1:1") << commit(1, "1:1")
        story >> committed("1:1") << clean_up(1) << ask(3, 1)


def test_a_gap_in_what_was_begun_is_our_bug() -> None:
    """Transactions are begun in order; anything else would lose one."""
    story = Scenario(limits()) >> recovered()
    with pytest.raises(InternalError, match="transaction 2 begun after 0"):
        Scenario.__rshift__(story << ask(1, 4), begun(2))


# Jobs.


def test_a_job_is_what_is_ready_now() -> None:
    """One waiting transaction starts at once; nothing waits for a job to fill."""
    with Scenario(limits(pending=4, job=4)) as story:
        story >> recovered() << ask(1, 4)
        story >> begun(1, source=READY) << save(1) << ask(2, 3) << run(1, "1:1")
        story >> begun(2, 3, 4) << save(2, 3, 4) << run(2, "2:1", "3:1", "4:1")


def test_a_job_is_bounded() -> None:
    """No job holds more transactions than allowed."""
    with Scenario(limits(pending=5, job=2)) as story:
        story >> recovered() << ask(1, 5)
        story >> begun(1, 2, 3, 4, 5) << save(1, 2, 3, 4, 5)
        story << run(1, "1:1", "2:1") << run(2, "3:1", "4:1") << run(3, "5:1")


def test_jobs_in_flight_are_bounded() -> None:
    """A job waits for a free job; its answers do not free the job, its end does."""
    with Scenario(limits(pending=4, job=1, jobs=2)) as story:
        story >> recovered() << ask(1, 4)
        story >> begun(1, 2, 3, 4) << save(1, 2, 3, 4) << run(1, "1:1") << run(2, "2:1")
        story >> processed("2:1")
        story >> job_ended(2) << run(3, "3:1")


def test_a_job_is_consecutive() -> None:
    """Transactions that failed are not packed with ready ones behind one that is still being processed."""
    with Scenario(limits(pending=4, job=4, jobs=1)) as story:
        begin(story, 4)
        story >> failed("1:1")
        story >> failed("2:1")
        story >> processed("3:1")
        story >> failed("4:1")
        story >> job_ended(1) << run(2, "1:2", "2:2")
        story >> job_ended(2) << run(3, "1:3")  # neither was answered for: each alone


def test_processing_runs_ahead_of_the_commits() -> None:
    """Processing phases overlap as the bound allows, whatever commits just now (promise 1)."""
    with Scenario(limits(pending=3, job=1, jobs=1)) as story:
        story >> recovered() << ask(1, 3)
        story >> begun(1, 2, 3) << save(1, 2, 3) << run(1, "1:1")
        story >> processed("1:1") << commit(1, "1:1")
        story >> job_ended(1) << run(2, "2:1")
        story >> processed("2:1")
        story >> job_ended(2) << run(3, "3:1")


# Commit groups.


def test_a_group_is_the_processed_ones_from_the_lowest() -> None:
    """Commits go in order: what is processed behind a gap waits (promise 1)."""
    with Scenario(limits(pending=4)) as story:
        begin(story, 4)
        story >> processed("2:1")
        story >> processed("4:1")
        story >> processed("1:1") << commit(1, "1:1", "2:1")


def test_one_group_at_a_time() -> None:
    """Commit phases never overlap: what is processed meanwhile goes into the next group (promise 1)."""
    with Scenario(limits(pending=3)) as story:
        begin(story, 3)
        story >> processed("1:1") << commit(1, "1:1")
        story >> processed("2:1")
        story >> processed("3:1")
        story >> job_ended(1)
        story >> committed("1:1") << clean_up(1) << ask(4, 1)
        story >> group_ended(1) << commit(2, "2:1", "3:1")
        story >> committed("2:1", "3:1") << clean_up(3)
        story >> group_ended(2)


def test_a_group_is_bounded() -> None:
    """No group holds more transactions than allowed."""
    with Scenario(limits(pending=3, group=2)) as story:
        begin(story, 3)
        story >> processed("3:1") >> processed("2:1")
        story >> processed("1:1") << commit(1, "1:1", "2:1")
        story >> committed("1:1", "2:1") << clean_up(2) << ask(4, 2)
        story >> group_ended(1) << commit(2, "3:1")


def test_a_group_without_commits_is_taken_up_again() -> None:
    """A group that ends with nothing said of its attempts goes back: they are processed, and commit next."""
    with Scenario(limits(pending=2)) as story:
        begin(story, 2)
        story >> processed("2:1")
        story >> processed("1:1") << commit(1, "1:1", "2:1")
        story >> committed()
        story >> group_ended(1) << commit(2, "1:1", "2:1")


def test_a_commit_out_of_turn_is_our_bug() -> None:
    """A transaction that was never handed out, or not next, or whose attempt is not live, can't commit."""
    for late in ("2:1", "1:2", "7:1"):
        story = Scenario(limits(pending=2))
        begin(story, 2)
        story >> processed("2:1")
        story >> processed("1:1") << commit(1, "1:1", "2:1")
        with pytest.raises(InternalError, match="committed out of turn, after 0"):
            Scenario.__rshift__(story, committed(late))


def test_a_commit_of_what_was_not_handed_out_is_our_bug() -> None:
    """2 is processed, and next; but nobody was told to commit it."""
    story = Scenario(limits(pending=2))
    begin(story, 2)
    story >> processed("1:1") << commit(1, "1:1")
    story >> processed("2:1")
    with pytest.raises(InternalError, match="no transition 'committed' from status 'processed'"):
        Scenario.__rshift__(story, committed("1:1", "2:1"))


def test_the_end_of_another_group_is_our_bug() -> None:
    """Only the group in flight can end."""
    story = Scenario(limits()) >> recovered() << ask(1, 4)
    with pytest.raises(InternalError, match="commit group 3 ended, None is in flight"):
        Scenario.__rshift__(story, group_ended(3))


# Late answers.


def test_answers_of_ended_jobs_change_nothing() -> None:
    """A job that ends twice, or that nobody knows, ends nothing."""
    with Scenario(limits(pending=1)) as story:
        begin(story, 1)
        story >> processed("1:1") << commit(1, "1:1")
        story >> job_ended(1)
        story >> job_ended(1)
        story >> job_ended(99)
        story >> committed("1:1") << clean_up(1) << ask(2, 1)


def test_doubled_answers_change_nothing() -> None:
    """Each answer counts once: processed twice, also while it commits, or after it was committed."""
    with Scenario(limits(pending=2)) as story:
        begin(story, 2)
        story >> processed("1:1") << commit(1, "1:1")
        story >> processed("1:1")
        story >> committed("1:1") << clean_up(1) << ask(3, 1)
        story >> processed("1:1")
        story >> failed("1:1")


def test_its_views_are_read_only() -> None:
    """Displays see the pending transactions and the jobs, and can't change them."""
    coordinator = Coordinator(limits())
    with pytest.raises(TypeError):
        coordinator.pending[1] = None  # type: ignore[index]
    with pytest.raises(TypeError):
        coordinator.jobs[1] = ()  # type: ignore[index]


def test_an_unknown_event_is_our_bug() -> None:
    """Every event has its place; what is none is refused."""
    with pytest.raises(AssertionError):
        Coordinator(limits()).handle("a letter")  # type: ignore[arg-type]


# Gathering.


def gathering(story: Scenario, *, source: Any = READY) -> None:
    """Commit transaction 1 in a group after which others are gathered for 500 ms; 2 is processed."""
    story >> recovered() << ask(1, story.coordinator.limits.pending_max)
    story >> begun(1, 2, source=source) << save(1, 2)
    if source is READY:
        story << ask(3, story.coordinator.limits.pending_max - 2)
    story << run(1, "1:1", "2:1")
    story >> processed("1:1") << commit(1, "1:1")
    story >> committed("1:1") << clean_up(1)
    story >> group_ended(1, gather_ms=500)
    story >> processed("2:1")


def test_a_group_that_costs_much_gathers_transactions() -> None:
    """The next one waits until it is full, or for so long."""
    with Scenario(limits(pending=8, group=3)) as story:
        gathering(story)
        story >> job_ended(1)
        story >> begun(3, 4) << save(3, 4) << ask(5, 5) << run(2, "3:1", "4:1")
        story >> processed("3:1")
        story >> ticked(499)
        story >> processed("4:1") << commit(2, "2:1", "3:1", "4:1")
        story >> committed("2:1", "3:1", "4:1") << clean_up(4)
        story >> group_ended(2)
    with Scenario(limits(pending=8, group=3)) as story:
        gathering(story)
        story >> ticked(499)
        story >> ticked(500) << commit(2, "2:1")


def test_nothing_is_gathered_where_nothing_can_come() -> None:
    """A source that is exhausted, or as many pending transactions as there may be, end the wait at once."""
    with Scenario(limits(pending=8)) as story:
        gathering(story, source=EXHAUSTED)
        story << commit(2, "2:1")
    with Scenario(limits(pending=2)) as story:
        story >> recovered() << ask(1, 2)
        story >> begun(1, 2) << save(1, 2) << run(1, "1:1", "2:1")
        story >> processed("1:1") << commit(1, "1:1")
        story >> processed("2:1")
        story >> group_ended(1, gather_ms=500)  # 1 was returned
        story << commit(2, "1:1", "2:1")
    with Scenario(limits(pending=8)) as story:
        gathering(story)
        story >> deactivated() << commit(2, "2:1")


def test_a_stop_waits_for_nothing_that_is_gathered() -> None:
    """What was processed is not decided: a stop leaves it to the next run."""
    with Scenario(limits(pending=8)) as story:
        gathering(story)
        story >> stop_requested() << cancel(1) << stop(StopReason.REQUESTED)
