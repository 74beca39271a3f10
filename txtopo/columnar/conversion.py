"""The one place where a value becomes an Arrow value of a declared type: without loss, or not at all. Pure.

Emission, states, spouts and committers all convert here, so a value that fits in one way in fits in each, and the error
of one that does not names the value, its class, the type and why. Arrow's conversions are no such place:
``pa.array([2.5], pa.int64())`` is 2, a datetime becomes its date, a struct loses the members it does not know, and
``cast`` turns 1e300 into infinity and 5 into a timestamp.

There are two ways in: :func:`fit_array` for Python values, :func:`cast_array` for columns of Arrow. Both return None
if a value does not fit; :func:`misfit_of` and :func:`misfit_in` then say which, and why. :func:`takes_all` decides by
the type alone, where values are out of reach. All have one rule:

- a value has its type's kind: no float is an integer, no boolean a number, no integer a time, no bytes a string;
- the converted value equals the given one. Only a ``float`` field may be less exact than its value: it keeps the
  nearest number of 32 bits, and refuses what would become infinite or zero.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import numbers
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter, itemgetter
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.api.data.types import ddl_name, python_values
from txtopo.columnar.column_bytes import to_bytes
from txtopo.columnar.progress_probe import current_probe
from txtopo.errors import FieldsError
from txtopo.text.suggestions import did_you_mean

REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""Arrow's errors for values that it cannot convert."""

_FLOAT_32_MAX = 3.4028235677973366e38
"""The first number that 32 bits round to infinity."""

_FLOAT_32_MIN = 2.0**-150
"""The largest number that 32 bits round to zero."""

_DECIMAL_DIGITS_MAX = 76
"""The digits of Arrow's largest decimal."""

AT_ONCE_MAX = 1_000
"""The number of nested values converted at a time; that takes a second if they are large, so progress is reported
after each portion."""

_SMALL_END = 1 << 31
"""Numbers of at most 32 bits are built from bytes."""
_FEW = 64
"""A null among the first values tells mostly that the column has some."""

_OFFSET_MAX = (1 << 31) - 1
"""Of the items of a column's lists."""


@attrs.frozen
class Misfit:
    """A value that does not fit a type: its position among the values, and why, as the end of a sentence."""

    position: int
    why: str


def fit_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """Return Python values as an Arrow column; None if one of them does not fit, see :func:`misfit_of`."""
    try:
        return _fit_nested(values, kind) if pa.types.is_nested(kind) else _fit_simple(values, kind)
    except REFUSALS:  # out of range
        return None


def cast_array(column: Any, kind: pa.DataType, *, is_part: bool = False) -> Any:
    """Return an Arrow column, chunked or not, as one of another type; None if a value does not fit.

    ``is_part`` says that structs may have more members than ``kind``: those of a file whose reader wants a part.
    """
    if column.type == kind:
        return column
    if isinstance(column, pa.ChunkedArray):
        chunks = [cast_array(chunk, kind, is_part=is_part) for chunk in column.chunks]
        return None if any(chunk is None for chunk in chunks) else pa.chunked_array(chunks, kind)
    try:
        return _cast(column, kind, is_part=is_part)
    except REFUSALS:
        return None


def takes_all(kind: pa.DataType, theirs: pa.DataType) -> bool:
    """Whether :func:`cast_array` takes each value of another type, because it takes the extreme ones."""
    if pa.types.is_map(kind) and pa.types.is_map(theirs):
        return takes_all(kind.key_type, theirs.key_type) and takes_all(kind.item_type, theirs.item_type)
    if pa.types.is_list(kind) and _is_any_list(theirs):
        return takes_all(kind.value_type, theirs.value_type)
    if pa.types.is_struct(kind) and pa.types.is_struct(theirs):
        members = {field.name: field.type for field in theirs}
        has_same = theirs.num_fields == len(members) and members.keys() == {field.name for field in kind}
        return has_same and all(takes_all(field.type, members[field.name]) for field in kind)
    return cast_array(_extremes(theirs), kind) is not None


def cast_rows(rows: Any, schema: pa.Schema, where: str) -> Any:
    """Return a record batch or a table whose columns are those of ``schema``, in its types.

    Raises:
        FieldsError: a value does not fit; the message begins with ``where``.
    """
    if rows.schema.equals(schema):
        return rows
    columns = []
    for field in schema:
        column = rows.column(field.name)
        arrays = cast_array(column, field.type)
        if arrays is None:
            why = misfit_in(column, field.type).why
            raise FieldsError(f"{where}, field '{field.name}: {ddl_name(field.type)}': {why}")
        columns.append(arrays)
    return type(rows).from_arrays(columns, schema=schema)


