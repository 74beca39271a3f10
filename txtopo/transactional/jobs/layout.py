"""Layouts: where the tasks of a job's transactions run.

*Together*: all tasks of a transaction run in one partition, so a grouping moves tuples within a process and nothing is
shuffled. Best if a job holds enough transactions to keep every core busy.

*Spread*: the tasks of one transaction are spread over the partitions. Components connected by groupings that keep
tuples in their partition share a stage; every other grouping is a shuffle between two stages. Best for few, large
transactions, and required if Spark SQL runs a component or if a spout's task emits transactions in turn.

The layout of a job affects its speed, never its results.
"""

from __future__ import annotations

import enum

import attrs

from txtopo.topology.plans.plan import DATAFRAMES, Plan, PlannedComponent


class PartitionAssignment(enum.Enum):
    """How a stage's tasks are assigned to partitions."""

    BY_TRANSACTION = "by transaction"
    BY_TRANSACTION_AND_TASK = "by transaction and task"
    BY_TASK = "by task"
    """All transactions of a task in one partition, in order: for the tasks of a spout that emits in turn."""


@attrs.frozen
class Stage:
    """Components whose tasks run in the same partition, between two shuffles."""

    components: tuple[str, ...]
    assignment: PartitionAssignment

    def partition(self, transaction_index: int, task: int, partitions: int) -> int:
        """Return the partition of a task, for the transaction at an index in its job."""
        match self.assignment:
            case PartitionAssignment.BY_TRANSACTION:
                return transaction_index % partitions
            case PartitionAssignment.BY_TRANSACTION_AND_TASK:
                return (transaction_index + task) % partitions
            case PartitionAssignment.BY_TASK:
                return task % partitions


@attrs.frozen
class Layout:
    """The stages of the processing phase, in order, and the components that Spark SQL runs before each.

    ``dataframes[i]`` are the DataFrame components whose output is input of stage ``i`` or a later one.
    """

    partitions: int
    stages: tuple[Stage, ...]
    dataframes: tuple[tuple[str, ...], ...]

    @property
    def is_spread(self) -> bool:
        """Whether an attempt has tasks in several partitions, so that each of them answers for its own."""
        return self.stages[0].assignment is not PartitionAssignment.BY_TRANSACTION

    def stage_of(self, component: str) -> int | None:
        """Return the index of a component's stage; None if Spark SQL runs it."""
        for index, stage in enumerate(self.stages):
            if component in stage.components:
                return index
        return None


def runs_together(plan: Plan) -> bool:
    """Return whether a transaction's tasks may all run in one partition."""
    return not plan.emits_in_turn and not plan.dataframes


def lay_together(plan: Plan, partitions: int) -> Layout:
    """Return a layout that runs each transaction in one partition."""
    assert runs_together(plan), "DataFrames and spouts that emit in turn need the spread layout"
    components = tuple(component.id for component in plan.components)
    return Layout(partitions, (Stage(components, PartitionAssignment.BY_TRANSACTION),), ((),))


def lay_spread(plan: Plan, partitions: int) -> Layout:
    """Return a layout that spreads each transaction over all partitions."""
    # A component's level is the number of shuffles on the longest path to it: all of its input has arrived by then.
    levels: dict[str, int] = {}
    for component in plan.components:
        levels[component.id] = max(
            (levels[edge.source] + _is_boundary(plan, edge.source, component) for edge in plan.inputs(component.id)),
            default=0,
        )
    count = max(levels.values()) + 1
    stages, dataframes = [], []
    for level in range(count):
        at_level = [c for c in plan.components if levels[c.id] == level]
        python = tuple(c.id for c in at_level if c.kind not in DATAFRAMES)
        by_task = any(_emits_in_turn(plan, name) for name in python)
        stages.append(
            Stage(python, PartitionAssignment.BY_TASK if by_task else PartitionAssignment.BY_TRANSACTION_AND_TASK)
        )
        dataframes.append(tuple(c.id for c in at_level if c.kind in DATAFRAMES))
    return Layout(partitions, tuple(stages), tuple(dataframes))


def _is_boundary(plan: Plan, source: str, target: PlannedComponent) -> bool:
    """Return whether tuples from ``source`` to ``target`` leave their partition, which takes one more stage."""
    origin = plan.by_id[source]
    if origin.kind in DATAFRAMES or target.kind in DATAFRAMES:
        return True
    if _emits_in_turn(plan, source):
        return True
    return any(
        edge.grouping.moves(origin.tasks, target.tasks) for edge in plan.inputs(target.id) if edge.source == source
    )


def _emits_in_turn(plan: Plan, component: str) -> bool:
    return component in plan.semantics and plan.semantics[component].emits_in_turn
