"""The coordinator when things fail: replays, late answers, timeouts, lost jobs, giving up."""

import pytest

from tests.transactional.core.stories import begin
from txtopo.errors import JobFailure, PoisonTransaction
from txtopo.testing.scenario import (
    Scenario,
    abandon,
    ask,
    attempt_lost,
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
    save,
    ticked,
    write_dead_letter,
)
from txtopo.transactional.core.actions import StopReason

# Replays.


def test_a_failing_transaction_is_replayed_alone() -> None:
    """N fails, N alone is replayed, from the same metadata; the others keep their work (promises 2 and 5)."""
    with Scenario(limits(pending=3)) as story:
        begin(story, 3)
        story >> failed("2:1") << run(2, "2:2")
        story >> processed("3:1")
        story >> processed("1:1") << commit(1, "1:1")
        story >> job_ended(1)
        story >> processed("2:2")
        story >> committed("1:1") << clean_up(1) << ask(4, 1)
        story >> group_ended(1) << commit(2, "2:2", "3:1")


def test_a_failure_in_the_commit_phase_takes_out_itself_and_its_followers() -> None:
    """Of a group, those before it commit; it is replayed; its followers commit later with the work they did."""
    with Scenario(limits(pending=4)) as story:
        begin(story, 4)
        story >> processed("4:1") >> processed("3:1") >> processed("2:1")
        story >> processed("1:1") << commit(1, "1:1", "2:1", "3:1", "4:1")
        story >> committed("1:1") << clean_up(1) << ask(5, 1)
        story >> failed("2:1") << run(2, "2:2")
        story >> processed("2:2")  # before the group is over: it waits for that
        story >> group_ended(1) << commit(2, "2:2", "3:1", "4:1")


def test_the_first_of_a_group_fails() -> None:
    """Nothing commits then, and nothing but the first is replayed."""
    with Scenario(limits(pending=2)) as story:
        begin(story, 2)
        story >> processed("2:1")
        story >> processed("1:1") << commit(1, "1:1", "2:1")
        story >> failed("1:1") << run(2, "1:2")
        story >> group_ended(1)
        story >> processed("1:2") << commit(2, "1:2", "2:1")


def test_late_answers_of_dead_attempts_change_nothing() -> None:
    """Failed, processed or ended: what an older attempt says does not count (promise 3)."""
    with Scenario(limits(pending=1)) as story:
        begin(story, 1)
        story >> failed("1:1") << run(2, "1:2")
        story >> processed("1:1")
        story >> failed("1:1")
        story >> progressed("1:1")
        story >> job_ended(1)
        story >> processed("1:2") << commit(1, "1:2")
        story >> failed("1:1")
        story >> job_ended(2)
        story >> committed("1:2") << clean_up(1) << ask(2, 1)


def test_a_job_that_ends_without_an_answer_failed() -> None:
    """An attempt that its job has no answer for is tried again."""
    with Scenario(limits(pending=2, tries=2)) as story:
        begin(story, 2)
        story >> processed("1:1") << commit(1, "1:1")
        story >> job_ended(1) << run(2, "2:2")
        story >> job_ended(2) << run(3, "2:3")
        assert story.coordinator.pending[2].tries.error == "its job ended without an answer for it"


def test_a_job_whose_attempts_are_all_answered_for_is_not_cancelled() -> None:
    """Processed or failed, it is about to end; nobody stops it (a CancelJob once came here every time)."""
    with Scenario(limits(pending=3, jobs=1)) as story:
        begin(story, 3)
        story >> failed("2:1")
        story >> processed("3:1")
        story >> processed("1:1") << commit(1, "1:1")
        story >> job_ended(1) << run(2, "2:2")


# Timeouts.


def test_an_attempt_without_progress_times_out() -> None:
    """After the timeout its job is stopped and it is tried again, alone; its slot is free when the job is over."""
    with Scenario(limits(pending=2, jobs=1)) as story:
        begin(story, 2)
        story >> progressed("1:1", "2:1")
        story >> ticked(999)
        story >> ticked(1_000) << cancel(1)
        story >> ticked(1_001)
        story >> lost(1, "cancelled") << run(2, "1:2")
        story >> processed("1:1")  # late
        story >> processed("1:2") << commit(1, "1:2")
        story >> job_ended(2) << run(3, "2:2")


