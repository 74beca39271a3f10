"""Columns of states: converted by :mod:`txtopo.columnar.conversion`, in portions that show progress, and read back."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import attrs
import pyarrow as pa

from txtopo.api.data.types import ddl_name, python_values
from txtopo.columnar.conversion import AT_ONCE_MAX, fit_array, is_exact
from txtopo.columnar.progress_probe import current_probe
from txtopo.errors import FieldsError


@attrs.frozen(eq=False)
class Column:
    """One field of many rows: in Arrow if it has a type, and as given, unless what is read back may differ."""

    array: Any
    given: Sequence[Any] | None

    @property
    def is_changed(self) -> bool:
        """Whether a value that is read back may differ from the given object."""
        return self.given is None

    @functools.cached_property
    def values(self) -> Sequence[Any]:
        """The values as they are read back; for nested ones that takes as long as to fit them."""
        return column_values(self.array) if self.given is None else self.given


def fit_column(values: Sequence[Any], kind: pa.DataType | None) -> Column | None:
    """Return the column of ``values``, as they are without a type; None if one of them does not fit."""
    if kind is None:
        return Column(None, values)
    if pa.types.is_nested(kind) and len(values) > AT_ONCE_MAX:
        return _fit_portions(values, kind)
    array = fit_array(values, kind)
    return None if array is None else Column(array, values if is_exact(values, kind) else None)


def _fit_portions(values: Sequence[Any], kind: pa.DataType) -> Column | None:
    arrays: list[Any] = []
    probe = current_probe()
    for start in range(0, len(values), AT_ONCE_MAX):
        column = fit_column(values[start : start + AT_ONCE_MAX], kind)
        if column is None:
            return None
        arrays.append(column.array)
        probe.step()
    return Column(pa.chunked_array(arrays), None)


def column_values(array: Any) -> list[Any]:
    """Return an Arrow column as Python values; a map is a dict."""
    values: list[Any] = []
    probe, size = current_probe(), AT_ONCE_MAX if pa.types.is_nested(array.type) else max(1, len(array))
    for start in range(0, len(array), size):
        values += python_values(array.slice(start, size))
        probe.step()
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
