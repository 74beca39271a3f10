"""Checkers of txtopo's promises, shared by unit, stateful, simulator and Spark tests.

Each receives facts as they happen and raises :class:`Violation` with the broken promise. They do not depend on the
source of the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.components.planned import Planned
from txtopo.api.data.copying import copied
from txtopo.api.values import Key, OpaqueValue, StateValue
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.rows_by_time import BEFORE_ALL
from txtopo.errors import PoisonTransaction
from txtopo.journal.entries import JournalEntry, JournalPart
from txtopo.journal.journal import counting_entries
from txtopo.transactional.core.actions import Action, AssignedAttempt, Commit, DeadLetter, Process, Stop
from txtopo.transactional.core.coordinator import Coordinator
from txtopo.transactional.core.events import (
    AttemptLost,
    Event,
    Failed,
    JobEnded,
    JobLost,
    Processed,
    Progressed,
    Recovered,
    RuleBroken,
    Ticked,
)
from txtopo.transactional.core.pending import pending_end
from txtopo.transactional.core.spout_policy import REPEATABLE, SpoutPolicy
from txtopo.transactional.core.transitions import LIVE, Status

Rows = Mapping[Key, StateValue]
"""The rows of a table, by key."""


@attrs.frozen(eq=False)
class Version:
    """One version of a table."""

    number: int
    txid: int | None
    """The last transaction written to it; None before the first."""
    epoch: int
    """The epoch of the newest coordinator that has opened it."""
    rows: Rows
    restored: int | None = None
    """The version whose rows it has again, because the topology went back; None otherwise."""
    until: int = BEFORE_ALL
    """The time up to which rows are taken, or keys have expired, in µs since 1970."""


class Violation(AssertionError):
    """A promise is broken."""


def require(condition: object, promise: str) -> None:
    """Raise a Violation unless ``condition`` holds.

    In hot paths, check first and raise directly, so that the text is formatted only for a violation.
    """
    if not condition:
        raise Violation(promise)


@attrs.define(eq=False)
class AttemptChecker:
    """Checks that attempts rise and metadata does not change, across all coordinators of a topology."""

    spout: SpoutPolicy = REPEATABLE
    highest: dict[int, TransactionAttempt] = attrs.field(factory=dict)
    metadata: dict[int, tuple[Any, Planned]] = attrs.field(factory=dict)

    def began(self, assigned: AssignedAttempt, *, is_dead_letter: bool = False) -> None:
        """Check an attempt that a coordinator has started."""
        attempt, metadata = assigned.attempt, (assigned.metadata, assigned.planned)
        highest = self.highest.get(attempt.txid)
        if highest is None or attempt > highest:
            self.highest[attempt.txid] = attempt
        elif attempt.epoch < highest.epoch:
            return  # a zombie's, which writes nothing; it may have begun the transaction at another time
        else:
            raise Violation(f"attempts rise (promise 3): {attempt} after {highest}")
        if self.spout.keeps_begun and not is_dead_letter and self.metadata.get(attempt.txid, metadata) != metadata:
            raise Violation(f"every attempt gets the same metadata (promise 2): {attempt} got {metadata}")

    def emits(self, assigned: AssignedAttempt, durable: tuple[Any, Planned] | None) -> None:
        """Check an attempt of the leading coordinator before it emits; ``durable`` is the metadata in the store."""
        attempt, metadata = assigned.attempt, (assigned.metadata, assigned.planned)
        if self.spout.keeps_begun and durable != metadata:
            raise Violation(
                f"metadata is durable before a tuple is emitted (promise 2): {attempt} emits {metadata}, not {durable}"
            )
        self.metadata.setdefault(attempt.txid, metadata)  # from the first emission on, no other one may begin


@attrs.define(eq=False)
class BlameChecker:
    """Checks that a transaction is given up for its own failures only (promise 6).

    Its own are those that its code raised, and the losses of a job that had it alone and no other job beside it at any
    time. Such a loss counts if a job of the transaction had been lost before, something was processed between that and
    any other loss, and something is processed after it. If no other transaction is ready, nothing could be: it counts.
    """

    own: dict[int, int] = attrs.field(factory=dict)
    """By txid, the failures that may be held against it."""
    lost_before: set[int] = attrs.field(factory=set)
    waiting: dict[int, bool] = attrs.field(factory=dict)
    """The transactions whose loss waits for another one to be processed, and whether it counts then."""
    is_well: bool = True
    """Whether something was processed since the last loss."""

    def processed(self, txid: int) -> None:
        """Count the losses that this proves to be no fault of the cluster."""
        self.is_well = True
        self.waiting.pop(txid, None)
        for other, counts in self.waiting.items():
            if counts:
                self._count(other)
        self.waiting.clear()

    def failed(self, txid: int) -> None:
        """Count what the transaction's code raised; nobody waits for such a transaction."""
        self._count(txid)
        self.waiting.clear()

    def lost(self, txid: int, *, is_alone: bool, has_others: bool) -> None:
        """Record the loss of an attempt; ``has_others`` says whether another transaction is ready."""
        counts = is_alone and txid in self.lost_before
        if is_alone and has_others:
            self.waiting[txid] = counts and self.is_well
        elif counts:
            self._count(txid)
        self.lost_before.add(txid)
        self.is_well = False

    def given_up(self, txid: int, tries_max: int | None) -> None:
        """Check a transaction that is given up."""
        own = self.own.get(txid, 0)
        if tries_max is None or own < tries_max:
            raise Violation(f"only its own failures are held against a transaction (promise 6): {txid} has {own}")

    def _count(self, txid: int) -> None:
        self.own[txid] = self.own.get(txid, 0) + 1