def test_what_nobody_has_begun_does_not_time_out() -> None:
    """A job that waits for executors, however long, is no fault of its transactions (promise 7)."""
    with Scenario(limits(pending=2, jobs=1, tries=1, skip=True)) as story:
        begin(story, 2)
        story >> ticked(1_000_000)
        story >> processed("2:1")  # now it is begun
        story >> ticked(1_000_001)
        story >> progressed("1:1")
        story >> ticked(1_001_000)
        story >> ticked(1_001_001) << cancel(1)


def test_progress_renews_the_timeout() -> None:
    """Work that gets on may take as long as it needs (promise 7)."""
    with Scenario(limits(pending=1)) as story:
        begin(story, 1)
        story >> ticked(999)
        story >> progressed("1:1")
        story >> ticked(1_998)
        story >> ticked(1_999) << cancel(1)
        story >> lost(1, "cancelled") << run(2, "1:2")


def test_late_progress_of_a_former_attempt_renews_nothing() -> None:
    """An attempt that has failed may still be at work somewhere; the one that is live times out all the same."""
    with Scenario(limits(pending=1)) as story:
        begin(story, 1)
        story >> ticked(500)
        story >> failed("1:1") << run(2, "1:2")
        story >> progressed("1:2")
        story >> ticked(1_400)
        story >> progressed("1:1")
        story >> ticked(1_499)
        story >> ticked(1_500) << cancel(2)
        story >> job_ended(1)
        story >> job_ended(2) << run(3, "1:3")


def test_what_waits_for_its_turn_has_no_timeout() -> None:
    """A processed attempt has done its work; it waits for earlier ones as long as they take."""
    with Scenario(limits(pending=2, job=1)) as story:
        story >> recovered() << ask(1, 2)
        story >> begun(1, 2) << save(1, 2) << run(1, "1:1") << run(2, "2:1")
        story >> processed("2:1")
        story >> ticked(900)
        story >> progressed("1:1")
        story >> ticked(1_500)
        story >> processed("1:1") << commit(1, "1:1", "2:1")


def test_a_cancelled_job_that_is_lost_counts_for_nothing() -> None:
    """A job that we stopped ourselves is no lost job."""
    with Scenario(limits(pending=1, job_failures=0)) as story:
        begin(story, 1)
        story >> progressed("1:1")
        story >> ticked(1_000) << cancel(1)
        story >> lost(1, "cancelled") << run(2, "1:2")


def test_a_commit_phase_without_progress_is_abandoned() -> None:
    """Once a timeout: the run loop knows whether the group is in its commit phases, or in a long write."""
    with Scenario(limits(pending=2)) as story:
        begin(story, 2)
        story >> processed("2:1")
        story >> processed("1:1") << commit(1, "1:1", "2:1")
        story >> ticked(1_000) << abandon(1)
        story >> ticked(1_999)
        story >> ticked(2_000) << abandon(1)
        story >> failed("1:1", "no progress") << run(2, "1:2")
        story >> group_ended(1)
        story >> processed("1:2") << commit(2, "1:2", "2:1")


def test_the_commit_phase_has_its_own_timeout() -> None:
    """It begins when the transaction is handed out to commit, not when it was processed."""
    with Scenario(limits(pending=1)) as story:
        begin(story, 1)
        story >> ticked(900)
        story >> processed("1:1") << commit(1, "1:1")
        story >> ticked(1_899)
        story >> ticked(1_900) << abandon(1)


def test_progress_in_both_phases_at_once() -> None:
    """One message may tell of attempts in both phases: each gets on."""
    with Scenario(limits(pending=2)) as story:
        begin(story, 2)
        story >> processed("1:1") << commit(1, "1:1")
        story >> ticked(999)
        story >> progressed("1:1", "2:1")
        story >> ticked(1_998)


