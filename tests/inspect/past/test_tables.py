"""The tables of a topology's states, as the page shows them."""

import pytest

from state import DeltaState, TransactionalValue
from state.delta.log.location import Location
from txtopo import Fields
from txtopo.files.places import folder_at
from txtopo.inspect.past.tables import KEPT_SECS, Kept, KeptTables, states


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


@pytest.mark.parametrize(("files", "secs"), [(10, KEPT_SECS), (100_000, 100)])
def test_what_a_table_keeps_is_listed_again_by_its_files(tmp_path, monkeypatch, files, secs):
    """However long a slow store or a busy machine takes to list them."""
    DeltaState(tmp_path, key=Fields("word: string"), value=Fields("n: long")).open("t", "words", "life", 1).close()
    location, now, listed = Location.resolve(str(tmp_path), None), [0.0], []

    def of(*_):
        now[0] += 1_000
        listed.append(now[0])
        return Kept(files, 1, None)

    monkeypatch.setattr(Kept, "of", of)
    kept = KeptTables(lambda: now[0])
    for later in (0, secs, 1, secs, 1):
        now[0] += later
        kept.of(location, location.handle())
    assert len(listed) == 3
