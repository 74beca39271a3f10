"""The tables of a topology's states, without opening the states."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

from txtopo.api.state import State, StateTable, TableDescription
from txtopo.errors import ConfigError, DivergenceError
from txtopo.files.folder import Folder


def tables_of(states: Mapping[str, State]) -> dict[str, StateTable]:
    """Return the tables that can be inspected, by state."""
    return {name: table for name, state in states.items() if (table := state.table()) is not None}


def rooms_of(states: Mapping[str, State]) -> dict[str, Folder]:
    """Return the folders that may hold notes which are too large for a value, by state, in the order of declaration."""
    return {name: room for name, table in tables_of(states).items() if (room := table.notes()) is not None}


def descriptions_of(tables: Mapping[str, StateTable]) -> dict[str, TableDescription]:
    """Return the descriptions of those tables that are there and are txtopo's."""
    descriptions = {}
    for name, table in tables.items():
        try:
            description = table.describe()
        except DivergenceError:  # find_divergences() reports it
            continue
        if description is not None:
            descriptions[name] = description
    return descriptions


def next_number(asides: Iterable[int], tables: Iterable[StateTable]) -> int:
    """Return a number above those of all that lies aside, so that nothing of it is ever replaced."""
    return 1 + max([0, *asides, *(number for table in tables for number in table.asides())])


def refuse_what_stays(tables: Iterable[StateTable]) -> None:
    """Raise ConfigError if a table that is there can't be moved aside, before a plan to do so is recorded."""
    for table in tables:
        why = table.why_it_stays()
        if why is not None and table.describe() is not None:
            raise ConfigError(f"{why}; nothing was changed")


def growing(state: State) -> State:
    """Return a state whose table gets what is declared and can be had: new columns, and deletion vectors or none."""
    grown = copy.copy(state)
    grown.schema_evolution = "add"
    grown.turns_vectors = True
    return grown
