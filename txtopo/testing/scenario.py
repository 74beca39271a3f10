"""Scenarios: tests of a coordinator event by event, with the actions that it must return.

::

    with Scenario(limits(job=1)) as scenario:
        scenario >> recovered() << ask(1, 4)
        scenario >> begun(1, 2) << save(1, 2) << run(1, "1:1") << run(2, "2:1")
        scenario >> failed("2:1") << run(3, "2:2")

``>>`` sends an event to the coordinator; ``<<`` is the next action that it must return, in order. The actions between
an event and the next ``>>`` must be complete: if there are none, the coordinator must return none.

Attempts are written as in a log: ``"2:1"`` is the first attempt of transaction 2, and ``"2:1@3"`` is its first
attempt in epoch 3. The metadata of transaction 2 is ``"m2"`` unless the scenario gives another, and it was planned 2
seconds after 1970 began. The coordinator's invariants are checked after every event.
"""

from __future__ import annotations

from typing import Any, Self

from txtopo.api.components.planned import NEVER, Planned
from txtopo.attempts import FIRST_EPOCH, FIRST_TXID, TransactionAttempt, attempt_number
from txtopo.testing.checkers import AttemptChecker, CoreChecker
from txtopo.transactional.core import actions, events
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.limits import GiveUpPolicy, Limits
from txtopo.transactional.core.spout_policy import REPEATABLE, SpoutPolicy

EXHAUSTED, READY, WAITING = events.SourceStatus.EXHAUSTED, events.SourceStatus.READY, events.SourceStatus.WAITING

_OF_ITS_TXID: Any = object()


class Scenario:
    """One coordinator, and the scenario so far. Make its bounds with :func:`limits`.

    Use it as a context manager: at its end, no unexpected action may be left.
    """

    def __init__(self, limits: Limits) -> None:
        self.coordinator = Coordinator(limits)
        self._checker = CoreChecker(AttemptChecker(limits.spout), limits.spout, limits.timeout_ms)
        self._said: list[actions.Action] = []
        self._transcript: list[str] = []

    def __rshift__(self, event: events.Event) -> Self:
        """Send an event to the coordinator.

        Raises:
            AssertionError: an action for the previous event was not expected, or an invariant is broken now.
        """
        self._expect_silence()
        self._transcript.append(f">> {event}")
        self._checker.hear(self.coordinator, [event])
        self._said = self.coordinator.handle(event)
        self._checker.see(self.coordinator, self._said)
        return self

    def __lshift__(self, action: actions.Action) -> Self:
        """Expect the next action of the coordinator; raise an AssertionError if it is another one or there is none."""
        said = self._said.pop(0) if self._said else None
        assert said == action, self._tell(f"expected: {action}", f"but said: {said or 'nothing more'}")
        self._transcript.append(f"<< {said}")
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, *_: object) -> None:
        if error is None:  # otherwise the exception says more than the actions that are left
            self._expect_silence()

    def take_stop(self) -> actions.Stop:
        """Return the next action, which must be a stop, to inspect its error."""
        said = self._said.pop(0) if self._said else None
        assert isinstance(said, actions.Stop), self._tell("expected: a stop", f"but said: {said or 'nothing more'}")
        self._transcript.append(f"<< {said}")
        return said

    def _expect_silence(self) -> None:
        said = [f"but said: {action}" for action in self._said]
        assert not said, self._tell("expected: nothing more", *said)

    def _tell(self, *ending: str) -> str:
        return "\n".join(["the scenario so far:", *self._transcript, *ending])


def limits(  # noqa: PLR0913 - the limits of a coordinator, by short names
    *,
    pending: int = 4,
    job: int = 4,
    jobs: int = 4,
    group: int = 4,
    tries: int | None = None,
    skip: bool = False,
    job_failures: int = 4,
    until: int | None = None,
    spout: SpoutPolicy = REPEATABLE,
) -> Limits:
    """Return bounds for a scenario: a timeout of 1,000 ms, pauses of 100 ms (jobs) and 50 ms (source)."""
    return Limits(
        pending_max=pending,
        job_transactions_max=job,
        jobs_max=jobs,
        group_transactions_max=group,
        timeout_ms=1_000,
        tries_max=tries,
        give_up_policy=GiveUpPolicy.SKIP if skip else GiveUpPolicy.WAIT,
        job_failures_max=job_failures,
        retry_delay_ms=100,
        until=until,
        spout=spout,
    )


def attempt(text: str) -> TransactionAttempt:
    """Return the attempt written as ``"txid:try"`` or ``"txid:try@epoch"``."""
    number, _, epoch = text.partition("@")
    txid, _, tries = number.partition(":")
    return TransactionAttempt(int(txid), attempt_number(int(epoch or FIRST_EPOCH), int(tries) - 1))


# Events, which the coordinator receives. These need no shorter form:

