"""The context that a spout or bolt receives: its place in the topology, and the topology's states."""

from __future__ import annotations

from abc import ABC, abstractmethod

from txtopo.api.state import MapState


class TopologyContext(ABC):
    """A task's place in its topology."""

    topology_id: str
    """The id of the topology."""
    this_component_id: str
    """The id of the spout or bolt."""
    this_task_index: int
    """The index of this task among those of its component, from 0."""
    staging_dir: str = ""
    """A folder shared by executors and driver for files that a committer reads in the commit phase; empty if there
    is none. txtopo removes a file after its commit if its name starts with the txid and ends with ``.arrow``."""

    @abstractmethod
    def component_tasks(self, component: str) -> list[int]:
        """Return the task indices of a component: 0 to its parallelism - 1."""

    @abstractmethod
    def state(self, name: str) -> MapState:
        """Return the state that the builder's ``set_state`` declared under ``name``.

        Call it in ``prepare`` of a committer or of a bolt below one. Read and write the state only in the commit
        phase: in ``finish_batch``, and in ``execute`` for tuples emitted in the commit phase.

        Raises:
            StateAccessError: there is no such state, or this component runs in the processing phase.
        """
