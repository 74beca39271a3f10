"""Divergence: finds out whether coordinator state and tables belong together, without changing either.

A run inspects the tables before it opens them, because opening creates missing tables and writes to existing ones. It
inspects them again afterwards, because until then an older coordinator may write. It relies on 1 and checks the rest:

1. No coordinator of an older epoch writes to the store any more, so the recorded group is the only decided one.
2. Each table is at its recorded txid or, if the decided group writes it, at the group's last txid.
3. Each table version after the recorded one was written by txtopo or changes no row. What the decided group has
   prepared and not published yet can still be published.
4. No table was opened by an epoch that the store has not reached; otherwise the store was restored from a backup.
5. Table and coordinator state have gone through the same turns, see :mod:`txtopo.journal.turns`:
   otherwise an equal txid is not the same transaction.
6. Each state has been in the topology at every committed transaction since it was begun. A state that was left out for
   a while, or is new, has missed transactions, and the user must ask to begin it empty.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.state import OpenedState, StateTable, TableDescription
from txtopo.errors import DivergenceError
from txtopo.journal.entries import DEAD_LETTERS
from txtopo.journal.turns import UNKNOWN, Timeline
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState, Folds, Group, StateMark

WAY_OUT = (
    "Restore what was lost or replaced; or run 'txtopo repair' with this topology: it shows what can be done, "
    "does what is safe, and asks before anything else"
)

ONE_BACKUP = (
    "Restore coordinator state, journal and all tables from one backup; or run 'txtopo repair' with this topology: it "
    "goes to the last transaction that all of them share, or takes the journal's word where the tables agree with it"
)

OTHER_NAME = (
    "If that is what it was called, run 'txtopo rename' with this topology, or give it the name again; else give each "
    "state another path, with a table of its own"
)
OTHER_LETTERS = "If that is what it was called, run 'txtopo rename'; else set topology.dead.letter.path to another one"

AS_IT_WAS = "Declare the state as it was, or give it another name and another path: that is a new state."
NO_ROWS = "No transaction has written to it: remove its folder, and the next run makes it as it is declared now."

START_EMPTY = "topology.state.start.empty"


class DivergenceKind(enum.Enum):
    """A kind of mismatch between a table and its record in the coordinator state."""

    NO_TABLE_OF_OURS = "no table of ours"
    OTHER_OWNER = "of another topology or state"
    MISFIT = "other columns or another kind"
    MISSING = "missing"
    OTHER_INCARNATION = "of another incarnation"
    OTHER_TABLE = "another table"
    AHEAD = "ahead"
    BEHIND = "behind"
    OTHER_TIMELINE = "of another timeline"
    FOREIGN_CHANGE = "changed by somebody else"
    NOTE_UNUSABLE = "a decided write can't be published"
    NEWER_EPOCH = "opened by a newer epoch"
    AWAY = "left out of the topology for a while"
    NEW = "new, and transactions are committed"
    REFOLDED = "made of something else"


@attrs.frozen
class Divergence:
    """One mismatch."""

    kind: DivergenceKind
    state: str
    text: str
    """A description of the mismatch, with the txids of both sides."""
    txid: int | None = None
    """The table's last transaction."""
    way_out: str = WAY_OUT
    address: str = ""
    what: str = ""
    """The end of the description, if the tables of several states may have it for one cause."""


