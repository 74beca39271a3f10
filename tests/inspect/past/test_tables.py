"""The tables of a topology's states, as the page shows them."""

from state import DeltaState, TransactionalValue
from state.delta.log.location import Location
from txtopo import Fields
from txtopo.files.places import folder_at
from txtopo.inspect.past.tables import KeptTables, states


def test_a_table_is_opened_once(tmp_path, monkeypatch):
    """Its size now, and all that it keeps, are of one handle: to open it reads its log."""
    path = tmp_path / "words"
    state = DeltaState(path, key=Fields("word: string"), value=Fields("n: long")).open("t", "words", "life", 1)
    state.write(3, {word: TransactionalValue(3, 1) for word in ("dog", "cat")})
    state.close()
    opened, handle = [], Location.handle
    monkeypatch.setattr(Location, "handle", lambda self, version=None: opened.append(version) or handle(self, version))
    kept = KeptTables()
    for looks in (1, 2):
        ([found], why) = states(folder_at(tmp_path / "none"), "t", {"words": {"path": str(path)}}, kept)
        assert (found.error, why, found.rows, found.txid) == (None, "", 2, 3)
        assert found.disk_files > found.files
        assert opened.count(None) == looks