activated, deactivated, stop_requested = events.Activated, events.Deactivated, events.StopRequested
fenced, group_ended, job_ended, ticked = events.Fenced, events.GroupEnded, events.JobEnded, events.Ticked


def recovered(
    committed: int = 0, *begun: int, epoch: int = FIRST_EPOCH, metadata: Any = _OF_ITS_TXID, now_ms: int = 0
) -> events.Recovered:
    """Return the event that the coordinator leads, with the last committed and the begun transactions."""
    last = events.TransactionMetadata(committed, _metadata(committed, metadata), _planned(committed))
    return events.Recovered(epoch, last, _begun(begun), now_ms)


def begun(*txids: int, metadata: Any = _OF_ITS_TXID, source: events.SourceStatus = READY) -> events.MetadataCreated:
    """Return the event that the spout's coordinator has begun these transactions, with the status of its source."""
    return events.MetadataCreated(_begun(txids, metadata), source)


def progressed(*attempts: str) -> events.Progressed:
    """Return the event that these attempts make progress."""
    return events.Progressed(_attempts(attempts))


def processed(text: str, metadata: Any = None) -> events.Processed:
    """Return the event that an attempt is processed; ``metadata`` describes what an opaque spout emitted."""
    return events.Processed(attempt(text), metadata)


def failed(text: str, error: str = "it failed", metadata: Any = None, *, is_outage: bool = False) -> events.Failed:
    """Return the event that an attempt failed; ``metadata`` is given if an opaque spout had emitted everything."""
    return events.Failed(attempt(text), error, metadata, is_outage=is_outage)


def lost(job_id: int, error: str = "an executor died") -> events.JobLost:
    """Return the event that a job was lost."""
    return events.JobLost(job_id, error)


def attempt_lost(text: str, error: str = "its worker died") -> events.AttemptLost:
    """Return the event that the worker of an attempt died in it, while its job goes on."""
    return events.AttemptLost(attempt(text), error)


def committed(*attempts: str) -> events.Committed:
    """Return the event that the writes of these attempts are durable; of an attempt given up, its dead letter."""
    return events.Committed(_attempts(attempts))


dead_letter_written = committed


def rule_broken(error: Exception, text: str | None = None) -> events.RuleBroken:
    """Return the event that the user's code has a bug, found in an attempt if ``text`` names one."""
    return events.RuleBroken(error, None if text is None else attempt(text))


# Actions, which the coordinator must return. These need no shorter form:

abandon, cancel, clean_up, stop = actions.AbandonCommit, actions.CancelJob, actions.CleanUp, actions.Stop


def ask(first_txid: int, count: int, previous: Any = _OF_ITS_TXID) -> actions.CreateMetadata:
    """Ask the spout's coordinator for up to ``count`` transactions."""
    return actions.CreateMetadata(first_txid, count, _metadata(first_txid - 1, previous), _planned(first_txid - 1))


def save(*txids: int, metadata: Any = _OF_ITS_TXID) -> actions.SaveMetadata:
    """Make the metadata of these transactions durable."""
    return actions.SaveMetadata(_begun(txids, metadata))


def run(job_id: int, *attempts: str, metadata: Any = _OF_ITS_TXID, previous: Any = _OF_ITS_TXID) -> actions.Process:
    """Run the processing phases of these attempts in one job."""
    job = _assigned(attempts, metadata)
    return actions.Process(job_id, job, _metadata(job[0].attempt.txid - 1, previous))


def commit(group_id: int, *attempts: str, metadata: Any = _OF_ITS_TXID) -> actions.Commit:
    """Run the commit phases of these attempts, one after another."""
    return actions.Commit(group_id, _assigned(attempts, metadata))


def write_dead_letter(
    group_id: int, text: str, *, tries: int, error: str = "it failed", metadata: Any = _OF_ITS_TXID
) -> actions.DeadLetter:
    """Write a dead letter."""
    (given_up,) = _assigned((text,), metadata)
    return actions.DeadLetter(group_id, given_up, tries, error)


def _metadata(txid: int, given: Any) -> Any:
    if given is not _OF_ITS_TXID:
        return given
    return f"m{txid}" if txid >= FIRST_TXID else None


def _planned(txid: int) -> Planned:
    return Planned(txid * 1_000) if txid >= FIRST_TXID else NEVER


def _begun(txids: tuple[int, ...], metadata: Any = _OF_ITS_TXID) -> tuple[events.TransactionMetadata, ...]:
    return tuple(events.TransactionMetadata(txid, _metadata(txid, metadata), _planned(txid)) for txid in txids)


def _attempts(texts: tuple[str, ...]) -> tuple[TransactionAttempt, ...]:
    return tuple(attempt(text) for text in texts)


def _assigned(texts: tuple[str, ...], metadata: Any = _OF_ITS_TXID) -> tuple[actions.AssignedAttempt, ...]:
    return tuple(
        actions.AssignedAttempt(attempt, _metadata(attempt.txid, metadata), _planned(attempt.txid))
        for attempt in _attempts(texts)
    )