@attrs.frozen
class CoordinatorRecord:
    """The parts of the coordinator state that tables are compared with."""

    topology_id: str
    incarnation: str | None
    """None if there is no coordinator state."""
    epoch_max: int
    """The newest epoch that may have opened a table."""
    committed: CommittedMark
    group: Group | None
    """The group that is decided and not committed, if any."""
    notes: Mapping[str, Any] = attrs.field(factory=dict)
    """Its notes, by state."""
    timeline: Timeline = UNKNOWN
    last_store: str = ""
    """Where the last run has kept its coordinator state, if the journal says so; told where there is none."""
    points: tuple[int, ...] = ()
    """The points on record."""
    folds: Folds = attrs.field(factory=dict)

    @property
    def decided(self) -> int:
        """The last transaction that is committed, or that recovery will commit, because its group is decided."""
        return self.committed.txid if self.group is None else self.group.last

    @classmethod
    def of(cls, coordinator_state: CoordinatorState, epoch_max: int, last_store: str = "") -> CoordinatorRecord:
        """Read the record from a coordinator state; see the attributes for the rest."""
        group = coordinator_state.group()
        notes: Mapping[str, Any] = {}
        if group is not None:
            with contextlib.suppress(DivergenceError):  # recovery stops there, and a diagnosis reports it
                notes = coordinator_state.notes_of(group)
        return cls(
            coordinator_state.topology_id,
            coordinator_state.incarnation if coordinator_state.is_begun else None,
            epoch_max,
            coordinator_state.committed(),
            group,
            notes,
            coordinator_state.timeline(),
            last_store,
            tuple(point.txid for point in coordinator_state.points().points),
            coordinator_state.folds,
        )

    def when_recovered(self) -> CoordinatorRecord:
        """Return the record after recovery, which finishes the decided group."""
        group = self.group
        if group is None:
            return self
        marks = marks_of_topology(self.committed, group.topology)
        return attrs.evolve(self, committed=group.mark(marks), group=None)

    def incomplete(self, names: Iterable[str], optional: Collection[str]) -> dict[str, DivergenceKind]:
        """Return the states that were not in the topology at every committed transaction, by name."""
        states = {}
        for name in names:
            mark = self.committed.states.get(name)
            # Before the first commit, a new state has missed nothing.
            if name in optional or (mark is None and not self.committed.txid):
                continue
            if mark is None or mark.left_after is not None:
                states[name] = DivergenceKind.NEW if mark is None else DivergenceKind.AWAY
        return states

    def allowed(self, name: str) -> set[int]:
        """Return the txids that a state's table may be at; 0 if nothing was written."""
        mark = self.committed.states.get(name)
        txids = {(mark.txid if mark is not None else None) or 0}
        return txids | {self.group.last} if self.group is not None and name in self.group.states else txids

    def text(self, name: str) -> str:
        """Return the txids in the coordinator state, in words."""
        if self.incarnation is None:
            where = "beside the first table or in topology.state.dir"
            kept = f"; the last run has kept it in {self.last_store}" if self.last_store else ""
            return (
                "there is no coordinator state (it is at transaction 0): it was wiped, or is in another place than "
                f"{where}{kept}"
            )
        mark = self.committed.states.get(name)
        wrote = "has no record of it" if mark is None else f"recorded its last write at {mark.txid or 0}"
        decided = "" if self.group is None else f", has decided those up to {self.group.last},"
        return f"the coordinator state is at transaction {self.committed.txid}{decided} and {wrote}"


def marks_of_topology(committed: CommittedMark, names: Iterable[str]) -> dict[str, StateMark]:
    """Return the state marks after further transactions: states of the topology are there, all others have left."""
    marks: dict[str, StateMark] = {}
    for name in names:
        mark = committed.states.get(name) or StateMark("", None)
        marks[name] = mark if mark.left_after is None else attrs.evolve(mark, left_after=None)
    for name, mark in committed.states.items():
        if name not in marks:
            has_just_left = mark.left_after is None
            marks[name] = attrs.evolve(mark, left_after=committed.txid) if has_just_left else mark
    return marks


def find_divergences(
    record: CoordinatorRecord, tables: Mapping[str, StateTable], to_begin: Collection[str] = ()
) -> list[Divergence]:
    """Return the mismatches, at most one for each table, without changing the tables.

    The tables of states in ``to_begin`` will be set aside, so it checks only that they may be.
    """
    compared = (_compared(record, name, table, is_to_begin=name in to_begin) for name, table in tables.items())
    return [divergence for divergence in compared if divergence is not None]


