"""The coordinator's own durable state: a few small values in a store.

=========================  ==================================================================
``<topology>/format``      the format of these values, see :mod:`txtopo.files.formats`
``<topology>/incarnation`` a random id drawn at creation, which tables store too
``<topology>/spouts``      the kind of each spout, repeatable or opaque, by its id
``<topology>/committed``   the last committed txid, its metadata, and each state's table and txid
``<topology>/metadata/N``  the metadata of transaction N, begun and not yet committed; below it, when it was planned
``<topology>/group``       the last decided commit group: its note, or where it lies
``<topology>/note/N/…``    the parts of the note of the group that ends with transaction N, without room in a table
``<topology>/repair``      the plan in progress, if any, see :mod:`txtopo.transactional.recovery.plans`
``…/before-repair-N/…``    the values that the N-th repair has replaced
``<topology>/recovered``   the last epoch that has completed its recovery
``<topology>/timeline``    the rewinds and repairs that it has gone through
``<topology>/points``      the points that all tables keep, see :mod:`txtopo.transactional.recovery.points`
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
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from txtopo.api.components.planned import NEVER, Planned
from txtopo.api.state import State, StateTable
from txtopo.api.store import VALUE_BYTES_MAX, Change, Delete, Lead, Put, Store
from txtopo.attempts import transactions_words
from txtopo.errors import DivergenceError, RuleError, StopError
from txtopo.failpoints import durable_step
from txtopo.files.durable import remedy
from txtopo.files.folder import Folder
from txtopo.files.formats import COORDINATOR_STATE, FIRST, Format, refuse_other
from txtopo.files.records import DAMAGE, from_json, to_json
from txtopo.journal.journal import ASIDES_MAX
from txtopo.journal.turns import Timeline
from txtopo.transactional.core.events import TransactionMetadata
from txtopo.transactional.recovery.points import KeptPoints

METADATA_BYTES_MAX = VALUE_BYTES_MAX - 100
"""A transaction's metadata may have as many bytes; the rest of the value is for when it was planned."""

NOTE_BYTES_MAX = VALUE_BYTES_MAX
"""A note of more bytes does not go into the group's value."""

_COPY_TRIES_MAX = 20

_FORMAT = "format"
_INCARNATION, _SPOUTS, _COMMITTED, _METADATA, _GROUP = (
    "incarnation",
    "spouts",
    "committed",
    "metadata",
    "group",
)
_NOTE = "note"
_PLAN = "repair"
_ASIDE = "before-repair-"
_RECOVERED = "recovered"
_TIMELINE = "timeline"
_POINTS = "points"
_SOURCE = "source"
_TRANSACTION_TIME = "pace"

_NOTE_FILE = "note-"
"""Begins the name of a note's file, so that it can be told from a table's files."""


T = TypeVar("T")


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
    file: str | None = None
    """The name of the file with the notes."""
    beside: str = ""
    """The state beside whose table that file is."""
    parts: int = 0
    """The number of values of the store that hold the notes, if no file does."""
    planned: Planned = NEVER
    """When its last transaction was planned."""


