"""The ways from where tables are to checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from txtopo.api.state import StateTable, TableDescription
from txtopo.transactional.recovery.checkpoints import Checkpoint
from txtopo.transactional.recovery.coordinator_state import StateMark
from txtopo.transactional.recovery.divergence import CoordinatorRecord
from txtopo.transactional.recovery.plans import GoTo


@attrs.frozen(kw_only=True)
class RollbackPlanner:
    """Says of a checkpoint which tables would be rolled back to it, what is in the way, and makes the plan.

    Tables and coordinator state agree.
    """

    record: CoordinatorRecord
    tables: Mapping[str, StateTable]
    descriptions: Mapping[str, TableDescription]
    optional: Collection[str]
    """The states that may come and go."""
    backfilled: Collection[str]
    """The states that may be forgotten at a checkpoint without them, because a backfill can give them their history
    again."""
    unfinished: Mapping[str, int]
    """The states of backfills that have not joined the topology, each with its last transaction."""
    kept: Mapping[str, Collection[int]]
    """By state, the transactions whose versions its table keeps, as far as they are of checkpoints."""

    def rollbacks(self, checkpoint: Checkpoint) -> tuple[tuple[str, ...], list[str]]:
        """Return the states whose tables must be rolled back to a checkpoint, and the obstacles to it."""
        rolled_back, obstacles = [], []
        for name in self.tables:
            if self._is_forgotten(checkpoint, name):
                continue
            target = self.mark_at(checkpoint, name).txid or 0
            description = self.descriptions.get(name)
            obstacle = self._obstacle(checkpoint, name, description)
            if obstacle is not None:
                obstacles.append(obstacle)
            elif description is None or self._is_at(name, description, target):
                continue
            elif (description.last_txid or 0) < target:
                obstacles.append(f"{name!r} is only at transaction {description.last_txid or 0}, not at {target}")
            elif not self._is_kept(name, target):
                why = self.tables[name].no_past
                obstacles.append(f"{name!r} can't go back to {target}: {why}" if why else version_is_gone(name, target))
            else:
                rolled_back.append(name)
        return tuple(rolled_back), obstacles

    def _is_kept(self, name: str, txid: int) -> bool:
        return txid in self.kept[name]

    def _is_at(self, name: str, description: TableDescription, txid: int) -> bool:
        del name
        return (description.last_txid or 0) == txid

    def _obstacle(self, checkpoint: Checkpoint, name: str, description: TableDescription | None) -> str | None:
        """Return in words why a state can't be at a checkpoint, whatever versions its table keeps; None if it can."""
        if not self._can_have(checkpoint, name):
            mark = checkpoint.states.get(name)
            since = "had no such state yet" if mark is None else f"was without it after transaction {mark.left_after}"
            return f"state {name!r} can't be at transaction {checkpoint.txid}: the topology {since}"
        target = self.mark_at(checkpoint, name).txid or 0
        if description is None:
            return f"the table of {name!r}, which had transaction {target}, is gone" if target else None
        if description.incarnation != checkpoint.incarnation:
            text = f"{description.incarnation!r}, not {checkpoint.incarnation!r}"
            return f"the table of {name!r} belongs to incarnation {text}"
        text = self.mark_at(checkpoint, name).identity or description.identity
        if text != description.identity and (target or description.last_txid):
            return f"the table of {name!r} is not the one in {checkpoint.source}"
        return None

    def _is_forgotten(self, checkpoint: Checkpoint, name: str) -> bool:
        is_later = name in self.backfilled and name not in checkpoint.states
        return is_later and self.tables[name].why_it_stays() is None

    def _can_have(self, checkpoint: Checkpoint, name: str) -> bool:
        """Whether a state has missed nothing at a checkpoint, or only what is on record."""
        is_there = checkpoint.txid == 0 or name in self.optional or checkpoint.has(name)
        return is_there or self._is_begun_later(checkpoint, name)

    def _is_begun_later(self, checkpoint: Checkpoint, name: str) -> bool:
        mark = self.record.committed.states.get(name)
        is_begun = mark is not None and mark.left_after is None and mark.begun_after >= checkpoint.txid
        return checkpoint.txid > 0 and is_begun and not checkpoint.has(name)

    def mark_at(self, checkpoint: Checkpoint, name: str) -> StateMark:
        """Return the mark that a state gets at a checkpoint, without what only its opened table knows."""
        if self._is_begun_later(checkpoint, name):  # empty at the checkpoint, it gets all transactions after it
            return StateMark("", None, begun_after=checkpoint.txid)
        return checkpoint.states.get(name, StateMark("", None))

    def plan(self, checkpoint: Checkpoint, number: int, *, is_as_it_is: bool) -> GoTo:
        """Return the plan that brings everything to a checkpoint to which there is no obstacle."""
        undone = [name for name, last in self.unfinished.items() if last > checkpoint.txid and not is_as_it_is]
        forgotten = [*(name for name in self.tables if self._is_forgotten(checkpoint, name)), *undone]
        names = [name for name in {**checkpoint.states, **self.tables} if name not in forgotten]
        marks = {name: self.mark_at(checkpoint, name) for name in names}
        return GoTo(
            checkpoint.txid,
            checkpoint.metadata,
            checkpoint.incarnation,
            checkpoint.spouts,
            {name: mark.txid or 0 for name, mark in marks.items()},
            is_as_it_is,
            number,
            marks,
            checkpoint.planned,
            turns=checkpoint.timeline.turns,
            renames=checkpoint.timeline.renames,
            forgotten=tuple(forgotten),
        )


def version_is_gone(name: str, txid: int) -> str:
    """Return in words that a state's table no longer has its version after a transaction."""
    return f"the version of {name!r} after transaction {txid} is gone (it is of no point, or was vacuumed)"
