"""The part of a topology that writes a new state, which a backfill runs.

A component belongs to it if it requests the state, or one that such a component requests, or the clock by which one of
them expires; and all that is upstream of it. So every state that the part reads is written by the part itself. States
that the topology has already are written anew, into scratch tables, because the part reads them as they were.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import quote

import attrs

from txtopo.api.state import CanBeForked, State
from txtopo.errors import ConfigError
from txtopo.journal.backfills import folder_name
from txtopo.topology.plans.plan import Plan


@attrs.frozen
class BackfillPart:
    """The components that run for a new state, and the states that they write."""

    components: tuple[str, ...]
    """In topological order."""
    new: tuple[str, ...]
    """The states that get their history: the one that was asked for, and other new ones that its components use."""
    scratch: tuple[str, ...]
    """The states that the topology has already; they are written anew beside it, and removed at the end."""

    @property
    def folder_name(self) -> str:
        """The name of the backfill's folder, the same whichever of its new states it was asked for by."""
        return folder_name(self.new)

    def plan(self, whole: Plan, scratch: str) -> Plan:
        """Return the plan of this part, with the tables of scratch states in a folder.

        Raises:
            ConfigError: a state can't be written beside the topology, or is not a table.
        """
        states: dict[str, State] = {}
        for name, state in whole.states.items():
            if name in self.new:
                states[name] = state
            elif name in self.scratch:
                states[name] = _moved(name, state, f"{scratch}/{quote(name, safe='')}")
        for name in self.new:
            if states[name].table() is None:
                raise ConfigError(f"state {name!r} is not in a table, so it can't get a history; make it a DeltaState")
        return whole.part(self.components, states)


def part_of(plan: Plan, name: str, states_known: Collection[str]) -> BackfillPart:
    """Return the part that writes a new state, given the known ones; raise ConfigError if no component writes it."""
    requested = plan.requested_states
    states, components = {name}, set[str]()
    size = 0
    while size < len(states) + len(components):
        size = len(states) + len(components)
        components |= {each for each, requested_states in requested.items() if not states.isdisjoint(requested_states)}
        components |= {edge.source for edge in reversed(plan.edges) if edge.target in components}
        states |= {each for component in components for each in requested.get(component, ())}
        states |= _clocks_of(plan.states, states)
    if not components:
        raise ConfigError(
            f"no committer requests state {name!r} in its prepare(), so there is nothing to run for it; call "
            "context.state() there"
        )
    return BackfillPart(
        tuple(component.id for component in plan.components if component.id in components),
        tuple(state for state in plan.states if state in states and state not in states_known),
        tuple(state for state in plan.states if state in states and state in states_known),
    )


def _clocks_of(states: Mapping[str, State], names: Collection[str]) -> set[str]:
    living = (states[name].time_to_live for name in names if name in states)
    return {ttl.clock for ttl in living if ttl is not None}


def _moved(name: str, state: State, path: str) -> State:
    if not isinstance(state, CanBeForked):
        raise ConfigError(
            f"state {name!r}, which the components of the backfill use too, is a {type(state).__name__}, which can't "
            "be written anew beside the topology; only a DeltaState and a DeltaRows can"
        )
    return state.moved(path)
