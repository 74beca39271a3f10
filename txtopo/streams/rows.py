"""The words for steps of rows: what each makes of a row depends on that row alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from txtopo import Fields
from txtopo.api.data.types import ddl_name
from txtopo.errors import FieldsError
from txtopo.row_wise.expressions import expression
from txtopo.row_wise.steps import EachBatch, EachRow, Explode, Filter, RowStep, Select, WithColumns
from txtopo.streams.shown import table_shown
from txtopo.streams.verbs import Verbs, step
from txtopo.text.suggestions import did_you_mean
from txtopo.topology.plans.description import fields_text

Names = str | Sequence[str]

_S = TypeVar("_S", bound="RowVerbs[Any]")


class HasFields(Verbs, ABC):
    """What has fields, and shows them."""

    @property
    @abstractmethod
    def fields(self) -> Fields:
        """The fields of a row, with their types."""

    def __repr__(self) -> str:
        """Return the fields."""
        return f"{type(self).__name__}({fields_text(self.fields)})"

    def _repr_html_(self) -> str:
        kinds = ("" if kind is None else ddl_name(kind) for kind in self.fields.types)
        return table_shown(("field", "type"), zip(self.fields, kinds, strict=True))


class RowVerbs(HasFields, Generic[_S]):
    """What can be said of the rows of a stream, and of its fields."""

    @abstractmethod
    def _rows(self, rows_step: RowStep) -> _S:
        """Return the stream after a step."""

    @step
    def filter(self, condition: Any) -> _S:
        """Keep the rows for which a condition is true, not false or null.

        Args:
            condition: an expression of polars, or the same in SQL: ``"price > 3"``; or the name of a boolean field.
        """
        predicate = expression(condition, self.fields)
        if predicate.kind != pa.bool_():
            raise FieldsError(f"{predicate.text} is {ddl_name(predicate.kind)}; a condition is true or false")
        return self._rows(Filter(predicate))

    @step
    def select(self, *columns: Any, **named: Any) -> _S:
        """Keep some fields, or expressions over them, in this order; those by keyword under that name.

        Args:
            columns: names of fields, or expressions with names of their own.
            named: an expression for each name; the name of a field gives it another one.
        """
        columns_given = [(None, column) for column in columns] + list(named.items())
        if not columns_given:
            raise FieldsError("it selects nothing; name the fields to keep")
        names: dict[str, str] = {}
        computed = []
        for name, each in columns_given:
            if isinstance(each, str) and (each in self.fields or each.isidentifier()):
                new, old = name or each, self._field(each)
            else:
                computed.append(expression(each, self.fields, name))
                new = old = computed[-1].name
            if new in names:
                raise FieldsError(f"{new!r} is selected twice; give one of both another name")
            names[new] = old
        renamed = {old for new, old in names.items() if new != old}
        renamed_twice = next((each for each in computed if each.name in renamed), None)
        if renamed_twice is not None:
            raise FieldsError(f"{renamed_twice.name!r} is both renamed and made anew; use two steps")
        stream: Any = self._rows(WithColumns(tuple(computed))) if computed else self
        return stream._rows(Select(names))  # type: ignore[no-any-return] # noqa: SLF001 - of this class, too

    @step
    def with_columns(self, *columns: Any, **named: Any) -> _S:
        """Add fields, or replace those of the same name; all expressions see the fields as they were before.

        Args:
            columns: expressions with names of their own, such as ``"price * qty AS total"``.
            named: an expression for each name.
        """
        expressions = [expression(column, self.fields) for column in columns]
        expressions += [expression(each, self.fields, name) for name, each in named.items()]
        names = [each.name for each in expressions]
        if not expressions:
            raise FieldsError("it adds nothing; write name=expression")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise FieldsError(f"{twice!r} is there twice; give each expression its own name")
        return self._rows(WithColumns(tuple(expressions)))

    @step
    def drop(self, *names: str) -> _S:
        """Leave out some fields."""
        dropped = {self._field(name) for name in names}
        remaining = [name for name in self.fields if name not in dropped]
        if not remaining:
            raise FieldsError("it leaves no field; keep one")
        return self._rows(Select({name: name for name in remaining}))

    @step
    def rename(self, names: Mapping[str, str]) -> _S:
        """Give some fields other names: ``{"old": "new"}``."""
        new = self.fields.renamed(names)
        return self._rows(Select(dict(zip(new, self.fields, strict=True))))

    @step
    def map(self, function: Callable[[dict[str, Any]], Any], fields: Fields) -> _S:
        """Call a function with each row.

        Args:
            function: takes a row, a dictionary by field; returns one, or a tuple in the order of ``fields``. It must
                pickle, depend on the row alone, and may raise a ``FailedException``, which replays the transaction.
            fields: the fields of what it returns, each with a type.
        """
        return self._rows(EachRow(function, _typed(fields), is_flat=False))

    @step
    def flat_map(self, function: Callable[[dict[str, Any]], Iterable[Any]], fields: Fields) -> _S:
        """Call a function with each row, which returns any number of rows; otherwise as :meth:`map`."""
        return self._rows(EachRow(function, _typed(fields), is_flat=True))

    @step
    def map_batches(self, function: Callable[[pa.Table], pa.Table], fields: Fields) -> _S:
        """Call a function with some rows of a transaction at a time, an Arrow table.

        Args:
            function: takes a table and returns one. How many rows it gets is no promise, so each row's result must
                depend on that row alone. It must pickle.
            fields: the fields of what it returns, each with a type.
        """
        return self._rows(EachBatch(function, _typed(fields)))

    @step
    def explode(self, field: str) -> _S:
        """Make a row of each element of a field, an array; none of one that is null or empty.

        The elements of an array of structs become fields of their own, in place of the array.
        """
        kind = self._type(field)
        if kind is None or not pa.types.is_list(kind):
            raise FieldsError(f"field {field!r} is {ddl_name(kind)}; only an array has elements")
        return self._rows(Explode(field))

    def _field(self, name: str) -> str:
        if not isinstance(name, str):
            raise FieldsError(f"{name!r} is no name of a field; write each name as a text, such as {self.fields[0]!r}")
        if name not in self.fields:
            near = did_you_mean(name, self.fields) or f"; the fields are {', '.join(self.fields)}"
            raise FieldsError(f"there is no field {name!r}{near}")
        return name

    def _type(self, name: str) -> Any:
        return self.fields.types[self.fields.index(self._field(name))]

    def _keys(self, keys_given: Names) -> tuple[str, ...]:
        names = tuple(map(self._field, (keys_given,) if isinstance(keys_given, str) else keys_given))
        if not names:
            raise FieldsError("it names no field; name those of the key")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise FieldsError(f"field {twice!r} is named twice")
        return names


def _typed(fields: Fields) -> Fields:
    if not len(fields):
        raise FieldsError("a function returns rows of at least one field")
    fields.arrow_schema()  # raises if one has no type
    return fields
