"""Fields: the names and optional types of the values in a tuple.

``Fields("word", "n")`` takes any picklable value. ``Fields("word: string", "n: long")`` (Spark DDL types)
is *columnar*: its tuples travel as Arrow columns, not as Python objects. The first field of every stream
is the attempt and never has a type: ``Fields("attempt", "word: string")`` is columnar.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txtopo.api.data.types import ddl_name, parse_type
from txtopo.errors import FieldsError
from txtopo.text.suggestions import did_you_mean

ATTEMPT_FIELD = "attempt"
"""The name of a stream's first field."""

ATTEMPT_FIELD_NAMES = frozenset({ATTEMPT_FIELD, "tx", "id"})
"""Names that the first field of a stream may have: txtopo's and the two that Storm's code uses."""


class Fields:
    """An ordered list of field names, each with an optional Spark type.

    Args:
        names: ``"name"`` or ``"name: type"`` each.

    Raises:
        FieldsError: a name is empty or used twice, or a type is not a Spark type.
    """

    __slots__ = ("_hash", "_positions", "columnar", "names", "types")

    names: tuple[str, ...]
    types: tuple[pa.DataType | None, ...]

    def __init__(self, *names: str) -> None:
        parsed = [_parse_field(name) for name in names]
        self.names = tuple(name for name, _ in parsed)
        self.types = tuple(kind for _, kind in parsed)
        self._hash = hash((self.names, self.types))  # cached because hashing Arrow types is slow
        self._positions = {name: position for position, name in enumerate(self.names)}
        if len(self._positions) != len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise FieldsError(f"field {twice!r} appears twice in {self}; give each field its own name")
        typed = self.types[1:] if self.types and self.types[0] is None else self.types
        self.columnar = bool(typed) and all(kind is not None for kind in typed)
        """Whether there are fields besides a leading attempt and all of them have types."""

    def index(self, name: str) -> int:
        """Return the position of a field.

        Raises:
            FieldsError: there is no such field; the message lists the existing ones.
        """
        position = self._positions.get(name)
        if position is None:
            near = did_you_mean(name, self.names)
            raise FieldsError(f"there is no field {name!r}{near}; the fields are {', '.join(self.names)}")
        return position

    def without_attempt(self) -> Fields:
        """Return the fields after the first one, which is the attempt."""
        return self.subset(self.names[1:])

    def with_attempt(self) -> Fields:
        """Return these fields with an untyped ``attempt`` field in front; unchanged if they start with one."""
        if self.names and self.names[0] == ATTEMPT_FIELD and self.types[0] is None:
            return self
        return Fields(ATTEMPT_FIELD, *self._specifications())

    def subset(self, names: Sequence[str]) -> Fields:
        """Return the named fields, in the given order, with their types."""
        specifications = self._specifications()
        return Fields(*(specifications[self.index(name)] for name in names))

    def renamed(self, names: Mapping[str, str]) -> Fields:
        """Return these fields with other names for some of them, and their types.

        Raises:
            FieldsError: there is no field of a name that is to be replaced, or a name is there twice then.
        """
        for name in names:
            self.index(name)
        pairs = zip(self.names, self._specifications(), strict=True)
        return Fields(*(f"{names.get(name, name)}{text.removeprefix(name)}" for name, text in pairs))

    def arrow_schema(self) -> pa.Schema:
        """Return the Arrow schema of these fields.

        Raises:
            FieldsError: a field has no type.
        """
        for name, kind in zip(self.names, self.types, strict=True):
            if kind is None:
                raise FieldsError(f"field {name!r} has no type; write it as '{name}: string' or another Spark type")
        return pa.schema(list(zip(self.names, self.types, strict=True)))

    def _specifications(self) -> list[str]:
        return [
            name if kind is None else f"{name}: {ddl_name(kind)}"
            for name, kind in zip(self.names, self.types, strict=True)
        ]

    def __add__(self, other: Fields) -> Fields:
        return Fields(*self._specifications(), *other._specifications())

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, position: int) -> str:
        return self.names[position]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fields) and (self.names, self.types) == (other.names, other.types)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Fields({', '.join(repr(text) for text in self._specifications())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _shared, tuple(self._specifications())


@functools.lru_cache(maxsize=1_024)
def _shared(*names: str) -> Fields:
    """Return fields that were pickled: each task of each attempt has the same ones."""
    return Fields(*names)


def _parse_field(text: str) -> tuple[str, pa.DataType | None]:
    if not isinstance(text, str):
        raise FieldsError(f"a field must be a string 'name' or 'name: type', not {text!r}")
    return _parsed(text)


@functools.lru_cache(maxsize=4_096)
def _parsed(text: str) -> tuple[str, pa.DataType | None]:
    name, colon, kind = text.partition(":")
    name = name.strip()
    if not name:
        raise FieldsError(f"field {text!r} has no name; write 'name' or 'name: type'")
    return name, parse_type(kind) if colon else None
