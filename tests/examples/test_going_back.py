"""The story of a bug that is found, tried out in a fork, and undone."""

import re
from pathlib import Path

import pytest

from state import read_table
from tests.processes import ran


@pytest.mark.long
@pytest.mark.slow
def test_the_story(tmp_path: Path) -> None:
    """Every command ends as it should; the topology that went back has the tables of the fork that never had the bug."""
    told = ran("-m", "examples.going_back", tmp_path / "out")
    assert told.returncode == 0, told.stdout + told.stderr
    # How the transactions are grouped depends on the machine, and a group shows only its last transaction of a key.
    assert re.search(r"  state totals: \d+ of 12 transactions differ, first (8|9|10)\n", told.stdout)
    for line in (
        "  differs    customer=ann  cents: 12800 in A, 7800 in B\n",
        "✔ the same\n",
        "✔ every transaction was committed once, in order, without a gap\n",
    ):
        assert line in told.stdout
    totals = {row["customer"]: row["cents"] for row in read_table(tmp_path / "out" / "totals").to_pylist()}
    assert totals == {"ann": 7_800, "bob": 1_200}
