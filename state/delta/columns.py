"""Convert Python values to one Arrow column of a declared type, without silent loss.

Arrow accepts values that do not fit: 1.5 becomes 1 in a long, bytes become a string, a naive datetime becomes
UTC. So values are checked first. A column whose values all have the type's own Python class needs no further check;
every other column is checked value by value and read back, so that a value is the same before and after a restart.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.api.types import ddl_name
from txtopo.errors import FieldsError
from txtopo.transactional.tasks.progress_probe import current_probe

__all__ = [
    "Column",
    "column_values",
    "find_misfit",
    "fit_array",
    "fit_column",
    "fitted_array",
    "is_key_type",
    "no_equality",
]

AT_ONCE_MAX = 1_000
"""The number of nested values converted at a time; that takes a second if they are large, so progress is reported
after each portion."""

_FLOAT_32_MAX = 3.4028234663852886e38

_REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""Arrow's errors for values that it cannot convert."""


@attrs.frozen(eq=False)
class Column:
    """One field of many rows.

    Args:
        array: the column in Arrow; None for a field without a type.
        values: the values as they are read back.
        is_changed: whether a value that was read back may differ from the given object.
    """

    array: Any
    values: Sequence[Any]
    is_changed: bool


def fit_column(values: Sequence[Any], kind: pa.DataType | None) -> Column | None:
    """Return the column of ``values``, or None if one of them does not fit; see :func:`find_misfit`.

    Without a type, every value fits and stays as it is.
    """
    if kind is None:
        return Column(None, values, is_changed=False)
    if pa.types.is_nested(kind) and len(values) > AT_ONCE_MAX:
        return _fit_portions(values, kind)
    return _fit_at_once(values, kind)


def fit_array(values: Sequence[Any], kind: pa.DataType) -> Any:
    """Return the column of ``values`` in Arrow, or None if one of them does not fit, as :func:`fit_column` does.

    It is faster where nobody needs the values as they will be read back.
    """
    if pa.types.is_nested(kind):
        column = fit_column(values, kind)
        return None if column is None else column.array
    if not _is_exact(values, kind) and not all(map(_test_of(kind), values)):
        return None
    try:
        array = pa.array(values, kind)
        if pa.types.is_timestamp(kind):
            pc.min_max(array).as_py()  # refuses what could not be read back
    except _REFUSALS:
        return None
    return array


def fitted_array(name: str, values: Sequence[Any], kind: pa.DataType, what_for: str) -> Any:
    """Return the column of ``values`` in Arrow.

    Raises:
        FieldsError: names the first value that does not fit, the field ``name`` and what the column is for.
    """
    array = fit_array(values, kind)
    if array is None:
        value = values[find_misfit(values, kind)]
        raise FieldsError(f"field '{name}: {ddl_name(kind)}', {what_for}: {does_not_fit(value)}")
    return array


def does_not_fit(value: Any) -> str:
    """Return the end of an error's message: that a value is not of its field's type, and what to do."""
    return (
        f"{value!r} ({type(value).__name__}) does not fit; give such a value, or declare the field with the type that "
        "it needs; no row was written"
    )


def _fit_portions(values: Sequence[Any], kind: pa.DataType) -> Column | None:
    arrays: list[Any] = []
    read_back: list[Any] = []
    probe = current_probe()
    for start in range(0, len(values), AT_ONCE_MAX):
        column = _fit_at_once(values[start : start + AT_ONCE_MAX], kind)
        if column is None:
            return None
        arrays.append(column.array)
        read_back += column.values
        probe.step()
    return Column(pa.chunked_array(arrays), read_back, is_changed=True)


def _fit_at_once(values: Sequence[Any], kind: pa.DataType) -> Column | None:
    is_exact = _is_exact(values, kind)
    if not is_exact and not all(map(_test_of(kind), values)):
        return None
    try:
        array = pa.array(values, kind)
        # In UTC, a datetime with a time zone may be before the year 1 or after 9999.
        read_back = values if is_exact else column_values(array)
    except _REFUSALS:
        return None
    return Column(array, read_back, is_changed=not is_exact)


def find_misfit(values: Sequence[Any], kind: pa.DataType) -> int:
    """Return the position of the first value that does not fit ``kind``; there must be one."""
    return next(position for position, value in enumerate(values) if fit_column([value], kind) is None)


