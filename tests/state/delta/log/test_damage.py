"""A log whose checkpoint is damaged or gone is read from its entries, if they are all there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from state import DeltaState, read_table
from txtopo import Fields
from txtopo.api.values import TransactionalValue
from txtopo.errors import StateAccessError, StateFailure

LOG = "_delta_log"


def state_at(path: Path) -> DeltaState:
    return DeltaState(path, key=Fields("k: long"), value=Fields("n: long"))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with a checkpoint at version 4, the last of six."""
    opened = state_at(tmp_path / "t").open("topology", "s", "life", 1)
    for txid in range(1, 6):
        opened.write(txid, {txid: TransactionalValue(txid, txid)})
        if txid == 3:
            DeltaTable(tmp_path / "t").create_checkpoint()
    opened.close()
    return tmp_path / "t"


def checkpoint_of(table: Path) -> Path:
    (found,) = (table / LOG).glob("*.checkpoint.parquet")
    return found


def hint(table: Path, version: int) -> None:
    (table / LOG / "_last_checkpoint").write_text(json.dumps({"version": version, "size": 8}))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[100:400] = b"\xff" * 300
    path.write_bytes(content)


DAMAGE = {
    "gone": lambda table: checkpoint_of(table).unlink(),
    "empty": lambda table: checkpoint_of(table).write_bytes(b""),
    "cut": lambda table: checkpoint_of(table).write_bytes(checkpoint_of(table).read_bytes()[:300]),
    "overwritten": lambda table: flip(checkpoint_of(table)),
    "cut, and nothing names it": lambda table: (
        checkpoint_of(table).write_bytes(checkpoint_of(table).read_bytes()[:300]),
        (table / LOG / "_last_checkpoint").unlink(),
    ),
    "another one is named": lambda table: hint(table, 99),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_checkpoint_is_set_aside(table, what):
    """The table is inspected, read and written as before, and others can read it again."""
    before = read_table(table).sort_by("k")
    DAMAGE[what](table)
    assert state_at(table).table().look().last_txid == 5
    assert read_table(table).sort_by("k").equals(before)
    opened = state_at(table).open("topology", "s", "life", 2)
    opened.write(6, {6: TransactionalValue(6, 6)})
    opened.close()
    assert DeltaTable(table).to_pyarrow_table()["k"].sort().to_pylist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.few(3)
@pytest.mark.parametrize("what", DAMAGE)
def test_an_older_checkpoint_is_enough(table, what):
    """Entries before an older checkpoint are not needed, and the older one stays."""
    older = checkpoint_of(table).rename(table / "kept")
    opened = state_at(table).open("topology", "s", "life", 2)
    opened.close()
    DeltaTable(table).create_checkpoint()
    DAMAGE[what](table)
    kept = older.rename(table / LOG / "00000000000000000004.checkpoint.parquet")
    for version in range(4):
        (table / LOG / f"{version:020d}.json").unlink()
    assert state_at(table).table().look().last_txid == 5
    assert kept.exists()


def test_without_the_entries_it_is_named(table):
    """If the entries are not enough, nothing is set aside, and the error names the file."""
    for version in range(4):
        (table / LOG / f"{version:020d}.json").unlink()
    DAMAGE["cut"](table)
    with pytest.raises(StateFailure, match=r"checkpoint\.parquet is damaged"):
        state_at(table).table().look()
    checkpoint_of(table).unlink()
    with pytest.raises(StateFailure, match=r"the checkpoint of .* is missing"):
        state_at(table).table().look()


def test_a_folder_that_can_only_be_read(table, monkeypatch):
    """A reader that may not write says what is wrong."""
    DAMAGE["cut"](table)

    def refuse(*_):
        raise PermissionError("a disk that can only be read")

    monkeypatch.setattr("txtopo.files.folder.LocalFolder.put", refuse)
    with pytest.raises(StateAccessError, match=r"checkpoint\.parquet is damaged"):
        read_table(table)
