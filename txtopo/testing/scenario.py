"""Playbooks: a coordinator's story, told event by event, with what it must say to each.

::

    with Scenario(limits(job=1)) as story:
        story >> recovered() << ask(1, 4)
        story >> begun(1, 2) << save(1, 2) << run(1, "1:1") << run(2, "2:1")
        story >> failed("2:1") << run(3, "2:2")

``>>`` tells the coordinator of an event; ``<<`` is the next thing it must say, in order. What stands behind an
event, up to the next ``>>``, is all that it may say: nothing there means that it must stay silent.

Attempts are written as in a log: ``"2:1"`` is the first attempt of transaction 2, and ``"2:1@3"`` is its first
attempt in epoch 3. The metadata of transaction 2 is ``"m2"`` wherever a story does not say otherwise. The
invariants of the coordinator are checked after every event.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from txtopo.attempts import FIRST_EPOCH, FIRST_TXID, TransactionAttempt, attempt_number
from txtopo.core.actions import (
    AbandonCommit,
    Action,
    AssignedAttempt,
    CancelJob,
    CleanUp,
    Commit,
    CreateMetadata,
    DeadLetter,
    Process,
    SaveMetadata,
    Stop,
    StopReason,
)
from txtopo.core.coordinator import Coordinator
from txtopo.core.events import (
    Committed,
    Event,
    Failed,
    Fenced,
    GroupEnded,
    JobEnded,
    JobLost,
    MetadataCreated,
    Processed,
    Progressed,
    Recovered,
    RuleBroken,
    SourceStatus,
    StopRequested,
    Ticked,
    TransactionMetadata,
)
from txtopo.core.limits import GiveUpPolicy, Limits
from txtopo.core.spout_policy import REPEATABLE, SpoutPolicy
from txtopo.testing.checkers import AttemptChecker, CoreChecker

__all__ = [
    "EXHAUSTED",
    "READY",
    "WAITING",
    "Scenario",
    "abandon",
    "ask",
    "attempt",
    "begun",
    "cancel",
    "clean_up",
    "commit",
    "committed",
    "dead_letter_written",
    "failed",
    "fenced",
    "group_ended",
    "job_ended",
    "limits",
    "lost",
    "processed",
    "progressed",
    "recovered",
    "rule_broken",
    "run",
    "save",
    "stop",
    "stop_requested",
    "ticked",
    "write_dead_letter",
]

EXHAUSTED, READY, WAITING = SourceStatus.EXHAUSTED, SourceStatus.READY, SourceStatus.WAITING

_OF_ITS_TXID: Any = object()


class Scenario:
    """One coordinator and its story so far. Use it as a context: at the end nothing may be left unsaid.

    Args:
        limits: the coordinator's bounds; see :func:`limits`.
    """

    def __init__(self, limits: Limits) -> None:
        self.coordinator = Coordinator(limits)
        self._checker = CoreChecker(AttemptChecker(limits.spout), limits.spout, limits.timeout_ms)
        self._said: list[Action] = []
        self._transcript: list[str] = []

    def __rshift__(self, event: Event) -> Self:
        """Tell the coordinator of an event.

        Raises:
            AssertionError: something it said before was not expected, or an invariant does not hold now.
        """
        self._expect_silence()
        self._transcript.append(f">> {event}")
        self._checker.hear(self.coordinator, [event])
        self._said = self.coordinator.handle(event)
        self._checker.see(self.coordinator, self._said)
        return self

    def __lshift__(self, action: Action) -> Self:
        """Expect the next thing that the coordinator says.

        Raises:
            AssertionError: it says something else, or nothing more.
        """
        said = self._said.pop(0) if self._said else None
        assert said == action, self._tell(f"expected: {action}", f"but said: {said or 'nothing more'}")
        self._transcript.append(f"<< {said}")
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._expect_silence()

    def take_stop(self) -> Stop:
        """Return the stop that must be the next and last thing said, to look at its error."""
        said = self._said.pop(0) if self._said else None
        assert isinstance(said, Stop), self._tell("expected: a stop", f"but said: {said or 'nothing more'}")
        self._transcript.append(f"<< {said}")
        return said

    def _expect_silence(self) -> None:
        said = [f"but said: {action}" for action in self._said]
        assert not said, self._tell("expected: nothing more", *said)

    def _tell(self, *ending: str) -> str:
        return "\n".join(["the story so far:", *self._transcript, *ending])


def limits(  # noqa: PLR0913 - the limits of a coordinator, shortly
    *,
    window: int = 4,
    job: int = 4,
    jobs: int = 4,
    group: int = 4,
    tries: int | None = None,
    skip: bool = False,
    job_failures: int = 4,
    until: int | None = None,
    spout: SpoutPolicy = REPEATABLE,
) -> Limits:
    """Return bounds that suit a story: a timeout of 1,000 ms, pauses of 100 ms (jobs) and 50 ms (source)."""
    return Limits(
        window=window,
        job_transactions_max=job,
        jobs_max=jobs,
        group_transactions_max=group,
        timeout_ms=1_000,
        tries_max=tries,
        give_up_policy=GiveUpPolicy.SKIP if skip else GiveUpPolicy.WAIT,
        job_failures_max=job_failures,
        retry_delay_ms=100,
        source_poll_ms=50,
        until=until,
        spout=spout,
    )


def attempt(text: str) -> TransactionAttempt:
    """Return the attempt written as ``"txid:try"`` or ``"txid:try@epoch"``."""
    number, _, epoch = text.partition("@")
    txid, _, tries = number.partition(":")
    return TransactionAttempt(int(txid), attempt_number(int(epoch or FIRST_EPOCH), int(tries) - 1))


# Events: what the coordinator is told.


def recovered(
    committed: int = 0,
    *begun: int,
    epoch: int = FIRST_EPOCH,
    metadata: Any = _OF_ITS_TXID,
    now_ms: int = 0,
) -> Recovered:
    """A coordinator leads; ``committed`` was committed last, and the ``begun`` ones are durable."""
    return Recovered(epoch, committed, _metadata(committed, metadata), _begun(begun), now_ms)


def begun(*txids: int, metadata: Any = _OF_ITS_TXID, source: SourceStatus = READY) -> MetadataCreated:
    """The spout's coordinator has begun these transactions, and says how its source stands."""
    return MetadataCreated(_begun(txids, metadata), source)