def test_progress_of_one_renews_its_whole_group() -> None:
    """Commit phases run one after another: while one gets on, those that wait for their turn do not time out.

    Each of three takes 600 ms here. The third, and the first, which waits for the group's write, once timed out
    although the group got on all the time (promise 7).
    """
    with Scenario(limits(pending=3)) as story:
        begin(story, 3)
        story >> processed("3:1") >> processed("2:1")
        story >> processed("1:1") << commit(1, "1:1", "2:1", "3:1")
        story >> ticked(600) >> progressed("1:1")
        story >> ticked(1_200) >> progressed("2:1")
        story >> ticked(1_800) >> progressed("3:1")
        story >> committed("1:1", "2:1", "3:1") << clean_up(3) << ask(4, 3)


# Lost jobs.


def test_a_lost_job_is_taken_apart() -> None:
    """Any of its transactions may be to blame: each is tried alone, after a pause; what was answered is kept."""
    with Scenario(limits(pending=4)) as story:
        begin(story, 4)
        story >> processed("2:1")
        story >> lost(1)
        story >> ticked(99)
        story >> ticked(100) << run(2, "1:2")
        story >> processed("1:2") << commit(1, "1:2", "2:1")
        story >> job_ended(2) << run(3, "3:2")
        story >> processed("3:2")
        story >> job_ended(3) << run(4, "4:2")


def test_jobs_that_one_executor_takes_with_it_make_suspects_and_no_dead_letters() -> None:
    """Two jobs of one transaction each are lost together: neither is to blame until it is lost with none beside it."""
    with Scenario(limits(pending=2, job=1, jobs=2, tries=1, skip=True)) as story:
        story >> recovered() << ask(1, 2)
        story >> begun(1, 2) << save(1, 2) << run(1, "1:1") << run(2, "2:1")
        story >> lost(1)
        story >> lost(2)
        story >> ticked(100) << run(3, "1:2")
        story >> lost(3) << run(4, "2:2")
        story >> processed("2:2")
        story >> ticked(300)
        story >> job_ended(4) << run(5, "1:3")
        story >> lost(5) << write_dead_letter(1, "1:4", tries=1, error="an executor died")


def test_workers_that_one_death_takes_attempts_of_make_suspects_and_no_dead_letters() -> None:
    """The same in real-time mode, where the death of a worker takes an attempt of each job that was spread over it."""
    with Scenario(limits(pending=2, job=1, jobs=2, tries=1, job_failures=1, skip=True)) as story:
        story >> recovered() << ask(1, 2)
        story >> begun(1, 2) << save(1, 2) << run(1, "1:1") << run(2, "2:1")
        story >> attempt_lost("1:1")
        story >> attempt_lost("2:1")
        story >> job_ended(1)
        story >> ticked(100)
        story >> job_ended(2) << run(3, "1:2")
        story >> processed("1:2") << commit(1, "1:2")
        story >> job_ended(3) << run(4, "2:2")


def test_nothing_runs_beside_a_suspect() -> None:
    """Whatever else is ready waits until the suspect's job is over, also one that was cancelled."""
    with Scenario(limits(pending=2, job=1, jobs=2)) as story:
        story >> recovered() << ask(1, 2)
        story >> begun(1) << save(1) << ask(2, 1) << run(1, "1:1")
        story >> lost(1)
        story >> ticked(100) << run(2, "1:2")
        story >> begun(2) << save(2)
        story >> progressed("1:2")
        story >> ticked(1_100) << cancel(2)
        story >> ticked(1_200)
        story >> lost(2, "cancelled") << run(3, "2:1")
        story >> processed("2:1")
        story >> job_ended(3) << run(4, "1:3")
        story >> processed("1:3") << commit(1, "1:3", "2:1")


def test_what_was_lost_alone_stays_alone() -> None:
    """A transaction that loses a job of its own is no safer company than before: its neighbours do not join it."""
    with Scenario(limits(pending=2, jobs=1)) as story:
        story >> recovered() << ask(1, 2)
        story >> begun(1) << save(1) << ask(2, 1) << run(1, "1:1")
        story >> begun(2) << save(2)
        story >> lost(1) << run(2, "2:1")
        story >> failed("2:1")
        story >> ticked(100)
        story >> job_ended(2) << run(3, "1:2")
        story >> lost(3) << run(4, "2:2")
        story >> failed("2:2")
        story >> ticked(300)
        story >> job_ended(4) << run(5, "1:3")