def fitted_array(name: str, values: Sequence[Any], kind: pa.DataType, what_for: str) -> pa.Array:
    """Return the column of ``values`` in Arrow.

    Raises:
        FieldsError: names the first value that does not fit, the field ``name`` and what the column is for.
    """
    array = fit_array(values, kind)
    if array is None:
        raise FieldsError(f"field '{name}: {ddl_name(kind)}', {what_for}: {misfit_of(values, kind).why}")
    return array


def misfit_of(values: Sequence[Any], kind: pa.DataType) -> Misfit:
    """Return the first of some values that does not fit ``kind``; there must be one."""
    position = next(position for position, value in enumerate(values) if fit_array([value], kind) is None)
    return Misfit(position, _why_not(values[position], kind) + _ADVICE)


def misfit_in(column: Any, kind: pa.DataType, *, is_part: bool = False) -> Misfit:
    """Return the first value of an Arrow column that :func:`cast_array` refuses; there must be one."""
    first, end = 0, len(column)
    if cast_array(column.slice(0, 0), kind, is_part=is_part) is None:
        first = end = next(iter(pc.indices_nonzero(column.is_valid()).to_pylist()), 0)
    while end - first > 1:  # the first misfit is in this range
        middle = (first + end) // 2
        if cast_array(column.slice(first, middle - first), kind, is_part=is_part) is None:
            end = middle
        else:
            first = middle
    value = pc.cast(column.slice(first, 1), pa.string()) if _is_time(column.type) else column.slice(first, 1)
    shown = next(iter(value.to_pylist()), None)
    return Misfit(first, f"{shown!r:.200} (Arrow's {column.type}) does not fit {ddl_name(kind)}{_ADVICE}")


_ADVICE = "; give such a value, or declare the field with the type that it needs"


def is_exact(values: Iterable[Any], kind: pa.DataType) -> bool:
    """Whether all values are of the one class whose objects are read back unchanged; not for nested types."""
    rule_class = _own_class(kind)
    return rule_class is not None and set(map(type, values)) <= {rule_class, type(None)}


def as_read(values: Sequence[Any], kind: pa.DataType) -> Sequence[Any]:
    """Return values that fit as they are read back; the same if all have that form already, which is found first."""
    if is_exact(values, kind):
        return values
    if pa.types.is_nested(kind) and len(values) > AT_ONCE_MAX:
        portions = [values[start : start + AT_ONCE_MAX] for start in range(0, len(values), AT_ONCE_MAX)]
        read = [as_read(portion, kind) for portion in portions]
        return values if all(map(operator.is_, portions, read)) else list(chain.from_iterable(read))
    array = None if _are_as_read(values, kind) else fit_array(values, kind)
    current_probe().step()
    return values if array is None else python_values(array)


def _are_as_read(values: Sequence[Any], kind: pa.DataType) -> bool:
    classes = set(map(type, values))
    if type(None) in classes:
        classes.discard(type(None))
        values = [value for value in values if value is not None]
    rule_class = _own_class(kind)
    if rule_class is not None or not classes:
        return classes <= {rule_class}
    if pa.types.is_nested(kind):
        parts = _parts_of(values, classes, kind)
        return parts is not None and all(_are_as_read(list(part), of) for part, of in parts)
    if pa.types.is_timestamp(kind):  # zones by identity: a zone's hash takes 5x as long
        return classes == {dt.datetime} and set(map(id, map(attrgetter("tzinfo"), values))) <= _UTC
    if pa.types.is_decimal(kind):
        unit = decimal.Decimal(1).scaleb(-kind.scale)
        is_kept = classes == {decimal.Decimal} and all(map(unit.same_quantum, values))
        return is_kept and not any(value.is_signed() for value in values if not value)
    exact = np.array(values, np.float64)  # to be of 32 bits
    return classes == {float} and bool(((exact.astype(np.float32) == exact) | np.isnan(exact)).all())


