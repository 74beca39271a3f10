"""Divergence: how coordinator state and tables can fail to belong together, found by looking alone.

A run looks before it opens a table, for opening makes what is missing and marks what is there; and again
after that, for until then an older coordinator, or anybody else, may write. What is found before stays true:

1. No coordinator of an older epoch writes to the store any more, so none begins a group that is not known here.
2. A table is where the coordinator state knows it, or, if a group is under way, where that group leaves it.
3. Each version after the one that the coordinator state knows as its own is txtopo's, or changes no row.
   And what a group under way has staged for a table that it has not written yet can still be carried out.
4. No table was opened by an epoch that the store has not got to: else the store is an older one.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from txtopo.api.state import OpenedState
from txtopo.backend.table import StateTable, TableDescription
from txtopo.errors import DivergenceError
from txtopo.recovery.coordinator_state import CommittedMark, CoordinatorState, GroupMark, StateMark

WAY_OUT = (
    "Bring back what was lost or replaced; or run 'txtopo repair' with this topology: it says what can be done, "
    "does what is safe, and asks before it does what is not"
)


class DivergenceKind(enum.Enum):
    """What is wrong with a table, or with what the coordinator state knows of it."""

    NO_TABLE_OF_OURS = "no table of ours"
    OTHER_OWNER = "of another topology or state"
    MISFIT = "other columns or another kind"
    MISSING = "missing"
    OTHER_INCARNATION = "of another incarnation"
    OTHER_TABLE = "another table"
    AHEAD = "ahead"
    BEHIND = "behind"
    FOREIGN_CHANGE = "changed by somebody else"
    STAGED_GONE = "a staged write can't be finished"
    NEWER_EPOCH = "opened by a newer epoch"


@attrs.frozen
class Divergence:
    """One thing that is found."""

    kind: DivergenceKind
    state: str
    text: str
    """What is wrong, with the txids of both sides."""
    txid: int | None = None
    """The table's last transaction."""


@attrs.frozen
class CoordinatorRecord:
    """What the coordinator state says.

    Args:
        topology_id: whose it is.
        incarnation: its incarnation; None if there is no coordinator state.
        epoch_max: the newest epoch that may have opened a table.
        committed: what is committed.
        group: the group under way, if one is.
    """

    topology_id: str
    incarnation: str | None
    epoch_max: int
    committed: CommittedMark
    group: GroupMark | None

    @staticmethod
    def of(coordinator_state: CoordinatorState, epoch_max: int) -> CoordinatorRecord:
        """Return what a coordinator state says."""
        incarnation = coordinator_state.incarnation if coordinator_state.is_begun else None
        return CoordinatorRecord(
            coordinator_state.topology_id,
            incarnation,
            epoch_max,
            coordinator_state.committed(),
            coordinator_state.group(),
        )

    def allowed(self, name: str) -> set[int]:
        """Return the txids that a state's table may be at; 0 where nothing was written."""
        mark = self.committed.states.get(name)
        txids = {(mark.txid if mark is not None else None) or 0}
        return txids | {self.group.last} if self.group is not None and name in self.group.states else txids

    def text(self, name: str) -> str:
        """Return how far the coordinator state is, in words."""
        if self.incarnation is None:
            return "there is no coordinator state (it is at transaction 0): it was wiped, or lies elsewhere"
        mark = self.committed.states.get(name)
        wrote = "has never written it" if mark is None else f"wrote it last at {mark.txid or 0}"
        return f"the coordinator state is at transaction {self.committed.txid} and {wrote}"


@attrs.frozen
class _Look:
    """A table, and what a look at it has shown."""

    table: StateTable
    description: TableDescription | None
    refusal: DivergenceError | None


def find_divergences(record: CoordinatorRecord, tables: Mapping[str, StateTable]) -> list[Divergence]:
    """Return what is wrong, at most one thing a table; the tables are looked at and not touched.

    Args:
        record: what the coordinator state says.
        tables: the tables of the states that have one to look at, by state.
    """
    looks = {name: _look_at(table) for name, table in tables.items()}
    group = record.group
    has_landed = group is not None and any(
        look.description is not None and look.description.last_txid == group.last
        for name, look in looks.items()
        if name in group.states
    )
    found = [
        _of_table(record if has_landed else attrs.evolve(record, group=None), name, look)
        for name, look in looks.items()
    ]
    return [each for each in found if each is not None]


def find_misplaced(record: CoordinatorRecord, opened: Mapping[str, OpenedState]) -> list[Divergence]:
    """Return which opened states, those without a table to look at among them, are not where they may be.

    Args:
        record: what the coordinator state says.
        opened: the states, by name.
    """
    found = []
    for name, state in opened.items():
        last = state.last_txid
        misplaced = _misplaced(record, name, state.identity, last)
        if misplaced is not None:
            kind, what = misplaced
            text = f"state {name!r} of topology {record.topology_id!r}: its table is at transaction {last or 0}{what}"
            found.append(Divergence(kind, name, text, last))
    return found


