"""Tuples that wait until there are enough of them to become columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from txtopo import Fields, Tuple
from txtopo.api.data.tuples import TupleSource
from txtopo.columnar.conversion import fit_array, fitted_array
from txtopo.errors import FieldsError
from txtopo.topology.user_code.blame import record_tuple

TUPLES_WAITING_MAX = 10_000
"""The maximum number of tuples that wait to be converted to columns."""

T = TypeVar("T")

_R = TypeVar("_R", bound=Sequence[Any])


def converted(names: Iterable[str], rows: list[_R], convert: Callable[[Sequence[_R]], T]) -> T:
    """Return what ``convert`` makes of the values of tuples that waited, and let none of them wait any more.

    After an error the one that it is about waits still, so that a bolt that catches the error can't commit without the
    others.

    Raises:
        FieldsError: raised by ``convert``; it names the tuple that it is about, and not the one that is executed.
    """
    try:
        result = convert(rows)
    except FieldsError as error:
        for row in rows:
            try:
                convert([row])
            except FieldsError:
                record_tuple(error, names, row)
                rows[:] = [row]
                break
        raise
    rows.clear()
    return result


class WaitingTuples:
    """Tuples that wait to be converted to columns.

    Args:
        fields: the fields to read, each with a type.
        component: the component that reads them, for errors.
        time: the field with the event time, if there is one.
    """

    def __init__(self, fields: Fields, component: str, time: str | None = None) -> None:
        self._fields, self._time, self._component = fields, time, component
        self._rows: list[list[Any]] = []
        self._source: TupleSource | None = None
        """The source of the last tuple, whose fields' positions are known."""
        self._positions: list[int] = []

    def add(self, tuple: Tuple) -> bool:
        """Add a tuple; return whether so many wait that they should be taken."""
        if tuple.source is not self._source:
            self._source = tuple.source
            self._positions = [tuple.source.fields.index(name) for name in self._fields]
        values = tuple.values
        self._rows.append([values[position] for position in self._positions])
        return len(self._rows) >= TUPLES_WAITING_MAX

    def take(self) -> pa.Table | None:
        """Return the waiting tuples as columns, None for none, and forget them; FieldsError for a misfit."""
        self._source = None
        return converted(self._fields, self._rows, self._table) if self._rows else None

    def _table(self, rows: Sequence[Sequence[Any]]) -> pa.Table:
        columns = zip(self._fields.arrow_schema(), zip(*rows, strict=True), strict=True)
        return pa.table({field.name: self._column(field, values) for field, values in columns})

    def _column(self, field: pa.Field, values: Sequence[Any]) -> pa.Array:
        if field.name == self._time and pa.types.is_timestamp(field.type) and field.type.tz is not None:
            # An event time without a zone is UTC, in whatever form it comes.
            first = next((value for value in values if value is not None), None)
            is_utc = isinstance(first, dt.datetime) and first.tzinfo is None
            array = fit_array(values, pa.timestamp("us") if is_utc else field.type)
            if array is not None:
                return array
            values = list(map(_in_utc, values))  # with a zone here, and without one there
        return fitted_array(field.name, values, field.type, f"in {self._component!r}")


def _in_utc(value: Any) -> Any:
    return value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo is None else value