class CoordinatorState:
    """Reads and writes one topology's coordinator state; safe to use from several threads.

    Args:
        store: where it is.
        lead: the right to write it.
        topology_id: the topology.
        rooms: by state, the folder beside its table for notes that are too large for a value; see :func:`rooms_of`.

    Raises:
        StopError: another version of txtopo has written it, in a format that this one does not go on with.
        DivergenceError: a value can't be read, here or in any other method that reads one.
    """

    def __init__(self, store: Store, lead: Lead, topology_id: str, rooms: Mapping[str, Folder] | None = None) -> None:
        self._store = store
        self._lead = lead
        self._rooms = rooms or {}
        self._lock = threading.Lock()
        self._unsaved: list[Change] = []
        """The changes that make the last group committed, and have not reached the store yet."""
        self._apart: Group | None = None
        """The last group if its notes lie elsewhere; they are removed once the store has that it is committed."""
        self.topology_id = topology_id
        self._known_incarnation: str | None = self._read(_INCARNATION, str)
        written = self._read(_FORMAT, Format) or (COORDINATOR_STATE if self._known_incarnation is None else FIRST)
        refuse_other(f"the coordinator state of topology {topology_id!r}", written, COORDINATOR_STATE)
        self._spouts: dict[str, str] = self._read(_SPOUTS, dict) or {}
        self._known_spouts = dict(self._spouts)
        # A drawn one becomes durable in begin(): until then a crash leaves nothing, and the next start draws another.
        self.incarnation = self._known_incarnation or uuid.uuid4().hex
        self._kept_us = self._learnt_us = self.transaction_us()
        self._points: KeptPoints | None = None
        """The points that have not reached the store yet."""

    @property
    def epoch(self) -> int:
        """The epoch of the lead."""
        return self._lead.epoch

    @property
    def is_begun(self) -> bool:
        """Whether the incarnation is durable; otherwise this process has just drawn it."""
        return self._known_incarnation is not None

    @property
    def source_place(self) -> tuple[Store, Lead, str]:
        """The store and lead of the spouts' coordinators, and the path below which they write, each in its own room."""
        return self._store, self._lead, self._path(_SOURCE)

    def begin(self) -> None:
        """Store the incarnation, the format and the kinds of the spouts if missing; call before any table is made."""
        new: dict[str, Any] = {}
        if self._read(_INCARNATION, str) is None:
            new |= {_INCARNATION: self.incarnation, _FORMAT: to_json(COORDINATOR_STATE)}
        if self._spouts != self._known_spouts:
            new[_SPOUTS] = self._spouts
        if new:
            # In one step, so that there is never an incarnation without the kinds of its spouts or its format.
            self._lead.write([Put(self._path(name), _encode(value)) for name, value in new.items()])
        self._known_incarnation, self._known_spouts = self.incarnation, dict(self._spouts)

    def found(self, incarnation: str, mark: CommittedMark) -> None:
        """Found the coordinator state of a given incarnation, at a transaction, in one step; there must be none yet."""
        given = {
            _FORMAT: to_json(COORDINATOR_STATE),
            _INCARNATION: incarnation,
            _SPOUTS: self._spouts,
            _COMMITTED: to_json(mark),
        }
        self._lead.write([Put(self._path(name), _encode(value)) for name, value in given.items()])

    def committed(self) -> CommittedMark:
        """Return the last committed transaction."""
        return committed_in(self._store, self.topology_id) or CommittedMark()

    def begun(self, committed: int) -> tuple[TransactionMetadata, ...]:
        """Return the begun transactions above ``committed``, in txid order.

        Raises:
            DivergenceError: the metadata of one of them is missing.
        """
        # Others are left if a store splits a commit into steps and a crash comes in between.
        begun = tuple(each for each in self.begun_as_far_as_known() if each.txid > committed)
        for expected, transaction in enumerate(begun, committed + 1):
            if transaction.txid != expected:
                raise DivergenceError(
                    f"the metadata of transaction {expected} is missing, but that of {transaction.txid} exists; "
                    f"the coordinator state of {self.topology_id!r} is damaged: restore it together with the tables"
                )
        return begun

    def begun_as_far_as_known(self) -> tuple[TransactionMetadata, ...]:
        """Return the begun transactions of which there is metadata, in txid order; some may be committed already."""
        begun: list[TransactionMetadata] = []
        latest_ms = time.time_ns() // 1_000_000
        # Names have 20 digits, so their order is that of the txids.
        for name in reversed(self._store.children(self._path(_METADATA))):
            value = self._store.read(self._metadata_path(int(name)))
            if value is not None:  # otherwise it was committed just now
                with _naming_damage(self._metadata_path(int(name))):
                    begun.append(_decode_begun(int(name), value, latest_ms))
                latest_ms = begun[-1].planned.at_ms
        return tuple(reversed(begun))

    def forget_begun(self) -> None:
        """Let all transactions that are begun and not decided begin anew."""
        self._lead.write([Delete(self._path(_METADATA))])

    def group(self) -> Group | None:
        """Return the group that is decided and not committed yet, or None."""
        value = self._read(_GROUP, dict)
        if value is None:
            return None
        with _naming_damage(self._path(_GROUP)):
            group = from_json(value, Group)
        return group if group.last > self.committed().txid else None

    def notes_of(self, group: Group) -> Mapping[str, Any]:
        """Return what to publish of a decided group, by state.

        Raises:
            DivergenceError: it lies elsewhere, and is gone or damaged.
        """
        if group.notes is not None:
            return group.notes
        where = f"in {group.parts} values of the store"
        if group.file is not None:
            where = f"{self._rooms.get(group.beside, f'the table of state {group.beside!r}')}/{group.file}"
        try:
            notes: Mapping[str, Any] = json.loads(self._get_apart(group))
        except (OSError, KeyError, ValueError) as error:
            raise DivergenceError(
                f"the group of {transactions_words(group.first, group.last)} of topology {self.topology_id!r} is "
                f"decided, but the note to finish it from, {where}, can't be read ({error}); restore it, or run "
                "'txtopo repair'"
            ) from error
        return notes

    def _get_apart(self, group: Group) -> bytes:
        """Return the notes of a group that lie elsewhere."""
        if group.file is not None:
            return self._rooms[group.beside].get(group.file)
        parts = [self._store.read(self._part_path(group.last, at)) for at in range(group.parts)]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            raise FileNotFoundError(f"{len(parts) - len(found)} are missing")
        return b"".join(found)

    def save_metadata(self, begun: Sequence[TransactionMetadata]) -> None:
        """Make durable the metadata of begun transactions, and when they were planned."""
        self._write([Put(self._metadata_path(each.txid), _encode_begun(each)) for each in begun])

    def decide(self, group: Group) -> None:
        """Decide a group, whose writes are prepared: from here on it will be finished, whoever leads.

        The group before must be committed. A note that is too large for a value is durable elsewhere before the value
        names it.
        """
        value, apart = _ENCODER.encode(to_json(group)).encode(), None
        if len(value) > NOTE_BYTES_MAX:
            # A crash after this leaves a note that no group names; the next recovery removes it.
            apart = self._put_apart(group)
            value = _encode(to_json(apart))
        self._write([Put(self._path(_GROUP), value)])
        self._apart = apart

    def _put_apart(self, group: Group) -> Group:
        """Make the notes of a group durable elsewhere; return the group that says where."""
        content = _ENCODER.encode(group.notes).encode()
        beside = next((name for name in group.states if name in self._rooms), None)
        if beside is None:
            starts = range(0, len(content), VALUE_BYTES_MAX)
            for at, start in enumerate(starts):
                part = content[start : start + VALUE_BYTES_MAX]
                self._lead.write([Put(self._part_path(group.last, at), part)])
            return attrs.evolve(group, notes=None, parts=len(starts))
        name, room = f"{_NOTE_FILE}{self.epoch:010d}-{group.last:020d}.json", self._rooms[beside]
        try:
            room.put(name, content)
        except OSError as error:
            raise StopError(
                f"the note of the group can't be written to {room}/{name}: {error}; the group is not decided, and the "
                f"next start drops it. {remedy(error)} and start again",
                txid=group.first,
            ) from error
        return attrs.evolve(group, notes=None, file=name, beside=beside)

    def remove_notes(self) -> None:
        """Remove notes of this epoch and of earlier ones elsewhere; no group may be decided and uncommitted."""
        for room in self._rooms.values():
            for item in list(room.list(after=_NOTE_FILE)):
                if _NOTE_FILE <= item.path <= f"{_NOTE_FILE}{self.epoch:010d}~":
                    room.delete(item.path)
        if self._store.children(self._path(_NOTE)):
            self._lead.write([Delete(self._path(_NOTE))])

    def confirm_recovery(self) -> None:
        """Record that this epoch has recovered. The write needs the lead, so the values that were read are current."""
        self._lead.write([Put(self._path(_RECOVERED), _encode(self.epoch))])

    def timeline(self) -> Timeline:
        """Return the last epoch that the state knows of, and the turns up to it."""
        known = self._read(_TIMELINE, Timeline) or Timeline()
        return attrs.evolve(known, epoch=max(known.epoch, self._read(_RECOVERED, int) or 0))

    def commit(self, mark: CommittedMark, first: int) -> None:
        """Count the transactions from ``first`` to that of ``mark`` as committed; the next write makes it durable.

        All states of their group must be published. A crash before that write leaves the group's note above the mark:
        the next leader finds every state published, and sets the same mark.
        """
        with self._lock:
            # The mark goes first. If a store splits the step and a crash comes in between, begun() ignores the metadata
            # that is left.
            self._unsaved = [
                Put(self._path(_COMMITTED), _encode(to_json(mark))),
                *(change for change in self._unsaved if isinstance(change, Delete)),
                *(Delete(self._metadata_path(txid)) for txid in range(first, mark.txid + 1)),
                *([Delete(self._note_path(mark.txid))] if self._apart is not None and self._apart.parts else []),
            ]

    def flush(self) -> None:
        """Make durable what waits for the next write: the committed mark, and the time that a transaction takes."""
        self._write([])

    def _write(self, changes: Sequence[Change]) -> None:
        """Write changes in one step, and before them what waits for the next write.

        One write at a time: an older mark must not come after a newer one.
        """
        with self._lock:
            learnt_us = self._learnt_us
            is_learnt = learnt_us is not None and learnt_us != self._kept_us
            times = [Put(self._path(_TRANSACTION_TIME), _encode(learnt_us))] if is_learnt else []
            if self._points is not None:
                times.append(Put(self._path(_POINTS), _encode(to_json(self._points))))
            if self._unsaved:
                with durable_step("group.commit"):
                    self._lead.write([*self._unsaved, *changes, *times])
                if self._apart is not None and self._apart.file is not None:
                    self._rooms[self._apart.beside].delete(self._apart.file)
                self._apart = None
            elif changes or times:
                self._lead.write([*changes, *times])
            self._unsaved = []
            self._kept_us = learnt_us
            self._points = None

    def transaction_us(self) -> int | None:
        """Return the stored share of a job's time that a transaction takes, in microseconds; None if unknown."""
        value = None
        with contextlib.suppress(DivergenceError):  # nothing depends on it
            value = self._read(_TRANSACTION_TIME, int)
        return value if value is not None and value > 0 else None

    def record_transaction_us(self, transaction_us: int | None) -> None:
        """Set the time per transaction; the next write stores it."""
        self._learnt_us = transaction_us

    def points(self) -> KeptPoints:
        """Return the points as they are on record."""
        return self._read(_POINTS, KeptPoints) or KeptPoints()

    def record_points(self, points: KeptPoints) -> None:
        """Set the points; the next write stores them. A crash before that leaves the ones on record."""
        with self._lock:
            self._points = points

    def confirm_lead(self) -> None:
        """Raise LostLead if the lead is lost."""
        self._lead.write([])  # even an empty write compares the epoch with the store's; is_held() may not know yet

    def check_spouts(self, kinds: Mapping[str, str]) -> frozenset[str]:
        """Return the spouts that earlier runs did not have, which begin at the next transaction; none in the first run.

        Args:
            kinds: the kind of each spout, ``repeatable`` or ``opaque``, by its id.

        Raises:
            DivergenceError: earlier runs had a spout that is missing now, or is of another kind.
        """
        for name, kind in self._spouts.items():
            now = kinds.get(name)
            where = f"topology {self.topology_id!r} has run with spout {name!r} up to transaction"
            if now is None:
                raise DivergenceError(
                    f"{where} {self.committed().txid}, and the code does not have it: what its source has after that "
                    "would be left out, silently. Add it again under this id, with a source that has nothing more if "
                    "it is done; or give the topology another id and new tables"
                )
            if now != kind:
                raise DivergenceError(
                    f"{where} {self.committed().txid}, of kind {kind}; now it is {now}, and its metadata has another "
                    "meaning. Use the former spout, or give the topology another id and new tables"
                )
        new = frozenset(kinds.keys() - self._spouts.keys() if self._spouts else ())
        self._spouts = dict(kinds)
        return new

    def begin_fork(
        self,
        incarnation: str,
        mark: CommittedMark,
        begun: Sequence[TransactionMetadata],
        source: Mapping[str, bytes],
    ) -> None:
        """Begin the coordinator state of a fork, in place of what an interrupted try has left.

        :meth:`check_spouts` must have been called.

        Args:
            incarnation: that of the fork.
            mark: the last committed transaction.
            begun: the transactions after it that are begun.
            source: the values of the spout's coordinator, by path below its own.
        """
        values = {
            **{f"{_SOURCE}/{path}": value for path, value in source.items()},
            # Without a stamp, as versions before format 4 wrote it, if the original never recorded when it was planned.
            **{
                f"{_METADATA}/{each.txid:020d}": _encode(each.metadata)
                if each.planned == NEVER
                else _encode_begun(each)
                for each in begun
            },
            _FORMAT: _encode(to_json(COORDINATOR_STATE)),
            _COMMITTED: _encode(to_json(mark)),
            _SPOUTS: _encode(self._spouts),
            _INCARNATION: _encode(incarnation),  # last: a store may split the step
        }
        puts = [Put(self._path(name), value) for name, value in values.items()]
        self._lead.write([*(Delete(self._path(name)) for name in (_SOURCE, _METADATA)), *puts])
        self._known_incarnation = self.incarnation = incarnation

    def plan(self) -> Any:
        """Return the plan that is recorded and not carried out; None if there is none."""
        return self._read(_PLAN, dict)

    def begin_plan(self, plan: Any) -> None:
        """Record a plan."""
        self._lead.write([Put(self._path(_PLAN), _encode(plan))])

    def end_plan(self, mark: CommittedMark) -> None:
        """End a plan that keeps the begun transactions and the group in progress."""
        # No start has been since: what this epoch has rolled back is the tables' last transaction, so it is no turn.
        timeline = attrs.evolve(self.timeline(), epoch=self.epoch)
        self._lead.write(
            [
                Put(self._path(_COMMITTED), _encode(to_json(mark))),
                Put(self._path(_TIMELINE), _encode(to_json(timeline))),
                Delete(self._path(_PLAN)),
            ]
        )

    def end_rename(self, mark: CommittedMark, timeline: Timeline, former: CoordinatorState) -> None:
        """End the rename of a topology, or of its states: give it a mark with the new names, and its timeline.

        If ``former`` is another one, all of it moves here. A crash in between leaves the plan here, and the next call
        goes on: what is here by then was copied whole.
        """
        named = [
            Put(self._path(_COMMITTED), _encode(to_json(mark))),
            Put(self._path(_TIMELINE), _encode(to_json(timeline))),
        ]
        if former is self:
            self._lead.write([*named, Delete(self._path(_PLAN))])
            return
        if not self.is_begun:
            names = [name for name in self._store.children(former.topology_id) if name not in {_PLAN, _INCARNATION}]
            copied = [
                Put(self._path(path), value)
                for name in names
                for path, value in _values(self._store, former.topology_id, name)
            ]
            # The incarnation goes last, in case the store splits the step.
            with durable_step("rename.state"):
                self._lead.write([*copied, *named, Put(self._path(_INCARNATION), _encode(former.incarnation))])
        former.set_gone()
        self._lead.write([Delete(self._path(_PLAN))])

    def set_gone(self) -> None:
        """Remove all of it, its plan last: it lives on under another id."""
        self._lead.write([Delete(self._path(name)) for name in (*self._names(), _PLAN)])

    def rewrite(  # noqa: PLR0913, PLR0917 - all that a repair replaces
        self,
        incarnation: str,
        spouts: Mapping[str, str],
        mark: CommittedMark,
        timeline: Timeline,
        number: int,
        of_spout: Sequence[Change] = (),
    ) -> None:
        """End a repair by replacing the coordinator state; the old values move below ``before-repair-<number>``.

        ``of_spout`` are changes of the spout's own values, whose former state is kept there too.
        """
        names = (_INCARNATION, _SPOUTS, _COMMITTED, _TIMELINE, _GROUP, _NOTE, _METADATA)
        changes: list[Change] = [
            *self._set_aside_changes(names, number),
            Put(self._path(_FORMAT), _encode(to_json(COORDINATOR_STATE))),
            Put(self._path(_INCARNATION), _encode(incarnation)),
        ]
        if of_spout:
            changes += [*self._copies([_SOURCE], number), *of_spout]
        changes += [
            Put(self._path(_SPOUTS), _encode(dict(spouts))),
            Put(self._path(_COMMITTED), _encode(to_json(mark))),
            Put(self._path(_TIMELINE), _encode(to_json(timeline))),
            Put(self._path(_POINTS), _encode(to_json(self.points().until(mark.txid)))),
        ]
        # The plan goes last: if a store splits the step and a crash comes in between, no run starts, and the next
        # repair carries the plan out again.
        self._lead.write([*changes, Delete(self._path(_PLAN))])

    def set_aside(self, number: int) -> None:
        """End a repair by moving all coordinator state below ``before-repair-<number>``."""
        names = [name for name in self._names() if not name.startswith(_ASIDE)]
        self._lead.write([*self._set_aside_changes(names, number), Delete(self._path(_PLAN))])

    def asides(self) -> list[int]:
        """Return the numbers under which earlier repairs have set coordinator state aside."""
        return asides_in(self._store, self.topology_id)

    def _names(self) -> list[str]:
        """Return the names of all values but the plan, in the order in which they can be removed.

        The format goes last: if a store splits the step, what is left would be taken for an earlier version's.
        """
        names = [name for name in self._store.children(self.topology_id) if name != _PLAN]
        return sorted(names, key=lambda name: name == _FORMAT)

    def _set_aside_changes(self, names: Sequence[str], number: int) -> list[Change]:
        """Return changes that copy all values below some names and remove them there, and copies of old repairs."""
        old = [f"{_ASIDE}{each}" for each in self.asides() if each <= number - ASIDES_MAX]
        return [*self._copies(names, number), *(Delete(self._path(name)) for name in (*names, *old))]

    def _copies(self, names: Sequence[str], number: int) -> list[Change]:
        copies: list[Change] = []
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            value = self._store.read(self._path(name))
            aside = self._path(f"{_ASIDE}{number}/{name}")
            # If a store has split an earlier try, the copy holds the value from before the repair, and ``value`` may
            # be from the repair itself.
            if value is not None and self._store.read(aside) is None:
                copies.append(Put(aside, value))
            waiting += [f"{name}/{child}" for child in self._store.children(self._path(name))]
        return copies

    def _path(self, name: str) -> str:
        return f"{self.topology_id}/{name}"

    def _metadata_path(self, txid: int) -> str:
        return self._path(f"{_METADATA}/{txid:020d}")

    def _note_path(self, txid: int) -> str:
        return self._path(f"{_NOTE}/{txid:020d}")

    def _part_path(self, txid: int, at: int) -> str:
        return f"{self._note_path(txid)}/{at:06d}"

    def _read(self, name: str, kind: type[T]) -> T | None:
        return _value(self._store, self._path(name), kind)