def validate(coordinator: Coordinator) -> None:
    """Raise an AssertionError if an invariant of the core is broken, after any event; costs O(pending transactions)."""
    pending, jobs, limits = coordinator.pending, coordinator.jobs, coordinator.limits
    first = coordinator.committed + 1
    assert sorted(pending) == list(range(first, first + len(pending))), "pending transactions have no gap"
    assert len(jobs) <= limits.spout.jobs_max(limits.jobs_max), "no more jobs in flight than allowed"
    for job in jobs.values():
        assert len(job) <= limits.job_transactions_max, "a job is bounded"
        assert list(job) == list(range(job[0], job[0] + len(job))), "a job is consecutive"
    committing = []
    for txid, transaction in pending.items():
        status, attempt = transaction.status, transaction.attempt
        assert transaction.txid == txid, "each txid is mapped to its transaction"
        if status not in LIVE:
            assert status is not Status.COMMITTED, "a committed transaction is not pending"
            assert attempt is None, "only the live statuses have an attempt"
            continue
        assert attempt is not None, "the live statuses have an attempt"
        assert attempt.txid == txid, "an attempt has its transaction's txid"
        assert txid < first + limits.pending_max, "no transaction beyond the bound has a live attempt"
        if status is Status.PROCESSING:
            assert transaction.job_id in jobs, "a processing transaction is in a job in flight"
        elif status is Status.COMMITTING or status is Status.WRITING_DEAD_LETTER:
            committing.append(txid)
    if committing:
        low = committing[0]
        assert coordinator.is_committing or coordinator.has_stopped, "a committing transaction is in a group in flight"
        assert low in {first, first + 1}, "a group starts at the lowest uncommitted one, or after that one failed"
        assert committing == list(range(low, low + len(committing))), "a group is consecutive"


