"""The bolt of row-wise steps that follow each other: their expressions are one plan of polars.

Polars gets the columns that expressions read, and returns those that they make; all others stay in Arrow.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo import ArrowBatchBolt, Fields
from txtopo.errors import FieldsError
from txtopo.row_wise.direct import MayOverflowError, computed
from txtopo.row_wise.expressions import Expression
from txtopo.row_wise.steps import Filter, OfRows, Select, WithColumns

_ROW = ":row"
_TOO_LARGE = ":too large"
"""Columns of a plan; no field has a colon in its name."""


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
