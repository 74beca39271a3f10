"""Copies: what a user can reach is never what txtopo keeps. Pure.

A bolt may change a list in place and then fail; a group of transactions may run a second time. Whatever was changed
would be found again then if it were the very object that a state, a tuple or the coordinator holds. So values are
copied where they change hands, in both directions. Whether, and how, is decided here and nowhere else: from the types
of the fields, once for a state or stream, so that numbers and texts are passed on as they are.
"""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import cloudpickle
import pyarrow as pa

from txtopo.api.fields import Fields
from txtopo.attempts import TransactionAttempt
from txtopo.errors import FieldsError

Copy = Callable[[Any], Any]
"""Returns a value that shares nothing changeable with the one it is given."""

UNCHANGEABLE = frozenset(
    {
        *(str, bytes, int, float, bool, type(None), complex, TransactionAttempt),
        *(decimal.Decimal, dt.date, dt.datetime, dt.timedelta),
    }
)
"""Classes whose objects can't be changed; those of their subclasses may."""


@attrs.frozen
class Copying:
    """How values are kept apart from those that users hold.

    Args:
        taken: returns what is kept of a value that a user gives.
        handed: returns what a user is given of a value that is kept; None: the very same, for it can't be changed.
    """

    taken: Copy
    handed: Copy | None


def copied(value: Any) -> Any:
    """Return a copy of any value; the very same if it can't be changed.

    Raises:
        FieldsError: the value can't be copied.
    """
    kind = type(value)
    if kind in UNCHANGEABLE:
        return value
    if kind is tuple and UNCHANGEABLE.issuperset(map(type, value)):
        return value
    if kind is list and UNCHANGEABLE.issuperset(map(type, value)):
        return value.copy()
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - whatever a user's class raises: pickled, it travels all the same
        return _by_pickle(value)


def copied_json(value: Any) -> Any:
    """Return a copy of a JSON value."""
    if type(value) is list:
        return [copied_json(each) for each in value]
    if type(value) is dict:
        return {name: copied_json(each) for name, each in value.items()}
    return value


def copying_of_value(fields: Fields) -> Copying | None:
    """Return how a state's values are copied; None: they can't be changed.

    Args:
        fields: the value fields; of several, a value is a tuple.
    """
    parts = list(map(_copying_of, fields.types))
    if len(parts) == 1:
        return parts[0]
    taken, handed = _copies(parts)
    return Copying(_row_copy(taken), _row_copy(handed) if any(handed) else None)


def copying_of_rows(fields: Fields) -> Copying | None:
    """Return how a stream's tuples are copied, each the very same if nothing in it can be changed; None: none can.

    Args:
        fields: the stream's fields, the attempt first.
    """
    parts = [None, *map(_copying_of, fields.types[1:])]
    if not any(parts):
        return None
    taken, handed = _copies(parts)
    return Copying(_tuple_copy(taken), _tuple_copy(handed) if any(handed) else None)


def _copies(parts: Sequence[Copying | None]) -> tuple[list[Copy | None], list[Copy | None]]:
    """Return how each field's values are taken, and how they are handed out."""
    taken = [None if part is None else part.taken for part in parts]
    handed = [None if part is None else part.handed for part in parts]
    return taken, handed


def _copying_of(kind: pa.DataType | None) -> Copying | None:
    """Return how one field's values are copied."""
    if kind is not None and pa.types.is_binary(kind):
        return Copying(_as_bytes, None)
    made = copied if kind is None else _copy_of_type(kind)
    return None if made is None else Copying(made, made)


def _copy_of_type(kind: pa.DataType) -> Copy | None:
    if pa.types.is_binary(kind):
        return _as_bytes
    if pa.types.is_list(kind):
        return _list_copy(_copy_of_type(kind.value_type))
    if pa.types.is_map(kind):
        return _map_copy(_copy_of_type(kind.item_type))
    if pa.types.is_struct(kind):
        return _struct_copy({field.name: _copy_of_type(field.type) for field in kind})
    return copied if pa.types.is_nested(kind) else None


def _list_copy(of_item: Copy | None) -> Copy:
    def copy_list(value: Any) -> Any:
        if type(value) is not list:
            return copied(value)
        return value.copy() if of_item is None else list(map(of_item, value))

    return copy_list


def _map_copy(of_item: Copy | None) -> Copy:
    def copy_map(value: Any) -> Any:
        if type(value) is not dict:
            return copied(value)
        return value.copy() if of_item is None else {key: of_item(item) for key, item in value.items()}

    return copy_map


def _struct_copy(copies: dict[str, Copy | None]) -> Copy:
    nested = {name: each for name, each in copies.items() if each is not None}

    def copy_struct(value: Any) -> Any:
        if type(value) is not dict:
            return copied(value)
        made = value.copy()
        made.update((name, each(value[name])) for name, each in nested.items() if name in value)
        return made

    return copy_struct


def _as_bytes(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _row_copy(copies: Sequence[Copy | None]) -> Copy:
    """Return how a value of several fields is copied, which some give as a list."""
    of_tuple = _tuple_copy(copies)

    def copy_row(value: Any) -> Any:
        if type(value) is list:
            value = tuple(value)
        return of_tuple(value) if type(value) is tuple and len(value) == len(copies) else copied(value)

    return copy_row


def _tuple_copy(copies: Sequence[Copy | None]) -> Copy:
    places = [(place, each) for place, each in enumerate(copies) if each is not None]

    def copy_tuple(values: tuple[Any, ...]) -> tuple[Any, ...]:
        if UNCHANGEABLE.issuperset(map(type, values)):
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


def _by_pickle(value: Any) -> Any:
    try:
        return pickle.loads(cloudpickle.dumps(value))  # noqa: S301 - our own bytes
    except Exception as error:  # whatever a user's class raises
        raise FieldsError(
            f"a value of class {type(value).__name__} can be neither copied nor pickled ({error}); emit and put values "
            "that travel between processes"
        ) from error
