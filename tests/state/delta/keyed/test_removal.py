"""Keys that are removed: from Delta tables and from memory, with all rows in memory and without."""

from __future__ import annotations

import pathlib

import pytest

from state import DeltaState, TransactionalValue, read_table
from tests.state.delta.delta_tables import hold_no_rows
from txtopo import Fields
from txtopo.api.state import KEYED_KINDS, OpenedState, StateKind


def opened(folder: pathlib.Path, kind: StateKind = StateKind.TRANSACTIONAL) -> OpenedState:
    state = DeltaState(folder / "t", key=Fields("k: string", "j: long"), value=Fields("v: long"), kind=kind)
    return state.open("topology", "s", "life", 1)


@pytest.mark.parametrize("kind", KEYED_KINDS)
@pytest.mark.parametrize("is_held", [True, False], ids=["held", "streamed"])
def test_removed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind, is_held: bool) -> None:
    """One write replaces a row, adds one and removes one; a removed key may be put again."""
    if not is_held:
        hold_no_rows(monkeypatch)
    state = opened(tmp_path, kind)
    state.write(1, {(name, 1): TransactionalValue(1, n) for n, name in enumerate("abcdef")})
    writes = {("a", 1): TransactionalValue(2, 100), ("z", 1): TransactionalValue(2, 26), ("b", 1): None, ("q", 9): None}
    state.write(2, writes)
    rows = {(row["k"], row["j"]): row["v"] for row in read_table(tmp_path / "t").to_pylist()}
    assert rows == {("a", 1): 100, ("c", 1): 2, ("d", 1): 3, ("e", 1): 4, ("f", 1): 5, ("z", 1): 26}
    assert state.multi_get([("b", 1)]) == [None]
    state.write(3, {("b", 1): TransactionalValue(3, 7)})
    assert state.multi_get([("b", 1)])[0].value == 7
    assert read_table(tmp_path / "t").num_rows == 7