def test_pauses_double_with_each_job_lost_in_a_row() -> None:
    """A cluster in trouble is given time: 100, 200, 400 ms; a processed attempt ends the row."""
    with Scenario(limits(pending=1, job=1)) as story:
        begin(story, 1)
        story >> lost(1)
        story >> ticked(99)
        story >> ticked(100) << run(2, "1:2")
        story >> lost(2)
        story >> ticked(299)
        story >> ticked(300) << run(3, "1:3")
        story >> lost(3)
        story >> ticked(699)
        story >> ticked(700) << run(4, "1:4")
        story >> processed("1:4") << commit(1, "1:4")
        story >> job_ended(4)
        story >> failed("1:4") << run(5, "1:5")
        story >> lost(5)
        story >> ticked(799)
        story >> ticked(800) << run(6, "1:6")


def test_pauses_are_bounded() -> None:
    """However many losses in a row a user allows, the next try comes after at most 64 times the first pause."""
    with Scenario(limits(pending=1, job_failures=100)) as story:
        begin(story, 1)
        now = 0
        for number, pause_ms in enumerate([100, 200, 400, 800, 1_600, 3_200, 6_400, 6_400, 6_400], 1):
            story >> lost(number)
            story >> ticked(now + pause_ms - 1)
            now += pause_ms
            story >> ticked(now) << run(number + 1, f"1:{number + 1}")


def test_too_many_jobs_lost_in_a_row_stop_the_run() -> None:
    """Spark can't run anything: the run stops and says what is below it."""
    with Scenario(limits(pending=1, job_failures=1)) as story:
        begin(story, 1)
        story >> lost(1)
        story >> ticked(100) << run(2, "1:2")
        story >> lost(2, "out of memory")
        stop = story.take_stop()
        assert stop.reason is StopReason.FAILED
        assert isinstance(stop.error, JobFailure)
        assert stop.error.message == "Spark lost 2 jobs in a row; fix the cause below, then start again"
        assert stop.error.cause == "out of memory"


def test_a_job_lost_twice_is_lost_once() -> None:
    """A late second message of a lost job, or one of an unknown job, does not count as another one lost."""
    with Scenario(limits(pending=1, job_failures=1)) as story:
        begin(story, 1)
        story >> lost(1)
        story >> lost(1)
        story >> lost(99)
        story >> ticked(100) << run(2, "1:2")


def test_a_transaction_that_loses_its_job_again_and_again_is_to_blame() -> None:
    """With bounded tries, lost jobs that held it alone count as its own failures, and it is given up, not the run."""
    with Scenario(limits(pending=2, tries=3, job_failures=2, skip=True)) as story:
        begin(story, 2)
        story >> lost(1)
        story >> ticked(100) << run(2, "1:2")
        story >> lost(2) << run(3, "2:2")
        story >> processed("2:2")
        story >> job_ended(3)
        story >> ticked(300) << run(4, "1:3")
        story >> lost(4)
        story >> ticked(400) << run(5, "1:4")
        story >> lost(5)
        story >> ticked(500) << run(6, "1:5")
        story >> lost(6) << write_dead_letter(1, "1:6", tries=3, error="an executor died")


def test_a_cluster_that_is_down_is_no_fault_of_the_transactions() -> None:
    """One after another loses its job: the run stops. SKIP once wrote the whole input to the dead letters here."""
    with Scenario(limits(pending=3, tries=1, job_failures=2, skip=True)) as story:
        begin(story, 3)
        story >> lost(1)
        story >> ticked(100) << run(2, "1:2")
        story >> lost(2) << run(3, "2:2")
        story >> lost(3)
        assert isinstance(story.take_stop().error, JobFailure)


