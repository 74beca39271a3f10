"""The flow of orders has the tables of the topology that a builder makes, whatever is killed."""

import signal
from pathlib import Path

import pytest

from examples import orders_by_minute, orders_flow
from state import read_table
from tests.examples.test_orders_by_minute import load
from tests.processes import ran
from txtopo.testing import run_inline

TABLES = ("orders", "late", "untimed", "revenue", "totals", "unreadable")


def tables_in(output: Path) -> dict[str, list[str]]:
    """Return the rows of each table, with their txids, as texts in order."""
    return {
        name: sorted(repr(sorted(row.items())) for row in read_table(output / name).to_pylist())
        for name in TABLES
        if (output / name).exists()
    }


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, list[str]]:
    load(tmp_path / "in", range(10))
    (tmp_path / "in" / "bad.jsonl").write_text('{"id": 7}\nno order\n')
    built = tmp_path / "built"
    run_inline(orders_by_minute.topology(str(tmp_path / "in"), str(built), watch=False, servers=""))
    return tables_in(built)


@pytest.mark.slow
def test_equal_to_the_builder(tmp_path: Path, expected: dict[str, list[str]]) -> None:
    """The rows of all tables, and the transactions that they are of, are the same in both forms."""
    run_inline(orders_flow.topology(str(tmp_path / "in"), str(tmp_path / "flow"), watch=False))
    assert tables_in(tmp_path / "flow") == expected
    assert len(expected["late"]) > 1
    assert len(expected["revenue"]) > 1


@pytest.mark.long
def test_killed(tmp_path: Path, expected: dict[str, list[str]]) -> None:
    """A run of the flow that is killed while it writes its tables goes on to the same ones."""
    command = [
        "-m",
        "txtopo",
        "run",
        "examples.orders_flow",
        "--set",
        "watch=false",
        "--set",
        "folder=in",
        "--set",
        "output=flow",
    ]
    killed = ran(*command, cwd=tmp_path, failpoints="table.write.after=kill:3")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = ran(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert tables_in(tmp_path / "flow") == expected
