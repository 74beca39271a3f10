"""Convert rows of any form to Arrow columns of the declared types of a table of rows, without loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Never

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.columns import fit_column
from state.delta.schema import TXID_FIELD, twice_among
from txtopo.api.data.fields import Fields
from txtopo.api.data.types import ddl_name
from txtopo.api.state import OpenedState, State, TakesRows
from txtopo.api.values import Key
from txtopo.api.writes import Rows, RowsFile, RowsMode
from txtopo.columnar.conversion import Misfit, cast_array, misfit_in, misfit_of, why_invalid
from txtopo.columnar.rows_file import in_memory, read_rows_file, schema_of
from txtopo.errors import FieldsError, StateAccessError

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""Stands for null in the names of folders that an OPTIMIZE of somebody else makes, of which polars takes the values."""

_NO_VALUES = pa.array(["", _HIVE_NULL])


def checked_rows_fields(fields: Fields, partition_by: Sequence[str]) -> None:
    """Raise a FieldsError, which names the field and the reason, unless a table of rows can have these fields."""
    if not len(fields):
        raise FieldsError("a table of rows needs a field; write for example Fields('word: string')")
    for name, declared in zip(fields.names, fields.types, strict=True):
        if declared is None:
            raise FieldsError(f"field {name!r} has no type; write '{name}: string' or another Spark type")
        if name.lower() == TXID_FIELD:
            raise FieldsError(f"a field is named {name!r}, which txtopo adds itself; rename the field")
    twice = twice_among(fields.names)
    if twice is not None:
        raise FieldsError(f"column {twice!r} would be in the table twice; rename a field of {fields}")
    for position, name in enumerate(partition_by):
        kind = fields.types[fields.index(name)]
        if not any(is_kind(kind) for is_kind in _PARTITION_KINDS):
            raise FieldsError(
                f"partition field {name!r} is {ddl_name(kind)}; partition by a string, an integer, a boolean or a date"
            )
        if name in partition_by[:position]:
            raise FieldsError(f"partition field {name!r} occurs twice in partition_by")
    if len(partition_by) == len(fields):
        raise FieldsError("a table of rows needs a field that is not a partition field")


@attrs.frozen
class RowsFormat:
    """The format of one table's rows; errors name the state."""

    state: str
    fields: Fields
    partition_by: tuple[str, ...] = ()

    def schema(self) -> pa.Schema:
        """Return the columns of the table; all may be null, because none is a key."""
        return self.fields.arrow_schema().append(pa.field(TXID_FIELD, pa.int64()))

    def fit(self, rows: Rows) -> pa.Table | RowsFile:
        """Return rows as columns with the fields' names and types; a file of rows is checked and returned unchanged."""
        if isinstance(rows, RowsFile):
            self._check_file(rows)
            return rows
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        table = self._of_table(rows) if isinstance(rows, pa.Table) else self._of_tuples(rows)
        self._check_partitions(table)
        return table

    def _of_table(self, rows: pa.Table) -> pa.Table:
        arrangement = arranged(rows, self.fields.names)
        if arrangement is None:
            raise FieldsError(
                f"state {self.state!r}: the rows have the columns {', '.join(rows.column_names)}, but the fields are "
                f"{self.fields}"
            )
        schema = self.fields.arrow_schema()
        columns = [self._column(field, arrangement[field.name]) for field in schema]
        return arrangement if arrangement.schema.equals(schema) else pa.Table.from_arrays(columns, schema=schema)

    def _column(self, field: pa.Field, column: Any) -> Any:
        cast = cast_array(column, field.type)
        if cast is None:
            raise self._misfit(field, misfit_in(column, field.type))
        why = why_invalid(cast)
        if why is not None:
            raise FieldsError(f"state {self.state!r}, field '{field.name}: {ddl_name(field.type)}': {why}")
        return cast

    def _of_tuples(self, rows: Any) -> pa.Table:
        schema, width = self.fields.arrow_schema(), len(self.fields)
        rows = list(rows)
        for position, row in enumerate(rows):
            if not isinstance(row, tuple | list) or len(row) != width:
                raise FieldsError(
                    f"state {self.state!r}, row {position}: {row!r} is not a tuple of {width} values, one for each of "
                    f"{self.fields}; nothing was written"
                )
        columns = list(zip(*rows, strict=True)) if rows else [()] * width
        return pa.Table.from_arrays(
            [self._fitted(field, column) for field, column in zip(schema, columns, strict=True)], schema=schema
        )

    def _fitted(self, field: pa.Field, values: Sequence[Any]) -> Any:
        column = fit_column(values, field.type)
        if column is None:
            raise self._misfit(field, misfit_of(values, field.type))
        return column.array

    def _misfit(self, field: pa.Field, misfit: Misfit) -> FieldsError:
        return FieldsError(
            f"state {self.state!r}, field '{field.name}: {ddl_name(field.type)}', row {misfit.position}: {misfit.why}; "
            "no row was written"
        )

    def _check_file(self, file: RowsFile) -> None:
        columns = schema_of(file)
        arrangement = arranged(columns.empty_table(), self.fields.names)
        if arrangement is None or arrangement.schema.types != self.fields.arrow_schema().types:
            raise FieldsError(
                f"state {self.state!r}: {file.path} has the columns {columns.to_string(truncate_metadata=True)!r}; the "
                f"fields are {self.fields}"
            )
        if self.partition_by:
            arranged_rows = arranged(read_rows_file(file), self.fields.names)
            assert arranged_rows is not None, "it was arranged before"
            self._check_partitions(arranged_rows)

    def _check_partitions(self, rows: pa.Table) -> None:
        for name in self.partition_by:
            column = rows[name]
            is_text = pa.types.is_string(column.type)
            if column.null_count or (is_text and pc.any(pc.is_in(column, value_set=_NO_VALUES)).as_py()):
                texts = f"an empty string, {_HIVE_NULL} or " * is_text
                raise FieldsError(
                    f"state {self.state!r}, field {name!r}: a row has {texts}no value; "
                    "readers cannot distinguish such a partition from none, so give it a value; nothing was written"
                )
            if pa.types.is_date(column.type):
                for date in pc.min_max(column).values():
                    _check_year(self.state, name, date)


