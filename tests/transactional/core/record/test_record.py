"""Stories: what the record of a run can tell of a transaction, within bounds."""

from txtopo.errors import UserCodeError
from txtopo.testing.scenario import (
    attempt,
    begun,
    committed,
    failed,
    group_ended,
    job_ended,
    limits,
    lost,
    processed,
    recovered,
    rule_broken,
    ticked,
)
from txtopo.transactional.core.actions import Commit, DeadLetter, Process, SaveMetadata
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.events import Committed, Failed, Processed, Ticked
from txtopo.transactional.core.measures import Measures
from txtopo.transactional.core.record.facts import carried_out
from txtopo.transactional.core.record.history import LINES_MAX, REASON_CHARACTERS_MAX, History, HistoryEvent
from txtopo.transactional.core.record.record import COMMITTED_KEPT, FACTS_KEPT_FIRST, FACTS_MAX, Record
from txtopo.transactional.core.spout_policy import OPAQUE


class Told:
    """A coordinator, and the record of its run, whose clock is that of the coordinator."""

    def __init__(self, limits):
        self.coordinator = Coordinator(limits)
        self.record = Record()
        self.now_ms = 0

    def tell(self, *events):
        """Handle each event by itself, and carry out what follows at once."""
        for event in events:
            self.handle(event)

    def handle(self, *events):
        for event in events:
            if isinstance(event, Ticked):
                self.now_ms = event.now_ms
        now_secs = self.now_ms / 1000
        actions = self.coordinator.handle(*events, at_secs=now_secs)
        for fact in self.coordinator.facts:
            self.record.add(fact)
        for action in actions:
            if isinstance(action, SaveMetadata | Process | Commit | DeadLetter):
                self.record.add(carried_out(now_secs, action))

    def of(self, txid):
        """Return a story as (milliseconds, words) pairs."""
        return [(entry.at_ms, str(entry)) for entry in self.record.history(txid).entries]

    def words(self, txid):
        return [text for _, text in self.of(txid)]


def test_a_transaction_that_commits_at_its_first_try():
    """From its beginning to its commit, each moment with its time, its job and its group."""
    story = Told(limits(pending=2))
    story.tell(recovered(), ticked(10), begun(1, 2), ticked(20), processed("1:1"))
    assert story.of(1) == [
        (10, "begun"),
        (10, "metadata saved"),
        (10, "attempt 1 processing in job 1"),
        (20, "attempt 1 processed"),
        (20, "attempt 1 committing in group 1"),
    ]
    assert story.of(2)[-1] == (10, "attempt 1 processing in job 1")
    story.tell(ticked(30), committed("1:1"), group_ended(1))
    assert story.of(1)[-2:] == [(20, "attempt 1 committing in group 1"), (30, "attempt 1 committed")]
    assert not story.record.history(1).has_trouble_besides("")


def test_a_late_answer_is_no_fact():
    """Of an attempt that has failed, or was processed before, nothing is told."""
    story = Told(limits(pending=1))
    story.tell(recovered(), begun(1), failed("1:1"), job_ended(1), processed("1:2"))
    before = story.of(1)
    story.tell(ticked(10), processed("1:1"), failed("1:1"), processed("1:2"))
    assert story.of(1) == before


def test_attempts_that_answer_bring_their_cpu_time():
    """Whether an attempt was processed or failed, its fact has its CPU time; a late answer brings none."""
    coordinator = Coordinator(limits(pending=2))
    for event in (recovered(), begun(1, 2)):
        coordinator.handle(event)
    answers = [Processed(attempt("1:1"), cpu_secs=0.5), Failed(attempt("2:1"), "oops", cpu_secs=0.25)]
    coordinator.handle(*answers)
    assert [fact.cpu_secs for fact in coordinator.facts] == [0.5, 0.25]
    coordinator.handle(*answers)
    assert [*coordinator.facts] == []