def test_a_broken_connection_is_no_fault_of_the_transactions() -> None:
    """All are lost that are tried while it is broken, also alone; once it is mended, none of them has failed.

    Nine transactions in a row were once given up here, with two tries each.
    """
    with Scenario(limits(pending=3, tries=1, job_failures=9, skip=True)) as story:
        begin(story, 3)
        story >> lost(1)
        story >> ticked(100) << run(2, "1:2")
        story >> lost(2) << run(3, "2:2")
        story >> lost(3) << run(4, "3:2")
        story >> lost(4)
        story >> ticked(300) << run(5, "1:3")
        story >> lost(5)
        story >> ticked(499)
        story >> ticked(500) << run(6, "2:3")
        story >> processed("2:3")
        story >> job_ended(6)
        story >> ticked(900) << run(7, "3:3")
        story >> processed("3:3")
        story >> job_ended(7)
        story >> ticked(1_900) << run(8, "1:4")
        story >> processed("1:4") << commit(1, "1:4", "2:3", "3:3")


def test_a_connection_that_breaks_while_a_suspect_runs() -> None:
    """A break between two transactions that are processed is one try of the suspect that it hits first, and of no other."""
    with Scenario(limits(pending=4, tries=1, job_failures=9, skip=True)) as story:
        begin(story, 4)
        story >> lost(1)
        story >> ticked(100) << run(2, "1:2")
        story >> lost(2) << run(3, "2:2")
        story >> processed("2:2")
        story >> ticked(300)
        story >> job_ended(3) << run(4, "1:3")
        story >> lost(4) << run(5, "3:2")
        story >> lost(5) << run(6, "4:2")
        story >> processed("4:2") << write_dead_letter(1, "1:4", tries=1, error="an executor died")


def test_a_suspect_has_as_many_tries_as_it_may() -> None:
    """A break is one of its two tries: it is not given up, and nobody is once the connection is mended."""
    with Scenario(limits(pending=4, tries=2, job_failures=9, skip=True)) as story:
        begin(story, 4)
        story >> lost(1)
        story >> ticked(100) << run(2, "1:2")
        story >> lost(2) << run(3, "2:2")
        story >> processed("2:2")
        story >> ticked(300)
        story >> job_ended(3) << run(4, "1:3")
        story >> lost(4) << run(5, "3:2")
        story >> processed("3:2")
        story >> ticked(400)
        story >> job_ended(5) << run(6, "1:4")
        story >> processed("1:4") << commit(1, "1:4", "2:2", "3:2")


def test_a_suspect_that_fails_before_its_loss_is_proven() -> None:
    """When all losses are unproven, one is tried again; if that try fails, it is given up for that, once it has ended."""
    with Scenario(limits(pending=2, tries=1, job_failures=9, skip=True)) as story:
        begin(story, 2)
        story >> lost(1)
        story >> ticked(100) << run(2, "1:2")
        story >> lost(2) << run(3, "2:2")
        story >> lost(3)
        story >> ticked(10_000) << run(4, "1:3")
        story >> failed("1:3") << write_dead_letter(1, "1:4", tries=1)


@pytest.mark.parametrize("has_others", [True, False], ids=["others", "none to try"])
def test_the_first_loss_is_nobodys_failure(*, has_others: bool) -> None:
    """An executor that was ended once gives up no transaction, also if it was alone and the next one is processed."""
    with Scenario(limits(pending=2, job=1, jobs=1, tries=1, skip=True)) as story:
        story >> recovered() << ask(1, 2)
        if has_others:
            story >> begun(1, 2) << save(1, 2) << run(1, "1:1")
            story >> lost(1) << run(2, "2:1")
            story >> processed("2:1")
            story >> ticked(100)
            story >> job_ended(2) << run(3, "1:2")
            story >> lost(3) << write_dead_letter(1, "1:3", tries=1, error="an executor died")
        else:
            story >> begun(1) << save(1) << ask(2, 1) << run(1, "1:1")
            story >> lost(1)
            story >> ticked(100) << run(2, "1:2")
            story >> processed("1:2") << commit(1, "1:2")


def test_the_first_timeout_is_nobodys_failure() -> None:
    """It may have been the executor that stood still; the second one, alone again, counts."""
    with Scenario(limits(pending=1, tries=1, skip=True)) as story:
        begin(story, 1)
        story >> progressed("1:1")
        story >> ticked(1_000) << cancel(1)
        story >> lost(1, "cancelled") << run(2, "1:2")
        story >> progressed("1:2")
        story >> ticked(2_000) << cancel(2) << write_dead_letter(1, "1:3", tries=1, error="no progress for 1 s")


