"""Plans: what changes a topology apart from its transactions is recorded whole before anything moves.

The plan is in the coordinator state, from before its first step until its last one, which removes it. No run commits
anything in between: one that finds a plan about which states there are carries it out first, and refuses any other. So
a plan that was interrupted is finished from the record, by whoever comes next. That of a fork is in the fork's folder.
:mod:`txtopo.transactional.recovery.operations.repair` carries out all of them but renames, which
:mod:`txtopo.transactional.recovery.operations.renaming` does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import attrs

from txtopo.api.components.planned import NEVER, Planned
from txtopo.files.records import from_json, to_json
from txtopo.journal.turns import Rename, Turn
from txtopo.transactional.recovery.checkpoints import Checkpoint
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState, StateMark
from txtopo.transactional.recovery.values import PLAN

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
    def beside(cls, each: Checkpoint, committed: CommittedMark) -> GoTo:
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
    """The command that made it."""
    way_on: ClassVar[str] = _REPAIR_AGAIN
    """How to finish it if it was interrupted, as an advice."""


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
    """What made it."""
    way_on: ClassVar[str] = "start it again, or run 'txtopo repair', to finish it"
    """How to finish it if it was interrupted, as an advice."""


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
    """What made it."""
    way_on: ClassVar[str] = "start it, or run 'txtopo backfill' again or 'txtopo repair', to finish it"
    """How to finish it if it was interrupted, as an advice."""

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
    """The command that made it."""
    way_on: ClassVar[str] = _REPAIR_AGAIN
    """How to finish it if it was interrupted, as an advice."""


@attrs.frozen
class NewNames:
    """A plan that gives a topology another id, or some of its states other names; no row changes."""

    rename: Rename
    command: ClassVar[str] = "rename"
    """The command that made it."""
    way_on: ClassVar[str] = "run 'txtopo rename' again, with the new names in the code, to finish it"
    """How to finish it if it was interrupted, as an advice."""


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