def column_values(array: Any) -> list[Any]:
    """Return an Arrow column as Python values; a map is a dict."""
    if not pa.types.is_nested(array.type):
        return _as_python(array)
    values: list[Any] = []
    probe = current_probe()
    for start in range(0, len(array), AT_ONCE_MAX):
        values += _as_python(array.slice(start, AT_ONCE_MAX))
        probe.step()
    return values


def _as_python(array: Any) -> list[Any]:
    values: list[Any] = array.to_pylist(maps_as_pydicts="strict")
    return values


def is_key_type(kind: pa.DataType) -> bool:
    """Whether values of this type can be keys: they are hashable, and Python's equality is the same as Delta's."""
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind))


def no_equality(name: str, kind: pa.DataType) -> FieldsError:
    """Return the error of a key field whose type is none of :func:`is_key_type`."""
    return FieldsError(
        f"key field {name!r} is {ddl_name(kind)}, whose values have no reliable equality; use a string, an integer, a "
        "decimal, a date, a timestamp, a boolean or a binary"
    )


def _is_exact(values: Sequence[Any], kind: pa.DataType) -> bool:
    own = next((own for is_kind, own, _ in _SIMPLE_RULES if own is not None and is_kind(kind)), None)
    return own is not None and set(map(type, values)) <= {own, type(None)}


@functools.lru_cache(maxsize=1024)
def _test_of(kind: pa.DataType) -> Callable[[Any], bool]:
    """Return a test whether a value fits a type; the type is inspected once, not for each item of each value."""
    for is_kind, own, accepts in _SIMPLE_RULES:
        if is_kind(kind):
            known = (own, type(None))  # the other tests use abstract classes, which are many times slower
            return lambda value: type(value) in known or accepts(value, kind)
    if pa.types.is_timestamp(kind):
        # Both the datetime and the type have a time zone, or neither has; a guess would differ from Spark's.
        is_naive = kind.tz is None  # looked up once: it takes longer than the test
        return lambda value: value is None or (isinstance(value, dt.datetime) and (value.tzinfo is None) == is_naive)
    if pa.types.is_map(kind):
        key_fits, item_fits = _test_of(kind.key_type), _test_of(kind.item_type)
        return lambda value: (
            value is None
            or (
                isinstance(value, dict)
                and None not in value
                and all(map(key_fits, value))
                and all(map(item_fits, value.values()))
            )
        )
    if pa.types.is_list(kind):
        each_fits = _test_of(kind.value_type)
        return lambda value: value is None or (isinstance(value, list | tuple) and all(map(each_fits, value)))
    if pa.types.is_struct(kind):
        tests = {field.name: _test_of(field.type) for field in kind}
        return lambda value: (
            value is None
            or (isinstance(value, dict) and all(name in tests and tests[name](item) for name, item in value.items()))
        )
    return lambda value: value is None


def _is_integer(value: Any, _kind: pa.DataType) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_real(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    magnitude: Any = abs(value)
    is_infinite_only_here = pa.types.is_float32(kind) and _FLOAT_32_MAX < magnitude < math.inf
    return not is_infinite_only_here


def _is_boolean(value: Any, _kind: pa.DataType) -> bool:
    return isinstance(value, bool) or type(value).__name__ == "bool"  # numpy's has the same name


def _is_string(value: Any, _kind: pa.DataType) -> bool:
    return isinstance(value, str)


def _is_binary(value: Any, _kind: pa.DataType) -> bool:
    return isinstance(value, bytes | bytearray | memoryview)


def _is_decimal(value: Any, kind: pa.DataType) -> bool:
    return isinstance(value, decimal.Decimal) or _is_integer(value, kind)


def _is_date(value: Any, _kind: pa.DataType) -> bool:
    return isinstance(value, dt.date) and not isinstance(value, dt.datetime)


_SIMPLE_RULES: tuple[
    tuple[Callable[[pa.DataType], bool], type | None, Callable[[Any, pa.DataType], bool]],
    ...,
] = (
    (pa.types.is_int64, int, _is_integer),
    (pa.types.is_string, str, _is_string),
    (pa.types.is_float64, float, _is_real),
    (pa.types.is_integer, int, _is_integer),
    (pa.types.is_boolean, bool, _is_boolean),
    (pa.types.is_binary, bytes, _is_binary),
    (pa.types.is_date, dt.date, _is_date),
    (pa.types.is_floating, None, _is_real),
    (pa.types.is_decimal, None, _is_decimal),
)
"""For each simple type: its test, the class whose values are read back unchanged (None: none), and the test for other
values that it accepts."""