def _parts_of(
    values: Sequence[Any], classes: set[type], kind: pa.DataType
) -> list[tuple[Iterable[Any], pa.DataType]] | None:
    """Return the values that nested ones consist of, with their types; None if not all are of the class that is read.

    The members of a struct are read in the order of its type.
    """
    if classes != {list if pa.types.is_list(kind) else dict}:
        return None
    if pa.types.is_list(kind):
        return [(chain.from_iterable(values), kind.value_type)]
    if pa.types.is_map(kind):
        items = chain.from_iterable(map(dict.values, values))
        return [(chain.from_iterable(values), kind.key_type), (items, kind.item_type)]
    if set(map(tuple, values)) != {tuple(field.name for field in kind)}:
        return None
    return [(map(itemgetter(field.name), values), field.type) for field in kind]


_ARROWS_UTC = pa.lib.string_to_tzinfo("UTC")  # not from a scalar, which imports pandas: a third of each process's start

_UTC = {id(dt.UTC), id(_ARROWS_UTC), id(None)}
"""The zones of times as they are read, by identity."""

_INFERRED = frozenset({pa.string(), pa.bool_()})
"""The types that Arrow finds only where all values are of their class. No integers: numpy's booleans become some."""


def _own_class(kind: pa.DataType) -> type | None:
    return next((rule_class for is_kind, rule_class, _ in _RULES if is_kind(kind)), None)


def _fit_simple(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    if kind in _INFERRED:
        # For values of the type's class, which nearly all are, Arrow finds that type itself. That costs less
        # than to look at their classes here: 28 ns a text instead of 45.
        try:
            array = pa.array(values)
        except REFUSALS:
            pass  # such as integers and booleans together: decided below
        else:
            if array.type == kind:
                return array
    # The bytes of numbers say their classes, too: 12 ns instead of 37. Those with nulls or of more bits don't do, which
    # the first ones mostly tell: 41 ns instead of 52 of a nullable column.
    if values and _is_small(values[0], kind) and _is_small(values[-1], kind) and None not in values[:_FEW]:
        encoded = to_bytes(list(values))
        array = None if encoded is None else encoded.to_array(len(values))
        if array is not None:
            return cast_array(array, kind)
    if not _fits(values, kind):
        return None
    array = pa.array(values, kind)
    return array if has_years(array) else None


def _is_small(value: Any, kind: pa.DataType) -> bool:
    """Whether such numbers are built from bytes."""
    if pa.types.is_integer(kind):
        return type(value) is int and -_SMALL_END <= value < _SMALL_END
    return type(value) is float and pa.types.is_float64(kind)


def _fit_nested(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """Build a column of lists, maps or structs from the columns of their parts, at the cost of Arrow's own way."""
    classes = set(map(type, values))
    mask = None
    if type(None) in classes:
        classes.discard(type(None))
        mask = pa.array([value is None for value in values], pa.bool_())
        empty: Any = {field.name: None for field in kind} if pa.types.is_struct(kind) else {}
        values = [empty if value is None else value for value in values]
    if pa.types.is_list(kind):
        if any(issubclass(each, np.ndarray) for each in classes):
            values = [value.tolist() if isinstance(value, np.ndarray) and value.ndim else value for value in values]
            classes = set(map(type, values)) - {dict}  # a null
        flat = fit_array(list(chain.from_iterable(values)), kind.value_type) if all(map(_is_list, classes)) else None
        return None if flat is None else pa.ListArray.from_arrays(_offsets_of(values), flat, kind, mask=mask)
    if not all(issubclass(each, dict) for each in classes):
        return None
    if pa.types.is_map(kind):
        keys = fit_array(list(chain.from_iterable(values)), kind.key_type)
        items = fit_array(list(chain.from_iterable(map(dict.values, values))), kind.item_type)
        if keys is None or items is None or _has_twice(values, keys):
            return None
        return pa.MapArray.from_arrays(_offsets_of(values), keys, items, kind, mask=mask)  # which refuses a null key
    if set(map(len, values)) - {kind.num_fields}:
        return None
    try:  # as many members as the type has, and each of its own
        members = [fit_array(list(map(itemgetter(field.name), values)), field.type) for field in kind]
    except KeyError:
        return None
    if any(member is None for member in members):
        return None
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)


def _has_twice(values: Sequence[Any], keys: pa.Array) -> bool:
    """Whether two keys of a map have become one: a float of 32 bits, or one moment in two time zones."""
    if not pa.types.is_float32(keys.type) and getattr(keys.type, "tz", None) is None:
        return False
    key_iterator = iter(keys.to_pylist())
    return any(len(set(islice(key_iterator, len(value)))) < len(value) for value in values)


def _offsets_of(values: Sequence[Any]) -> pa.Array:
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
    if offsets[-1] > _OFFSET_MAX:
        raise OverflowError("more items than a column of Arrow holds")
    return pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets.astype(np.int32))])


