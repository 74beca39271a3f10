"""Row-wise steps: those that follow each other are one bolt on columns, whose expressions are one plan of polars.

Polars gets the columns that expressions read, and returns those that they make; all others stay in Arrow.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from committers.aggregates.aggregation import Aggregation
from committers.aggregates.fields import fields_of
from txtopo import ArrowBatchBolt, BatchOutputCollector, Fields, TopologyContext, TransactionAttempt
from txtopo.api.data.types import ddl_name, python_values
from txtopo.columnar.conversion import cast_rows, fitted_array
from txtopo.errors import FieldsError
from txtopo.streams.direct import MayOverflowError, computed
from txtopo.streams.expressions import Expression

_ROW = ":row"
_TOO_LARGE = ":too large"
"""Columns of a plan; no field has a colon in its name."""


class RowStep(ABC):
    """A step whose result for a row depends on that row alone."""

    verb: ClassVar[str]
    """What the user has called."""

    @abstractmethod
    def fields_after(self, fields: Fields) -> Fields:
        """Return the fields after the step."""


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
        made = {each.name: f"{each.name}: {ddl_name(each.kind)}" for each in self.values}
        kept = [made.pop(name, f"{name}: {ddl_name(kind)}") for name, kind in zip(fields, fields.types, strict=True)]
        return Fields(*kept, *made.values())


@attrs.frozen
class Select(RowStep):
    """Keeps some fields, perhaps under other names: ``names`` has the field of each name."""

    verb = "select"
    names: Mapping[str, str]

    def fields_after(self, fields: Fields) -> Fields:
        """Return the fields that are kept."""
        kept = [fields.subset([old]).renamed({old: new}) for new, old in self.names.items()]
        return sum(kept, Fields())


@attrs.frozen
class OfRows(RowStep):
    """Makes rows of rows, by no expression."""

    @abstractmethod
    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that it makes of those of a batch."""


@attrs.frozen
class Explode(OfRows):
    """Makes a row of each element of a field; the parts of structs become fields."""

    verb = "explode"
    name: str

    def fields_after(self, fields: Fields) -> Fields:
        """Return the fields with that of an element, or its parts, in place of the array."""
        return sum((self._fields_of(field) for field in fields.arrow_schema()), Fields())

    def _fields_of(self, field: pa.Field) -> Fields:
        if field.name != self.name:
            return fields_of(pa.schema([field]))
        kind = field.type.value_type
        return fields_of(pa.schema(list(kind) if pa.types.is_struct(kind) else [field.with_type(kind)]))

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a row for each element."""
        lists = batch.column(self.name)
        elements, of = lists.flatten(), pc.list_parent_indices(lists)
        columns: list[Any] = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name != self.name:
                columns.append(column.take(of))
            else:
                columns += elements.flatten() if pa.types.is_struct(elements.type) else [elements]
        return pa.RecordBatch.from_arrays(columns, schema=self.fields_after(fields_of(batch.schema)).arrow_schema())


@attrs.frozen
class OfFunction(OfRows):
    """Calls a function of the user's; ``fields`` are those of the rows that it returns."""

    function: Callable[[Any], Any]
    fields: Fields

    def fields_after(self, fields: Fields) -> Fields:
        """Return the fields of the function's rows."""
        del fields
        return self.fields

    @property
    def name(self) -> str:
        """The function's name, for errors."""
        return f"{getattr(self.function, '__name__', type(self.function).__name__)}()"


