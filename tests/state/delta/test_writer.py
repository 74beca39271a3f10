"""What a coordinator knows of its table, and when it looks."""

from __future__ import annotations

import time

import pytest
from deltalake import DeltaTable

from state import DeltaState
from state.delta import writer
from state.delta.log.entries import entry_path
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
