"""``MemoryState``: keyed state in this process, for tests and experiments.

The :class:`MemoryState` object holds the data, so a second run with the same object in the same process continues from
the first. Its copies in other processes are empty.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import attrs
import pyarrow as pa

from state.delta.schema import TXID_FIELD, DeclaredKeys, FittedRows, RowFormat, checked_fields
from txtopo.api.arguments import checked_arguments
from txtopo.api.data.copying import copying_of_value
from txtopo.api.data.fields import Fields
from txtopo.api.map_state import split_columns
from txtopo.api.state import OpenedState
from txtopo.api.values import Key, StateKind, StateValue
from txtopo.api.writes import KeyedWrites, Writes, by_key
from txtopo.attempts import not_reached
from txtopo.errors import ConfigError, DivergenceError, LostLead, StateAccessError

SNAPSHOT_WRITES_MAX = 1_000
"""The number of writes that a snapshot can go back."""

_KEY, _VALUE = Fields("key"), Fields("value")

_REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)


@attrs.frozen
class _Owner:
    topology_id: str
    state: str
    incarnation: str


class _Row(NamedTuple):
    kept: StateValue
    txid: int


@attrs.frozen(eq=False)
class _Undo:
    """The data to undo one write: the last txid before it, and the former rows that it touched."""

    txid: int
    last_txid: int | None
    rows: dict[Key, _Row | None]


@attrs.define(eq=False)
class _Table:
    """The data of a state, shared by all its opened states."""

    identity: str = attrs.field(factory=lambda: uuid.uuid4().hex)
    owner: _Owner | None = None
    epoch: int = 0
    last_txid: int | None = None
    rows: dict[Key, _Row] = attrs.field(factory=dict)
    undo: deque[_Undo] = attrs.field(factory=lambda: deque(maxlen=SNAPSHOT_WRITES_MAX))
    prepared: dict[tuple[int, int], FittedRows] = attrs.field(factory=dict)
    """By epoch and txid."""


class MemoryState(DeclaredKeys):
    """A state in this process's memory. Pickling it drops its data.

    Args:
        key: the key fields; fields without a type take any hashable value.
        value: the value fields; fields without a type take any value.
        kind: the kind of state, which decides what is kept beside each value.

    Raises:
        FieldsError: two fields have the same name, or a key field has a type that keys cannot have.
    """

    @checked_arguments
    def __init__(self, key: Fields = _KEY, value: Fields = _VALUE, kind: StateKind = StateKind.TRANSACTIONAL) -> None:
        checked_fields(key, value, kind, typed=False)
        self.key = key
        self.value = value
        self.kind = StateKind(kind)
        self._table = _Table()

    def forked(self, topology_id: str) -> MemoryState:
        """Return an empty one; see :meth:`State.forked`."""
        del topology_id
        return MemoryState(self.key, self.value, self.kind)

    @property
    def is_durable(self) -> bool:
        """False: the state ends with the process."""
        return False

    def open(self, topology_id: str, name: str, incarnation: str, epoch: int) -> OpenedMemoryState:
        """Open the state for writing, and fence every coordinator of an earlier epoch; see :meth:`State.open`."""
        if name == "epoch":
            raise ConfigError("a state cannot be named 'epoch', because DeltaState reserves that name; rename it")
        owner = _Owner(topology_id, name, incarnation)
        table = self._table
        if table.owner is not None and table.owner != owner:
            raise DivergenceError(
                f"the MemoryState of {table.owner} is opened for {owner}; its last transaction is "
                f"{table.last_txid}; make a new MemoryState",
                txid=table.last_txid,
            )
        opened = OpenedMemoryState(self, table, owner, epoch)
        opened.check_fence()
        table.owner = owner
        table.epoch = epoch
        return opened

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as of transaction ``txid`` or the latest."""
        owner = self._table.owner or _Owner("", "", "")
        return OpenedMemoryState(self, self._table, owner, self._table.epoch).snapshot(txid)

    def get(self, key: Key) -> StateValue | None:
        """Return the kept value of ``key``, or None."""
        row = self._table.rows.get(key)
        return None if row is None else self._handed(row.kept)

    def items(self) -> dict[Key, StateValue]:
        """Return the kept value of each key, as of the last write."""
        return {key: self._handed(row.kept) for key, row in self._table.rows.items()}

    def _handed(self, stored: StateValue) -> StateValue:
        copying = copying_of_value(self.value)
        return stored if copying is None or copying.copied_out is None else stored.copied(copying.copied_out)

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryState, (self.key, self.value, self.kind)

    def __repr__(self) -> str:
        return f"MemoryState(key={self.key}, value={self.value}, kind={self.kind})"


