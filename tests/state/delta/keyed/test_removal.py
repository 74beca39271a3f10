"""Keys that are removed: from Delta tables and from memory, directly, staged, by rewrite and by merge."""

from __future__ import annotations

import pathlib

import pytest

from state import DeltaState, TransactionalValue, read_table
from state.delta.keyed import state as delta_opened, writing as delta_writing
from txtopo import Fields
from txtopo.api.state import KEYED_KINDS, OpenedState, StateKind


def opened(folder: pathlib.Path, kind: StateKind = StateKind.TRANSACTIONAL) -> OpenedState:
    state = DeltaState(folder / "t", key=Fields("k: string", "j: long"), value=Fields("v: long"), kind=kind)
    return state.open("topology", "s", "life", 1)


@pytest.mark.parametrize("kind", KEYED_KINDS)
@pytest.mark.parametrize("way", ["rewrite", "merge"])
@pytest.mark.parametrize("staged", [False, True])
def test_removed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind, way: str, staged: bool) -> None:
    """One write replaces a row, adds one and removes one; a removed key may be put again."""
    if way == "merge":
        monkeypatch.setattr(delta_writing, "REWRITE_ROWS_MAX", 0)
        monkeypatch.setattr(delta_writing, "REWRITE_SHARE", 0)
        monkeypatch.setattr(delta_opened, "ROWS_PER_KEY", -1)
    state = opened(tmp_path, kind)
    state.write(1, {(name, 1): TransactionalValue(1, n) for n, name in enumerate("abcdef")})
    writes = {("a", 1): TransactionalValue(2, 100), ("z", 1): TransactionalValue(2, 26), ("b", 1): None, ("q", 9): None}
    if staged:
        state.write_staged(state.stage(2, writes))
    else:
        state.write(2, writes)
    rows = {(row["k"], row["j"]): row["v"] for row in read_table(tmp_path / "t").to_pylist()}
    assert rows == {("a", 1): 100, ("c", 1): 2, ("d", 1): 3, ("e", 1): 4, ("f", 1): 5, ("z", 1): 26}
    assert state.multi_get([("b", 1)]) == [None]
    state.write(3, {("b", 1): TransactionalValue(3, 7)})
    assert state.multi_get([("b", 1)])[0].value == 7
    assert read_table(tmp_path / "t").num_rows == 7
