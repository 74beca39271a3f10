"""Row-wise steps: what each makes of a row, and the fields after it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from committers.aggregates.fields import fields_of
from txtopo import Fields
from txtopo.api.data.types import ddl_name, python_values
from txtopo.columnar.conversion import cast_rows, fitted_array
from txtopo.errors import FieldsError
from txtopo.row_wise.expressions import Expression


class RowStep(ABC):
    """A step whose result for a row depends on that row alone."""

    verb: ClassVar[str]
    """What the user has called."""

    @abstractmethod
    def fields_after(self, fields: Fields) -> Fields:
        """Return the fields after the step."""

    def made_of(self, fields: Fields) -> Mapping[str, Sequence[str]]:
        """Return of each field after the step the fields that it is made of; by default of the same one."""
        return {name: [name] for name in self.fields_after(fields)}

    @property
    def shown(self) -> str:
        """What it does, for people."""
        return self.verb


@attrs.frozen
class Filter(RowStep):
    """Keeps the rows for which an expression is true, not false or null."""

    verb = "filter"
    condition: Expression

    def fields_after(self, fields: Fields) -> Fields:
        """Return the same fields."""
        return fields


@attrs.frozen
class WithColumns(RowStep):
    """Adds fields, or replaces those of the same name."""

    verb = "with_columns"
    values: tuple[Expression, ...]

    def fields_after(self, fields: Fields) -> Fields:
        """Return the fields with those that are added behind the others."""
        added = {value.name: f"{value.name}: {ddl_name(value.kind)}" for value in self.values}
        specs = [added.pop(name, f"{name}: {ddl_name(kind)}") for name, kind in zip(fields, fields.types, strict=True)]
        return Fields(*specs, *added.values())

    def made_of(self, fields: Fields) -> Mapping[str, Sequence[str]]:
        """Return the fields that each expression reads."""
        return {**super().made_of(fields), **{value.name: value.fields for value in self.values}}


@attrs.frozen
class Select(RowStep):
    """Keeps some fields, perhaps under other names: ``names`` has the field of each name."""

    verb = "select"
    names: Mapping[str, str]

    def fields_after(self, fields: Fields) -> Fields:
        """Return the fields that are kept."""
        selected = [fields.subset([old]).renamed({old: new}) for new, old in self.names.items()]
        return sum(selected, Fields())

    def made_of(self, fields: Fields) -> Mapping[str, Sequence[str]]:
        """Return the field of each name."""
        del fields
        return {new: [old] for new, old in self.names.items()}


@attrs.frozen
class BatchStep(RowStep):
    """Makes rows of rows, by no expression."""

    @abstractmethod
    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that it makes of those of a batch."""


@attrs.frozen
class Explode(BatchStep):
    """Makes a row of each element of a field; the parts of structs become fields."""

    verb = "explode"
    name: str

    def fields_after(self, fields: Fields) -> Fields:
        """Return the fields with that of an element, or its parts, in place of the array."""
        return sum((self._fields_of(field) for field in fields.arrow_schema()), Fields())

    def made_of(self, fields: Fields) -> Mapping[str, Sequence[str]]:
        """Return the array for what comes of it."""
        return {name: [field.name] for field in fields.arrow_schema() for name in self._fields_of(field)}

    def _fields_of(self, field: pa.Field) -> Fields:
        if field.name != self.name:
            return fields_of(pa.schema([field]))
        kind = field.type.value_type
        return fields_of(pa.schema(list(kind) if pa.types.is_struct(kind) else [field.with_type(kind)]))

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a row for each element."""
        lists = batch.column(self.name)
        # A null may have values below it, as polars leaves them, which Arrow's parent indices count.
        elements, lengths = lists.flatten(), pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        parents = pa.array(np.repeat(np.arange(len(lists)), lengths))
        columns: list[Any] = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name != self.name:
                columns.append(column.take(parents))
            else:
                columns += elements.flatten() if pa.types.is_struct(elements.type) else [elements]
        return pa.RecordBatch.from_arrays(columns, schema=self.fields_after(fields_of(batch.schema)).arrow_schema())


@attrs.frozen
class FunctionStep(BatchStep):
    """Calls a function of the user's; ``fields`` are those of the rows that it returns."""

    function: Callable[[Any], Any]
    fields: Fields

    def fields_after(self, fields: Fields) -> Fields:
        """Return the fields of the function's rows."""
        del fields
        return self.fields

    def made_of(self, fields: Fields) -> Mapping[str, Sequence[str]]:
        """Return all fields: a function may use any."""
        return dict.fromkeys(self.fields, fields.names)

    @property
    def shown(self) -> str:
        """What is called, and which function."""
        return f"{self.verb} {self.name}"

    @property
    def name(self) -> str:
        """The function's name, for errors."""
        return f"{getattr(self.function, '__name__', type(self.function).__name__)}()"


@attrs.frozen
class EachRow(FunctionStep):
    """Calls a function with each row, a dictionary; it returns a row, or several if ``is_flat``."""

    verb = "map"
    is_flat: bool

    @property
    def shown(self) -> str:
        """What is called, and which function."""
        return f"flat_{super().shown}" if self.is_flat else super().shown

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that the function makes of those of a batch."""
        columns = zip(*(python_values(column) for column in batch.columns), strict=True)
        names, function = batch.schema.names, self.function
        results = (function(dict(zip(names, values, strict=True))) for values in columns)
        rows = [each for several in results for each in several] if self.is_flat else list(results)
        # Of rows that are all tuples none is looked at: to do so took as long as a function that splits a text.
        are_values = {*map(type, rows)} <= {tuple, list} and {*map(len, rows)} <= {len(self.fields)}
        each_row = rows if are_values else map(self._values_of, rows)
        values = zip(*each_row, strict=True) if rows else ([] for _ in self.fields)
        schema = self.fields.arrow_schema()
        where = f"returned by {self.name}"
        arrays = [fitted_array(f.name, list(each), f.type, where) for f, each in zip(schema, values, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _values_of(self, row: Any) -> Sequence[Any]:
        if isinstance(row, Mapping) and row.keys() == {*self.fields}:
            return [row[name] for name in self.fields]
        if isinstance(row, tuple | list) and len(row) == len(self.fields):
            return row
        raise FieldsError(
            f"{self.name} returned {row!r}, which is no row of {', '.join(self.fields)}: return a "
            "dictionary with each of them, or a tuple"
        )


@attrs.frozen
class EachBatch(FunctionStep):
    """Calls a function with some rows, an Arrow table; it returns one."""

    verb = "map_batches"

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that the function makes of those of a batch."""
        result = self.function(pa.Table.from_batches([batch]))
        name = self.name
        if not isinstance(result, pa.Table):
            raise FieldsError(f"{name} returned a {type(result).__name__}; return a table of Arrow")
        missing = [field for field in self.fields if field not in result.column_names]
        if missing:
            raise FieldsError(f"{name} returned a table without the field {missing[0]!r}")
        schema = self.fields.arrow_schema()
        rows = cast_rows(result.select(schema.names), schema, f"returned by {name}").combine_chunks().to_batches()
        return rows[0] if rows else pa.RecordBatch.from_pylist([], schema=schema)
