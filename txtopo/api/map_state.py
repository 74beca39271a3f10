"""What a bolt sees of a state in the commit phase."""

from __future__ import annotations

import inspect
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txtopo.api.data.fields import Fields
from txtopo.api.data.types import python_values
from txtopo.api.reduction import combining
from txtopo.api.values import Key, StateValue
from txtopo.api.writes import Reducible, Rows, RowsFile
from txtopo.errors import StateAccessError

Updater = Callable[[Any, Any], Any] | Callable[[Any], Any] | Sequence[Callable[[Any], Any]]
"""What ``multi_update`` computes new values with."""


@attrs.frozen(eq=False)
class RowChanges:
    """What a transaction changes in a keyed state: the rows of some keys before and after, in the same order.

    Args:
        before: a row for each key, of the key fields and then the value fields; its values mean nothing if there was
            none.
        after: likewise.
        was: whether the state had each key before.
        is_there: whether it has it after.
    """

    before: pa.Table
    after: pa.Table
    was: npt.NDArray[np.bool_]
    is_there: npt.NDArray[np.bool_]


class MapState(ABC):
    """A bolt's view of a state in the commit phase.

    *You* compute a new value from the old one and the batch alone.

    *txtopo* guarantees that each transaction counts once, that a later transaction sees the values that an earlier one
    put, and that nothing of a failed attempt remains. Values that you get are copies: changing a list does not change
    the state. Values that you put are copied too.

    A bolt's own threads may use the state if ``finish_batch()`` waits for them. Each call, including the function that
    it is given, completes before the next begins, so no :meth:`update` is lost; but between a :meth:`get` and a
    :meth:`put`, another thread may write.

    With several key fields a key is a tuple; with several value fields a value is a tuple.

    A rows table has no keys. It takes rows with :meth:`append` and :meth:`replace_partitions`, and nothing else.
    """

    key: Fields = Fields()
    """The key fields of a keyed state; empty for a rows table, and for a state of your own that checks nothing."""
    value: Fields = Fields()
    """The value fields of a keyed state; empty as ``key`` is."""
    fields: Fields = Fields()
    """The fields of a rows table; empty for a keyed state."""
    partition_by: Sequence[str] = ()
    """The fields that a rows table is partitioned by."""

    @property
    def _named(self) -> object:
        """The object that errors name: this one."""
        return self

    @abstractmethod
    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the stored value of each key, or None."""

    @abstractmethod
    def multi_put(self, values: Mapping[Key, Any] | Sequence[Key], of_keys: Sequence[Any] | None = None) -> None:
        """Put a value for each key, as of the running transaction.

        Args:
            values: a value for each key; or the keys, with their values in ``of_keys``.
            of_keys: the values of the keys, if ``values`` is a sequence of keys.
        """

    def put_rows(self, rows: pa.Table, removed: pa.Table | None = None) -> npt.NDArray[np.bool_]:
        """Put a value for each of some keys, and remove others, in columns; see :meth:`multi_put`.

        It is fastest for states that look keys up in columns. A key that has expired for this transaction is removed.

        Args:
            rows: a table whose columns are the key fields and then the value fields, of any names, each key once: of
                one that comes again the last row counts, at the cost of the way by key.
            removed: a table of the key fields, with the keys to remove, also those of ``rows``.

        Returns:
            For each of ``rows`` whether it is there: its time has not passed.

        Raises:
            FieldsError: a key or a value does not fit its field.
            StateAccessError: this state does not keep values by key.
        """
        raise StateAccessError(f"a {type(self._named).__name__} takes no values of keys in columns")

    @abstractmethod
    def multi_update(self, keys: Sequence[Key], function: Updater) -> list[Any]:
        """Replace each key's value by ``function(key, old)``, ``old`` being None for a new key; return the new values.

        ``function`` may take ``old`` alone, or be a sequence of such functions, one for each key.
        """

    def multi_reduce(self, values: Reducible, function: Callable[[Any, Any], Any]) -> None:
        """Fold each key's value into the stored one: ``function(old, value)``, or ``value`` if there is none.

        It is fastest for ``operator.add``, ``min`` and ``max`` on integers, and for the aggregates of a
        ``ReduceCommitter``: these are folded as Arrow columns, for all transactions of a commit group at once.

        Args:
            values: a value for each key; or a table whose columns are the key fields and then the value fields, with
                any names, in which a key may appear several times.
            function: combines two values; must be commutative and associative. It never gets None: a value that is
                None is skipped. For ``min`` and ``max`` NaN is the largest number, and decimals are combined exactly,
                with up to 100 digits. So it does not matter how rows are cut into transactions.
        """
        combine = combining(function)
        for key, value in pairs_of(values):
            self.update(key, lambda old, value=value: combine(old, value))  # type: ignore[misc]

    def reduce_changes(self, rows: pa.Table, function: Callable[[Any, Any], Any], counted: str = "") -> RowChanges:
        """Fold rows as :meth:`multi_reduce` does, and return what that changes.

        If keys expire, one whose time has passed already is not put, or is removed: so what this and
        :meth:`remove_expired` return is all that ever changes.

        Args:
            rows: a table of the key fields, and then the value fields, each key once.
            function: combines two values.
            counted: the value field that is 0 where a key has no rows any more, and is removed; empty: none ever is.

        Raises:
            StateAccessError: this state does not keep values by key.
        """
        raise StateAccessError(f"a {type(self._named).__name__} can't tell what changes")

    def remove_expired(self) -> pa.Table:
        """Remove the keys that have expired for this transaction, and return them with the values that they had.

        Each is returned once. It costs a look at the time of each row of the table.

        Returns:
            A table of the key fields and the value fields, in the order of the keys; empty if no keys expire.

        Raises:
            StateAccessError: this state does not keep values by key.
        """
        raise StateAccessError(f"a {type(self._named).__name__} can't tell what has expired")

    @abstractmethod
    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Remove each key with its value; a missing key is ignored."""

    @abstractmethod
    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all durable rows (key fields, value fields, txid), as of transaction ``txid`` or the latest."""

    def values_before(self, keys: Sequence[Key]) -> Sequence[Any]:
        """Return the value that each key had after the transaction before this one; None if it had none.

        What this transaction puts makes no difference, so the order of its committers makes none, either.

        Raises:
            StateAccessError: this state does not keep values by key.
        """
        raise StateAccessError(f"a {type(self._named).__name__} can't tell values of the transaction before")

    def rows_before(self, keys: pa.Table, values: Fields) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """Return the values that those of some keys had after the transaction before, in columns; see `values_before`.

        It is fastest for states that look keys up in columns.

        Args:
            keys: a table of the key fields, in their order and of any names, without nulls.
            values: the value fields to return, each with a type.

        Returns:
            Of each key that had a value its position among the keys, and these values, in the same order. A value of
            one field that is null counts as none.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: this state does not keep values by key.
        """
        raise StateAccessError(f"a {type(self._named).__name__} can't tell values of the transaction before")

    def append(self, rows: Rows) -> None:
        """Add rows to a rows table.

        Args:
            rows: an Arrow table whose columns are the table's fields, by name or in their order; tuples in that
                order; or a file of such rows.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: this state keeps values by key; or a row has expired: rows up to its time are taken.
        """
        raise takes_no_rows(self._named)

    def replace_partitions(self, rows: Rows) -> None:
        """Replace all rows of earlier transactions in the partitions that ``rows`` belong to.

        Several calls in one transaction, also by several tasks, add up: all of their rows are kept.
        ``rows`` are as for :meth:`append`.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: this state keeps values by key, or is not partitioned.
        """
        raise takes_no_rows(self._named)

    def take_expired(self, until: int) -> pa.Table:
        """Take out all rows that expire up to a time, and return them, in any order.

        These are the durable ones, those of earlier transactions, and those that this transaction has appended so far.
        They are returned once: a later transaction finds those that expire later. What is taken costs, not what stays.

        Args:
            until: the time, in µs since 1970 UTC. Nothing is taken, and nothing changes, if an earlier call had a
                later one.

        Raises:
            StateAccessError: the rows of this state do not expire.
        """
        raise expires_nothing(self._named)

    def taken_until(self) -> int | None:
        """Return the latest time of all calls of :meth:`take_expired` so far; None if there was none.

        A row that expires up to it comes too late: it can't be appended.

        Raises:
            StateAccessError: the rows of this state do not expire.
        """
        raise expires_nothing(self._named)

    def rows_held(self) -> int:
        """Return the number of rows that are not taken; see :meth:`holds` for which ones count.

        Raises:
            StateAccessError: the rows of this state do not expire.
        """
        raise expires_nothing(self._named)

    def holds(self, keys: pa.Table) -> pa.BooleanArray:
        """Return for each key whether it has a row that is not taken, in the order of the keys.

        Durable rows count, those of earlier transactions, and those that this transaction has appended so far.

        Args:
            keys: a table whose columns are the fields of the state's key, by name or in their order.

        Raises:
            FieldsError: a key does not fit its fields.
            StateAccessError: the rows of this state do not expire, or it was declared without a key.
        """
        raise expires_nothing(self._named)

    def rows_of(self, keys: pa.Table) -> pa.Table:
        """Return the rows that have one of some keys and are not taken, in any order; see :meth:`holds`."""
        raise expires_nothing(self._named)

    def as_rows(self, rows: Rows) -> pa.Table:
        """Return ``rows`` as an Arrow table with the columns of this rows table.

        May be called in the processing phase, too.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: this state keeps values by key.
        """
        raise takes_no_rows(self._named)

    def fitted(self, keys: Sequence[Key], values: Sequence[Any]) -> Sequence[Key]:
        """Return keys in the form in which the state stores them; may be called in the processing phase, too.

        ``values``, one for each key, are checked, but not stored.

        Raises:
            FieldsError: a key or a value does not fit its field.
        """
        del values
        return keys

    def get(self, key: Key) -> Any:
        """Return the stored value of ``key`` (for example, a ``TransactionalValue``), or None."""
        return self.multi_get([key])[0]

    def put(self, key: Key, value: Any) -> None:
        """Put ``value`` for ``key``, as of the running transaction."""
        self.multi_put({key: value})

    def update(self, key: Key, function: Callable[[Any], Any]) -> Any:
        """Replace the value of ``key`` by ``function(old)``, where ``old`` may be None; return the new value."""
        return self.multi_update([key], [function])[0]

    def remove(self, key: Key) -> None:
        """Remove ``key`` with its value."""
        self.multi_remove([key])


def takes_no_rows(state: object) -> StateAccessError:
    """Return the error for putting rows into a state that keeps values by key."""
    return StateAccessError(
        f"a {type(state).__name__} keeps values by key and takes no rows; declare the state as a rows table, "
        "such as DeltaRows(path, fields)"
    )


def expires_nothing(state: object) -> StateAccessError:
    """Return the error for taking expired rows out of another state."""
    return StateAccessError(
        f"the rows of a {type(state).__name__} do not expire; declare what the committer's state(path) returns, "
        "or for a committer of yours DeltaExpiringRows(path, fields, expires=…)"
    )


def pairs_of(values: Reducible, keys: int = 1) -> Iterable[tuple[Key, Any]]:
    """Return the (key, value) pairs of an argument of :meth:`MapState.multi_reduce` with ``keys`` key fields."""
    if isinstance(values, Mapping):
        return values.items()
    assert not isinstance(values, RowsFile), "the caller reads a file of rows first"
    columns = list(map(python_values, values.columns))
    return zip(joined_columns(columns[:keys]), joined_columns(columns[keys:]), strict=True)


def joined_columns(columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return one value per row: the value itself for one column, a tuple for several."""
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def split_columns(rows: Sequence[Any], width: int) -> list[Sequence[Any]]:
    """Return one sequence per column, from one value per row, or a tuple for several columns."""
    if width == 1:
        return [rows]
    return list(zip(*rows, strict=True)) if rows else [()] * width


