"""The first example: one number, exact."""

from examples.global_count import DATA, topology
from state import read_table
from txtopo import run


def test_the_total_is_the_number_of_tuples_however_often_it_runs(tmp_path, spark):
    """One row holds the number of all tuples and the last txid; a second run adds nothing."""
    expected = [{"name": "total", "n": sum(map(len, DATA.values())), "txid": 3}]
    for _ in range(2):
        report = run(topology(str(tmp_path)))
        assert report.committed_txid == 3
        assert read_table(tmp_path / "global_count").to_pylist() == expected
