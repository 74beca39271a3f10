"""As of which transaction two tables are compared."""

import pytest

from state.delta.log.location import Location
from tests.state.delta.log.test_kept import filled, leave
from txtopo.inspect.past.difference import Compared, Comparison


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("until", "points", "txid"),
    [(8, (), 6), (6, (), 6), (9, (), 9), (11, (), 10), (12, (8, 10, 12), 9), (12, (4, 8, 12), 3), (10, (), None)],
)
def test_the_newest_transaction_that_both_show(tmp_path, until, points, txid):
    """It is the last of both, or the last point before it; whichever table is behind, and whichever comes first."""
    one, other = tmp_path / "one", tmp_path / "other"
    filled(one, range(1, 11))
    leave(one, 4, 7, 10)  # the versions of transactions 3, 6 and 9, and what comes after
    filled(other, range(1, until + 1))
    if points:
        leave(other, *points)
    for a, b in ((one, other), (other, one)):
        found = Compared.pair(str(a), str(b), None, Comparison())
        assert found.txid == txid
        [difference] = found.tables.values()
        assert difference.equal
        assert not difference.count


@pytest.mark.parametrize("txid", [None, 6])
def test_each_table_is_opened_once(tmp_path, monkeypatch, txid):
    """Its last transaction, its points and its rows are of one version, while its topology runs on."""
    one, other = tmp_path / "one", tmp_path / "other"
    filled(one, range(1, 11))
    filled(other, range(1, 9))
    opened, handle = [], Location.handle

    def opens(self: Location, version: int | None = None):
        opened.extend([self.address] if version is None else [])
        return handle(self, version)

    monkeypatch.setattr(Location, "handle", opens)
    assert Compared.pair(str(one), str(other), txid, Comparison()).txid == (txid or 8)
    assert opened == [str(one), str(other)]