@attrs.frozen
class EachRow(OfFunction):
    """Calls a function with each row, a dictionary; it returns a row, or several if ``is_flat``."""

    verb = "map"
    is_flat: bool

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that the function makes of those of a batch."""
        columns = zip(*(python_values(column) for column in batch.columns), strict=True)
        names, function = batch.schema.names, self.function
        made = (function(dict(zip(names, values, strict=True))) for values in columns)
        rows = [each for several in made for each in several] if self.is_flat else list(made)
        values = zip(*map(self._values_of, rows), strict=True) if rows else ([] for _ in self.fields)
        schema = self.fields.arrow_schema()
        what = f"returned by {self.name}"
        arrays = [fitted_array(f.name, list(each), f.type, what) for f, each in zip(schema, values, strict=True)]
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
class EachBatch(OfFunction):
    """Calls a function with some rows, an Arrow table; it returns one."""

    verb = "map_batches"

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that the function makes of those of a batch."""
        made = self.function(pa.Table.from_batches([batch]))
        name = self.name
        if not isinstance(made, pa.Table):
            raise FieldsError(f"{name} returned a {type(made).__name__}; return a table of Arrow")
        missing = [each for each in self.fields if each not in made.column_names]
        if missing:
            raise FieldsError(f"{name} returned a table without the field {missing[0]!r}")
        schema = self.fields.arrow_schema()
        rows = cast_rows(made.select(schema.names), schema, f"returned by {name}").combine_chunks().to_batches()
        return rows[0] if rows else pa.RecordBatch.from_pylist([], schema=schema)


class RowsBolt(ArrowBatchBolt):
    """Does row-wise steps, one after another.

    Args:
        fields: the fields of its input, each with a type.
        steps: the steps.
    """

    def __init__(self, fields: Fields, steps: Iterable[Any]) -> None:
        self._stages: list[_Columns | OfRows] = []
        self._fields = fields.names
        for is_columns, several in itertools.groupby(steps, lambda each: not isinstance(each, OfRows)):
            stage = list(several)
            if is_columns:
                self._stages.append(_Columns(fields, stage))
            else:
                self._stages += stage
            for step in stage:
                fields = step.fields_after(fields)
        self.output_fields = fields.with_attempt()

    def execute(self, batch: pa.RecordBatch) -> None:
        """Emit what the steps make of some rows."""
        rows = batch.select(list(self._fields))
        for stage in self._stages:
            if not rows.num_rows:
                return
            rows = stage.rows_of(rows)
        if rows.num_rows:
            self.collector.emit_batch(rows)


