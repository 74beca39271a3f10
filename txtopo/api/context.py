"""The context that a spout or bolt is given: where it stands in the topology, and its state."""

from __future__ import annotations

from abc import ABC, abstractmethod

from txtopo.api.state import MapState


class TopologyContext(ABC):
    """Where a task stands in its topology."""

    topology_id: str
    """The id of the topology."""
    this_component_id: str
    """The id of the spout or bolt."""
    this_task_index: int
    """The index of this task among those of its component, from 0."""
    staging_dir: str = ""
    """A folder, the same for executors and driver, for files that a committer wants in the commit phase; empty where
    there is none. A file whose name begins with the txid and ends with ``.arrow`` is removed after its commit."""

    @abstractmethod
    def component_tasks(self, component: str) -> list[int]:
        """Return the task indices of a component: 0 to its parallelism less one."""

    @abstractmethod
    def state(self, name: str) -> MapState:
        """Return the state of that name, set on the builder by ``set_state``.

        Call it in ``prepare`` of a committer, or of a bolt below one. Reading and writing the state is for
        the commit phase only: for ``finish_batch``, and for ``execute`` of tuples from the commit phase.

        Raises:
            StateAccessError: there is no such state, or this component works ahead of the commit phase.
        """
