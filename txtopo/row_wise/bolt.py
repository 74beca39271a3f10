"""The bolt of row-wise steps that follow each other, on columns of Arrow, step by step.

Polars gets the columns that expressions read which Arrow does not compute alike.
"""

from __future__ import annotations

import functools
import itertools
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txtopo import ArrowBatchBolt, Fields
from txtopo.api.abilities import DescribesSteps
from txtopo.errors import FieldsError
from txtopo.row_wise.direct import computed
from txtopo.row_wise.expressions import Expression
from txtopo.row_wise.steps import BatchStep, Filter, Select, WithColumns


class RowsBolt(ArrowBatchBolt, DescribesSteps):
    """Does row-wise steps, one after another, on an input whose fields have types."""

    def __init__(self, fields: Fields, steps: Iterable[Any]) -> None:
        steps = list(steps)
        self.verbs = tuple(step.shown for step in steps)
        """What it does, for people."""
        self._stages: list[_Columns | BatchStep] = []
        self._fields = fields.names
        for is_columns, several in itertools.groupby(steps, lambda step: not isinstance(step, BatchStep)):
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
        self._read: dict[str, None] = {}
        """The columns of the input that expressions read, or that are among those of the result."""
        origins: dict[str, str | None] = {name: name for name in fields}
        for step in steps:
            for expression in _expressions_of(step):
                self._read.update((origin, None) for name in expression.fields if (origin := origins[name]) is not None)
            match step:
                case WithColumns():
                    origins.update((value.name, None) for value in step.values)
                case Select():
                    origins = {new: origins[old] for new, old in step.names.items()}
            fields = step.fields_after(fields)
        self._read.update((origin, None) for origin in origins.values() if origin is not None)
        self._steps, self._schema = steps, fields.arrow_schema()

    def __reduce__(self) -> tuple[Any, ...]:
        return _columns_of, (pickle.dumps(self._made_of),)

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows after the steps."""
        columns = {name: batch.column(name) for name in self._read or batch.schema.names[:1]}
        for step in self._steps:
            match step:
                case Filter():
                    (is_kept,) = _values([step.condition], columns).values()
                    columns = {name: column.filter(is_kept) for name, column in columns.items()}  # null counts as false
                case WithColumns():
                    columns |= _values(step.values, columns)
                case Select():
                    # One is left also if none is read: it has the number of rows.
                    columns = {new: columns[old] for new, old in step.names.items() if old in columns} or columns
        return pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)


def _values(expressions: Sequence[Expression], columns: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
    """Return what expressions make of columns."""
    made, others = {}, []
    for expression in expressions:
        try:
            if expression.direct is not None:
                made[expression.name] = computed(expression.direct, columns)
                continue
        except pa.ArrowInvalid:
            pass  # polars says whether it is wrong, and of which row
        others.append(expression)
    return {**made, **_of_frame(others, columns)} if others else made


def _of_frame(expressions: Sequence[Expression], columns: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
    """Return what expressions make of columns by polars; one step of a frame costs a third of a plan of all."""
    import polars as pl  # noqa: PLC0415 - only steps with such expressions need it

    read = dict.fromkeys(name for expression in expressions for name in expression.fields) or [*columns][:1]
    height = len(columns[next(iter(read))])
    # Polars takes a column of one row for a value, of which some functions make something else.
    rows = {name: columns[name].take(pa.array([0, 0])) if height == 1 else columns[name] for name in read}
    frame = pl.DataFrame({name: pl.from_arrow(column) for name, column in rows.items()})
    checks = {
        f":{number}": expression.overflow
        for number, expression in enumerate(expressions)
        if expression.overflow is not None
    }
    done = frame.with_columns(*(expression.value.alias(f"={expression.name}") for expression in expressions), **checks)
    for number, expression in enumerate(expressions):
        if f":{number}" in checks and (wrong := frame.filter(done[f":{number}"])).height:
            shown = ", ".join(f"{name}: {wrong[name][0]!r}" for name in expression.fields)
            raise FieldsError(
                f"an integer is too large in {expression.text}, for {shown}; cast to a larger type before"
            )
    oldest, done = pl.CompatLevel.oldest(), done.head(height)
    return {
        expression.name: done[f"={expression.name}"].to_arrow(compat_level=oldest).cast(expression.kind)
        for expression in expressions
    }


@functools.lru_cache(maxsize=256)
def _columns_of(pickled: bytes) -> _Columns:
    """Return the steps of some bytes, which are the same for all bolts of a place."""
    return _Columns(*pickle.loads(pickled))  # noqa: S301 - our bytes


def _expressions_of(step: Filter | WithColumns | Select) -> Sequence[Expression]:
    match step:
        case Filter():
            return (step.condition,)
        case WithColumns():
            return step.values
        case Select():
            return ()