def _check_year(state: str, name: str, date: pa.Scalar) -> None:
    """Refuse a date that Python does not know: the log has the values of partitions as texts."""
    try:
        date.as_py()
    except OverflowError as error:
        raise FieldsError(
            f"state {state!r}, field {name!r}: a row has {date.cast(pa.string())}, and rows are partitioned by dates "
            "of the years 1 to 9999; give it such a date, or do not partition by this field; nothing was written"
        ) from error


def arranged(rows: pa.Table, names: Sequence[str]) -> pa.Table | None:
    """Return rows with columns of these names, matched by name or else by position; None if the number differs."""
    if rows.num_columns != len(names):
        return None
    if set(rows.column_names) == set(names):
        return rows.select(list(names))
    return rows.rename_columns(list(names))


_PARTITION_KINDS = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)


class DeclaredRows(State):
    """A declared table of rows."""

    def form(self, name: str) -> RowsFormat:
        """Return the format of the rows of the state with this name."""
        return RowsFormat(name, self.value, tuple(self.partition_by))

    def as_rows(self, name: str, rows: Rows) -> pa.Table:
        """Return rows with the table's fields; see :meth:`State.as_rows`."""
        return in_memory(fitted_rows(self.form(name), rows, RowsMode.APPEND))


class KeylessRows(OpenedState, TakesRows):
    """An opened table of rows."""

    def __init__(self, form: RowsFormat) -> None:
        self._form = form

    def multi_get(self, keys: Sequence[Key]) -> Never:  # noqa: ARG002 - refused
        """Raise a ``StateAccessError``."""
        raise no_keys(self._form.state)

    def rows_to_write(self, rows: Rows, mode: RowsMode) -> pa.Table | RowsFile:
        """Return rows with the table's fields; see :meth:`TakesRows.rows_to_write`."""
        return fitted_rows(self._form, rows, mode)


def fitted_rows(form: RowsFormat, rows: Rows, mode: RowsMode) -> pa.Table | RowsFile:
    """Return rows in the form in which they are put into a table.

    Raises:
        FieldsError: a value does not fit its field.
        StateAccessError: ``mode`` replaces partitions, but the table has none.
    """
    if mode is RowsMode.REPLACE and not form.partition_by:
        raise StateAccessError(
            f"state {form.state!r} has no partitions to replace; declare it with partition_by=(…), or append"
        )
    return form.fit(rows)


def no_keys(state: str) -> StateAccessError:
    """Return the error for a read or write by key."""
    return StateAccessError(
        f"state {state!r} is a table of rows and has no keys; write it with append() or replace_partitions(), read it "
        "with snapshot(), or use a DeltaState for values that you look up"
    )
