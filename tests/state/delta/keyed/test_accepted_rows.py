"""Rows that somebody else has put into a table without a transaction, and that a repair has accepted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from state import DeltaState, OpaqueValue, TransactionalValue, read_table
from state.delta.keyed.state import OpenedDeltaState
from tests.state.delta.delta_tables import fold
from tests.state.delta.inline_executors import InlineExecutors
from txtopo import Fields
from txtopo.api.values import StateKind

KEY, VALUE = Fields("k: string"), Fields("n: long")


def accepted(path: Path, kind: StateKind = StateKind.TRANSACTIONAL) -> OpenedDeltaState:
    """Return a table to which somebody has added a key."""
    declared = DeltaState(path / "t", KEY, VALUE, kind)
    schema = declared.format("").schema()
    declared.open("topology", "s", "life", 1).write(1, {})
    write_deltalake(path / "t", pa.Table.from_pylist([{"k": "b", "n": 7}], schema=schema), mode="append")
    state = declared.open("topology", "s", "life", 2)
    state.adopt()
    return state


@pytest.mark.parametrize(
    ("kind", "value"),
    [(StateKind.TRANSACTIONAL, TransactionalValue(0, 7)), (StateKind.OPAQUE, OpaqueValue(0, 7, None))],
)
def test_a_value_is_before_every_transaction(tmp_path: Path, kind: StateKind, value: object) -> None:
    """Alone, among others, and in columns."""
    state = accepted(tmp_path, kind)
    assert state.multi_get(["b"]) == state.multi_get(["b", "a"])[:1] == [value]
    assert state.rows_among(pa.table({"k": ["b"]}))[1]["txid"].to_pylist() == [0]
    state._cache._keys_max = 0
    state._cache.forget_values()
    assert state.multi_get(["b"]) == [value]


@pytest.mark.parametrize("is_large", [False, True])
def test_a_transaction_folds_into_it(tmp_path: Path, is_large: bool) -> None:
    """By the driver and by executors."""
    state = accepted(tmp_path)
    if is_large:
        state.use_executors(InlineExecutors(), 0)
    state.write(2, fold(state, (2, pa.table({"k": ["b", "a"], "n": [1, 1]}))))
    assert sorted(tuple(row.values()) for row in read_table(tmp_path / "t").to_pylist()) == [("a", 1, 2), ("b", 8, 2)]
