"""Two processes on one topology: one leads, the other one is told who, and nothing is doubled."""

import os
import pathlib
import re
import signal

import pytest

from tests.fencing.coordinator_process import CoordinatorProcess, coordinator_process
from tests.fencing.delta_log import check_epochs, check_totals, last_txid
from tests.fencing.topologies import rows_of
from tests.waiting import wait_for
from txtopo.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.slow

TRANSACTIONS = 48


def settings(output: pathlib.Path) -> dict[str, object]:
    return {"output": output, "transactions": TRANSACTIONS, "max_spout_pending": 12, "spark_master": "local[2]"}


def check_refused(refused: CoordinatorProcess, leading: CoordinatorProcess) -> None:
    """Check that a process ended with the refusal that names the one in its way, and never got to Spark."""
    assert refused.wait() == 1
    named = rf"error: topology 'words' is led by '[^']+', process {leading.pid} on {re.escape(os.uname().nodename)}"
    assert re.search(named, refused.output), refused.output
    assert "words:" not in refused.output


def test_two_started_at_once(server: ZooKeeperServer, root: str, tmp_path: pathlib.Path) -> None:
    """Of two coordinators started at once one leads and the other is refused by owner and pid; totals are exact."""
    given = settings(tmp_path / "out") | {
        "state_store": "zookeeper",
        "transactional.zookeeper.servers": server.hosts,
        "transactional.zookeeper.root": root,
        "transactional.zookeeper.session.timeout.secs": 5,
    }
    with (
        coordinator_process(tmp_path / "one.log", given) as one,
        coordinator_process(tmp_path / "other.log", given) as other,
    ):
        wait_for("one of them is refused", lambda: not (one.is_running() and other.is_running()))
        leading, refused = (one, other) if one.is_running() else (other, one)
        check_refused(refused, leading)
        assert leading.wait() == 0, leading.output
    check_epochs(tmp_path / "out", [1])
    check_totals(tmp_path / "out", rows_of(TRANSACTIONS))


@pytest.mark.long
def test_second_on_one_file(tmp_path: pathlib.Path) -> None:
    """With SQLite a second process is refused by owner and pid while the first one lives, whose totals are exact."""
    given = settings(tmp_path / "out")
    with coordinator_process(tmp_path / "first.log", given) as first:
        wait_for("the first commits", lambda: last_txid(tmp_path / "out") or not first.is_running())
        # However long the second one takes to start, the first one can't end before.
        first.signal(signal.SIGSTOP, to_jvm=False)
        with coordinator_process(tmp_path / "second.log", given) as second:
            check_refused(second, first)
        first.signal(signal.SIGCONT, to_jvm=False)
        assert first.wait() == 0, first.output
    check_epochs(tmp_path / "out", [1])
    check_totals(tmp_path / "out", rows_of(TRANSACTIONS))