@attrs.define(eq=False)
class CoreChecker:
    """Checks one coordinator: the events that it receives, and the actions that it returns."""

    attempts: AttemptChecker
    spout: SpoutPolicy
    timeout_ms: int
    blame: BlameChecker = attrs.field(factory=BlameChecker)
    now_ms: int = 0
    live: dict[int, TransactionAttempt] = attrs.field(factory=dict)
    job_of: dict[TransactionAttempt, int] = attrs.field(factory=dict)
    moved_ms: dict[TransactionAttempt, int] = attrs.field(factory=dict)
    begun: set[int] = attrs.field(factory=set)
    """The jobs that something was heard of."""
    beside: set[int] = attrs.field(factory=set)
    """The jobs that had another one beside them."""
    failed: set[TransactionAttempt] = attrs.field(factory=set)
    processed: set[TransactionAttempt] = attrs.field(factory=set)

    def hear(self, core: Coordinator, events: Sequence[Event]) -> None:
        """Record the events before the coordinator receives them."""
        for event in events:
            self._hear_of_job(event)
            match event:
                case Processed() | Failed() | AttemptLost() if self._is_live(event.attempt):
                    self._answer(event, core)
                case RuleBroken() if event.attempt is not None and self._is_live(event.attempt):
                    self.failed.add(event.attempt)
                case Progressed():
                    self._move(event.attempts)
                case Ticked() | Recovered():
                    self.now_ms = event.now_ms
                    self._expire(core)
                # Attempts of a job that ended without their result have failed. Jobs that the core has forgotten end
                # nothing: their answers come late or twice.
                case JobEnded() | JobLost() if event.job_id in core.jobs:
                    self._lose(self._attempts_of(event.job_id), core)
                case _:
                    pass

    def see(self, core: Coordinator, actions: Sequence[Action]) -> None:
        """Check the actions that the coordinator has returned."""
        validate(core)
        if len(core.jobs) > 1:
            self.beside.update(core.jobs)
        for action in actions:
            match action:
                case Process():
                    for assigned in action.attempts:
                        self._begin(assigned, action.job_id)
                case Commit():
                    self._commit([assigned.attempt for assigned in action.group], core)
                case DeadLetter():
                    self.attempts.began(action.given_up, is_dead_letter=True)
                    self.live.pop(action.given_up.attempt.txid, None)  # a dead letter is not a try of the transaction
                case _:
                    pass
        self._see_given_up(core, actions)
        self._see_timeouts(core)
        # An attempt can end without an action: its transaction then waits for the next one.
        for txid, transaction in core.pending.items():
            attempt = self.live.get(txid)
            if attempt is None or transaction.attempt is attempt:
                continue
            if transaction.attempt != attempt and self.spout.repeats:
                require(
                    self._may_be_over(attempt), f"only its own failure ends an attempt (promises 3 and 5): {attempt}"
                )
                self.failed.add(attempt)

    def _see_given_up(self, core: Coordinator, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, DeadLetter):
                self.blame.given_up(action.given_up.attempt.txid, core.limits.tries_max)
            elif isinstance(action, Stop) and isinstance(action.error, PoisonTransaction):
                assert action.error.txid is not None, "it names its transaction"
                self.blame.given_up(action.error.txid, core.limits.tries_max)

    def _answer(self, event: Processed | Failed | AttemptLost, core: Coordinator) -> None:
        attempt = event.attempt
        match event:
            case Processed():
                if attempt not in self.processed | self.failed:
                    self.blame.processed(attempt.txid)
                self.processed.add(attempt)
            case Failed():
                if attempt not in self.failed:
                    self.blame.failed(attempt.txid)
                self.failed.add(attempt)
            case _:
                self._lose([attempt], core)

    def _expire(self, core: Coordinator) -> None:
        """Record the losses of the jobs in which an attempt has made no progress within its timeout."""
        expired = set()
        for attempt in self.live.values():
            job_id = self.job_of[attempt]
            idle_ms = self.now_ms - self.moved_ms.get(attempt, self.now_ms)
            if idle_ms >= self.timeout_ms and job_id in self.begun and attempt not in self.processed | self.failed:
                expired.add(job_id)
        for job_id in sorted(expired):
            self._lose(self._attempts_of(job_id), core)

    def _lose(self, attempts: Iterable[TransactionAttempt], core: Coordinator) -> None:
        """Note attempts that were lost before they were answered for."""
        for attempt in attempts:
            if attempt in self.processed | self.failed:
                continue
            self.failed.add(attempt)
            if self._is_live(attempt):
                job_id = self.job_of[attempt]
                is_alone = len(core.jobs.get(job_id, ())) == 1 and job_id not in self.beside
                self.blame.lost(attempt.txid, is_alone=is_alone, has_others=self._has_others(attempt.txid, core))

    def _has_others(self, txid: int, core: Coordinator) -> bool:
        """Whether another transaction could be processed; what follows one of an opaque spout could not."""
        end = pending_end(core.committed, core.limits)
        ready = {
            other for other, transaction in core.pending.items() if other <= end and transaction.status is Status.READY
        }
        return self.spout.repeats and bool(ready - {txid})

    def _attempts_of(self, job_id: int) -> list[TransactionAttempt]:
        return [attempt for attempt, job in self.job_of.items() if job == job_id]

    def _see_timeouts(self, core: Coordinator) -> None:
        """Check that no attempt is still processing after its timeout; progress of a former attempt does not count.

        What nobody has begun has no timeout.
        """
        if core.has_stopped:
            return
        for transaction in core.pending.values():
            attempt = transaction.attempt
            is_begun = attempt is not None and self.job_of.get(attempt) in self.begun
            if attempt is not None and is_begun and transaction.status is Status.PROCESSING:
                idle_ms = self.now_ms - self.moved_ms.get(attempt, self.now_ms)
                if idle_ms >= self.timeout_ms:
                    raise Violation(f"no attempt goes on without progress (promise 7): {attempt}, {idle_ms} ms")

    def _hear_of_job(self, event: Event) -> None:
        attempts: Sequence[TransactionAttempt] = ()
        if isinstance(event, Progressed):
            attempts = event.attempts
        elif isinstance(event, Processed | Failed):
            attempts = (event.attempt,)
        for job_id in {
            self.job_of[attempt] for attempt in attempts if attempt in self.job_of and self._is_live(attempt)
        }:
            if job_id not in self.begun:
                self.begun.add(job_id)
                self._move(self._attempts_of(job_id))

    def _begin(self, assigned: AssignedAttempt, job_id: int) -> None:
        attempt = assigned.attempt
        before = self.live.get(attempt.txid)
        if before is not None and self.spout.repeats:
            require(self._may_be_over(before), f"what was processed keeps its work (promise 5): {before}")
        self.attempts.began(assigned)
        self.live[attempt.txid] = attempt
        self.job_of[attempt] = job_id
        self._move([attempt])

    def _commit(self, group: Sequence[TransactionAttempt], core: Coordinator) -> None:
        txids = [attempt.txid for attempt in group]
        first = core.committed + 1
        require(
            txids == list(range(first, first + len(group))), f"commit phases run in txid order (promise 1): {txids}"
        )
        for attempt in group:
            if attempt not in self.processed:
                raise Violation(f"only what is processed commits: {attempt}")
            if self.live[attempt.txid] != attempt:
                raise Violation(f"only the live attempt commits (promise 3): {attempt}")
        self._move(group)

    def _is_live(self, attempt: TransactionAttempt) -> bool:
        return self.live.get(attempt.txid) == attempt

    def _may_be_over(self, attempt: TransactionAttempt) -> bool:
        """Whether an attempt has failed, or is lost with its job because one attempt of the job timed out."""
        if attempt in self.failed:
            return True
        job = self.job_of.get(attempt)
        mates = self._attempts_of(job) if job is not None else []
        return attempt not in self.processed and any(
            self.now_ms - self.moved_ms.get(mate, 0) >= self.timeout_ms for mate in mates
        )

    def _move(self, attempts: Iterable[TransactionAttempt]) -> None:
        for attempt in attempts:
            self.moved_ms[attempt] = self.now_ms