def find_incomplete(
    record: CoordinatorRecord, names: Iterable[str], optional: Collection[str], to_begin: Collection[str] = ()
) -> list[Divergence]:
    """Return those of the topology's states that missed committed transactions.

    ``record`` must be without a group in progress. States that may come and go (``optional``) or are begun empty
    (``to_begin``) are left out.
    """
    incomplete = {n: kind for n, kind in record.incomplete(names, optional).items() if n not in to_begin}
    if not incomplete:
        return []
    txid = record.committed.txid
    pairs = ",".join(f"{name}={txid}" for name in incomplete)
    which = " and ".join(map(repr, incomplete))
    pronoun = "it" if len(incomplete) == 1 else "them"
    new = [name for name, kind in incomplete.items() if kind is DivergenceKind.NEW]
    backfill = "".join(f"; or run 'txtopo backfill MODULE {name}', which gives it its history" for name in new)
    way_out = (
        f"Take {which} out of the topology again{backfill}; or start {pronoun} empty from here on, with "
        f"{START_EMPTY}={pairs}, which 'txtopo audit' shows for ever; or run 'txtopo repair' with this topology: it "
        f"goes back to where the topology had all of its states, if it can, or starts anew with --start-anew."
    )
    divergences = []
    for name, kind in incomplete.items():
        where = f"state {name!r} of topology {record.topology_id!r}"
        if kind is DivergenceKind.NEW:
            text = (
                f"{where} is new: its table would begin at transaction 0, but the coordinator state is at transaction "
                f"{txid}, so it would lack the part of all transactions up to that (a state under another name is a "
                "new one, too, until 'txtopo rename')"
            )
        else:
            left = record.committed.states[name].left_after
            text = (
                f"{where} was left out of the topology after transaction {left}, and the coordinator state is at "
                f"transaction {txid}, so it lacks the part of all transactions in between"
            )
        divergences.append(Divergence(kind, name, text, way_out=way_out))
    return divergences


def find_refolded(
    record: CoordinatorRecord, folds: Mapping[str, Mapping[str, str]], to_begin: Collection[str] = ()
) -> list[Divergence]:
    """Return the states into whose columns the code folds, in words, something else than what they are made of.

    ``record`` has no group in progress; the states ``to_begin`` are begun empty.
    """
    divergences = []
    for name, folds_now in folds.items():
        mark = record.committed.states.get(name)
        if mark is None or not mark.txid or name in to_begin:  # 0: it went back to before its first one
            continue
        folds_before = record.folds.get(mark.identity, {})
        for column, how in folds_now.items():
            before, after = folds_before.get(column, (how, 0))
            if before == how or mark.txid <= after:
                continue
            text = (
                f"state {name!r} of topology {record.topology_id!r}{f', column {column!r},' if column else ''} is made "
                f"of {before} up to transaction {mark.txid}, but the code has {how}"
            )
            way_out = (
                "Let the code make it as before; or give the column, or the state and its table, another name; or go "
                "back to before its first transaction with 'txtopo rewind'"
            )
            divergences.append(Divergence(DivergenceKind.REFOLDED, name, text, mark.txid, way_out))
    return divergences


def find_mismatched(record: CoordinatorRecord, opened: Mapping[str, OpenedState]) -> list[Divergence]:
    """Return the mismatches of opened states by identity and txid, also for states without a table to inspect."""
    divergences = []
    for name, state in opened.items():
        last = state.last_txid
        for kind, what in (*_exchanged(record, name, state.identity, last), *_off_txid(record, name, last))[:1]:
            text = f"state {name!r} of topology {record.topology_id!r}: its table is at transaction {last or 0}{what}"
            divergences.append(Divergence(kind, name, text, last))
    return divergences


def refuse(divergences: list[Divergence], *, is_written: bool = False) -> None:
    """Raise all mismatches, if any, as one DivergenceError with the remedy; it says so if nothing is written."""
    if divergences:
        texts = "; ".join(_by_cause(divergences))
        # Most have the same way out, which is said once.
        ways_out = ". ".join(dict.fromkeys(found.way_out for found in divergences if found.way_out))
        raise DivergenceError(f"{texts}. {'' if is_written else 'Nothing was written. '}{ways_out}".rstrip())


def refuse_two_timelines(coordinator_state: CoordinatorState, tables: Mapping[str, StateTable]) -> None:
    """Refuse tables of another timeline; they may be further than the coordinator state, as the topology may run."""
    divergences = find_divergences(CoordinatorRecord.of(coordinator_state, coordinator_state.epoch), tables)
    refuse([divergence for divergence in divergences if divergence.kind is DivergenceKind.OTHER_TIMELINE])


