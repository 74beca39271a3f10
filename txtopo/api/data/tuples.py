"""Tuples: what a bolt's ``execute`` receives, one by one or many at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, overload

import attrs

from txtopo.api.data.fields import Fields
from txtopo.attempts import TransactionAttempt

DEFAULT_STREAM = "default"
"""The stream that a spout or bolt emits on if it names none."""


@attrs.frozen
class TupleSource:
    """The origin of the tuples of a chunk, which all of them share."""

    component: str
    stream: str
    task: int
    fields: Fields
    positions: Mapping[str, int] = attrs.field(init=False, eq=False, repr=False)
    """The position of each field in a tuple's values."""

    @positions.default
    def _positions_of_fields(self) -> Mapping[str, int]:
        return {name: position for position, name in enumerate(self.fields.names)}


class Tuple:
    """One tuple of a stream; its first value is the attempt.

    ``tuple["word"]`` and ``tuple[1]`` return one value, ``values`` returns all.
    """

    __slots__ = ("source", "values")

    values: Sequence[Any]
    source: TupleSource

    def __init__(self, values: Sequence[Any], source: TupleSource) -> None:
        self.values = values
        self.source = source

    def __getitem__(self, key: str | int) -> Any:
        if key.__class__ is str:  # the hottest line of the code base: faster than isinstance()
            try:
                return self.values[self.source.positions[key]]
            except KeyError:
                return self.values[self.source.fields.index(key)]
        try:
            return self.values[key]  # type: ignore[index] # a subclass of str raises TypeError, handled below
        except TypeError:
            if isinstance(key, str):
                return self.values[self.source.fields.index(key)]
            raise

    @property
    def attempt(self) -> TransactionAttempt:
        """The attempt this tuple belongs to: its first value."""
        attempt: TransactionAttempt = self.values[0]
        return attempt

    @property
    def fields(self) -> Fields:
        """The fields of the stream, the attempt first."""
        return self.source.fields

    @property
    def source_component(self) -> str:
        """The id of the spout or bolt that emitted this tuple."""
        return self.source.component

    @property
    def source_stream(self) -> str:
        """The stream it was emitted on."""
        return self.source.stream

    @property
    def source_task(self) -> int:
        """The index of the task that emitted it, from 0."""
        return self.source.task

    def select(self, fields: Fields) -> list[Any]:
        """Return the values of the given fields, in their order."""
        return [self[name] for name in fields]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __contains__(self, name: object) -> bool:
        return name in self.source.fields

    def __repr__(self) -> str:
        pairs = ", ".join(f"{name}={value!r}" for name, value in zip(self.fields, self.values, strict=False))
        return f"Tuple({self.source_component}/{self.source_stream}: {pairs})"


class Tuples(Sequence[Tuple]):
    """Tuples that a rich bolt receives at once, in their order: all of one stream of one component.

    ``tuples[0]``, ``len(tuples)`` and ``for tuple in tuples`` work as with a list. ``tuples.column("word")`` and
    ``tuples.values`` make no objects, so they are faster than to look at each tuple.
    """

    __slots__ = ("_tuples", "source", "values")

    values: Sequence[Sequence[Any]]
    """The values of each tuple."""
    source: TupleSource
    """Where the first one comes from; the others may come from other tasks of the same component."""

    def __init__(self, tuples: Sequence[Tuple]) -> None:
        self._tuples: Sequence[Tuple] | None = tuples
        self.values = [each.values for each in tuples]
        self.source = tuples[0].source

    def column(self, field: str) -> list[Any]:
        """Return the value of a field in each tuple.

        Raises:
            FieldsError: the stream has no such field.
        """
        return list(map(itemgetter(self.fields.index(field)), self.values))

    @property
    def fields(self) -> Fields:
        """The fields of the stream."""
        return self.source.fields

    @property
    def source_component(self) -> str:
        """The id of the spout or bolt that emitted the tuples."""
        return self.source.component

    @property
    def source_stream(self) -> str:
        """The stream they were emitted on."""
        return self.source.stream

    def _objects(self) -> Sequence[Tuple]:
        assert self._tuples is not None, "given at the start"
        return self._tuples

    @overload
    def __getitem__(self, index: int) -> Tuple: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Tuple]: ...

    def __getitem__(self, index: int | slice) -> Tuple | Sequence[Tuple]:
        return self._objects()[index]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Tuple]:
        return iter(self._objects())

    def __repr__(self) -> str:
        return f"Tuples({len(self)} of {self.source_component}/{self.source_stream})"