@attrs.define(eq=False)
class Oracle:
    """The result of a run without faults: each table, transaction by transaction."""

    rows: Mapping[str, Sequence[tuple[int, Rows]]]
    """The versions of each table, as pairs of a txid and the rows as of it, in txid order."""
    tuples: int
    """The number of tuples that the spout emits in all."""
    transactions: int
    has_failures: bool = False
    """Whether its spout or bolts raise FailedException without an injected fault."""

    def as_of(self, table: str, txid: int) -> Rows:
        """Return the rows of a table as of a transaction."""
        found: Rows = {}
        for version_txid, rows in self.rows[table]:
            if version_txid > txid:
                break
            found = rows
        return found


@attrs.define(eq=False)
class TableChecker:
    """Checks every version of every table.

    Args:
        oracle: the expected rows of each version; None if a replay may have other tuples.
        invariant: the user's check of all tables, ``{table: {key: value}}``, at every transaction; must raise if it
            does not hold.
    """

    oracle: Oracle | None = None
    invariant: Callable[[Mapping[str, Mapping[Key, Any]]], None] | None = None

    def written(self, table: str, before: Version, version: Version) -> None:
        """Check a new version of a table."""
        txid, epoch = version.txid, version.epoch
        require(epoch >= before.epoch, f"who has lost the lead writes nothing (promise 11): table {table!r}, {epoch}")
        if version.restored is not None:
            self._is_as_of(table, version)
            return
        if txid == before.txid:  # a coordinator has opened the table, which adds a version with its epoch
            require(version.rows == before.rows, f"rows change with a transaction only: table {table!r} at {txid}")
            return
        require(txid is not None and txid > (before.txid or 0), f"txids rise (promise 1): {table!r}, {txid}")
        if txid == (before.txid or 0) + 1:
            _check_previous(table, before.rows, version.rows, txid)
        self._is_as_of(table, version)

    def _is_as_of(self, table: str, version: Version) -> None:
        txid = version.txid or 0
        require(
            self.oracle is None or version.rows == self.oracle.as_of(table, txid),
            f"each version is as if every transaction had run once (promise 8): table {table!r} at {txid}",
        )

    def settled(self, committed: int, tables: Mapping[str, Rows]) -> None:
        """Check that all tables are as of ``committed`` and nothing is half-written (promise 9)."""
        if self.oracle is not None:
            for name, rows in tables.items():
                require(
                    rows == self.oracle.as_of(name, committed),
                    f"no table lags behind another (promise 9): {name!r} at transaction {committed}",
                )
        if self.invariant is not None:
            self.invariant(
                {name: {key: copied(row.value) for key, row in rows.items()} for name, rows in tables.items()}
            )


