"""Defensive copies: user code never holds an object that txtopo keeps. Pure.

1. A bolt reads a list from a state, changes it in place and then fails.
2. Its commit group runs a second time.
3. If the bolt had changed the very object that the state holds, the second run would start from the changed list.

So txtopo copies values in both directions. This module alone decides whether and how, from the types of the fields,
once for each state or stream; numbers and strings are passed on without a copy.
"""

from __future__ import annotations

import copy
import ctypes
import datetime as dt
import decimal
import functools
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import cloudpickle
import pyarrow as pa

from txtopo.api.data.fields import Fields
from txtopo.attempts import TransactionAttempt
from txtopo.errors import FieldsError

Copy = Callable[[Any], Any]
"""Returns a value that shares nothing mutable with its argument."""

CULPRIT_DEPTH_MAX = 5
"""The maximum number of names by which an error says which attribute does not pickle."""

UNCHANGEABLE = frozenset(
    {
        *(str, bytes, int, float, bool, type(None), complex, TransactionAttempt),
        *(decimal.Decimal, dt.date, dt.datetime, dt.timedelta),
    }
)
"""Classes with immutable objects. Objects of their subclasses may be mutable, so compare by ``type``."""


@attrs.frozen
class Copying:
    """How to copy values between user code and txtopo.

    Args:
        copied_in: returns the copy to keep of a value that user code passes in.
        copied_out: returns the copy to give to user code of a kept value; None to give that itself, if it is immutable.
    """

    copied_in: Copy
    copied_out: Copy | None


def unchanged(value: Any) -> Any:
    """Return a value that needs no copy."""
    return value


def copied(value: Any) -> Any:
    """Return a deep copy of any value; the same object if it is immutable.

    Raises:
        FieldsError: the value can be neither copied nor pickled.
    """
    kind = type(value)
    if kind in UNCHANGEABLE:
        return value
    if kind is tuple and UNCHANGEABLE.issuperset(map(type, value)):
        return value
    if kind is list and UNCHANGEABLE.issuperset(map(type, value)):
        return value.copy()
    if kind is dict and _is_flat(value):
        return value.copy()
    # Rows as dicts: a fifth of the time of a deep copy, which finds out that an object is there twice.
    if (
        kind is list
        and set(map(type, value)) == {dict}
        and len(set(map(id, value))) == len(value)
        and all(map(_is_flat, value))
    ):
        return list(map(dict.copy, value))
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - a user's class may raise anything here and still pickle
        return _by_pickle(value)


def _is_flat(value: dict[Any, Any]) -> bool:
    return UNCHANGEABLE.issuperset(map(type, value)) and UNCHANGEABLE.issuperset(map(type, value.values()))


def copied_json(value: Any) -> Any:
    """Return a deep copy of a JSON value."""
    if type(value) is list:
        return [copied_json(each) for each in value]
    if type(value) is dict:
        return {name: copied_json(each) for name, each in value.items()}
    return value


@functools.lru_cache
def copying_of_value(fields: Fields) -> Copying | None:
    """Return how to copy a state's values, and round floats of 32 bits as they are kept; None if nothing is to do."""
    parts = [_copying_of(kind, _as_single) for kind in fields.types]
    if len(parts) == 1:
        return parts[0]
    copied_in, copied_out = _copies(parts)
    return Copying(_row_copy(copied_in), _row_copy(copied_out) if any(copied_out) else None)


def copying_of_rows(fields: Fields) -> Copying | None:
    """Return how to copy the tuples of a stream, whose first field is the attempt; None if no field is mutable."""
    parts = [None, *map(_copying_of, fields.types[1:])]
    if not any(parts):
        return None
    copied_in, copied_out = _copies(parts)
    return Copying(_tuple_copy(copied_in), _tuple_copy(copied_out) if any(copied_out) else None)


def _copies(parts: Sequence[Copying | None]) -> tuple[list[Copy | None], list[Copy | None]]:
    copied_in = [None if part is None else part.copied_in for part in parts]
    copied_out = [None if part is None else part.copied_out for part in parts]
    return copied_in, copied_out


def _copying_of(kind: pa.DataType | None, single: Copy | None = None) -> Copying | None:
    """Return how to copy one field's values, and its floats of 32 bits by ``single``; None if they are immutable."""
    if kind is not None and pa.types.is_binary(kind):
        return Copying(_as_bytes, None)
    made = copied if kind is None else _copy_of_type(kind, single)
    return None if made is None else Copying(made, made if kind is None else _copy_of_type(kind))