class OpenedMemoryState(OpenedState):
    """A MemoryState opened by one coordinator; made by :meth:`MemoryState.open`."""

    def __init__(self, declared: MemoryState, table: _Table, owner: _Owner, epoch: int) -> None:
        self.declared = declared
        self._rows = declared.format(owner.state)
        self._table = table
        self._owner = owner
        self._epoch = epoch

    @property
    def identity(self) -> str:
        """A unique id of this MemoryState."""
        return self._table.identity

    @property
    def last_txid(self) -> int | None:
        """The txid of the last write; None before the first."""
        return self._table.last_txid

    def check_fence(self) -> None:
        """Raise LostLead if a newer epoch has opened the state."""
        if self._table.epoch > self._epoch:
            raise LostLead(
                f"state {self._owner.state!r} of topology {self._owner.topology_id!r} was opened by a "
                f"coordinator of epoch {self._table.epoch}; this one has epoch {self._epoch} "
                "and writes nothing more",
            )

    def check(self, values: KeyedWrites) -> None:
        """Raise a ``FieldsError`` if a key or value does not fit."""
        self._rows.check(values)

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the value of each key, None where there is none; see :meth:`OpenedState.multi_get`."""
        refusal = self._rows.unhashable(keys)
        if refusal is not None:
            raise refusal
        rows = [self._table.rows.get(key) for key in self._rows.fit_keys(keys).keys]
        return [None if row is None else row.kept for row in rows]

    def write(self, txid: int, values: Writes) -> None:
        """Insert or replace the row of each key; do nothing if ``txid`` is already written."""
        self._put(txid, self._rows.fit(txid, by_key(values)))

    def _put(self, txid: int, fitted: FittedRows) -> None:
        self.check_fence()
        table = self._table
        if table.last_txid is not None and table.last_txid >= txid:
            return
        # Before the rows change: it holds the former ones.
        table.undo.append(_Undo(txid, table.last_txid, {key: table.rows.get(key) for key in fitted.values}))
        for (key, new_value), row_txid in zip(fitted.values.items(), fitted.txids, strict=True):
            if new_value is None or row_txid is None:
                table.rows.pop(key, None)
            else:
                table.rows[key] = _Row(new_value, row_txid)
        table.last_txid = txid

    def prepare(self, txid: int, values: Writes) -> tuple[int, int]:
        """Keep a write without making it visible."""
        fitted = self._rows.fit(txid, by_key(values))
        self.check_fence()
        self._table.prepared[self._epoch, txid] = fitted
        return self._epoch, txid

    def publish(self, txid: int, note: Any) -> None:
        """Make a prepared write visible; do nothing if it is visible already."""
        self.check_fence()
        prepared = (note[0], note[1])
        if self._table.last_txid is None or self._table.last_txid < txid:
            fitted = self._table.prepared.get(prepared)
            if fitted is None:
                raise DivergenceError(
                    f"state {self._owner.state!r}: what was prepared for transaction {txid} is gone, and the "
                    "transaction is not in the state; start again with a new MemoryState",
                    txid=txid,
                )
            self._put(txid, fitted)
        self._table.prepared.pop(prepared, None)

    def clean_up(self) -> None:
        """Drop what this coordinator and earlier ones have prepared."""
        prepared = self._table.prepared
        self._table.prepared = {key: fitted for key, fitted in prepared.items() if key[0] > self._epoch}

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as of transaction ``txid`` or the latest.

        Transactions that were written together can only be seen together. If Arrow has no type for the values of a
        field without a type, their ``repr`` is shown.

        Raises:
            StateAccessError: the state has not reached the transaction yet, or it was too many writes ago.
        """
        return rows_as_table(self._rows, self._table.rows if txid is None else self._rows_as_of(txid))

    def _rows_as_of(self, txid: int) -> dict[Key, _Row]:
        last = self._table.last_txid
        if txid > (last or 0):
            raise StateAccessError(not_reached(txid, f"state {self._owner.state!r}", last), txid=txid)
        rows = dict(self._table.rows)
        for undo in reversed(self._table.undo):
            if undo.txid <= txid:
                return rows
            for key, row in undo.rows.items():
                if row is None:
                    rows.pop(key, None)  # a write may have removed a key that was never there
                else:
                    rows[key] = row
            last = undo.last_txid
        # Every write that is still kept is undone, and a write after the transaction remains.
        if last is not None and last > txid:
            raise StateAccessError(
                f"state {self._owner.state!r} no longer keeps its rows as of transaction {txid}; ask for "
                f"one of its last {SNAPSHOT_WRITES_MAX} writes",
                txid=txid,
            )
        return rows


def rows_as_table(form: RowFormat, rows: Mapping[Key, tuple[StateValue, int]]) -> pa.Table:
    """Return the rows of a state, each a value and its txid: key fields, value fields, txid.

    If Arrow has no type for the values of a field without a type, their ``repr`` is shown.
    """
    parts = [
        *split_columns(list(rows), len(form.key)),
        *split_columns([kept.value for kept, _ in rows.values()], len(form.value)),
    ]
    types = [*form.key.types, *form.value.types]
    columns = [_shown(part, kind) for part, kind in zip(parts, types, strict=True)]
    columns.append(pa.array([txid for _, txid in rows.values()], pa.int64()))
    return pa.table(columns, names=[*form.key, *form.value, TXID_FIELD])


def _shown(values: Sequence[Any], kind: pa.DataType | None) -> Any:
    try:
        return pa.array(values, kind)
    except _REFUSALS:
        return pa.array([None if value is None else repr(value) for value in values], pa.string())
