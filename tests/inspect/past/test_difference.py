"""As of which transaction two tables are compared."""

from __future__ import annotations

import pytest

from tests.state.delta.log.test_kept import filled, leave
from txtopo.inspect.past.difference import Compared


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
        found = Compared.pair(str(a), str(b), None)
        assert found.txid == txid
        [tables] = found.tables.values()
        rows = [sorted(each.select(["id", "n"]).to_pylist(), key=str) for each in tables]
        assert rows[0] == rows[1]