class GroupsBolt(ArrowBatchBolt):
    """Emits aggregates of each transaction's groups, when all rows of the transaction are there."""

    def __init__(self, aggregation: Aggregation) -> None:
        self._aggregation = aggregation
        self.output_fields = fields_of(aggregation.result_schema).with_attempt()

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start with no groups."""
        super().prepare(config, context, collector, attempt)
        self._partials: list[pa.Table] = []

    def execute(self, batch: pa.RecordBatch) -> None:
        """Aggregate some rows."""
        self._partials.append(self._aggregation.partials(batch))

    def finish_batch(self) -> None:
        """Emit the groups."""
        if self._partials:
            whole = self._aggregation.merged(pa.concat_tables(self._partials))
            for batch in self._aggregation.results(whole).combine_chunks().to_batches():
                self.collector.emit_batch(batch)


class _Columns:
    """Steps of expressions and names that follow each other."""

    def __init__(self, fields: Fields, steps: Sequence[Filter | WithColumns | Select]) -> None:
        origins: dict[str, str | None] = {name: name for name in fields}
        self._inputs: dict[str, None] = {}
        """The columns that expressions read."""
        for step in steps:
            for each in _expressions_of(step):
                self._inputs.update((origin, None) for name in each.fields if (origin := origins[name]) is not None)
            match step:
                case WithColumns():
                    origins.update((each.name, None) for each in step.values)
                case Select():
                    origins = {new: origins[old] for new, old in step.names.items()}
            fields = step.fields_after(fields)
        self._is_direct = all(each.direct is not None for step in steps for each in _expressions_of(step))
        self._steps, self._fields, self._origins = steps, fields, origins
        """The origin of a field is the column of the input that it is; None if an expression has made it."""

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows after the steps."""
        schema = self._fields.arrow_schema()
        if not any(map(_expressions_of, self._steps)):
            return pa.RecordBatch.from_arrays([batch.column(old) for old in self._origins.values()], schema=schema)
        made = self._computed(batch) if self._is_direct else None
        if made is None:
            made = self._evaluated(batch)
        if any(isinstance(step, Filter) for step in self._steps) and made.num_rows < batch.num_rows:
            batch = batch.take(made.column(_ROW).combine_chunks())
        columns = [
            made.column(name).combine_chunks() if old is None else batch.column(old)
            for name, old in self._origins.items()
        ]
        exact = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(exact, schema=schema)

    def _computed(self, batch: pa.RecordBatch) -> pa.Table | None:
        """Return what :meth:`_evaluated` does, without a plan; None if an integer may be too large."""
        import polars as pl  # noqa: PLC0415 - only steps with expressions need it

        columns: dict[str, Any] = {name: pl.from_arrow(batch.column(name)) for name in self._inputs}
        if any(isinstance(step, Filter) for step in self._steps):
            columns[_ROW] = pl.Series(np.arange(batch.num_rows))
        try:
            for step in self._steps:
                match step:
                    case Filter(Expression(direct=condition)) if condition is not None:
                        is_kept = computed(condition, columns)  # null counts as false
                        columns = {name: column.filter(is_kept) for name, column in columns.items()}
                    case WithColumns():
                        columns |= {each.name: computed(each.direct, columns) for each in step.values if each.direct}
                    case Select():
                        kept = {new: columns[old] for new, old in step.names.items() if old in columns}
                        columns = kept | ({_ROW: columns[_ROW]} if _ROW in columns else {})
        except MayOverflowError:
            return None
        names = [name for name, old in self._origins.items() if old is None]
        rows = columns.get(_ROW)
        made = {name: columns[name].to_arrow(compat_level=pl.CompatLevel.oldest()) for name in names}
        return pa.table(made | ({} if rows is None else {_ROW: rows.to_arrow()}))

    def _evaluated(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the number of each row that is left, and the columns that expressions make."""
        import polars as pl  # noqa: PLC0415 - only steps with expressions need it

        # A row for which an integer wraps passes all filters, so that it is seen at the end.
        numbers = pa.array(np.arange(batch.num_rows))
        rows = pa.table({name: batch.column(name) for name in self._inputs} | {_ROW: numbers})
        plan = pl.from_arrow(rows).lazy()  # type: ignore[union-attr] # a table is a frame
        own, there = [_ROW], set(self._inputs)
        for step in self._steps:
            overflows = [each.overflow for each in _expressions_of(step) if each.overflow is not None]
            if overflows:
                plan = plan.with_columns(pl.any_horizontal(*own[1:], *overflows).alias(_TOO_LARGE))
                own = [_ROW, _TOO_LARGE]
            match step:
                case Filter():
                    plan = plan.filter(pl.any_horizontal(step.condition.value, *own[1:]))
                case WithColumns():
                    plan = plan.with_columns(each.value.alias(each.name) for each in step.values)
                    there.update(each.name for each in step.values)
                case Select():
                    kept = [pl.col(old).alias(new) for new, old in step.names.items() if old in there]
                    plan = plan.select(*own, *kept)
                    there = {new for new, old in step.names.items() if old in there}
        frame = plan.select(*own, *(name for name, old in self._origins.items() if old is None)).collect()
        if len(own) > 1 and frame[_TOO_LARGE].any():
            self._refuse(batch, frame.filter(pl.col(_TOO_LARGE))[_ROW][0])
        return frame.to_arrow(compat_level=pl.CompatLevel.oldest())

    def _refuse(self, batch: pa.RecordBatch, row: int) -> None:
        texts = [each.text for step in self._steps for each in _expressions_of(step) if each.overflow is not None]
        (values,) = batch.select(list(self._inputs)).slice(row, 1).to_pylist()
        shown = ", ".join(f"{name}: {value!r}" for name, value in values.items())
        raise FieldsError(f"an integer is too large in {' or '.join(texts)}, for {shown}; cast to a larger type before")


def _expressions_of(step: Filter | WithColumns | Select) -> Sequence[Expression]:
    match step:
        case Filter():
            return (step.condition,)
        case WithColumns():
            return step.values
        case Select():
            return ()