def progressed(*attempts: str) -> Progressed:
    """Work on these attempts gets on."""
    return Progressed(_attempts(attempts))


def processed(text: str, metadata: Any = None) -> Processed:
    """An attempt is processed; ``metadata`` is what an opaque spout emitted."""
    return Processed(attempt(text), metadata)


def failed(text: str, error: str = "it failed", metadata: Any = None) -> Failed:
    """An attempt failed; ``metadata`` is what an opaque spout emitted, if all of it."""
    return Failed(attempt(text), error, metadata)


def job_ended(job_id: int) -> JobEnded:
    """A job is over."""
    return JobEnded(job_id)


def lost(job_id: int, error: str = "an executor died") -> JobLost:
    """A job was lost."""
    return JobLost(job_id, error)


def committed(*attempts: str) -> Committed:
    """The writes of these attempts are durable."""
    return Committed(_attempts(attempts))


def dead_letter_written(text: str) -> Committed:
    """A dead letter is durable."""
    return committed(text)


def group_ended(group_id: int) -> GroupEnded:
    """Nothing of a commit group runs any more."""
    return GroupEnded(group_id)


def ticked(now_ms: int) -> Ticked:
    """It is ``now_ms``."""
    return Ticked(now_ms)


def stop_requested() -> StopRequested:
    """Someone asks for an orderly stop."""
    return StopRequested()


def rule_broken(error: Exception) -> RuleBroken:
    """There is a bug in the user's code."""
    return RuleBroken(error)


def fenced(error: Exception) -> Fenced:
    """Another coordinator leads."""
    return Fenced(error)


# Actions: what the coordinator must say.


def ask(first_txid: int, count: int, previous: Any = _OF_ITS_TXID) -> CreateMetadata:
    """Ask the spout's coordinator for up to ``count`` transactions."""
    return CreateMetadata(first_txid, count, _metadata(first_txid - 1, previous))


def save(*txids: int, metadata: Any = _OF_ITS_TXID) -> SaveMetadata:
    """Make the metadata of these transactions durable."""
    return SaveMetadata(_begun(txids, metadata))


def run(job_id: int, *attempts: str, metadata: Any = _OF_ITS_TXID, previous: Any = _OF_ITS_TXID) -> Process:
    """Run the processing phases of these attempts in one job."""
    job = _assigned(attempts, metadata)
    return Process(job_id, job, _metadata(job[0].attempt.txid - 1, previous))


def cancel(job_id: int) -> CancelJob:
    """Stop a job."""
    return CancelJob(job_id)


def commit(group_id: int, *attempts: str, metadata: Any = _OF_ITS_TXID) -> Commit:
    """Run the commit phases of these attempts, one after another."""
    return Commit(group_id, _assigned(attempts, metadata))


def write_dead_letter(
    group_id: int, text: str, *, tries: int, error: str = "it failed", metadata: Any = _OF_ITS_TXID
) -> DeadLetter:
    """Write a dead letter."""
    (given_up,) = _assigned((text,), metadata)
    return DeadLetter(group_id, given_up, tries, error)


def abandon(group_id: int) -> AbandonCommit:
    """Stop the run if the commit phases of the group still run."""
    return AbandonCommit(group_id)


def clean_up(txid: int) -> CleanUp:
    """Forget what lies below a transaction."""
    return CleanUp(txid)


def stop(reason: StopReason, error: Exception | None = None) -> Stop:
    """End the run."""
    return Stop(reason, error)


def _metadata(txid: int, given: Any) -> Any:
    if given is not _OF_ITS_TXID:
        return given
    return f"m{txid}" if txid >= FIRST_TXID else None


def _begun(txids: tuple[int, ...], metadata: Any = _OF_ITS_TXID) -> tuple[TransactionMetadata, ...]:
    return tuple(TransactionMetadata(txid, _metadata(txid, metadata)) for txid in txids)


def _attempts(texts: tuple[str, ...]) -> tuple[TransactionAttempt, ...]:
    return tuple(attempt(text) for text in texts)


def _assigned(texts: tuple[str, ...], metadata: Any = _OF_ITS_TXID) -> tuple[AssignedAttempt, ...]:
    return tuple(AssignedAttempt(each, _metadata(each.txid, metadata)) for each in _attempts(texts))