def _by_cause(divergences: Sequence[Divergence]) -> Iterator[str]:
    """Yield the descriptions, one for all tables that have the same cause."""
    groups: dict[tuple[DivergenceKind, str], list[Divergence]] = {}
    for divergence in divergences:
        groups.setdefault((divergence.kind, divergence.what or divergence.text), []).append(divergence)
    for (_, text), states in groups.items():
        if len(states) == 1:
            yield states[0].text
            continue
        names, addresses = (
            " and ".join(repr(divergence.state) for divergence in states),
            ", ".join(divergence.address for divergence in states),
        )
        txids = sorted({divergence.txid or 0 for divergence in states})
        at = f"transaction {txids[0]}" if len(txids) == 1 else f"transactions {txids[0]} to {txids[-1]}"
        yield f"states {names}: each of their tables, {addresses}, is at {at}{text}"


def _compared(record: CoordinatorRecord, name: str, table: StateTable, *, is_to_begin: bool) -> Divergence | None:
    where, record_text = f"state {name!r} of topology {record.topology_id!r}", record.text(name)
    try:
        description = table.describe()
    except DivergenceError as error:
        text = f"{where}: {error.message.rstrip('.')}"
        if record.incarnation is None:  # the error says what to do; where nothing was begun, nothing was lost
            return Divergence(DivergenceKind.NO_TABLE_OF_OURS, name, text, error.txid, way_out="")
        return Divergence(DivergenceKind.NO_TABLE_OF_OURS, name, f"{text}; {record_text}", error.txid)
    if description is None:
        mark = record.committed.states.get(name)
        if is_to_begin or mark is None or mark.txid is None:  # nothing was written to it, so opening may make a new one
            return None
        text = (
            f"{where}: its table, {table.address}, is gone, or elsewhere if the state's path has changed: then move it "
            f"here; a new one would be at transaction 0; {record_text}"
        )
        return Divergence(DivergenceKind.MISSING, name, text)
    # A newer epoch has opened it: the store was restored or is a copy, and another coordinator may write the table.
    is_newer = description.incarnation == record.incarnation and description.epoch > record.epoch_max
    may_go = is_to_begin and _is_own(record, name, description) and not is_newer
    mismatch = None if may_go else _mismatch(record, name, description, table)
    if mismatch is None:
        return None
    kind, what = mismatch
    last = description.last_txid
    damage = "" if description.damage is None else f"; {description.damage}"
    text = f"{where}: its table, {table.address}, is at transaction {last or 0}{what}{damage}"
    match kind:
        case DivergenceKind.OTHER_TIMELINE:
            return Divergence(kind, name, text, last, ONE_BACKUP)
        case DivergenceKind.MISFIT:
            return Divergence(kind, name, text, last, AS_IT_WAS if last else NO_ROWS)
        case DivergenceKind.OTHER_OWNER:
            way_out = OTHER_LETTERS if name == DEAD_LETTERS else OTHER_NAME
        case _:
            way_out = WAY_OUT
    return Divergence(kind, name, text, last, way_out, table.address, what)


_Mismatches = Iterator[tuple[DivergenceKind, str]]
"""Kinds of mismatch, each with the end of its text. Only the first one counts: a look relies on those before it."""


def _mismatch(
    record: CoordinatorRecord, name: str, description: TableDescription, table: StateTable
) -> tuple[DivergenceKind, str] | None:
    last = description.last_txid
    looks = (
        _of_others(record, name, description),
        _exchanged(record, name, description.identity, last),
        _off_timeline(record, name, description, table),
        _off_txid(record, name, last),
        _changed(record, name, description, table),
    )
    return next(itertools.chain.from_iterable(looks), None)


def _is_own(record: CoordinatorRecord, name: str, description: TableDescription) -> bool:
    return (description.topology_id, description.state) == (record.topology_id, name)