def _fits(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Whether values are of the kind of a simple type; whether they are in its range, Arrow itself decides."""
    # Column by column, not value by value: the class of most values is found in C.
    kinds = set(map(type, values))
    classes = kinds - {type(None)}
    if classes <= {_own_class(kind)} or (pa.types.is_decimal(kind) and classes == {decimal.Decimal}):
        return True
    present = values if classes == kinds else [value for value in values if value is not None]
    if pa.types.is_timestamp(kind) and classes == {dt.datetime}:
        zone_of = attrgetter("tzinfo")
        if kind.tz is not None and all(map(zone_of, present)):  # no zone is false; this takes a third of the next line
            return True
        zones = set(map(id, map(zone_of, present)))  # by identity: a zone's hash takes 5x as long
        return zones == {id(None)} if kind.tz is None else id(None) not in zones
    for is_kind, rule_class, accepts in _RULES:
        if is_kind(kind):
            return all(type(value) is rule_class or accepts(value, kind) for value in present)
    return not present


def _is_list(kind: type) -> bool:
    return issubclass(kind, list | tuple)


def _is_integer(value: Any, _kind: pa.DataType) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_real(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    if not pa.types.is_float32(kind):
        return True
    magnitude: Any = abs(value)
    if isinstance(magnitude, np.generic):  # which would compare in its own type
        magnitude = magnitude.item()
    return not (_FLOAT_32_MAX <= magnitude < math.inf or 0 < magnitude <= _FLOAT_32_MIN)


def _is_boolean(value: Any, _kind: pa.DataType) -> bool:
    return isinstance(value, bool | np.bool_)


def _is_string(value: Any, _kind: pa.DataType) -> bool:
    return isinstance(value, str)


def _is_binary(value: Any, _kind: pa.DataType) -> bool:
    return isinstance(value, bytes | bytearray | memoryview)


def _is_decimal(value: Any, kind: pa.DataType) -> bool:
    return isinstance(value, decimal.Decimal) or _is_integer(value, kind)


def _is_date(value: Any, _kind: pa.DataType) -> bool:
    return isinstance(value, dt.date) and not isinstance(value, dt.datetime)


def _is_timestamp(value: Any, kind: pa.DataType) -> bool:
    # Both have a time zone, or neither has: a guess would differ from Spark's. Pandas' times may have nanoseconds.
    return (
        isinstance(value, dt.datetime)
        and (value.tzinfo is None) == (kind.tz is None)
        and not getattr(value, "nanosecond", 0)
    )


_RULES: tuple[tuple[Callable[[pa.DataType], bool], type | None, Callable[[Any, pa.DataType], bool]], ...] = (
    (pa.types.is_int64, int, _is_integer),
    (pa.types.is_string, str, _is_string),
    (pa.types.is_float64, float, _is_real),
    (pa.types.is_integer, int, _is_integer),
    (pa.types.is_boolean, bool, _is_boolean),
    (pa.types.is_binary, bytes, _is_binary),
    (pa.types.is_date, dt.date, _is_date),
    (pa.types.is_floating, None, _is_real),
    (pa.types.is_decimal, None, _is_decimal),
    (pa.types.is_timestamp, None, _is_timestamp),
)
"""For each simple type: its test, the class whose values are read back unchanged (None: none), and the test for other
values that it accepts."""


def _why_not(value: Any, kind: pa.DataType) -> str:
    """Return why a value does not fit a type, naming the innermost value that does not."""
    if isinstance(value, dict) and pa.types.is_struct(kind):
        names = [field.name for field in kind]
        lacking = [name for name in names if name not in value]
        more_names = [name for name in value if name not in names]
        if more_names:
            near = did_you_mean(str(more_names[0]), names)
            return f"{value!r:.200} has a member {more_names[0]!r} that {ddl_name(kind)} does not have{near}"
        if lacking:
            return f"{value!r:.200} lacks the member {lacking[0]!r} of {ddl_name(kind)}, which may be None"
        parts = [(f"member {field.name!r}", value[field.name], field.type) for field in kind]
    elif isinstance(value, dict) and pa.types.is_map(kind):
        if None in value:
            return f"{value!r:.200} has the key None, which no {ddl_name(kind)} has"
        keys = fit_array(list(value), kind.key_type)
        if keys is not None and _has_twice([value], keys):
            return f"{value!r:.200} has two keys that are one as {ddl_name(kind.key_type)}"
        parts = [
            *(("a key", each, kind.key_type) for each in value),
            *((f"the value of {key!r}", each, kind.item_type) for key, each in value.items()),
        ]
    elif isinstance(value, list | tuple) and pa.types.is_list(kind):
        parts = [(f"item {index}", each, kind.value_type) for index, each in enumerate(value)]
    else:
        parts = []
    for name, part, part_kind in parts:
        if fit_array([part], part_kind) is None:
            return f"{name} of {value!r:.200}: {_why_not(part, part_kind)}"
    return f"{value!r:.200} ({type(value).__name__}) does not fit {ddl_name(kind)}{_reason(value, kind)}"


def _reason(value: Any, kind: pa.DataType) -> str:
    if _fits([value], kind):
        return ", whose range or digits it exceeds"
    if isinstance(value, dt.datetime) and pa.types.is_timestamp(kind):
        return f", whose times have {'no' if kind.tz is None else 'a'} time zone"
    return ", whose values are of another kind"


def has_years(column: Any) -> bool:
    """Whether Python can read a column's times: in UTC, they are of the years 1 to 9999."""
    try:
        for times in _parts_in(column, _is_moment):
            pc.min_max(times).as_py()
    except (OverflowError, ValueError):
        return False
    return True


def why_invalid(column: Any) -> str | None:
    """Return why a column has no values of its type, such as texts that are not UTF-8; None if it has.

    A data file with such a text can't be read by delta-rs. The look takes 27 µs for 10,000 short texts.
    """
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        return f"a value is invalid ({error})"
    return None


def may_be_unreadable(kind: pa.DataType | None) -> bool:
    """Whether a column of a type, or of any, may have a value that Python can't read; see :func:`why_unreadable`."""
    return kind is None or any(_holds(kind, is_kind) for is_kind in (_is_moment, _is_readable_map, pa.types.is_string))


def why_unreadable(column: Any) -> str | None:
    """Return why Python can't read a value of a column; None if it can read all."""
    if not has_years(column):
        return "a time is not of the years 1 to 9999 in UTC"
    if any(map(_has_key_twice, _parts_in(column, _is_readable_map))):
        return "a map has a key twice"
    return why_invalid(column)


def python_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as Python values, to show them: a time that Python can't read is a text."""
    columns = [_python_values(column) for column in rows.columns]
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _python_values(column: Any) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        return [_python_value(value) for value in column]
    return values


def _python_value(value: Any) -> Any:
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {name: _python_value(member) for name, member in value.items()}
    if pa.types.is_map(kind):
        entries = map(_python_value, value.values)
        return [tuple(entry.values()) for entry in entries]
    if pa.types.is_nested(kind):
        return [_python_value(item) for item in value.values]
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return f"{value.value} {kind.unit if pa.types.is_timestamp(kind) else 'days'} since 1970"


def _parts_in(column: Any, is_meant: Callable[[pa.DataType], bool]) -> Iterator[Any]:
    """Yield the columns of some types at any depth of a column."""
    kind = column.type
    if is_meant(kind):
        yield column
    if pa.types.is_nested(kind) and _holds(kind, is_meant):
        if isinstance(column, pa.ChunkedArray):
            parts = column.chunks
        elif pa.types.is_struct(kind):
            parts = column.flatten()
        elif pa.types.is_map(kind):
            parts = [column.keys, column.items]
        else:
            parts = [pc.list_flatten(column)]
        for part in parts:
            yield from _parts_in(part, is_meant)


def _holds(kind: pa.DataType, is_meant: Callable[[pa.DataType], bool]) -> bool:
    children = range(kind.num_fields if pa.types.is_nested(kind) else 0)
    return is_meant(kind) or any(_holds(kind.field(index).type, is_meant) for index in children)


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _is_readable_map(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind)) and not pa.types.is_nested(kind.key_type)


