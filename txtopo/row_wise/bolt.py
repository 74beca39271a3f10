"""The bolt of row-wise steps that follow each other, whose expressions polars computes, step by step.

Polars gets the columns that expressions read, and returns those that they make; all others stay in Arrow.
"""

from __future__ import annotations

import functools
import itertools
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from txtopo import ArrowBatchBolt, Fields
from txtopo.api.abilities import TellsSteps
from txtopo.errors import FieldsError
from txtopo.row_wise.direct import MayOverflowError, computed
from txtopo.row_wise.expressions import Expression
from txtopo.row_wise.steps import Filter, OfRows, Select, WithColumns

_ROW = ":row"
"""The column of the numbers of rows; no field has a colon in its name."""


class RowsBolt(ArrowBatchBolt, TellsSteps):
    """Does row-wise steps, one after another, on an input whose fields have types."""

    def __init__(self, fields: Fields, steps: Iterable[Any]) -> None:
        steps = list(steps)
        self.verbs = tuple(each.shown for each in steps)
        """What it does, for people."""
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
    """Steps of expressions and names that follow each other.

    Every attempt has a bolt of its own, but nothing in here changes, so those of a process share it: to unpickle it and
    to make its schema anew took a third of the time of a batch of 50 rows with a filter and two expressions.
    """

    def __init__(self, fields: Fields, steps: Sequence[Filter | WithColumns | Select]) -> None:
        self._made_of = fields, steps
        self._has_filter = any(isinstance(step, Filter) for step in steps)
        self._has_expressions = any(map(_expressions_of, steps))
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
        self._steps, self._fields, self._origins = steps, fields, origins
        """The origin of a field is the column of the input that it is; None if an expression has made it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _columns_of, (pickle.dumps(self._made_of),)

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows after the steps."""
        schema = self._fields.arrow_schema()
        if not self._has_expressions:
            return pa.RecordBatch.from_arrays([batch.column(old) for old in self._origins.values()], schema=schema)
        made = self._computed(batch)
        if self._has_filter and len(made[_ROW]) < batch.num_rows:
            batch = batch.take(made[_ROW].to_arrow())
        columns = [
            made[name].to_arrow(compat_level=_oldest()) if old is None else batch.column(old)
            for name, old in self._origins.items()
        ]
        exact = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(exact, schema=schema)

    def _computed(self, batch: pa.RecordBatch) -> Mapping[str, Any]:
        """Return the number of each row that is left, and the columns that expressions make and read."""
        import polars as pl  # noqa: PLC0415 - only steps with expressions need it

        columns: dict[str, Any] = {name: pl.from_arrow(batch.column(name)) for name in self._inputs}
        columns[_ROW] = pl.Series(np.arange(batch.num_rows))
        for step in self._steps:
            match step:
                case Filter():
                    (is_kept,) = self._values([step.condition], columns, batch).values()
                    columns = {name: column.filter(is_kept) for name, column in columns.items()}  # null counts as false
                case WithColumns():
                    columns |= self._values(step.values, columns, batch)
                case Select():
                    kept = {new: columns[old] for new, old in step.names.items() if old in columns}
                    columns = {**kept, _ROW: columns[_ROW]}
        return columns

    def _values(
        self, expressions: Sequence[Expression], columns: Mapping[str, Any], batch: pa.RecordBatch
    ) -> Mapping[str, Any]:
        import polars as pl  # noqa: PLC0415 - only steps with expressions need it

        made, others = {}, []
        for each in expressions:
            try:
                if each.direct is not None:
                    made[each.name] = computed(each.direct, columns)
                    continue
            except MayOverflowError:
                pass  # is it so, and of which row?
            others.append(each)
        if others:
            # One step of a frame costs a third of a plan of all, which is optimized for each batch.
            checks = {f":{number}": each.overflow for number, each in enumerate(others) if each.overflow is not None}
            frame = pl.DataFrame(columns)
            done = frame.with_columns(*(each.value.alias(each.name) for each in others), **checks)
            for number, each in enumerate(others):
                if f":{number}" in checks and (wrong := frame.filter(done[f":{number}"])).height:
                    self._refuse(each, batch, wrong[_ROW][0])
                made[each.name] = done[each.name]
        return made

    def _refuse(self, expression: Expression, batch: pa.RecordBatch, row: int) -> None:
        (values,) = batch.select(list(self._inputs)).slice(row, 1).to_pylist()
        shown = ", ".join(f"{name}: {value!r}" for name, value in values.items())
        raise FieldsError(f"an integer is too large in {expression.text}, for {shown}; cast to a larger type before")


@functools.lru_cache(maxsize=256)
def _columns_of(pickled: bytes) -> _Columns:
    """Return the steps of some bytes, which are the same for all bolts of a place."""
    return _Columns(*pickle.loads(pickled))  # noqa: S301 - our own bytes


def _oldest() -> Any:
    import polars as pl  # noqa: PLC0415 - only steps with expressions need it

    return pl.CompatLevel.oldest()


def _expressions_of(step: Filter | WithColumns | Select) -> Sequence[Expression]:
    match step:
        case Filter():
            return (step.condition,)
        case WithColumns():
            return step.values
        case Select():
            return ()
