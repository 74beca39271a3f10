"""A table that is looked at several times without being opened."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from state import DeltaState
from state.delta.log.location import Location
from txtopo import Fields
from txtopo.api.values import TransactionalValue


def written(path: Path, txids: int, incarnation: str = "life") -> DeltaState:
    declared = DeltaState(path, Fields("id: long"), Fields("n: long"))
    state = declared.open("topology", "s", incarnation, 1)
    for txid in range(1, txids + 1):
        state.write(txid, {txid: TransactionalValue(txid, txid)})
    state.close()
    return declared


def replaced(path: Path) -> None:
    """Put another table in the place of one, with as many versions."""
    other = path.with_name("other")
    written(other, 3, "another life")
    shutil.rmtree(path)
    other.rename(path)


DEEDS: dict[str, Callable[[Path], object]] = {
    "a write": lambda path: written(path, 4),
    "a delete of others": lambda path: DeltaTable(path).delete("id = 1"),
    "a checkpoint": lambda path: DeltaTable(path).create_checkpoint(),
    "another table": replaced,
    "a removal": shutil.rmtree,
    "nothing": lambda path: path,
}


@pytest.mark.few(3)
@pytest.mark.parametrize("deed", DEEDS)
def test_looks_see_what_happens_in_between(tmp_path: Path, deed: str) -> None:
    """Each look is of the newest version, as if it were the first one."""
    path = tmp_path / "t"
    declared = written(path, 3)
    table = declared.table()
    for look in range(2):
        if look:
            DEEDS[deed](path)
        fresh = declared.table().describe()
        assert table.describe() == fresh
        if fresh is not None:
            assert table.foreign_change(None) == declared.table().foreign_change(None)
            assert [table.is_kept(txid) for txid in range(1, 6)] == [
                declared.table().is_kept(txid) for txid in range(1, 6)
            ]
            assert table.kept(range(6)) == declared.table().kept(range(6))
            assert (table.turned_to(0), table.undone_to(0)) == (None, None)


def test_the_log_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start looks at each table several times; while nobody writes, that costs one look."""
    table = written(tmp_path / "t", 3).table()
    first = table.describe()
    monkeypatch.setattr(Location, "handle", lambda *_: pytest.fail("the log is read again"))
    assert table.describe() == first
    assert (table.foreign_change(None), table.turned_to(0), table.undone_to(0)) == (None, None, None)
