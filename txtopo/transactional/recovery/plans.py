"""Plans: what changes a topology apart from its transactions is recorded whole before anything moves.

The plan is in the coordinator state, from before its first step until its last one, which removes it. No run commits
anything in between: one that finds a plan about which states there are carries it out first, and refuses any other. So
a plan that was interrupted is finished from the record, by whoever comes next; ``command`` is what made it, and
``way_on`` says how to finish it, as an advice. That of a fork is in the fork's folder.
:mod:`txtopo.transactional.recovery.operations.repair` carries out all of them but renames, which
:mod:`txtopo.transactional.recovery.operations.renaming` does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import attrs

from txtopo.api.components.planned import NEVER, Planned
from txtopo.api.store import Change, Put
from txtopo.failpoints import durable_step
from txtopo.files.formats import COORDINATOR_STATE
from txtopo.files.records import from_json, to_json
from txtopo.journal.turns import Rename, Timeline, Turn
from txtopo.transactional.recovery.checkpoints import Checkpoint
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState, StateMark
from txtopo.transactional.recovery.values import (
    COMMITTED,
    FORMAT,
    GROUP,
    INCARNATION,
    METADATA,
    NOTE,
    PLAN,
    POINTS,
    SOURCE,
    SPOUTS,
    TIMELINE,
    values_below,
)

_REPAIR_AGAIN = "run 'txtopo repair' again to finish it"


@attrs.frozen
class GoTo:
    """A plan that brings coordinator state and tables to one transaction."""

    txid: int
    """The last committed transaction after the repair."""
    metadata: Any
    incarnation: str
    spouts: Mapping[str, str]
    """The kind of each spout by its id."""
    states: Mapping[str, int]
    """The last txid of each table after the repair; 0 for none."""
    is_as_it_is: bool
    """Whether to keep the begun transactions and the group in progress."""
    number: int
    """Replaced values are kept below ``before-repair-<number>``."""
    marks: Mapping[str, StateMark] = attrs.field(factory=dict)
    """The marks of all states that the topology had or has had at that transaction."""
    planned: Planned = NEVER
    """When that transaction was planned."""
    until: int = 0
    """The last transaction that was committed when the plan was made: those after ``txid`` up to it begin anew."""
    unseen_after: int = 0
    """The transactions after this one, up to ``unseen_until``, are of a timeline that the journal has not seen: nobody
    knows their input."""
    unseen_until: int = 0
    """0 for none."""
    epoch: int = 0
    """The epoch that has recorded the plan, whose own part of the journal comes after; 0: it is not on record."""
    last_txids: Mapping[str, int] = attrs.field(factory=dict)
    """The states that the topology had when the plan was made, or has had, each with its last transaction."""
    is_rewind: bool = False
    """Whether ``txtopo rewind`` made it."""
    turns: tuple[Turn, ...] = ()
    """The turns that the topology had gone through where the transaction was found."""
    renames: tuple[Rename, ...] = ()
    """Its renames by then, and since."""
    forgotten: tuple[str, ...] = ()
    """The states that joined the topology later, by a backfill, and those of an unfinished backfill that has later
    transactions: their tables are moved aside, and they are unknown again."""

    is_beside: bool = False
    """Whether it is that of a fork, a second topology: it changes nothing of the first one."""

    @classmethod
    def of_fork(cls, each: Checkpoint, committed: CommittedMark) -> GoTo:
        """Return the plan of a fork that goes on from a checkpoint of a topology, which has committed a transaction."""
        # The journal may name states of a backfill that died just before it joined: that alone means nothing.
        marks = {name: mark for name, mark in each.states.items() if each.has(name)}
        states = {name: mark.txid or 0 for name, mark in marks.items() if name in committed.states}
        plan = cls(each.txid, each.metadata, each.incarnation, each.spouts, states, is_as_it_is=False, number=0)
        until = max(committed.txid, each.txid)
        return attrs.evolve(plan, marks=marks, planned=each.planned, until=until, last_txids=states, is_beside=True)

    @property
    def command(self) -> str:
        """The command that made it."""
        return "rewind" if self.is_rewind else "repair"

    @property
    def way_on(self) -> str:
        """How to finish it if it was interrupted, as an advice."""
        return "run 'txtopo rewind' with a TXID, or 'txtopo repair', to finish it" if self.is_rewind else _REPAIR_AGAIN


@attrs.frozen
class StartAnew:
    """A plan that moves tables, journal and coordinator state aside, so that the topology starts at transaction 1."""

    number: int
    """They are kept as ``before-repair-<number>``."""
    last_txids: Mapping[str, int] = attrs.field(factory=dict)
    """The states that the topology has, each with its last transaction."""
    command: ClassVar[str] = "repair"
    way_on: ClassVar[str] = _REPAIR_AGAIN


@attrs.frozen
class BeginEmpty:
    """A plan that begins states empty after the last committed transaction, because the user has asked for it.

    The states that the code lacks when it is carried out are left as they were: nothing is lost by that.
    """

    txid: int
    """That transaction."""
    states: tuple[str, ...]
    number: int
    """Their former tables are kept as ``before-repair-<number>``."""
    epoch: int
    """The epoch that has recorded the plan."""
    command: ClassVar[str] = "start with topology.state.start.empty"
    way_on: ClassVar[str] = "start it again, or run 'txtopo repair', to finish it"


@attrs.frozen
class Join:
    """A plan that makes states part of a topology, whose backfill has given them all of its transactions.

    If the code lacks one of them when it is carried out, none joins: the backfill can go on.
    """

    txid: int
    """The last of these."""
    states: Mapping[str, StateMark]
    """The marks of their tables, as the backfill has left them."""
    addresses: Mapping[str, str]
    """The addresses of the tables, as the journal has them."""
    epoch: int
    """The epoch that has recorded the plan."""
    command: ClassVar[str] = "backfill"
    way_on: ClassVar[str] = "start it, or run 'txtopo backfill' again or 'txtopo repair', to finish it"

    def after(self, mark: CommittedMark, names: Collection[str]) -> CommittedMark:
        """Return the mark of the last transaction once code with some states has carried it out."""
        return attrs.evolve(mark, states={**mark.states, **self.states}) if self.states.keys() <= {*names} else mark


@attrs.frozen
class Adopt:
    """A plan that accepts other writers' changes to the tables of some states as the states' own."""

    states: tuple[str, ...]
    epoch: int = 0
    """The epoch that has recorded the plan; 0: it is not on record."""
    command: ClassVar[str] = "repair"
    way_on: ClassVar[str] = _REPAIR_AGAIN


@attrs.frozen
class NewNames:
    """A plan that gives a topology another id, or some of its states other names; no row changes."""

    rename: Rename
    command: ClassVar[str] = "rename"
    way_on: ClassVar[str] = "run 'txtopo rename' again, with the new names in the code, to finish it"


Repair = GoTo | StartAnew | BeginEmpty | Join | Adopt
Recorded = Repair | NewNames


def record_plan(coordinator_state: CoordinatorState, plan: Recorded) -> None:
    """Record a plan; from here on, no run commits anything until it is carried out."""
    values = coordinator_state.values
    values.write([values.put(PLAN, {"plan": type(plan).__name__, **to_json(plan)})])


def recorded_plan(coordinator_state: CoordinatorState) -> Recorded | None:
    """Return the plan that was recorded and is not carried out; None if there is none."""
    value = coordinator_state.values.read(PLAN, dict)
    if value is None:
        return None
    known = (GoTo, StartAnew, BeginEmpty, Join, Adopt, NewNames)
    kinds: dict[str, type[Recorded]] = {kind.__name__: kind for kind in known}
    return from_json(value, kinds[value["plan"]])


def end_plan(coordinator_state: CoordinatorState, mark: CommittedMark) -> None:
    """End a plan that keeps the begun transactions and the group in progress."""
    # No start has been since: what this epoch has rolled back is the tables' last transaction, so it is no turn.
    values = coordinator_state.values
    timeline = attrs.evolve(coordinator_state.timeline(), epoch=coordinator_state.epoch)
    values.write([values.put(COMMITTED, to_json(mark)), values.put(TIMELINE, to_json(timeline)), values.delete(PLAN)])


def end_rename(
    coordinator_state: CoordinatorState, mark: CommittedMark, timeline: Timeline, former: CoordinatorState
) -> None:
    """End the rename of a topology, or of its states: give it a mark with the new names, and its timeline.

    If ``former`` is another one, all of it moves here. A crash in between leaves the plan here, and the next call
    goes on: what is here by then was copied whole.
    """
    values, before = coordinator_state.values, former.values
    named = [values.put(COMMITTED, to_json(mark)), values.put(TIMELINE, to_json(timeline))]
    if former is coordinator_state:
        values.write([*named, values.delete(PLAN)])
        return
    if not coordinator_state.is_begun:
        copied = [
            Put(values.path(path), value)
            for name in before.names()
            if name != INCARNATION
            for path, value in values_below(before.store, before.topology_id, name)
        ]
        # The incarnation goes last, in case the store splits the step.
        with durable_step("rename.state"):
            values.write([*copied, *named, values.put(INCARNATION, former.incarnation)])
    remove_all(former)
    values.write([values.delete(PLAN)])


def remove_all(coordinator_state: CoordinatorState) -> None:
    """Remove all of a coordinator state, its plan last: it lives on under another id."""
    values = coordinator_state.values
    values.write([values.delete(name) for name in (*values.names(), PLAN)])


def end_by_replacing(  # noqa: PLR0913, PLR0917 - all that a repair replaces
    coordinator_state: CoordinatorState,
    incarnation: str,
    spouts: Mapping[str, str],
    mark: CommittedMark,
    timeline: Timeline,
    number: int,
    of_spout: Sequence[Change] = (),
) -> None:
    """End a repair by replacing the coordinator state; the old values move below ``before-repair-<number>``.

    ``of_spout`` are changes of the spout's values, whose former state is kept there too.
    """
    values = coordinator_state.values
    changes: list[Change] = [
        *values.set_aside((INCARNATION, SPOUTS, COMMITTED, TIMELINE, GROUP, NOTE, METADATA), number),
        values.put(FORMAT, to_json(COORDINATOR_STATE)),
        values.put(INCARNATION, incarnation),
    ]
    if of_spout:
        changes += [*values.copy_aside([SOURCE], number), *of_spout]
    changes += [
        values.put(SPOUTS, dict(spouts)),
        values.put(COMMITTED, to_json(mark)),
        values.put(TIMELINE, to_json(timeline)),
        values.put(POINTS, to_json(coordinator_state.points().until(mark.txid))),
    ]
    # The plan goes last: if a store splits the step and a crash comes in between, no run starts, and the next
    # repair carries the plan out again.
    values.write([*changes, values.delete(PLAN)])


def end_by_setting_aside(coordinator_state: CoordinatorState, number: int) -> None:
    """End a repair by moving all coordinator state below ``before-repair-<number>``."""
    values = coordinator_state.values
    values.write([*values.set_all_aside(number), values.delete(PLAN)])