def test_a_witness_that_fails_for_ever_is_not_waited_for() -> None:
    """It is alive, which proves nothing; the one that waits for it is tried again."""
    with Scenario(limits(pending=2, jobs=1, tries=3, skip=True)) as story:
        story >> recovered() << ask(1, 2)
        story >> begun(1) << save(1) << ask(2, 1) << run(1, "1:1")
        story >> begun(2) << save(2)
        story >> lost(1) << run(2, "2:1")
        story >> failed("2:1")
        story >> ticked(100)
        story >> job_ended(2) << run(3, "1:2")
        story >> processed("1:2") << commit(1, "1:2")


def test_nothing_is_kept_of_what_is_over() -> None:
    """However much fails, what is committed leaves no trace: a run may last for years."""
    with Scenario(limits(pending=1)) as story:
        begin(story, 1)
        story >> progressed("1:1")
        story >> ticked(1_000) << cancel(1)
        story >> lost(1, "cancelled") << run(2, "1:2")
        story >> lost(2)
        story >> ticked(1_100) << run(3, "1:3")
        story >> processed("1:3") << commit(1, "1:3")
        story >> job_ended(3)
        story >> committed("1:3") << clean_up(1) << ask(2, 1)
        story >> group_ended(1)
        core = story.coordinator
        books = core._jobs
        noted = (books._cancelled, books._rolled_back, books._begun, books._of_suspects)
        assert [*core._pending, *core._pending.tries, *core.jobs, *(job_id for each in noted for job_id in each)] == []


# Giving up.


def test_wait_commits_what_is_before_and_stops() -> None:
    """WAIT: the transaction failed as often as it may; earlier ones commit, then the run stops and says so."""
    with Scenario(limits(pending=3, tries=2)) as story:
        begin(story, 3)
        story >> failed("2:1") << run(2, "2:2")
        story >> failed("2:2", "bad record")
        story >> processed("3:1")
        story >> processed("1:1") << commit(1, "1:1")
        story >> committed("1:1") << clean_up(1)
        story >> group_ended(1) << cancel(1) << cancel(2)
        stop = story.take_stop()
        assert stop.reason is StopReason.FAILED
        assert isinstance(stop.error, PoisonTransaction)
        assert (stop.error.txid, stop.error.cause) == (2, "bad record")
        assert "it failed 2 times" in stop.error.message
        assert "set it aside with 'txtopo skip MODULE 2'" in stop.error.message


def test_skip_writes_a_dead_letter_in_its_turn() -> None:
    """SKIP: metadata, attempt and error are written in txid order, and later ones go on (promise 6)."""
    with Scenario(limits(pending=3, tries=1, skip=True)) as story:
        begin(story, 3)
        story >> failed("2:1", "bad record")
        story >> processed("3:1")
        story >> processed("1:1") << commit(1, "1:1")
        story >> job_ended(1)
        story >> committed("1:1") << clean_up(1) << ask(4, 1)
        story >> group_ended(1) << write_dead_letter(2, "2:2", tries=1, error="bad record")
        story >> failed("2:1")  # late
        story >> ticked(5_000)  # it has no timeout that could help
        story >> dead_letter_written("2:2") << clean_up(2)
        story >> group_ended(2) << commit(3, "3:1")


def test_a_failing_transaction_of_a_group_may_be_given_up() -> None:
    """The last try ends in the commit phase: the letter follows the group that it fell out of."""
    with Scenario(limits(pending=2, tries=1, skip=True)) as story:
        begin(story, 2)
        story >> processed("2:1")
        story >> processed("1:1") << commit(1, "1:1", "2:1")
        story >> failed("1:1")
        story >> group_ended(1) << write_dead_letter(2, "1:2", tries=1)
        story >> dead_letter_written("1:2") << clean_up(1) << ask(3, 1)
        story >> group_ended(2) << commit(3, "2:1")


def test_a_dead_letter_that_can_not_be_written_is_written_again() -> None:
    """Its tries and its error stay those of the transaction, not those of writing the letter."""
    with Scenario(limits(pending=1, tries=1, skip=True)) as story:
        begin(story, 1)
        story >> failed("1:1", "bad record") << write_dead_letter(1, "1:2", tries=1, error="bad record")
        story >> failed("1:2", "disk full")
        story >> group_ended(1) << write_dead_letter(2, "1:3", tries=1, error="bad record")