def test_a_failure_and_its_replay():
    """The failed attempt is told with its component and reason, in front of the one that goes on."""
    story = Told(limits(pending=1))
    story.tell(
        recovered(),
        begun(1),
        ticked(20),
        Failed(attempt("1:1"), "[component 'count', txid 1] no\nmore", component="count"),
    )
    story.tell(job_ended(1), ticked(40), processed("1:2"))
    assert story.of(1) == [
        (0, "begun"),
        (0, "metadata saved"),
        (0, "attempt 1 processing in job 1"),
        (20, "attempt 1 failed in 'count': no"),
        (20, "attempt 2 processing in job 2"),
        (40, "attempt 2 processed"),
        (40, "attempt 2 committing in group 1"),
    ]
    assert story.record.history(1).last_failure.own_reason == "no\nmore"


def test_a_bug_is_told_with_its_own_reason():
    """The end of its job, which comes with it, does not hide the reason; the error itself needs no such story."""
    story = Told(limits(pending=2, job=2))
    story.tell(recovered(), begun(1, 2))
    bug = UserCodeError("no zebras", component="count", txid=2, attempt=1)
    story.handle(processed("1:1"), rule_broken(bug, "2:1"), job_ended(1))
    assert story.of(2)[2:] == [
        (0, "attempt 1 processing in job 1"),
        (0, "attempt 1 failed in 'count': no zebras"),
    ]
    assert story.of(1)[2:] == [(0, "attempt 1 processing in job 1"), (0, "attempt 1 processed")]
    assert not story.record.history(2).has_trouble_besides(str(bug))


def test_a_bug_in_a_replay_is_told_with_the_failure_before_it():
    """The story of a transaction that had failed before is more than its last error."""
    story = Told(limits(pending=1))
    story.tell(recovered(), begun(1))
    story.tell(failed("1:1"), job_ended(1))
    bug = UserCodeError("no zebras")
    story.handle(rule_broken(bug, "1:2"), job_ended(2))
    assert story.words(1)[3:] == [
        "attempt 1 failed: it failed",
        "attempt 2 processing in job 2",
        "attempt 2 failed: no zebras",
    ]
    assert story.record.history(1).has_trouble_besides(str(bug))


def test_a_bug_in_the_commit_phase_is_told():
    """With the group in which it was found; its followers have returned."""
    story = Told(limits(pending=2, job=2))
    story.tell(recovered(), begun(1, 2))
    story.tell(processed("2:1"), processed("1:1"), job_ended(1))
    story.handle(rule_broken(UserCodeError("no zebras"), "1:1"), group_ended(1))
    assert story.words(1)[-2:] == [
        "attempt 1 committing in group 1",
        "attempt 1 failed: no zebras",
    ]
    assert story.words(2)[-1] == "attempt 1 returned: its group ended without it"


def test_a_failure_in_the_commit_phase_returns_the_rest():
    """Who comes behind the one that failed keeps its attempt, and nothing is told twice."""
    story = Told(limits(pending=2, job=2))
    story.tell(recovered(), begun(1, 2))
    story.tell(processed("2:1"), processed("1:1"), failed("1:1"), group_ended(1))
    words = story.words(2)
    assert words == [
        "begun",
        "metadata saved",
        "attempt 1 processing in job 1",
        "attempt 1 processed",
        "attempt 1 committing in group 1",
        "attempt 1 returned: its group ended without it",
    ]
    story.tell(job_ended(1), processed("1:2"), committed("1:2", "2:1"))
    assert story.words(2) == [
        *words,
        "attempt 1 committing in group 2",
        "attempt 1 committed",
    ]


def test_an_opaque_failure_rolls_back_the_later_ones():
    """Whose story goes on when they are begun anew."""
    story = Told(limits(pending=2, job=2, spout=OPAQUE))
    story.tell(recovered(), begun(1, 2, metadata="?"))
    story.tell(failed("1:1"))
    assert story.of(2) == [
        (0, "begun"),
        (0, "attempt 1 processing in job 1"),
        (0, "attempt 1 rolled back: it follows transaction 1, which failed"),
    ]
    story.tell(job_ended(1), begun(1, 2, metadata="?"))
    assert story.words(2)[3:] == ["begun", "attempt 2 processing in job 2"]