def folded_by_key(
    pairs: Iterable[tuple[Key, Any]], function: Callable[[Any, Any], Any]
) -> tuple[list[Key], Callable[[Any, Any], Any]]:
    """Return the distinct keys, and a function of key and old value that folds in the key's values."""
    folded: dict[Key, Any] = {}
    combine = combining(function)
    for key, value in pairs:
        folded[key] = combine(folded[key], value) if key in folded else value
    return list(folded), lambda key, old: combine(old, folded[key])


def of_key_and_old(keys: Sequence[Key], function: Updater) -> Callable[[Any, Any], Any]:
    """Return an updater of several keys as a function of key and old value."""
    if not callable(function):
        by_key = dict(zip(keys, function, strict=True))
        return lambda key, old: by_key[key](old)
    if _takes_two(function):
        return function  # type: ignore[return-value] # it takes key and old value
    of_old: Any = function
    return lambda _, old: of_old(old)


def _takes_two(function: Callable[..., Any]) -> bool:
    if isinstance(function, types.FunctionType) and not hasattr(function, "__wrapped__"):
        code = function.__code__  # 0.3 µs; inspect.signature() would take 10 µs in each multi_update
        if not (code.co_kwonlyargcount or code.co_flags & inspect.CO_VARARGS):
            return code.co_argcount - len(function.__defaults__ or ()) <= 2 <= code.co_argcount  # noqa: PLR2004
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        pass
    return True
