"""Whether a staged write can still be finished: asked of the table, before anything is opened."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from state import DeltaRows, DeltaState
from tests.state.delta.delta_tables import fold
from tests.state.delta.inline_executors import InlineExecutors
from txtopo import Fields
from txtopo.api.reduction import RowsMode, TransactionRows

KINDS = ("arrow", "buckets", "rows")


def staged(path, kind):
    """Return a state's table, and where a write to it is staged."""
    if kind == "rows":
        state = DeltaRows(path, Fields("k: string", "n: long"))
        opened = state.open("topology", "s", "life", 1)
        writes = opened.write_rows([TransactionRows(2, pa.table({"k": ["a"], "n": [1]}), RowsMode.APPEND)])
    else:
        state = DeltaState(path, Fields("k: string"), Fields("n: long"))
        opened = state.open("topology", "s", "life", 1)
        if kind == "buckets":
            opened.use_executors(InlineExecutors(), 0)
        writes = fold(opened, (2, {"a": 1}))
    return state.table(), opened.stage(2, writes).location


def data_file(path):
    return next((path / "_data").iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_one(tmp_path, kind):
    """It can, and compaction and vacuum by somebody else change nothing about it."""
    table, location = staged(tmp_path, kind)
    assert table.staged_obstacle(location) is None
    DeltaTable(tmp_path).optimize.compact()
    DeltaTable(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert table.staged_obstacle(location) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (Path.unlink, "which is gone"),
        (lambda file: file.write_bytes(file.read_bytes()[:-9]), "which can't be read"),
    ],
    ids=["gone", "cut short"],
)
def test_a_damaged_one(tmp_path, kind, damage, told):
    """What was staged is gone, or not whole."""
    table, location = staged(tmp_path, kind)
    damage(tmp_path / location)
    assert table.staged_obstacle(location).startswith(told)


@pytest.mark.parametrize("kind", ["buckets", "rows"])
@pytest.mark.parametrize(
    ("damage", "told"),
    [(Path.unlink, "is gone"), (lambda file: file.write_bytes(file.read_bytes() + b"0"), "bytes and not")],
    ids=["gone", "other"],
)
def test_a_data_file_of_it(tmp_path, kind, damage, told):
    """A data file that the note names is gone, or another one."""
    table, location = staged(tmp_path, kind)
    file = data_file(tmp_path)
    damage(file)
    obstacle = table.staged_obstacle(location)
    assert (f"which needs the file _data/{file.name}" in obstacle, told in obstacle) == (True, True)


def test_what_a_killed_driver_gave_to_executors(tmp_path, monkeypatch):
    """Rows that wait in files for the executors are gone once they have worked, or at the latest at the next start."""
    staged(tmp_path / "lived", "buckets")
    assert not list((tmp_path / "lived").rglob("*.arrow"))
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "unlink", lambda *_, **__: None)  # nothing is cleaned up in a process that is killed
        patched.setattr(pq, "ParquetWriter", die)
        staged(tmp_path / "died", "buckets")
    assert list((tmp_path / "died").rglob("2-rows-*.arrow"))
    state = DeltaState(tmp_path / "died", Fields("k: string"), Fields("n: long"))
    state.open("topology", "s", "life", 2).discard_staged()
    assert not list((tmp_path / "died").rglob("*.arrow"))


def die(*_, **__):
    raise KeyboardInterrupt
