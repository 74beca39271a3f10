"""Convert keyed values to rows of a table and back, in bulk, column by column.

The columns are the key fields, the value fields, for opaque state ``previous_<name>`` of each value field,
and ``txid``. Only the key columns are declared not null. So a table can be interpreted without the topology that made
it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Number
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from state.delta.columns import Column, column_values, fit_column, is_key_type, no_equality
from txtopo.api.data.fields import Fields
from txtopo.api.data.types import ddl_name
from txtopo.api.map_state import joined_columns, split_columns
from txtopo.api.state import State
from txtopo.api.values import Key, StateKind, StateValue, stored_values
from txtopo.api.writes import KeyedWrites
from txtopo.columnar.conversion import misfit_of
from txtopo.errors import FieldsError

TXID_FIELD = "txid"
"""The column of the last transaction that touched a row."""

PREVIOUS_PREFIX = "previous_"
"""The prefix of the columns with an opaque state's previous values."""


@attrs.frozen(eq=False)
class FittedRows:
    """Values that fit their fields.

    Args:
        make_values: makes :attr:`values`.
        txids: the last transaction in each row, in the order of ``values``; None if the row is removed.
        table: the rows in Arrow; None if a field has no type.
    """

    make_values: Callable[[], dict[Key, StateValue | None]]
    txids: Sequence[int | None]
    table: Any

    @functools.cached_property
    def values(self) -> dict[Key, StateValue | None]:
        """The stored value of each key, as it will be read back; None for a key that is removed."""
        return self.make_values()


def checked_fields(key: Fields, value: Fields, kind: StateKind, *, typed: bool) -> None:
    """Raise a FieldsError, which names the field and the reason, unless a table can have these fields."""
    if kind is StateKind.ROWS:
        raise FieldsError("rows without keys are kept by a table of rows; write DeltaRows(path, fields)")
    for role, fields in (("key", key), ("value", value)):
        if not len(fields):
            raise FieldsError(f"a state needs a {role} field; write for example {role}=Fields('name: string')")
        for name, declared in zip(fields.names, fields.types, strict=True):
            if typed and declared is None:
                raise FieldsError(f"{role} field {name!r} has no type; write '{name}: string' or another Spark type")
            if role == "key" and declared is not None and not is_key_type(declared):
                raise no_equality(name, declared)
    names = [*key, *value, *_previous_names(value, kind), TXID_FIELD]
    twice = twice_among(names)
    if twice is not None and twice.lower() == TXID_FIELD:
        raise FieldsError(f"a field of a state is named {twice!r}, which txtopo adds itself; rename the field")
    if twice is not None:
        raise FieldsError(f"column {twice!r} would be in the table twice; rename a field of {key} or {value}")


def twice_among(names: Sequence[str]) -> str | None:
    """Return the first name that occurs again, if only in other case, which Delta does not tell apart; None if none."""
    lower = [name.lower() for name in names]
    return next((name for name in names if lower.count(name.lower()) > 1), None)


