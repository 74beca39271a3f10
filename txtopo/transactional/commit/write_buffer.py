"""The write buffer of a commit group: the group's writes in memory, on top of the durable values of its states.

A group's writes are collected in memory and made durable together. Each transaction writes into a view of its own,
which is merged into the group's when its commit phase ends, and dropped if it fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from txtopo.api.state import OpenedState, TakesRows
from txtopo.transactional.commit.keyed_view import KeyedGroup
from txtopo.transactional.commit.rows_view import RowsGroup
from txtopo.transactional.commit.views import GroupState, Writing


def group_state(opened: OpenedState, writing: Writing | None = None, before: GroupState | None = None) -> GroupState:
    """Return a state for a new group; ``before`` is that of the group before, whose writes are being made."""
    if isinstance(opened, TakesRows):
        return RowsGroup(opened, opened, writing)
    return KeyedGroup(opened, writing, before if isinstance(before, KeyedGroup) else None)


def group_states(
    states: Mapping[str, OpenedState],
    writing: Writing | None = None,
    before: Mapping[str, GroupState] = MappingProxyType({}),
) -> dict[str, GroupState]:
    """Return each state for a new group, see :func:`group_state`; keys expire by the clock of the same group."""
    group = {name: group_state(opened, writing, before.get(name)) for name, opened in states.items()}
    for state in group.values():
        ttl = state.declared.time_to_live
        if ttl is not None and isinstance(state, KeyedGroup):
            state.clock = group[ttl.clock]
    return group