def _check_previous(table: str, before: Rows, rows: Rows, txid: int) -> None:
    """Check that opaque values keep the value before them. Versions that skip a txid do not tell what that was."""
    for key, row in rows.items():
        if isinstance(row, OpaqueValue) and row.txid == txid:
            known = before.get(key)
            expected = None if known is None else known.value
            require(
                row.previous == expected,
                f"an opaque value keeps the one before it (promise 10): table {table!r}, {key!r} at {txid}",
            )


def check_journal(parts: Sequence[JournalPart], committed: int, after: int = 0) -> list[JournalEntry]:
    """Check that the journal holds each transaction once, in order, and return the valid entries.

    ``committed`` is the last committed transaction in the coordinator state, ``after`` the one that the journal begins
    after.

    Raises:
        Violation: a transaction is missing or occurs twice.
    """
    entries = counting_entries(parts, lambda entry: entry.last <= committed)
    txids = [transaction.txid for entry in entries for transaction in entry.transactions]
    require(
        txids == list(range(after + 1, committed + 1)), f"each transaction commits once, in order (promise 1): {txids}"
    )
    return entries


def check_input(entries: Sequence[JournalEntry], spouts: Collection[str], tuples: int) -> None:
    """Check that all input was committed or dead-lettered (promises 6 and 16).

    Pass the entries that :func:`check_journal` returned, the spouts' component ids, and the number of tuples that they
    emit in all.

    Raises:
        Violation: some input is missing or was counted twice.
    """
    transactions = [transaction for entry in entries for transaction in entry.transactions]
    if any(transaction.is_dead_letter for transaction in transactions):
        return  # the number of tuples in a dead letter is unknown; their txids are checked elsewhere
    taken = sum(transaction.fingerprints.get(spout, (0, 0))[0] for transaction in transactions for spout in spouts)
    require(taken == tuples, f"nothing is lost or doubled (promise 16): {taken} tuples were committed, of {tuples}")