def _of_others(record: CoordinatorRecord, name: str, description: TableDescription) -> _Mismatches:
    """Look at the owner, the declaration and the incarnation."""
    record_text, topology = record.text(name), f"topology {description.topology_id!r}"
    if not _is_own(record, name, description) and description.state == name:
        of_own = "" if record.incarnation is None else f"; {record_text}"
        yield DivergenceKind.OTHER_OWNER, f" and belongs to {topology}, not to {record.topology_id!r}{of_own}"
    elif not _is_own(record, name, description):
        yield DivergenceKind.OTHER_OWNER, f" and belongs to state {description.state!r} of {topology}; {record_text}"
    if description.misfit is not None:
        yield DivergenceKind.MISFIT, f", and {description.misfit}; {record_text}"
    if description.incarnation != record.incarnation:
        incarnation_text = "" if record.incarnation is None else f", in incarnation {record.incarnation!r}"
        of_incarnation = f" and belongs to incarnation {description.incarnation!r} of the topology"
        yield DivergenceKind.OTHER_INCARNATION, f"{of_incarnation}, but {record_text}{incarnation_text}"


def _exchanged(record: CoordinatorRecord, name: str, identity: str, last_txid: int | None) -> _Mismatches:
    mark = record.committed.states.get(name)
    # Identity does not matter as long as neither table has a write: an empty one in the place of an empty one is right.
    if mark is not None and mark.identity != identity and (mark.txid or last_txid):
        text = f" and is not the one that the coordinator state has recorded; {record.text(name)}"
        yield DivergenceKind.OTHER_TABLE, text


def _off_timeline(record: CoordinatorRecord, name: str, found: TableDescription, table: StateTable) -> _Mismatches:
    """Look for a turn that only one of table and coordinator state has gone through, and that has undone the other."""
    last, mark = found.last_txid or 0, record.committed.states.get(name)
    recorded = [(mark.txid if mark is not None else None) or 0, *(record.allowed(name) & {last})]
    shared = record.timeline.shared_until(table, found, record.committed.txid, max(recorded))
    if shared is not None:
        text = (
            f", of another timeline: a rewind or a repair went back, and only up to transaction {shared} are the two "
            f"the same; {record.text(name)}; the coordinator state or the table was restored from a backup"
        )
        yield DivergenceKind.OTHER_TIMELINE, text


def _off_txid(record: CoordinatorRecord, name: str, last_txid: int | None) -> _Mismatches:
    record_text, last, allowed = record.text(name), last_txid or 0, record.allowed(name)
    if last > max(allowed):
        reason = "the coordinator state was restored from a backup, or another writer wrote the table"
        yield DivergenceKind.AHEAD, f", ahead of the coordinator state: {record_text}; {reason}"
    elif last not in allowed:
        reason = "the table was restored from a backup"
        yield DivergenceKind.BEHIND, f", behind the coordinator state: {record_text}; {reason}"


def _changed(record: CoordinatorRecord, name: str, description: TableDescription, table: StateTable) -> _Mismatches:
    """Look at the versions and the epoch of a table whose txid is right."""
    record_text, mark, group = record.text(name), record.committed.states.get(name), record.group
    # A mark of an earlier version of txtopo names no table version, so there is nothing to compare from.
    is_noted = mark is None or mark.version is not None
    change = table.foreign_change(mark.version if mark is not None else None) if is_noted else None
    if change is not None:
        rolled = "'txtopo repair' undoes the change, 'txtopo repair --accept-foreign-writes' accepts it"
        if description.alteration is not None:
            change, rolled = f"{change}, and now {description.alteration}", "'txtopo repair' undoes the change"
        text = f", and another writer has changed it since: {change}; {record_text}; {rolled}"
        yield DivergenceKind.FOREIGN_CHANGE, text
    obstacle = table.obstacle(group.last, record.notes[name]) if group is not None and name in record.notes else None
    if group is not None and obstacle is not None:
        text = f", and {group.last} can't be finished from what was prepared for it, {obstacle}; {record_text}"
        yield DivergenceKind.NOTE_UNUSABLE, text
    if description.epoch > record.epoch_max:
        older = f"epoch {description.epoch} has opened it, but the coordinator state is at epoch {record.epoch_max}"
        text = f"; {record_text}; {older}: it was restored from a backup, or is in another place"
        yield DivergenceKind.NEWER_EPOCH, text