def _copy_of_type(kind: pa.DataType, single: Copy | None = None) -> Copy | None:
    if pa.types.is_float32(kind):
        return single
    if pa.types.is_binary(kind):
        return _as_bytes
    if pa.types.is_list(kind):
        return _list_copy(_copy_of_type(kind.value_type, single))
    if pa.types.is_map(kind):
        return _map_copy(_copy_of_type(kind.item_type, single))
    if pa.types.is_struct(kind):
        return _struct_copy({field.name: _copy_of_type(field.type, single) for field in kind})
    return copied if pa.types.is_nested(kind) else None


def _list_copy(of_item: Copy | None) -> Copy:
    def copy_list(value: Any) -> Any:
        if type(value) is not list:
            return copied(value)
        if of_item is _copy_flat:  # without a call for each: a fold of lists of three structs takes a tenth less
            return [item.copy() if type(item) is dict else copied(item) for item in value]
        return value.copy() if of_item is None else list(map(of_item, value))

    return copy_list


def _map_copy(of_item: Copy | None) -> Copy:
    def copy_map(value: Any) -> Any:
        if type(value) is not dict:
            return copied(value)
        return value.copy() if of_item is None else {key: of_item(item) for key, item in value.items()}

    return copy_map


def _struct_copy(copies: dict[str, Copy | None]) -> Copy:
    nested = [(name, each) for name, each in copies.items() if each is not None]
    if not nested:
        return _copy_flat

    def copy_struct(value: Any) -> Any:
        if type(value) is not dict:
            return copied(value)
        made = value.copy()
        for name, each in nested:
            if name in value:
                made[name] = each(value[name])
        return made

    return copy_struct


def _copy_flat(value: Any) -> Any:
    return value.copy() if type(value) is dict else copied(value)


def _as_bytes(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _as_single(value: Any) -> Any:
    """Return a float as one of 32 bits; the same if it does not fit, which the state refuses."""
    if not isinstance(value, float):
        return value
    made = ctypes.c_float(value).value
    return value if made in {0.0, math.inf, -math.inf} else made


def _row_copy(copies: Sequence[Copy | None]) -> Copy:
    """Return how to copy a value of several fields, a tuple; user code may pass a list instead."""
    of_tuple = _tuple_copy(copies)

    def copy_row(value: Any) -> Any:
        if type(value) is list:
            value = tuple(value)
        # A value of another form is copied as it is: the state's check refuses it, and names it.
        return of_tuple(value) if type(value) is tuple and len(value) == len(copies) else copied(value)

    return copy_row


def _tuple_copy(copies: Sequence[Copy | None]) -> Copy:
    places = [(place, each) for place, each in enumerate(copies) if each is not None]
    has_singles = _as_single in copies

    def copy_tuple(values: tuple[Any, ...]) -> tuple[Any, ...]:
        if not has_singles and UNCHANGEABLE.issuperset(map(type, values)):
            return values
        made: list[Any] | None = None
        for place, each in places:
            value = values[place]
            own = each(value)
            if own is not value:
                made = made or list(values)
                made[place] = own
        return values if made is None else tuple(made)

    return copy_tuple


def culprit(value: object, dump: Callable[[Any], object] = cloudpickle.dumps) -> str:
    """Return the first attribute of an object that does not pickle, to go behind its class in an error; '' if none."""
    names: list[str] = []
    while len(names) < CULPRIT_DEPTH_MAX:  # into attributes: a spout may be held by one of ours; objects by each other
        for name, attribute in getattr(value, "__dict__", {}).items():
            try:
                dump(attribute)
            except Exception:  # noqa: BLE001 - this is the attribute to name
                names.append(name)
                value = attribute
                break
        else:
            break
    return f", attribute {'.'.join(names)!r} ({type(value).__name__})," if names else ""


def _by_pickle(value: Any) -> Any:
    try:
        return pickle.loads(cloudpickle.dumps(value))  # noqa: S301 - our bytes
    except Exception as error:  # whatever a user's class raises
        raise FieldsError(
            f"a value of class {type(value).__name__} can be neither copied nor pickled ({error}); emit and put only "
            "values that can be pickled"
        ) from error