def test_answers_that_arrive_together():
    """In whichever order; a fact that several transactions share names the attempt of each."""
    story = Told(limits(pending=4, job=4))
    story.tell(recovered(), begun(1, 2, 3, 4), failed("1:1"))
    story.handle(processed("3:1"), processed("4:1"), processed("1:2"))
    assert "attempt 2 processed" in story.words(1)
    assert [story.words(txid)[-1] for txid in (3, 4)] == ["attempt 1 processed"] * 2


def test_an_answer_and_the_rollback_that_comes_with_it():
    """Are told in their order."""
    story = Told(limits(pending=2, job=2, spout=OPAQUE))
    story.tell(recovered(), begun(1, 2, metadata="?"))
    story.handle(processed("2:1", metadata="?"), failed("1:1"))
    assert story.words(2)[-2:] == [
        "attempt 1 processed",
        "attempt 1 rolled back: it follows transaction 1, which failed",
    ]


def test_a_dead_letter():
    """A transaction that is given up, and then its letter."""
    story = Told(limits(pending=1, tries=1, skip=True))
    story.tell(recovered(), begun(1))
    story.tell(failed("1:1"), committed("1:2"), group_ended(1))
    assert story.words(1) == [
        "begun",
        "metadata saved",
        "attempt 1 processing in job 1",
        "attempt 1 failed: it failed",
        "given up",
        "writing its dead letter in group 1",
        "its dead letter written",
    ]


def test_a_recovered_transaction_and_a_lost_job():
    """What an earlier coordinator began is told as such; a lost job is a failure of its own."""
    story = Told(limits(pending=1))
    story.tell(recovered(4, 5, epoch=3), lost(1))
    assert story.words(5) == [
        "found in the coordinator state",
        "attempt 1 processing in job 1",
        "attempt 1 failed: an executor died",
    ]
    assert story.record.history(6) == History(6)


def test_stories_are_bounded():
    """A transaction's log has room for so much; of the committed ones only the last are known."""
    story = Told(limits(pending=1, job_failures=10**6))
    story.tell(recovered(), begun(1))
    for number in range(1, 41):
        story.tell(Failed(attempt(f"1:{number}"), "x" * 5_000), job_ended(number))
    known = story.record.history(1)
    assert [entry.what for entry in known.entries[:2]] == [HistoryEvent.BEGUN, HistoryEvent.METADATA_SAVED]
    assert (len(known.entries), known.left_out) == (FACTS_MAX, 2 + 40 * 2 + 1 - FACTS_MAX)
    assert known.entries[FACTS_KEPT_FIRST - 1].attempt.attempt < 4
    assert known.entries[-1].attempt.attempt == 41
    assert max(len(entry.reason) for entry in known.entries) == REASON_CHARACTERS_MAX
    abridged = known.abridged()
    assert abridged.entries[0] == known.entries[0]
    assert len(abridged.entries) + abridged.left_out == len(known.entries) + known.left_out
    assert sum(len(entry.reason) for entry in abridged.entries) <= 10 * 300
    text = str(known).splitlines()
    assert (len(text), text[1]) == (
        1 + LINES_MAX,
        f"  … {known.left_out + FACTS_MAX - (LINES_MAX - 1)} earlier entries",
    )
    story.tell(processed("1:41"), committed("1:41"), group_ended(1))
    for txid in range(2, COMMITTED_KEPT + 2):
        story.tell(begun(txid), processed(f"{txid}:1"), committed(f"{txid}:1"), group_ended(txid), job_ended(39 + txid))
    assert story.coordinator.committed == COMMITTED_KEPT + 1
    assert not story.record.history(1).entries
    assert story.record.history(2).entries


def test_a_story_keeps_nothing_large():
    """Metadata may be large, and so may what a group has measured: neither is held for a story."""
    story = Told(limits(pending=1))
    story.tell(recovered(), begun(1), processed("1:1"))
    assert story.coordinator.pending[1].metadata == "m1"
    story.tell(Committed((attempt("1:1"),), measures=Measures(emitted={"words": 7})))
    assert story.words(1)[-1] == "attempt 1 committed"
    assert "m1" not in repr(story.record.of(1))
    assert "words" not in repr(story.record.of(1))