def test_a_dead_letter_without_an_answer_is_written_again() -> None:
    """A group that ends with nothing said of its letter leaves the letter to be written."""
    with Scenario(limits(pending=1, tries=1, skip=True)) as story:
        begin(story, 1)
        story >> failed("1:1") << write_dead_letter(1, "1:2", tries=1)
        story >> group_ended(1) << write_dead_letter(2, "1:3", tries=1)


def test_an_outage_is_no_reason_to_skip() -> None:
    """What does not answer says nothing of a transaction: it stops the run in the end, and does not use up tries."""
    with Scenario(limits(pending=1, tries=2, skip=True)) as story:
        begin(story, 1)
        story >> failed("1:1", "the registry is away", is_outage=True) << run(2, "1:2")
        story >> job_ended(1)
        story >> failed("1:2", "bad record") << run(3, "1:3")
        story >> job_ended(2)
        story >> failed("1:3", "the registry is away", is_outage=True) << cancel(3)
        stop = story.take_stop()
        assert isinstance(stop.error, PoisonTransaction)
        assert "did not answer 2 times" in stop.error.message


@pytest.mark.parametrize("failures", [1, 3])
def test_attempts_rise_whatever_fails(failures: int) -> None:
    """An attempt number is never used twice (promise 3 rests on it)."""
    with Scenario(limits(pending=1)) as story:
        begin(story, 1)
        for number in range(1, failures + 1):
            story >> failed(f"1:{number}") << run(number + 1, f"1:{number + 1}")
            story >> job_ended(number)


# Lost attempts, in real-time mode.


def test_a_lost_attempt_is_tried_alone_while_its_job_goes_on() -> None:
    """Its worker died in it. The others of its job are answered as if nothing had happened; it runs alone."""
    with Scenario(limits(pending=3)) as story:
        begin(story, 3)
        story >> processed("1:1") << commit(1, "1:1")
        story >> attempt_lost("2:1")
        story >> processed("3:1")
        story >> job_ended(1)
        assert story.coordinator.pending[2].tries.failures == 0
        story >> ticked(100) << run(2, "2:2")
        story >> processed("2:2")
        story >> committed("1:1") << clean_up(1) << ask(4, 1)
        story >> group_ended(1) << commit(2, "2:2", "3:1")


def test_a_late_loss_changes_nothing() -> None:
    """The loss of an attempt that was answered, or that is not live any more, is none."""
    with Scenario(limits(pending=1, job_failures=1)) as story:
        begin(story, 1)
        story >> processed("1:1") << commit(1, "1:1")
        story >> attempt_lost("1:1")
        story >> failed("1:1") << run(2, "1:2")
        story >> attempt_lost("1:1")
        story >> attempt_lost("7:1")
        story >> processed("1:2")


def test_a_transaction_that_kills_its_workers_is_given_up_and_not_the_run() -> None:
    """Alone in its job it is to blame, and its own limit counts: SKIP writes its dead letter, and the next go on."""
    with Scenario(limits(pending=2, tries=2, job_failures=1, skip=True)) as story:
        begin(story, 2)
        story >> attempt_lost("1:1")
        story >> processed("2:1")
        story >> job_ended(1)
        story >> ticked(100) << run(2, "1:2")
        story >> attempt_lost("1:2")
        story >> job_ended(2)
        story >> ticked(200) << run(3, "1:3")
        story >> attempt_lost("1:3") << write_dead_letter(1, "1:4", tries=2, error="its worker died")


def test_too_many_attempts_lost_in_a_row_stop_the_run() -> None:
    """No worker gets through any attempt: that is no fault of a transaction. What one job loses is one loss."""
    with Scenario(limits(pending=2, job_failures=1)) as story:
        begin(story, 2)
        story >> attempt_lost("1:1")
        story >> attempt_lost("2:1")
        story >> job_ended(1)
        story >> ticked(100) << run(2, "1:2")
        story >> attempt_lost("1:2", "out of memory") << cancel(2)
        assert story.take_stop().error.cause == "out of memory"