def _has_key_twice(maps: Any) -> bool:
    if isinstance(maps, pa.ChunkedArray):
        return any(map(_has_key_twice, maps.chunks))
    offsets = maps.offsets.to_numpy()
    keys = maps.keys.slice(offsets[0], offsets[-1] - offsets[0])
    keys = pc.add(keys, 0.0) if pa.types.is_floating(keys.type) else keys  # -0.0 and 0.0 are one key to Python
    keys = keys.dictionary_encode().indices.to_numpy()
    counts = np.diff(offsets)
    of_map = np.repeat(np.arange(len(maps)), counts) * (len(keys) + 1) + keys
    of_map = of_map[np.repeat(np.asarray(maps.is_valid()), counts)]
    return len(np.unique(of_map)) < len(of_map)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind))


class _Refused(ValueError):
    """A type, or a struct's members, do not fit."""


def _cast(array: pa.Array, kind: pa.DataType, *, is_part: bool) -> pa.Array:
    theirs = array.type
    if theirs == kind:
        return array
    if pa.types.is_dictionary(theirs):
        return _cast(array.dictionary_decode(), kind, is_part=is_part)
    if pa.types.is_null(theirs):
        return pa.nulls(len(array), kind)
    if pa.types.is_struct(theirs) and pa.types.is_struct(kind):
        return _cast_struct(array, kind, is_part=is_part)
    if pa.types.is_map(theirs) and pa.types.is_map(kind):
        pairs = pa.struct([("key", theirs.key_type), ("value", theirs.item_type)])
        offsets, flat, is_null = _items_of(array.cast(pa.list_(pairs)))
        keys, items = flat.field(0), flat.field(1)
        keys, items = _cast(keys, kind.key_type, is_part=is_part), _cast(items, kind.item_type, is_part=is_part)
        return pa.MapArray.from_arrays(offsets, keys, items, kind, mask=is_null)
    if _is_any_list(theirs) and pa.types.is_list(kind):
        offsets, flat, is_null = _items_of(array)
        return pa.ListArray.from_arrays(offsets, _cast(flat, kind.value_type, is_part=is_part), kind, mask=is_null)
    if pa.types.is_integer(theirs) and pa.types.is_decimal(kind):
        # Straight to the type, Arrow refuses any precision that has no room for every integer.
        array = array.cast(pa.decimal256(_DECIMAL_DIGITS_MAX, kind.scale))
    elif not _is_same_family(theirs, kind):
        raise _Refused
    result = array.cast(kind)
    if pa.types.is_float32(kind) and pa.types.is_float64(theirs) and not _is_near(array, result):
        raise _Refused
    return result


