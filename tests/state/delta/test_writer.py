"""What a coordinator knows of its table, and when it looks."""

from __future__ import annotations

import time

import pytest
from deltalake import DeltaTable

from state import DeltaState
from state.delta import writer
from state.delta.log.entries import entry_path
from tests.state.delta.foreign import live_files, move_rows
from txtopo import Fields
from txtopo.api.values import TransactionalValue
from txtopo.errors import DivergenceError


@pytest.fixture
def state(tmp_path):
    """A table with one write."""
    opened = DeltaState(tmp_path, Fields("k: string"), Fields("n: long")).open("topology", "s", "life", 1)
    opened.write(1, {"a": TransactionalValue(1, 1)})
    return opened


def test_what_was_known_long_ago_is_looked_up(state, tmp_path, monkeypatch):
    """Whoever has been idle for long looks before it writes: others may have written, and removed their entries since."""
    for _ in range(2):
        DeltaTable(tmp_path).update({"n": "n + 1"})
    DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / entry_path(state.version + 1)).unlink()
    now = time.time()
    monkeypatch.setattr(writer.time, "time", lambda: now + 3600)
    with pytest.raises(DivergenceError, match="UPDATE made version"):
        state.write(2, {"a": TransactionalValue(2, 2)})
    assert DeltaTable(tmp_path).version() == state.version + 2


@pytest.mark.parametrize("is_seen", [False, True], ids=["at once", "one by one"])
@pytest.mark.parametrize("order", [("update", "moved"), ("moved", "update"), ("moved", "update", "moved", "moved")])
def test_a_change_among_harmless_versions(state, tmp_path, monkeypatch, is_seen, order):
    """A change of rows is refused for good, whatever harmless versions come before and after it, seen when."""
    note = state.prepare(2, {"a": TransactionalValue(2, 2)})
    now = time.time()
    for step, each in enumerate(order, 1):
        if each == "update":
            DeltaTable(tmp_path).update({"n": "n + 1"})
        else:
            move_rows(tmp_path, live_files(tmp_path))
        if is_seen and "update" in order[:step]:
            with pytest.raises(DivergenceError, match="UPDATE made version"):
                state.publish(2, note)
            monkeypatch.setattr(writer.time, "time", lambda passed=step: now + 3600 * passed)
    before = DeltaTable(tmp_path).version()
    for write in (lambda: state.publish(2, note), lambda: state.write(2, {"a": TransactionalValue(2, 2)})):
        with pytest.raises(DivergenceError, match="UPDATE made version"):
            write()
    assert DeltaTable(tmp_path).version() == before
