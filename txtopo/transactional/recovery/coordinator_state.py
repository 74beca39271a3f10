"""The coordinator's durable state: a few small values in a store.

=========================  ==================================================================
``<topology>/format``      the format of these values, see :mod:`txtopo.files.formats`
``<topology>/incarnation`` a random id drawn at creation, which tables store too
``<topology>/spouts``      the kind of each spout, repeatable or opaque, by its id
``<topology>/committed``   the last committed txid, its metadata, and each state's table and txid
``<topology>/metadata/N``  the metadata of transaction N, begun and not yet committed; below it, when it was planned
``<topology>/group``       the last decided commit group: its note, or where it lies
``<topology>/journal``     in a bucket, the last lines of the journal, see :mod:`txtopo.journal.tail`
``<topology>/note/N/…``    the parts of the note of the group that ends with transaction N, without room in a table
``<topology>/repair``      the plan in progress, if any, see :mod:`txtopo.transactional.recovery.plans`
``…/before-repair-N/…``    the values that the N-th repair has replaced
``<topology>/recovered``   the last epoch that has completed its recovery
``<topology>/timeline``    the rewinds and repairs that it has gone through
``<topology>/points``      the points that all tables keep, see :mod:`txtopo.transactional.recovery.points`
``<topology>/folds``       what is folded into each column of a table, in words, by the table's identity
``<topology>/source/N/…``  the values of the coordinator of the spout N
``<topology>/pace``        a transaction's share of a job's time, in microseconds; written with commits
=========================  ==================================================================

The note decides a group: whoever leads publishes a group with a note, and one without a note never was. Once all of its
states are published, the group is committed, and the committed mark goes to the store with the next write, whatever
that is for. So a group costs one write here. Until then the note is above the mark; a note that is not above it is of a
group that is committed, and means nothing any more.

A note that is too large for a value lies beside the first table that it concerns, because the machine that the
coordinator runs on may be lost with its disk; without such a table it is cut into several values.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.components.planned import NEVER, Planned
from txtopo.api.store import VALUE_BYTES_MAX, Change, Lead, Put, Store
from txtopo.attempts import transactions_words
from txtopo.errors import DivergenceError
from txtopo.failpoints import durable_step
from txtopo.files.folder import Folder
from txtopo.files.formats import COORDINATOR_STATE, FIRST, Format, refuse_other
from txtopo.files.records import from_json, to_json
from txtopo.journal.tail import TAIL
from txtopo.journal.turns import Timeline
from txtopo.transactional.core.events import TransactionMetadata
from txtopo.transactional.recovery.large_notes import LargeNotes, NotePlace
from txtopo.transactional.recovery.points import KeptPoints
from txtopo.transactional.recovery.values import (
    COMMITTED,
    ENCODER,
    FOLDS,
    FORMAT,
    GROUP,
    INCARNATION,
    METADATA,
    POINTS,
    RECOVERED,
    SOURCE,
    SPOUTS,
    TIMELINE,
    TRANSACTION_TIME,
    Values,
    encoded,
    naming_damage,
    value_in,
)

NOTE_BYTES_MAX = VALUE_BYTES_MAX
"""A note of more bytes does not go into the group's value."""

Folds = Mapping[str, Mapping[str, tuple[str, int]]]
"""By the identity of a table and its columns, what is folded into them, in words, and the transaction that the table
was at when that was said first: nothing has been folded so until a later one is committed."""


@attrs.frozen
class StateMark:
    """What the coordinator state records of a state's table: its identity, and the last txid written to it."""

    identity: str
    txid: int | None
    version: int | None = None
    """The last version of the table that the coordinator wrote; None if it was not recorded."""
    left_after: int | None = None
    """The last transaction that was committed while the topology had the state; None if it has it still."""
    begun_after: int = 0
    """The table was begun empty after this transaction, and has nothing of it or of earlier ones; 0: it misses none."""


@attrs.frozen
class CommittedMark:
    """The last committed transaction."""

    txid: int = 0
    metadata: Any = None
    states: Mapping[str, StateMark] = attrs.field(factory=dict)
    """A mark for each state that the topology has ever had in this incarnation."""
    planned: Planned = NEVER


@attrs.frozen
class Group:
    """A decided commit group."""

    first: int
    last: int
    states: tuple[str, ...]
    """The states that it writes, in order."""
    metadata: Any
    """The metadata of its last transaction, which the committed mark will hold."""
    topology: tuple[str, ...]
    """All states of the topology, written or not."""
    notes: Mapping[str, Any] | None = None
    """By state, what to publish; None if it lies elsewhere."""
    apart: NotePlace | None = None
    """Where."""
    planned: Planned = NEVER
    """When its last transaction was planned."""

    def mark(self, states: Mapping[str, StateMark]) -> CommittedMark:
        """Return the mark once it is committed, given those of the states."""
        return CommittedMark(self.last, self.metadata, states, self.planned)


