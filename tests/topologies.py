"""A topology of one committer: the smallest there is. :mod:`tests.acceptance.topologies` has larger ones."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import attrs

from state import MemoryState
from txtopo import Config, Fields, RunReport, Topology, TransactionalTopologyBuilder
from txtopo.api.state import State
from txtopo.assembly.threads import ThreadPools
from txtopo.engine.runner import run_with
from txtopo.testing.inline import inline_environment


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


def run_pausing(
    topology: Topology, pause: Callable[[float], object] = lambda _secs: None, config: Config | None = None
) -> RunReport:
    """Run a topology inline that does something else, or nothing, instead of pausing before another try."""

    class Pausing(ThreadPools):
        def sleep(self, duration_secs: float, until: Sequence[Future[None]] = ()) -> None:
            pause(duration_secs)

    environment = attrs.evolve(inline_environment(), make_threads=lambda jobs_max: Pausing(jobs_max, steps_max=1))
    return run_with(topology, config or Config(), environment)


def values_in(state: MemoryState) -> dict[Any, Any]:
    """Return the value of each key of a state in memory."""
    return {key: kept.value for key, kept in state.items().items()}
