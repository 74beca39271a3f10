"""The statistics of a run."""

from txtopo.assembly.statistics import PhaseTimes
from txtopo.transactional.core.record.facts import Fact
from txtopo.transactional.core.record.history import HistoryEvent


def times_of(*facts: tuple[float, HistoryEvent, int]) -> PhaseTimes:
    """Return the times of facts: the moment, what, and the job or group."""
    times = PhaseTimes()
    for at_secs, what, number in facts:
        times.add(Fact(at_secs, what, (), job_id=number, group_id=number))
    return times


def test_jobs_in_flight_at_the_same_time_count_each() -> None:
    """The time of jobs is summed over those that overlap, lost ones among them."""
    times = times_of(
        (1.0, HistoryEvent.PROCESSING, 1),
        (2.0, HistoryEvent.PROCESSING, 2),
        (4.0, HistoryEvent.JOB_ENDED, 1),
        (5.0, HistoryEvent.JOB_LOST, 2),
    )
    assert times.processing_secs(9.0) == 3.0 + 3.0
    assert times.commit_secs(9.0) == 0.0


def test_groups_and_dead_letters_are_commit_time() -> None:
    """The time of commits is that of groups, whether they commit transactions or write a dead letter."""
    times = times_of(
        (1.0, HistoryEvent.COMMITTING, 1),
        (1.5, HistoryEvent.GROUP_ENDED, 1),
        (3.0, HistoryEvent.WRITING_DEAD_LETTER, 2),
        (5.0, HistoryEvent.GROUP_ENDED, 2),
    )
    assert times.commit_secs(9.0) == 0.5 + 2.0
    assert times.processing_secs(9.0) == 0.0


def test_what_the_end_of_the_run_cuts_off_counts_until_then() -> None:
    """A job that was cancelled as the run stopped, and told nobody of its end, has taken its time as well."""
    times = times_of((1.0, HistoryEvent.PROCESSING, 1), (2.0, HistoryEvent.COMMITTING, 1))
    assert (times.processing_secs(4.0), times.commit_secs(4.0)) == (3.0, 2.0)