class CoordinatorState:
    """The values of one topology in a store: read, and written with the lead; safe to use from several threads.

    It owns what waits for the next write. It decides nothing, opens no table, and knows no plan.

    Args:
        store: where it is.
        lead: the right to write it.
        topology_id: the topology.
        rooms: by state, the folder beside its table for notes that are too large for a value; see
            :func:`~txtopo.transactional.recovery.tables.rooms_of`.

    Raises:
        StopError: another version of txtopo has written it, in a format that this one does not go on with.
        DivergenceError: a value can't be read, here or in any other method that reads one.
    """

    def __init__(self, store: Store, lead: Lead, topology_id: str, rooms: Mapping[str, Folder] | None = None) -> None:
        self.values = Values(store, lead, topology_id)
        self.topology_id = topology_id
        self._large_notes = LargeNotes(self.values, rooms or {})
        self._lock = threading.Lock()
        self._waiting: dict[str, Change] = {}
        """What waits for the next write, by name; the committed mark comes first."""
        self._apart: NotePlace | None = None
        """Where the last group's note lies, if elsewhere; it is removed once the store has that it is committed."""
        incarnation_read = self.values.read(INCARNATION, str)
        stored_format = self.values.read(FORMAT, Format) or (COORDINATOR_STATE if incarnation_read is None else FIRST)
        refuse_other(f"the coordinator state of topology {topology_id!r}", stored_format, COORDINATOR_STATE)
        self.is_begun = incarnation_read is not None
        """Whether the incarnation is durable; otherwise this process has just drawn it."""
        # A drawn one becomes durable in begin(): until then a crash leaves nothing, and the next start draws another.
        self.incarnation = incarnation_read or uuid.uuid4().hex
        self.spouts: Mapping[str, str] = self.values.read(SPOUTS, dict) or {}
        """The kind of each spout, ``repeatable`` or ``opaque``, by its id, as the last run had them."""
        self.folds: Folds = self.values.read(FOLDS, dict[str, dict[str, tuple[str, int]]]) or {}
        """What is folded into its tables, as far as it is known."""
        self._kept_us = self.transaction_us()

    @property
    def epoch(self) -> int:
        """The epoch of the lead."""
        return self.values.lead.epoch

    @property
    def source_place(self) -> tuple[Store, Lead, str]:
        """The store and lead of the spouts' coordinators, and the path below which they write, each in its own room."""
        return self.values.store, self.values.lead, self.values.path(SOURCE)

    def begin(self, spouts: Mapping[str, str] | None = None) -> None:
        """Store the incarnation, the format and the kinds of the spouts if missing; call before any table is made."""
        new: dict[str, Any] = {}
        if not self.is_begun:
            new |= {INCARNATION: self.incarnation, FORMAT: to_json(COORDINATOR_STATE)}
        if spouts and spouts != self.spouts:
            new[SPOUTS] = self.spouts = dict(spouts)
        if new:
            # In one step, so that there is never an incarnation without the kinds of its spouts or its format.
            self.values.write([self.values.put(name, value) for name, value in new.items()])
        self.is_begun = True

    def found(  # noqa: PLR0913, PLR0917 - all that a topology begins with
        self,
        incarnation: str,
        mark: CommittedMark,
        spouts: Mapping[str, str],
        transactions: Sequence[TransactionMetadata] = (),
        source: Mapping[str, bytes] | None = None,
        folds: Folds | None = None,
    ) -> None:
        """Found it at a transaction, in one step, in place of what an interrupted try has left.

        Args:
            incarnation: the topology's.
            mark: the last committed transaction.
            spouts: the kind of each spout.
            transactions: the transactions after it that are begun.
            source: the values of the spouts' coordinators, by path below their own.
            folds: what is folded into its tables.
        """
        values = {
            **({FOLDS: encoded(folds)} if folds else {}),
            **{f"{SOURCE}/{path}": value for path, value in (source or {}).items()},
            # Without a stamp, as versions before format 4 wrote it, if the original never recorded when it was planned.
            **{
                _of_begun(transaction.txid): encoded(transaction.metadata)
                if transaction.planned == NEVER
                else _encode_begun(transaction)
                for transaction in transactions
            },
            FORMAT: encoded(to_json(COORDINATOR_STATE)),
            COMMITTED: encoded(to_json(mark)),
            SPOUTS: encoded(spouts),
            INCARNATION: encoded(incarnation),  # last: a store may split the step
        }
        puts = [Put(self.values.path(name), value) for name, value in values.items()]
        self.values.write([*(self.values.delete(name) for name in (SOURCE, METADATA)), *puts])
        self.is_begun, self.incarnation, self.spouts = True, incarnation, spouts

    def committed(self) -> CommittedMark:
        """Return the last committed transaction."""
        return committed_in(self.values.store, self.topology_id) or CommittedMark()

    def begun(self, committed: int) -> tuple[TransactionMetadata, ...]:
        """Return the begun transactions above ``committed`` in order; raise DivergenceError if metadata is missing."""
        # Others are left if a store splits a commit into steps and a crash comes in between.
        begun = tuple(transaction for transaction in self.begun_as_far_as_known() if transaction.txid > committed)
        for expected, transaction in enumerate(begun, committed + 1):
            if transaction.txid != expected:
                raise DivergenceError(
                    f"the metadata of transaction {expected} is missing, but that of {transaction.txid} exists; "
                    f"the coordinator state of {self.topology_id!r} is damaged: restore it together with the tables"
                )
        return begun

    def begun_as_far_as_known(self) -> tuple[TransactionMetadata, ...]:
        """Return the begun transactions of which there is metadata, in txid order; some may be committed already."""
        transactions: list[TransactionMetadata] = []
        latest_ms = time.time_ns() // 1_000_000
        # Names have 20 digits, so their order is that of the txids.
        for name in reversed(self.values.children(METADATA)):
            value = self.values.raw(_of_begun(int(name)))
            if value is not None:  # otherwise it was committed just now
                with naming_damage(self.values.path(_of_begun(int(name)))):
                    transactions.append(_decode_begun(int(name), value, latest_ms))
                latest_ms = transactions[-1].planned.at_ms
        return tuple(reversed(transactions))

    def forget_begun(self) -> None:
        """Let all transactions that are begun and not decided begin anew."""
        self.values.write([self.values.delete(METADATA)])

    def group(self) -> Group | None:
        """Return the group that is decided and not committed yet, or None."""
        value = self.values.read(GROUP, dict)
        if value is None:
            return None
        with naming_damage(self.values.path(GROUP)):
            group = from_json(value, Group)
        return group if group.last > self.committed().txid else None

    def notes_of(self, group: Group) -> Mapping[str, Any]:
        """Return what to publish of a decided group, by state.

        Raises:
            DivergenceError: it lies elsewhere, and is gone or damaged.
        """
        if group.notes is not None:
            return group.notes
        assert group.apart is not None, "a note is in the group or lies elsewhere"
        try:
            notes: Mapping[str, Any] = json.loads(self._large_notes.get(group.last, group.apart))
        except (OSError, KeyError, ValueError) as error:
            raise DivergenceError(
                f"the group of {transactions_words(group.first, group.last)} of topology {self.topology_id!r} is "
                f"decided, but the note to finish it from, {self._large_notes.where(group.apart)}, can't be read "
                f"({error}); restore it, or run 'txtopo repair'"
            ) from error
        return notes

    def save_metadata(self, begun: Sequence[TransactionMetadata]) -> None:
        """Make durable the metadata of begun transactions, and when they were planned."""
        self._write(
            [Put(self.values.path(_of_begun(transaction.txid)), _encode_begun(transaction)) for transaction in begun]
        )

    def decide(self, group: Group, tail: bytes | None = None) -> None:
        """Decide a group, whose writes are prepared: from here on it will be finished, whoever leads.

        In the same step goes the tail of the journal, if its entry rides; see :mod:`txtopo.journal.tail`.

        The group before must be committed. A note that is too large for a value is durable elsewhere before the value
        names it.
        """
        value, apart = ENCODER.encode(to_json(group)).encode(), None
        if len(value) > NOTE_BYTES_MAX:
            # A crash after this leaves a note that no group names; the next recovery removes it.
            content = ENCODER.encode(group.notes).encode()
            apart = self._large_notes.put(group.first, group.last, group.states, content)
            value = encoded(to_json(attrs.evolve(group, notes=None, apart=apart)))
        tails = [] if tail is None else [Put(self.values.path(TAIL), tail)]
        self._write([Put(self.values.path(GROUP), value), *tails])
        self._apart = apart

    def remove_notes(self) -> None:
        """Remove notes of this epoch and of earlier ones elsewhere; no group may be decided and uncommitted."""
        self._large_notes.remove_all()

    def confirm_recovery(self, folds: Folds | None = None) -> None:
        """Record that this epoch has recovered, and what is folded into tables from now on; None: as before.

        The write needs the lead, so the values that were read are current.
        """
        folds_put = [] if folds is None or folds == self.folds else [self.values.put(FOLDS, folds)]
        self.values.write([self.values.put(RECOVERED, self.epoch), *folds_put])
        self.folds = self.folds if folds is None else folds

    def add_folds(self, folds: Folds) -> None:
        """Record what is folded into further tables; a recovery drops what is said of tables that never joined."""
        if folds:
            self.folds = {**self.folds, **folds}
            self.values.write([self.values.put(FOLDS, self.folds)])

    def timeline(self) -> Timeline:
        """Return the last epoch that the state knows of, and the turns up to it."""
        timeline = self.values.read(TIMELINE, Timeline) or Timeline()
        return attrs.evolve(timeline, epoch=max(timeline.epoch, self.values.read(RECOVERED, int) or 0))

    def commit(self, mark: CommittedMark, first: int) -> None:
        """Count the transactions from ``first`` to that of ``mark`` as committed; the next write makes it durable.

        All states of their group must be published. A crash before that write leaves the group's note above the mark:
        the next leader finds every state published, and sets the same mark.
        """
        committed_paths = [_of_begun(txid) for txid in range(first, mark.txid + 1)]
        committed_paths += [] if self._apart is None else self._large_notes.parts_of(mark.txid, self._apart)
        with self._lock:
            # The mark goes first. If a store splits the step and a crash comes in between, begun() ignores the metadata
            # that is left.
            self._waiting.pop(COMMITTED, None)
            self._waiting = {
                COMMITTED: self.values.put(COMMITTED, to_json(mark)),
                **self._waiting,
                **{name: self.values.delete(name) for name in committed_paths},
            }

    def flush(self) -> None:
        """Make durable what waits for the next write."""
        self._write([])

    def _write(self, changes: Sequence[Change]) -> None:
        """Write changes, after what waits for the next write, in one step; one at a time, so marks never go back."""
        with self._lock:
            is_committed, every = COMMITTED in self._waiting, [*self._waiting.values(), *changes]
            if every:
                with durable_step("group.commit") if is_committed else contextlib.nullcontext():
                    self.values.write(every)
            self._waiting.clear()
            if is_committed and self._apart is not None:
                self._large_notes.remove_file(self._apart)
                self._apart = None

    def _wait(self, name: str, value: Any) -> None:
        with self._lock:
            self._waiting[name] = self.values.put(name, value)

    def transaction_us(self) -> int | None:
        """Return the stored share of a job's time that a transaction takes, in microseconds; None if unknown."""
        value = None
        with contextlib.suppress(DivergenceError):  # nothing depends on it
            value = self.values.read(TRANSACTION_TIME, int)
        return value if value is not None and value > 0 else None

    def record_transaction_us(self, transaction_us: int | None) -> None:
        """Set the time per transaction; the next write stores it."""
        if transaction_us is not None and transaction_us != self._kept_us:
            self._kept_us = transaction_us
            self._wait(TRANSACTION_TIME, transaction_us)

    def points(self) -> KeptPoints:
        """Return the points as they are on record."""
        return self.values.read(POINTS, KeptPoints) or KeptPoints()

    def record_points(self, points: KeptPoints) -> None:
        """Set the points; the next write stores them. A crash before that leaves the ones on record."""
        self._wait(POINTS, to_json(points))

    def confirm_lead(self) -> None:
        """Raise LostLead if the lead is lost."""
        self.values.write([])  # even an empty write compares the epoch with the store's; is_held() may not know yet


def _of_begun(txid: int) -> str:
    """Return the name of the metadata of a begun transaction."""
    return f"{METADATA}/{txid:020d}"


def committed_in(store: Store, topology_id: str) -> CommittedMark | None:
    """Return the last committed transaction that a store records, without the lead; None if it records none."""
    return value_in(store, f"{topology_id}/{COMMITTED}", CommittedMark)


def _encode_begun(transaction: TransactionMetadata) -> bytes:
    return encoded(transaction.metadata) + b"\n" + encoded(to_json(transaction.planned))


def _decode_begun(txid: int, value: bytes, latest_ms: int) -> TransactionMetadata:
    # A newline separates the two, as JSON without spaces has none. Versions before format 4 wrote no second line:
    # such a transaction counts as planned now, or with the one that follows it. No bolt has seen another time.
    metadata, _, planned = value.partition(b"\n")
    stamp = from_json(json.loads(planned), Planned) if planned else Planned(latest_ms)
    return TransactionMetadata(txid, json.loads(metadata), stamp)