def refuse(divergences: list[Divergence], *, is_written: bool = False) -> None:
    """Raise what was found, all of it, with the way out.

    Args:
        divergences: what was found.
        is_written: whether something was written before it was.

    Raises:
        DivergenceError: something was found.
    """
    if divergences:
        texts = "; ".join(each.text for each in divergences)
        raise DivergenceError(f"{texts}. {'' if is_written else 'Nothing was written. '}{WAY_OUT}")


def _look_at(table: StateTable) -> _Look:
    try:
        return _Look(table, table.look(), None)
    except DivergenceError as error:
        return _Look(table, None, error)


def _of_table(record: CoordinatorRecord, name: str, look: _Look) -> Divergence | None:
    where = f"state {name!r} of topology {record.topology_id!r}"
    mark = record.committed.states.get(name)
    address = look.table.address
    if look.refusal is not None:
        text = f"{where}: {look.refusal.message.rstrip('.')}; {record.text(name)}"
        return Divergence(DivergenceKind.NO_TABLE_OF_OURS, name, text, look.refusal.txid)
    if look.description is None:
        if mark is None or mark.txid is None:
            return None
        text = f"{where}: its table, {address}, is gone, and a new one would be at transaction 0; {record.text(name)}"
        return Divergence(DivergenceKind.MISSING, name, text)
    found = _compare(record, name, look.description) or _look_closer(record, name, look.description, look.table, mark)
    if found is None:
        return None
    kind, what = found
    last = look.description.last_txid
    damage = "" if look.description.damage is None else f"; {look.description.damage}"
    return Divergence(kind, name, f"{where}: its table, {address}, is at transaction {last or 0}{what}{damage}", last)


def _compare(record: CoordinatorRecord, name: str, description: TableDescription) -> tuple[DivergenceKind, str] | None:
    """Return what is wrong with a table by what it says of itself, and how to go on after its txid."""
    known = record.text(name)
    if (description.topology_id, description.state) != (record.topology_id, name):
        owner = f"state {description.state!r} of topology {description.topology_id!r}"
        return DivergenceKind.OTHER_OWNER, f" and belongs to {owner}; {known}; give the state another path"
    if description.misfit is not None:
        return DivergenceKind.MISFIT, f", and {description.misfit}; {known}"
    if description.incarnation != record.incarnation:
        of_incarnation = f" of incarnation {description.incarnation!r} of the topology"
        if record.incarnation is None:
            return DivergenceKind.OTHER_INCARNATION, f"{of_incarnation}, but {known}"
        return (
            DivergenceKind.OTHER_INCARNATION,
            f"{of_incarnation}, but {known}, in incarnation {record.incarnation!r}",
        )
    return _misplaced(record, name, description.identity, description.last_txid)


def _misplaced(
    record: CoordinatorRecord, name: str, identity: str, last_txid: int | None
) -> tuple[DivergenceKind, str] | None:
    """Return what is wrong with a state by which table it has, and where that is."""
    known, mark = record.text(name), record.committed.states.get(name)
    if mark is not None and mark.identity != identity and (mark.txid or last_txid):
        return DivergenceKind.OTHER_TABLE, f" and is not the one that the coordinator state knows; {known}"
    last, allowed = last_txid or 0, record.allowed(name)
    if last in allowed:
        return None
    if last > max(allowed):
        reason = "the coordinator state was restored from an earlier moment, or somebody else wrote the table"
        return DivergenceKind.AHEAD, f", ahead of the coordinator state: {known}; {reason}"
    reason = "the table was restored from an earlier moment"
    return DivergenceKind.BEHIND, f", behind the coordinator state: {known}; {reason}"


def _look_closer(
    record: CoordinatorRecord, name: str, description: TableDescription, table: StateTable, mark: StateMark | None
) -> tuple[DivergenceKind, str] | None:
    """Return what is wrong with a table that is at a txid where it may be."""
    known = record.text(name)
    is_noted = mark is None or mark.version is not None
    change = table.foreign_change(mark.version if mark is not None else None) if is_noted else None
    if change is not None:
        rolled = "'txtopo repair' takes it back, 'txtopo repair --accept-foreign-writes' accepts it"
        return (
            DivergenceKind.FOREIGN_CHANGE,
            f", and somebody else has changed it since: {change}; {known}; {rolled}",
        )
    group = record.group
    if group is not None and description.last_txid != group.last:
        for staged in group.staged:
            obstacle = table.staged_obstacle(staged.location) if staged.state == name else None
            if obstacle is not None:
                what = f", and is to be written as of {group.last} from {staged.location}, {obstacle}; {known}"
                return DivergenceKind.STAGED_GONE, what
    if description.epoch > record.epoch_max:
        older = f"epoch {description.epoch} has opened it, and the coordinator state has got to {record.epoch_max} only"
        return (
            DivergenceKind.NEWER_EPOCH,
            f"; {known}; {older}: it was restored from an earlier moment, or lies elsewhere",
        )
    return None