def _cast_struct(array: pa.Array, kind: pa.DataType, *, is_part: bool) -> pa.Array:
    by_name = dict(zip([field.name for field in array.type], array.flatten(), strict=True))  # null where it is null
    names = [field.name for field in kind]
    if len(by_name) != array.type.num_fields or not set(names) <= by_name.keys():
        raise _Refused
    if len(names) != len(by_name) and not is_part:
        raise _Refused
    members = [_cast(by_name[field.name], field.type, is_part=is_part) for field in kind]
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=array.is_null())


def _items_of(array: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return a column of lists as the offsets of its items, the items, and which of the lists are null."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pa.array(offsets, pa.int64()).cast(pa.int32()), pc.list_flatten(array), array.is_null()


def _is_any_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


_FAMILIES: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    lambda one: pa.types.is_string(one) or pa.types.is_large_string(one) or pa.types.is_string_view(one),
    lambda one: (
        pa.types.is_binary(one)
        or pa.types.is_large_binary(one)
        or pa.types.is_fixed_size_binary(one)
        or pa.types.is_binary_view(one)
    ),
)
"""Types within which Arrow's cast raises instead of losing data."""


def _is_same_family(theirs: pa.DataType, ours: pa.DataType) -> bool:
    """Whether values of one type mean the same in another."""
    if pa.types.is_timestamp(theirs) and pa.types.is_timestamp(ours):
        return (theirs.tz is None) == (ours.tz is None)
    if pa.types.is_integer(theirs) and pa.types.is_floating(ours):
        return True
    return any(family(theirs) and family(ours) for family in _FAMILIES)


def _extremes(kind: pa.DataType) -> pa.Array:
    """Return the values of a number type that need most of another one; nulls of other types."""
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        return pa.array([limits.min, limits.max], kind)
    if pa.types.is_floating(kind):
        real = np.finfo(kind.to_pandas_dtype())
        return pa.array([float(real.smallest_subnormal), float(real.max)], kind)
    if pa.types.is_decimal(kind):
        return pa.array([decimal.Decimal((0, (9,) * kind.precision, -kind.scale))], kind)
    return pa.nulls(1, kind)


def _is_near(exact: pa.Array, cast: pa.Array) -> bool:
    """Whether no number has become infinite or zero."""
    values, narrow = (each.to_numpy(zero_copy_only=False) for each in (exact, cast))
    return bool((np.isinf(values) == np.isinf(narrow)).all() and ((values == 0) == (narrow == 0)).all())
