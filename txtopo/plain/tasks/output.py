"""What a task emits with: its streams, how each chooses the tasks that get a tuple, and where tuples are put."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.components.context import EmitEvent, TaskHook
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import DEFAULT_STREAM, TupleSource
from txtopo.errors import FieldsError, TopologyError
from txtopo.plain.frames import Columns
from txtopo.plain.tasks.errors import ErrorReporter
from txtopo.plain.tasks.metrics import Counts
from txtopo.plain.tasks.outbox import ColumnsByTask, Outbox
from txtopo.plain.trees.acker import RandomBits
from txtopo.plain.trees.tuples import Edges, Roots
from txtopo.topology.plans.groupings import ByKey, Choice


@attrs.frozen
class OutputStream:
    """A stream that a task emits on."""

    name: str
    fields: Fields
    source: TupleSource
    number: int
    """The number of the task and stream, the same in all workers."""
    choices: Sequence[Choice]
    """How each edge chooses tasks, except edges of direct grouping."""
    direct_tasks: frozenset[int] | None
    """The tasks that ``emit_direct`` may name; None: the stream is not declared as direct."""

    def choose(self, values: Sequence[Any]) -> list[int]:
        """Return the tasks that get a tuple with these values; a task that two edges choose is there twice."""
        chosen: list[int] = []
        for choice in self.choices:
            if choice.one is not None:
                chosen.append(choice.one(values))
            elif choice.some is not None:
                chosen.extend(choice.some(values))
        return chosen


@attrs.define(eq=False)
class TaskOutput:
    """What a task's collector emits with: its streams by name, the worker's outbox, and what was counted.

    More hooks may be added to ``hooks`` at any time.
    """

    component: str
    task: int
    streams: Mapping[str, OutputStream]
    outbox: Outbox
    bits: RandomBits
    errors: ErrorReporter
    hooks: list[TaskHook] = attrs.field(factory=list)
    emitted: Counter[str] = attrs.field(factory=Counter, init=False)
    """Emitted tuples by stream, without those of the lane."""
    copies: int = attrs.field(default=0, init=False)
    """Those of the default stream, counted once for each task that got them."""
    columns: dict[str, ColumnsByTask] = attrs.field(init=False)

    @columns.default
    def _columns_of_streams(self) -> dict[str, ColumnsByTask]:
        return {name: ColumnsByTask(self.outbox, stream.number) for name, stream in self.streams.items()}

    def prepared(
        self, values: Sequence[Any], name: str, task: int | None = None
    ) -> tuple[OutputStream, tuple[Any, ...], list[int]]:
        """Return the stream of a tuple, its values as they are sent, and the tasks that get it.

        ``task`` is the one that ``emit_direct`` names; if it is None, the groupings choose.

        Raises:
            FieldsError: the component does not declare the stream, or the values do not fit it.
            TopologyError: the stream is direct and no task is named, or the other way round; or the task does not
                subscribe to it.
        """
        stream = self.streams.get(name)
        if stream is None:
            streams_text = ", ".join(map(repr, self.streams)) or "none; set its output_fields"
            raise FieldsError(f"there is no stream {name!r}; its streams are: {streams_text}", component=self.component)
        if task is None and stream.direct_tasks is not None:
            raise TopologyError(
                f"stream {name!r} is declared as direct; name the task by emit_direct", component=self.component
            )
        if task is not None and stream.direct_tasks is None:
            raise TopologyError(
                f"stream {name!r} is not declared as direct; declare it with direct=True", component=self.component
            )
        if task is not None and task not in (stream.direct_tasks or ()):
            tasks_text = ", ".join(map(str, sorted(stream.direct_tasks or ()))) or "none"
            raise TopologyError(
                f"task {task} does not take stream {name!r} by direct_grouping; tasks that do: {tasks_text}",
                component=self.component,
            )
        sent = self.values(stream, values)
        return stream, sent, stream.choose(sent) if task is None else [task]

    def values(self, stream: OutputStream, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return a tuple's values as they are sent; FieldsError if they are not as many as the fields, or one text."""
        if isinstance(values, (str, bytes)):
            raise FieldsError(
                f"emit takes the list of a tuple's values, not {values!r}; write emit([{values!r}])",
                component=self.component,
            )
        sent = tuple(values)
        if len(sent) != len(stream.fields):
            raise FieldsError(
                f"a tuple on stream {stream.name!r} has {len(stream.fields)} values, for {stream.fields}; "
                f"{len(sent)} were emitted",
                component=self.component,
            )
        return sent

    def send(self, stream: OutputStream, task: int, values: tuple[Any, ...], roots: Roots, edges: Edges) -> None:
        """Send a tuple to a task, here or in another worker."""
        self.columns[stream.name][task].add(values, roots, edges)

    def deliver(self) -> None:
        """Put the tuples for tasks of this worker into their queues; a flush of the outbox does it for all tasks."""
        for by_task in self.columns.values():
            for columns in by_task.local:
                if columns.values:
                    self.outbox.local[columns.task].put(columns.take())

    def sent(self, stream: OutputStream, values: tuple[Any, ...], tasks: list[int]) -> None:
        """Count a tuple that was sent, and tell the hooks."""
        self.emitted[stream.name] += 1
        if stream.name == DEFAULT_STREAM:
            self.copies += len(tasks)
        self.tell_emitted(values, stream.name, tasks)

    def tell_emitted(self, values: Any, stream: str, tasks: list[int]) -> None:
        """Tell the hooks that a tuple was emitted."""
        for hook in self.hooks:
            hook.emitted(EmitEvent(values, stream, self.task, tasks))

    def lane(self) -> SingleTargetStream | None:
        """Return the lane of the default stream; None if it has none."""
        stream = self.streams.get(DEFAULT_STREAM)
        if stream is None or stream.direct_tasks is not None or len(stream.choices) != 1:
            return None
        (choice,) = stream.choices
        return (
            None if choice.one is None else SingleTargetStream(self.columns[DEFAULT_STREAM], len(stream.fields), choice)
        )

    def counts(self, acked: int = 0, failed: int = 0) -> Counts:
        """Return what was counted, by this object and by a collector in the lane."""
        transferred = {name: by_task.sent() for name, by_task in self.columns.items()}
        in_lane = transferred.get(DEFAULT_STREAM, 0) - self.copies
        emitted = self.emitted + Counter({DEFAULT_STREAM: in_lane})
        return Counts(dict(emitted), sum(transferred.values()), 0, acked, failed)


class SingleTargetStream:
    """The default stream of a task, if each tuple goes to one task, as most do: emitted without a further call."""

    __slots__ = ("by_key", "choose", "columns", "key", "width")

    def __init__(self, columns: ColumnsByTask, width: int, choice: Choice) -> None:
        assert choice.one is not None, "each tuple goes to one task"
        self.columns = columns
        self.width = width
        """The number of values of a tuple."""
        self.choose = choice.one
        self.key: int | None = None
        """The position of the only value that ``choose`` looks at; None: it looks at others."""
        self.by_key: ByKey[Columns] = ByKey(columns.__getitem__)
        """The columns that get a tuple, by that value."""
        if choice.key is not None:
            task = choice.key.task
            self.key, self.by_key = choice.key.position, ByKey(lambda key: columns[task(key)])