class RowFormat:
    """The format of a keyed state's rows: fits keys and values to their fields, and makes Arrow tables of them.

    Whatever does not fit raises a FieldsError that names the state and the first such key or value.
    """

    def __init__(self, state: str, key: Fields, value: Fields, kind: StateKind) -> None:
        self.state = state
        self.key = key
        self.value = value
        self.kind = kind
        self._previous = _previous_names(value, kind)

    @property
    def is_typed(self) -> bool:
        """Whether every field has a type, so that rows can be Arrow tables."""
        return all(kind is not None for kind in (*self.key.types, *self.value.types))

    def schema(self, *, with_previous: bool = True) -> pa.Schema:
        """Return the columns of the table, or those without previous values; every field must have a type."""
        previous = self._previous if with_previous else []
        value_types = self.value.types if previous else ()
        return pa.schema(
            [
                *(pa.field(name, kind, nullable=False) for name, kind in _pairs(self.key)),
                *(pa.field(name, kind) for name, kind in _pairs(self.value)),
                *(pa.field(name, kind) for name, kind in zip(previous, value_types, strict=True)),
                pa.field(TXID_FIELD, pa.int64()),
            ],
        )

    def fit(self, txid: int, values: Mapping[Key, StateValue | None], *, with_previous: bool = True) -> FittedRows:
        """Return ``values`` as rows; a row without txid and value removes its key.

        ``txid`` is the transaction of the write, and the txid of rows whose kind keeps none. The rows of an opaque
        state have the columns of previous values or, unless ``with_previous``, do not.
        """
        writes = KeyedWrites.of(self.kind, txid, values)
        key_columns = self._key_columns(writes.keys_put)
        value_columns = self._value_columns(writes.values_put, writes.keys_put)
        previous_columns = self._previous_columns(writes.previous, writes.keys_put) if with_previous else []
        removed = self.fit_keys(writes.removed)
        keys = _joined(key_columns)
        # Keys that differ as they are given may be equal as they are kept.
        if (writes.removed or any(column.is_changed for column in key_columns)) and len({*keys, *removed.keys}) < len(
            writes
        ):
            raise self._same_keys()
        txids = [txid] * len(keys) if self.kind is StateKind.NON_TRANSACTIONAL else writes.txids
        table = None
        if self.is_typed:
            arrays = [column.array for column in (*key_columns, *value_columns, *previous_columns)]
            schema = self.schema(with_previous=with_previous)
            table = pa.Table.from_arrays([*arrays, pa.array(txids, pa.int64())], schema=schema)
            if writes.removed:
                table = pa.concat_tables([table, removed.table], promote_options="default").cast(schema)

        def values_by_key() -> dict[Key, StateValue | None]:
            previous = _zipped_previous([column.values for column in previous_columns])
            stored = stored_values(self.kind, txids, _joined(value_columns), previous)
            by_key: dict[Key, StateValue | None] = dict(zip(keys, stored, strict=True))
            by_key.update(dict.fromkeys(removed.keys))
            return by_key

        return FittedRows(values_by_key, [*txids, *(None for _ in removed.keys)] if writes.removed else txids, table)

    def _same_keys(self) -> FieldsError:
        return FieldsError(f"state {self.state!r}: two keys are the same once they are {self.key}; write one of them")

    def check(self, values: KeyedWrites) -> None:
        """Check values, with or without previous ones, as :meth:`fit` does."""
        self.fit(0, values, with_previous=bool(values.previous))

    def read_written(self, table: pa.Table) -> Mapping[Key, StateValue | None]:
        """Return the stored value of each key in rows that are written, None for a key that they remove."""
        if not table[TXID_FIELD].null_count:
            return self.read(table)
        is_put = pc.is_valid(table[TXID_FIELD])
        removed = table.filter(pc.invert(is_put)).select(list(self.key))
        keys = joined_columns([column_values(column) for column in removed.columns])
        return {**self.read(table.filter(is_put)), **dict.fromkeys(keys)}

    def read(self, table: pa.Table) -> dict[Key, StateValue]:
        """Return the stored value of each key in ``table``, which has the columns of :meth:`schema`."""
        keys = joined_columns([column_values(table[name]) for name in self.key])
        return dict(zip(keys, self.read_values(table), strict=True))

    def read_values(self, table: pa.Table) -> Sequence[StateValue]:
        """Return the stored value in each row of ``table``."""
        txids = column_values(with_txids(table)[TXID_FIELD])
        values = [column_values(table[name]) for name in self.value]
        previous = _zipped_previous([column_values(table[name]) for name in self._previous])
        return stored_values(self.kind, txids, joined_columns(values), previous)

    def read_row(self, row: Sequence[Any]) -> StateValue:
        """Return the value in one row, given its columns in the order of :meth:`schema`."""
        first, width = len(self.key), len(self.value)
        values = joined_columns([[each] for each in row[first : first + width]])
        previous = _zipped_previous([[each] for each in row[first + width : -1]])
        return stored_values(self.kind, [row[-1] or 0], values, previous)[0]

    def fit_keys(self, keys: Sequence[Key]) -> FittedKeys:
        """Return keys in the form in which they are kept."""
        columns = self._key_columns(keys)
        table = None
        if self.is_typed:
            schema = pa.schema(list(self.schema())[: len(self.key)])
            table = pa.Table.from_arrays([column.array for column in columns], schema=schema)
        return FittedKeys(_joined(columns), table)

    def fitted(self, keys: Sequence[Key], values: Sequence[Any]) -> Sequence[Key]:
        """Return keys in the form in which they are kept, and check the value that is given with each."""
        refusal = self.unhashable(keys)
        if refusal is not None:
            raise refusal
        self._value_columns(values, keys)
        return self.fit_keys(keys).keys

    def unhashable(self, keys: Iterable[Key]) -> FieldsError | None:
        """Return the error for the first key that cannot be hashed; None if all can."""
        for key in keys:
            if not _is_hashable(key):
                hint = "; with several key fields a key is a tuple" if len(self.key) > 1 else ""
                return FieldsError(f"state {self.state!r}: {key!r} cannot be a key of {self.key}{hint}")
        return None

    def _key_columns(self, keys: Sequence[Key]) -> list[Column]:
        columns = []
        parts = self._split(keys, keys, self.key, "key")
        for (name, kind), part in zip(_pairs(self.key), parts, strict=True):
            if None in part:
                where = keys[part.index(None)]
                raise FieldsError(f"state {self.state!r}, key field {name!r}: key {where!r} is null; keys never are")
            if kind is None and any(isinstance(each, Number) and each != each for each in part):  # noqa: PLR0124 - NaN
                raise FieldsError(f"state {self.state!r}, key field {name!r}: a key is NaN, which equals no key")
            columns.append(self._column(name, kind, part, keys))
        return columns

    def _value_columns(self, values: Sequence[Any], keys: Sequence[Key]) -> list[Column]:
        if self._previous and len(self.value) > 1:
            self._refuse_all_null(values, keys)
        parts = self._split(values, keys, self.value, "value")
        return [
            self._column(name, kind, part, keys) for (name, kind), part in zip(_pairs(self.value), parts, strict=True)
        ]

    def _previous_columns(self, previous: Sequence[Any], keys: Sequence[Key]) -> list[Column]:
        """Return the columns of an opaque state's previous values; none for another kind."""
        if not self._previous:
            return []
        nothing = (None,) * len(self.value) if len(self.value) > 1 else None
        previous = [nothing if each is None else each for each in previous]
        parts = self._split(previous, keys, self.value, "previous value")
        types = self.value.types
        return [
            self._column(name, kind, part, keys) for name, kind, part in zip(self._previous, types, parts, strict=True)
        ]

    def _column(self, name: str, kind: pa.DataType | None, values: Sequence[Any], keys: Sequence[Key]) -> Column:
        column = fit_column(values, kind)
        if column is None:
            misfit = misfit_of(values, kind)
            raise FieldsError(
                f"state {self.state!r}, field '{name}: {ddl_name(kind)}', key {keys[misfit.position]!r}: {misfit.why}; "
                "no row was written"
            )
        return column

    def _split(self, rows: Sequence[Any], keys: Sequence[Key], fields: Fields, role: str) -> list[Sequence[Any]]:
        """Return one sequence per field, from one value or tuple per row."""
        width = len(fields)
        for key, row in zip(keys, rows, strict=True) if width > 1 else ():
            if not isinstance(row, tuple | list) or len(row) != width:
                raise FieldsError(
                    f"state {self.state!r}, key {key!r}: {role} {row!r} is not a tuple of {width} values, "
                    f"one for each of {fields}; nothing was written",
                )
        return split_columns(rows, width)

    def _refuse_all_null(self, values: Sequence[Any], keys: Sequence[Key]) -> None:
        for key, value in zip(keys, values, strict=True):
            if isinstance(value, tuple | list) and value and all(part is None for part in value):
                raise FieldsError(
                    f"state {self.state!r}, key {key!r}: every field of the value is null, which an opaque "
                    "state cannot distinguish from no value; give one field a value",
                )