def damage_in(store: Store, lead: Lead, topology_id: str) -> str | None:
    """Describe a value of a topology's coordinator state that can't be read; None if all can."""
    try:
        state = CoordinatorState(store, lead, topology_id)
        state.committed(), state.group(), state.timeline(), state.plan(), state.begun_as_far_as_known(), state.points()
    except DivergenceError as error:
        return error.message
    return None


def set_damaged_aside(store: Store, lead: Lead, topology_id: str) -> None:
    """Move all values of a topology below ``before-repair-<number>``, without reading what is in them."""
    asides = asides_in(store, topology_id)
    names = [name for name in store.children(topology_id) if not name.startswith(_ASIDE)]
    values = [each for name in names for each in _values(store, topology_id, name)]
    below = f"{topology_id}/{_ASIDE}{max(asides, default=0) + 1}"
    lead.write(
        [
            *(Put(f"{below}/{path}", value) for path, value in values),
            *(Delete(f"{topology_id}/{name}") for name in names),
        ]
    )


def asides_in(store: Store, topology_id: str) -> list[int]:
    """Return the numbers under which repairs have set a topology's coordinator state aside."""
    names = store.children(topology_id)
    return sorted(int(name.removeprefix(_ASIDE)) for name in names if name.startswith(_ASIDE))


