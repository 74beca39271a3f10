"""A log whose checkpoint is damaged or gone is read from its entries, if they are all there."""

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from state import DeltaState, read_table
from state.delta.log.damage import damage_of_log
from state.delta.log.handle import Handle
from state.delta.log.location import Location
from state.delta.log.ownership import Owner
from state.delta.upkeep.past import TablePast
from txtopo import Fields
from txtopo.api.values import StateKind, TransactionalValue
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


@pytest.fixture
def past(table):
    """The table as its upkeep sees it, at version 6."""
    past = TablePast(
        Location.resolve(str(table), None), Owner("topology", "s", "life", StateKind.TRANSACTIONAL).fence(1)
    )
    past.configuration()  # which opens it
    return past


@pytest.fixture(params=[5, 6, 7], ids=["behind a checkpoint", "between two entries", "behind a handle"])
def lists_late(table, monkeypatch, request):
    """Let the first listing of the log lack an entry that is put meanwhile, as one beside a writer may."""
    opened = state_at(table).open("topology", "s", "life", 1)
    opened.write(6, {6: TransactionalValue(6, 6)})
    opened.close()
    entry, aside = table / LOG / f"{request.param:020d}.json", table / "put-meanwhile"
    entry.rename(aside)

    def handle(*arguments, **options):
        try:
            return Handle(*arguments, **options)
        finally:
            if aside.exists():
                aside.rename(entry)

    monkeypatch.setattr("state.delta.log.location.Handle", handle)


@pytest.mark.usefixtures("lists_late")
def test_an_entry_that_is_put_during_a_listing(table):
    """A listing that has the entry after it, but not this one, is no damage: the log is listed again."""
    assert Location.resolve(str(table), None).handle().version() == 8
    assert read_table(table).num_rows == 6


@pytest.mark.usefixtures("past", "lists_late")
def test_upkeep_beside_a_writer(past):
    """It looks at the newest version though the listing for it lacks an entry that is put meanwhile."""
    assert past.refresh() == 8


def test_a_file_that_goes_during_a_look_for_damage(table, monkeypatch):
    """Only what two looks find is damage: an entry that the first listing lacks may have come during it."""
    listed, late = Path.iterdir, [f"{5:020d}.json"]
    found = lambda folder: (each for each in [*listed(folder)] if [each.name] != late or late.clear())
    monkeypatch.setattr(Path, "iterdir", found)
    assert damage_of_log(table) is None
    assert late == []
    monkeypatch.undo()
    (table / LOG / f"{5:020d}.json").unlink()
    assert f"{5:020d}.json is missing" in damage_of_log(table)


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
    assert state_at(table).table().describe().last_txid == 5
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
    assert state_at(table).table().describe().last_txid == 5
    assert kept.exists()


def test_without_the_entries_it_is_named(table):
    """If the entries are not enough, nothing is set aside, and the error names the file."""
    for version in range(4):
        (table / LOG / f"{version:020d}.json").unlink()
    DAMAGE["cut"](table)
    with pytest.raises(StateFailure, match=r"checkpoint\.parquet is damaged"):
        state_at(table).table().describe()
    checkpoint_of(table).unlink()
    with pytest.raises(StateFailure, match=r"the checkpoint of .* is missing"):
        state_at(table).table().describe()


def test_a_folder_that_can_only_be_read(table, monkeypatch):
    """A reader that may not write says what is wrong."""
    DAMAGE["cut"](table)

    def refuse(*_):
        raise PermissionError("a disk that can only be read")

    monkeypatch.setattr("txtopo.files.folder.LocalFolder.put", refuse)
    with pytest.raises(StateAccessError, match=r"checkpoint\.parquet is damaged"):
        read_table(table)
