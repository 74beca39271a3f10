"""The example of event time: its tables say what came, whatever was killed."""

import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner

from examples.orders_by_minute import SERVERS, results_in, topology
from examples.orders_by_minute_load import ORDERS_A_FILE, is_late, main, producing, write_file
from tests.processes import ran
from txtopo.testing.inline import run_inline


def load(folder: Path, files: Iterable[int]) -> None:
    """Write the files with some numbers."""
    for number in files:
        write_file(folder, number * ORDERS_A_FILE, ORDERS_A_FILE)


def checked(folder, orders):
    """Return what the command that checks the tables says in its first line."""
    options = ["--output", str(folder), "--orders", str(orders), "--check"]
    result = CliRunner().invoke(main, options)
    return result.exit_code, result.output.splitlines()[0]


@pytest.mark.slow
def test_the_tables_say_what_came(tmp_path):
    """Each order is in one table once, minutes and totals are those of the orders; the command finds what is missing."""
    load(tmp_path / "in", range(10))
    run_inline(topology(str(tmp_path / "in"), str(tmp_path / "out"), watch=False, servers=""))
    found = results_in(str(tmp_path / "out"))
    # The first transaction, four files, has no watermark before it.
    late = {f"order-{number}" for number in range(4 * ORDERS_A_FILE, 10 * ORDERS_A_FILE) if is_late(number)}
    assert set(found.late) == late
    # All minutes are closed at the end: the totals are sums of them.
    assert sum(orders for orders, _ in found.minutes.values()) == sum(orders for orders, *_ in found.totals.values())
    code, said = checked(tmp_path / "out", 10 * ORDERS_A_FILE)
    assert (code, said.partition(":")[0]) == (0, "the tables are exact")
    assert checked(tmp_path / "out", 10 * ORDERS_A_FILE + 1) == (1, "Error: the tables differ:")


def test_without_tables(tmp_path):
    """There is nothing to check before the topology has run."""
    code, said = checked(tmp_path / "none", 1)
    assert code == 1
    assert said.endswith("run examples.orders_by_minute first")


def run_and_kill(folder, *settings, more):
    """Run the example, kill it while it writes its tables, let more orders come, and run it again; return its tables."""
    command = ["-m", "txtopo", "run", "examples.orders_by_minute"]
    for setting in ("watch=false", "topology.max.spout.pending=2", *settings):
        command += ["--set", setting]
    killed = ran(*command, cwd=folder, failpoints="table.write.after=kill:6")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    more()
    ended = ran(*command, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    return folder / "txtopo-data" / "orders_by_minute"


@pytest.mark.slow
def test_killed_and_resumed_with_kafka(kafka, tmp_path):
    """So it is with orders in the partitions of a topic."""
    topic = "orders-by-minute"
    kafka.create_topic(topic, 4)
    produce = producing(kafka.servers, topic)
    produce(0, 4_000)
    settings = (f"servers={kafka.servers}", f"topic={topic}")
    output = run_and_kill(tmp_path, *settings, more=lambda: produce(4_000, 2_000))
    code, said = checked(output, 6_000)
    assert (code, said.partition(":")[0]) == (0, "the tables are exact"), said


@pytest.mark.long
@pytest.mark.skipif(bool(SERVERS), reason="orders come from Kafka")
def test_killed_and_resumed(tmp_path):
    """A run is killed while it writes its tables; the same command goes on, with orders that have come since."""
    orders = tmp_path / "txtopo-data" / "orders"
    load(orders, range(20))
    output = run_and_kill(tmp_path, more=lambda: load(orders, range(20, 30)))
    code, said = checked(output, 30 * ORDERS_A_FILE)
    assert (code, said.partition(":")[0]) == (0, "the tables are exact"), said
    late = [number for number in range(4 * ORDERS_A_FILE, 30 * ORDERS_A_FILE) if is_late(number)]
    assert len(results_in(str(output)).late) == len(late)