def all_values(store: Store, topology_id: str) -> list[Change]:
    """Return all values of a topology, as changes that write them."""
    names = store.children(topology_id)
    return [Put(f"{topology_id}/{path}", value) for name in names for path, value in _values(store, topology_id, name)]


def copy_of(store: Store, topology_id: str) -> dict[str, bytes] | None:
    """Return a topology's coordinator state as of one moment, by path below the topology; without earlier repairs.

    The topology may be running. None if it writes faster than it can be read.
    """
    found: dict[str, bytes] | None = None
    for _ in range(_COPY_TRIES_MAX):
        names = [name for name in store.children(topology_id) if not name.startswith(_ASIDE)]
        again = {path: value for name in names for path, value in _values(store, topology_id, name)}
        if again == found:
            return found
        found = again
    return None


def room_of_spout(root: str, spout_id: str) -> str:
    """Return the path below which the coordinator of a spout keeps its values, below that of all spouts."""
    return f"{root}/{urllib.parse.quote(spout_id, safe='')}"


def source_in(values: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the values of the spouts' coordinators in a copy of coordinator state, by path below their own."""
    own = f"{_SOURCE}/"
    return {path.removeprefix(own): value for path, value in values.items() if path.startswith(own)}


def _values(store: Store, topology_id: str, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the value of a name, if any, and of all names below it."""
    value = store.read(f"{topology_id}/{name}")
    if value is not None:
        yield name, value
    for child in store.children(f"{topology_id}/{name}"):
        yield from _values(store, topology_id, f"{name}/{child}")


def committed_in(store: Store, topology_id: str) -> CommittedMark | None:
    """Return the last committed transaction that a store records, without the lead; None if it records none."""
    return _value(store, f"{topology_id}/{_COMMITTED}", CommittedMark)


def incarnation_in(store: Store, topology_id: str) -> str | None:
    """Return the incarnation that a store records, without the lead; None if it records none."""
    return _value(store, f"{topology_id}/{_INCARNATION}", str)


def _value(store: Store, path: str, kind: type[T]) -> T | None:
    """Return a value of a store; None if there is none."""
    value = store.read(path)
    if value is None:
        return None
    with _naming_damage(path):
        return from_json(json.loads(str(value, "utf-8")), kind)


@contextlib.contextmanager
def _naming_damage(path: str) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        raise DivergenceError(
            f"the value {path!r} of the coordinator state can't be read ({error!r}): it is damaged. Restore it from "
            "the same backup as the tables, or run 'txtopo repair', which rebuilds it from the journal"
        ) from error


def tables_of(states: Mapping[str, State]) -> dict[str, StateTable]:
    """Return the tables that can be inspected, by state."""
    return {name: table for name, state in states.items() if (table := state.table()) is not None}


def rooms_of(states: Mapping[str, State]) -> dict[str, Folder]:
    """Return the folders that may hold notes which are too large for a value, by state, in the order of declaration."""
    return {name: room for name, table in tables_of(states).items() if (room := table.notes()) is not None}


def as_json(metadata: Any) -> Any:
    """Return metadata as every later attempt sees it: encoded and decoded.

    Raises:
        RuleError: it is not JSON, or too large for a store.
    """
    return json.loads(_encode(metadata, METADATA_BYTES_MAX))


_ENCODER = json.JSONEncoder(separators=(",", ":"))
"""Shared, because json.dumps() would create one for each value."""


def _encode_begun(begun: TransactionMetadata) -> bytes:
    return _encode(begun.metadata) + b"\n" + _encode(to_json(begun.planned))


def _decode_begun(txid: int, value: bytes, latest_ms: int) -> TransactionMetadata:
    # A newline separates the two, as JSON without spaces has none. Versions before format 4 wrote no second line:
    # such a transaction counts as planned now, or with the one that follows it. No bolt has seen another time.
    metadata, _, planned = value.partition(b"\n")
    stamp = from_json(json.loads(planned), Planned) if planned else Planned(latest_ms)
    return TransactionMetadata(txid, json.loads(metadata), stamp)


def _encode(value: Any, bytes_max: int = VALUE_BYTES_MAX) -> bytes:
    try:
        encoded = _ENCODER.encode(value).encode()
    except (TypeError, ValueError) as error:
        raise RuleError(f"metadata must be JSON ({error}); return numbers, strings, lists and dictionaries") from error
    if len(encoded) > bytes_max:
        raise RuleError(
            f"metadata has {len(encoded)} bytes, more than the maximum of {bytes_max}; keep offsets in it, not data"
        )
    return encoded
