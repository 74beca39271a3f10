"""A topology of one committer: the smallest there is. :mod:`tests.acceptance.topologies` has larger ones."""

from typing import Any

from state import MemoryState
from txtopo import Fields, Topology, TransactionalTopologyBuilder
from txtopo.api.state import State


def committing(
    spout: Any,
    committer: Any,
    tasks: int = 1,
    *,
    by: str | None = None,
    name: str = "count",
    topology_id: str = "t",
    spout_tasks: int = 1,
    **states: State,
) -> Topology:
    """Return ``spout`` → committer, by a field of its tuples or all in one task, with these states."""
    builder = TransactionalTopologyBuilder(topology_id, "spout", spout, spout_tasks)
    bolt = builder.set_committer_bolt(name, committer, tasks)
    if by is None:
        bolt.global_grouping("spout")
    else:
        bolt.fields_grouping("spout", Fields(by))
    for state_name, state in states.items():
        builder.set_state(state_name, state)
    return builder.build()


def values_in(state: MemoryState) -> dict[Any, Any]:
    """Return the value of each key of a state in memory."""
    return {key: kept.value for key, kept in state.items().items()}
