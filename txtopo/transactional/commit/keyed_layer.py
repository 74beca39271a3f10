"""What the finished transactions of a commit group have given a keyed state, on top of what is durable.

It is *bare* values: a key's value alone, without the txid and the previous value that the state stores beside
it. A :data:`~txtopo.api.values.StateValue` is made only where somebody reads one: that takes half the time of a commit
phase that touches thousands of keys.

What a transaction gives is rows, in parts: either all of them are put, or all are still to be folded by one reduction,
and so it is with those of the group, which the state folds at once. While single keys are accessed, what is put is
values by key, which become rows when they are checked; a state that does not fold rows gets each key's last value.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.api.data.types import python_values
from txtopo.api.map_state import joined_columns, split_columns
from txtopo.api.reduction import Folding
from txtopo.api.state import ExpiresKeys, FindsRows, FoldsRows, OpenedState
from txtopo.api.values import Key, StateKind, StateValue, stored_value
from txtopo.api.writes import KeyedWrites, TransactionRows
from txtopo.columnar.conversion import as_read, fitted_array
from txtopo.columnar.latest_rows import LatestRows, SoughtKeys
from txtopo.columnar.rows_by_time import are_over
from txtopo.errors import FailedException
from txtopo.transactional.commit.views import GroupState, Writing, raise_as_of_state

REMOVED: Any = object()
"""In place of the value of a removed key."""

TXID = "txid"
"""The column of rows that are put with the transaction; null if the key is removed."""

Mask = npt.NDArray[np.bool_]


@attrs.define(eq=False)
class Part:
    """Rows that a transaction has put, or is to fold.

    Args:
        rows: the rows.
        reduction: what they are folded by; None: they are put.
        keys: their keys, if they were looked up among those that the group has put.
        component: the component that gave them, once it has finished, if they are to be folded.
    """

    rows: TransactionRows
    reduction: Folding | None = None
    keys: SoughtKeys | None = None
    component: str | None = None


def wait(parts: Sequence[Part]) -> bool:
    """Return whether parts are still to be folded: all of them are, or none."""
    return bool(parts) and parts[0].reduction is not None


class KeyedLayer(GroupState):
    """What finished transactions have given a keyed state, and the durable state below it."""

    def __init__(self, opened: OpenedState, writing: Writing | None = None, below: KeyedLayer | None = None) -> None:
        super().__init__(opened, writing)
        self.below = below
        """What the group before has given, while that is being written."""
        self.known_reach: int | None = None
        """:attr:`reached`, once it was asked for; of the group before, which asks for nothing any more."""
        if below is not None:
            self.known_reach, below.below = below.known_reach, None
        self.kind = opened.declared.kind
        self.values: dict[Key, Any] = {}
        """The bare values that the group's finished transactions have put."""
        self.has_removed = False
        """Whether a key may be removed."""
        self.parts: list[Part] = []
        """What the finished transactions have given as rows, if the state folds rows."""
        self.folds = opened if isinstance(opened, FoldsRows) else None
        """The state if it folds rows."""
        self.finds = opened if isinstance(opened, FindsRows) else None
        """The state if it looks keys up in columns."""
        self._txids: dict[Key, int] = {}
        self._before: dict[Key, Any] = {}
        """What was put before the last transaction that has put a key, by one of the group, if the state is opaque."""
        self._until: int | None = None
        """The time up to which keys had expired for the last transaction that has written."""
        self._read = 0
        """How many parts that are put are in ``values``."""
        self._latest: LatestRows | None = None
        """The last row that they have put of each key, once somebody looks for rows."""

    @abstractmethod
    def fold_at_once(self) -> None:
        """Fold the rows that wait, so that what is given is put."""

    @property
    def reached(self) -> int:
        """The last transaction of earlier runs that a durable value may include."""
        if self.known_reach is None:
            try:
                self.known_reach = self.opened.last_txid or 0
            except FailedException as error:
                raise_as_of_state(error)
        return self.known_reach

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the value of each key as of the group before: what that has put, or else the durable one."""
        if self.below is not None and self._writing.is_over:
            self.below = None
        at_hand = None if self.below is None else self.below.at_hand(keys)
        return super().multi_get(keys) if at_hand is None else at_hand

    def at_hand(self, keys: Sequence[Key]) -> list[StateValue | None] | None:
        """Return what the state will store for some keys; None unless all of them were put, by key."""
        # An opaque value needs what the state has now. Of a key that can't be hashed, the state knows what to say.
        with contextlib.suppress(TypeError):
            if self.kind is not StateKind.OPAQUE and self._read == len(self.parts) and self.values.keys() >= set(keys):
                return list(map(self.stored, keys))
        return None

    def rows_among(self, keys: pa.Table) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """Return the durable rows of some keys; see :meth:`FindsRows.rows_among`."""
        assert self.finds is not None, "it looks keys up in columns"
        self._writing.wait()
        try:
            return self.finds.rows_among(keys)
        except FailedException as error:
            raise_as_of_state(error)

    def txid_of(self, key: Key) -> int:
        """Return the last transaction of the group that has put a key."""
        return self._txids[key]

    def take(self, txid: int, values: dict[Key, Any], parts: Sequence[Part], until: int | None) -> None:
        """Take over the writes of a transaction that has finished: its values by key, and its rows."""
        if self._latest is not None and not wait(parts):
            for part in parts:
                self._latest.add(part.rows.rows, part.keys)
        if len(parts) > 1 and not wait(parts):  # one for each transaction: each then has a key once
            rows = pa.concat_tables([part.rows.rows for part in parts])
            self.parts.append(Part(attrs.evolve(parts[0].rows, rows=rows)))
        else:
            self.parts += parts
        if values:
            assert self._read >= len(self.parts) - 1, "they were read before a key was put"
            self._take_values(txid, values)
            self._read = len(self.parts)
        if values or parts:
            self._until = until

    def _take_values(self, txid: int, values: dict[Key, Any]) -> None:
        if self.kind is StateKind.OPAQUE:
            self._before.update((key, self.values[key]) for key in values if key in self.values)
        if self.values:
            self.values.update(values)
        else:
            self.values = values
        self._txids.update(dict.fromkeys(values, txid))

    def read_put(self) -> None:
        """Make values of what finished transactions have put as rows."""
        for part in self.parts[self._read :]:
            self._take_values(part.rows.txid, self.values_of(part.rows.rows))
        self._read = len(self.parts)

    def values_of(self, rows: pa.Table) -> dict[Key, Any]:
        """Return the bare values of rows that are put."""
        columns = list(map(python_values, rows.columns[:-1]))
        keys = joined_columns(columns[: len(self.declared.key)])
        values = joined_columns(columns[len(self.declared.key) :])
        if rows[TXID].null_count:
            self.has_removed = True
            is_removed = rows[TXID].is_null().to_pylist()
            values = [REMOVED if gone else value for value, gone in zip(values, is_removed, strict=True)]
        return dict(zip(keys, values, strict=True))

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """The columns of rows: the key's, then the values'."""
        declared = self.declared
        return (declared.key + declared.value).arrow_schema()

    @functools.cached_property
    def columns(self) -> list[str]:
        """The names of the columns of rows that are put."""
        return [*self.schema.names, TXID]

    def table_of(self, keys: Sequence[Key], values: Sequence[Any]) -> pa.Table:
        """Return rows of keys and bare values; the values of one that is None are null."""
        declared = self.declared
        nothing = (None,) * len(declared.value) if len(declared.value) > 1 else None
        given = split_columns([nothing if value is None else value for value in values], len(declared.value))
        every = zip(declared.key + declared.value, [*split_columns(keys, len(declared.key)), *given], strict=True)
        columns = [
            fitted_array(name, column, kind, "in a change")
            for (name, column), kind in zip(every, (declared.key + declared.value).types, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def are_there(self, rows: pa.Table, until: int | None, counted: str = "") -> Mask:
        """Return which rows are of keys that have rows, and whose time has not passed."""
        is_there = np.ones(rows.num_rows, dtype=bool)
        if counted:
            is_there &= pc.fill_null(rows[counted], 0).to_numpy() != 0
        if until is not None:
            is_there &= ~are_over(rows, self.declared.expires, until).to_numpy()
        return is_there

    def expired_rows(self, until: int) -> pa.Table:
        """Return the rows whose time has passed, of the state and of what is put."""
        opened, declared = self.opened, self.declared
        assert isinstance(opened, ExpiresKeys), "the keys of other states do not expire"
        try:
            durable = opened.expired_rows(until).select(self.columns)
        except FailedException as error:
            raise_as_of_state(error)
        if self.finds is None:
            return self._with_expired_values(durable, until)
        latest = self.latest
        if durable.num_rows:
            durable = durable.filter(pa.array(latest.look_up(durable.select(list(declared.key))).slots < 0))
        rows_put = [rows.filter(rows[TXID].is_valid()) for rows in latest.over(declared.expires, until)]
        return pa.concat_tables([durable, *rows_put])  # those without a txid are removed

    def _with_expired_values(self, durable: pa.Table, until: int) -> pa.Table:
        declared = self.declared
        keys = joined_columns([python_values(durable[name]) for name in declared.key])
        durable = durable.filter(pa.array([key not in self.values for key in keys], pa.bool_()))
        ttl = declared.time_to_live
        expiry = None if ttl is None else ttl.expiry(until, declared.value)
        assert expiry is not None, "some keys have expired"
        live = {key: value for key, value in self.values.items() if value is not REMOVED and expiry.has(value)}
        txids = pa.array([self._txids[key] for key in live], pa.int64())
        rows = self.table_of(list(live), list(live.values())).append_column(pa.field(TXID, pa.int64()), txids)
        return pa.concat_tables([durable.cast(rows.schema), rows])

    @property
    def latest(self) -> LatestRows:
        """The last row that finished transactions have put of each key."""
        assert not wait(self.parts), "rows that wait are put when they are folded"
        if self._latest is None:
            self._latest = LatestRows(list(self.declared.key))
            for part in self.parts:
                self._latest.add(part.rows.rows)
        return self._latest

    @property
    def has_put(self) -> bool:
        """Whether a finished transaction has put a key."""
        return bool(self.values or self.parts) and not wait(self.parts)

    def check(self, values: Mapping[Key, Any], txid: int) -> Any:
        """Return what a transaction has put as rows, if the state folds rows; raise if it does not fit."""
        writes = self._writes_of(values, [txid] * len(values))
        rows = None if self.folds is None else self.folds.rows_to_put(txid, writes)
        if rows is None:
            self.opened.check(writes)
        return rows

    def read_back(self, values: Mapping[Key, Any]) -> Mapping[Key, Any]:
        """Return values that fit as the state reads them later; none if all have that form already.

        So what the next transaction makes of them does not depend on whether it is in the same group.
        """
        put = {key: value for key, value in values.items() if value is not REMOVED} if self.has_removed else values
        kinds = self.declared.value.types
        try:
            columns = split_columns(list(put.values()), len(kinds))
        except (TypeError, ValueError):  # a state of somebody's own takes other values than tuples
            return {}
        read = [column if kind is None else as_read(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        if all(map(operator.is_, read, columns)):
            return {}
        return dict(zip(put, joined_columns(read), strict=True))

    @property
    def written(self) -> KeyedWrites:
        """The values that the group's finished transactions have put by key, in columns."""
        writes = self._writes_of(self.values, list(map(self._txids.__getitem__, self.values)))
        if self.kind is StateKind.OPAQUE:
            writes = attrs.evolve(writes, previous=self.previous(writes.keys_put, writes.txids, self._before))
        return writes if self._until is None else attrs.evolve(writes, until=self._until)

    def previous(self, keys: Sequence[Key], txids: Sequence[int], new: Mapping[Key, Any]) -> list[Any]:
        """Return the bare value that each key had before a transaction: the one ``new``, or else the durable one."""
        missing = [key for key in keys if key not in new]
        durable = dict(zip(missing, self.multi_get(missing), strict=True)) if missing else {}
        befores = []
        for key, txid in zip(keys, txids, strict=True):
            stored = durable.get(key)
            befores.append(new.get(key) if stored is None else stored.value_before(txid))
        return [None if before is REMOVED else before for before in befores]

    def _writes_of(self, values: Mapping[Key, Any], txids: Sequence[int]) -> KeyedWrites:
        """Return bare values, some of which may be removed, as columns, without previous values."""
        removed: list[Key] = []
        if self.has_removed:
            removed = [key for key, value in values.items() if value is REMOVED]
            txids = [txid for txid, value in zip(txids, values.values(), strict=True) if value is not REMOVED]
            values = {key: value for key, value in values.items() if value is not REMOVED}
        return KeyedWrites(self.kind, list(values), list(values.values()), txids, removed=removed)

    def stored(self, key: Key) -> StateValue | None:
        """Return what the state will store for a key that the group has put; None if it is removed."""
        return self.to_store(key, self._txids[key], self.values[key], self._before)

    def to_store(self, key: Key, txid: int, value: Any, new: Mapping[Key, Any]) -> StateValue | None:
        """Return what the state will store for a bare value; ``new`` are the values before; None if it is removed."""
        if value is REMOVED:
            return None
        previous = self.previous((key,), (txid,), new)[0] if self.kind is StateKind.OPAQUE else None
        return stored_value(self.kind, txid, value, previous)