def reaches(rows: pa.Table, txid: int) -> bool:
    """Whether one of the rows includes transaction ``txid`` or a later one."""
    return bool(rows.num_rows and pc.max(rows[TXID_FIELD]).as_py() >= txid)


def with_txids(rows: pa.Table) -> pa.Table:
    """Return a table's rows, those of no transaction as of 0: somebody else has put them, and that was accepted."""
    if not rows[TXID_FIELD].null_count:
        return rows
    at = rows.schema.get_field_index(TXID_FIELD)
    return rows.set_column(at, rows.schema.field(at), pc.fill_null(rows[TXID_FIELD], 0))


class DeclaredKeys(State):
    """A declared keyed state whose rows have the format of a :class:`RowFormat`."""

    def format(self, name: str) -> RowFormat:
        """Return the format of the rows of the state with this name."""
        return RowFormat(name, self.key, self.value, self.kind)

    def fitted(self, name: str, keys: Sequence[Key], values: Sequence[Any]) -> Sequence[Key]:
        """Return keys in the form in which they are kept; see :meth:`State.fitted`."""
        return self.format(name).fitted(keys, values)


@attrs.frozen(eq=False)
class FittedKeys:
    """Keys that fit their fields, as Python values and (where typed) as an Arrow table."""

    keys: Sequence[Key]
    table: Any


def _previous_names(value: Fields, kind: StateKind) -> list[str]:
    return [PREVIOUS_PREFIX + name for name in value] if kind is StateKind.OPAQUE else []


def _pairs(fields: Fields) -> list[tuple[str, pa.DataType | None]]:
    return list(zip(fields.names, fields.types, strict=True))


def _joined(columns: Sequence[Column]) -> Sequence[Any]:
    return joined_columns([column.values for column in columns])


def _zipped_previous(columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
    if len(columns) <= 1:
        return columns[0] if columns else ()
    return [None if all(part is None for part in row) else row for row in zip(*columns, strict=True)]


def _is_hashable(key: object) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True
