"""Promise 11 with real processes: a coordinator stopped past its session wakes up, and writes nothing more."""

import pathlib
import re
import signal

import pytest

from tests.fencing.coordinator_process import CoordinatorProcess, coordinator_process
from tests.fencing.delta_log import check_epochs, check_totals
from tests.fencing.topologies import rows_of
from tests.fencing.zookeeper_view import ZooKeeperView, viewing
from tests.waiting import wait_for
from txtopo.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.slow

TRANSACTIONS = 180
FIRST_COMMITS = 10
SECOND_COMMITS = 50
SESSION_SECS = 2
LOST = re.compile(r"error: the lead of topology 'words', epoch 1, is lost|error: .* opened by a coordinator of epoch 2")


def settings(server: ZooKeeperServer, root: str, output: pathlib.Path) -> dict[str, object]:
    return {
        "output": output,
        "transactions": TRANSACTIONS,
        "max_spout_pending": 12,
        "state_store": "zookeeper",
        "transactional.zookeeper.servers": server.hosts,
        "transactional.zookeeper.root": root,
        "transactional.zookeeper.session.timeout.secs": SESSION_SECS,
        "spark_master": "local[2]",
    }


def stop_past_its_session(first: CoordinatorProcess, view: ZooKeeperView) -> None:
    """Stop a coordinator and its JVM in the middle of its run, and wait until it has lost its session."""
    wait_for("the first commits", lambda: view.committed() >= FIRST_COMMITS or not first.is_running())
    assert first.is_running(), first.output
    first.signal(signal.SIGSTOP, to_jvm=True)
    wait_for("the session of a stopped process ends", lambda: view.leading_session() is None)
    assert FIRST_COMMITS <= view.committed() < TRANSACTIONS - SECOND_COMMITS - 20


@pytest.mark.long
def test_stopped_driver_and_jvm_wake_beside_their_successor(
    server: ZooKeeperServer, root: str, tmp_path: pathlib.Path
) -> None:
    """Driver and JVM are stopped and wake up while another process leads: not one write of theirs is taken."""
    output = tmp_path / "out"
    given = settings(server, root, output)
    with viewing(server.hosts, root) as view, coordinator_process(tmp_path / "first.log", given) as first:
        stop_past_its_session(first, view)
        stopped_at = view.committed()
        with coordinator_process(tmp_path / "second.log", given) as second:
            wait_for("the second leads", lambda: view.leading_session() or not second.is_running())
            epoch = view.epoch()
            goal = stopped_at + SECOND_COMMITS
            wait_for("the second commits", lambda: view.committed() >= goal or not second.is_running())
            first.signal(signal.SIGCONT, to_jvm=True)
            assert second.is_running(), second.output
            assert first.wait() == 1
            assert LOST.search(first.output), first.output
            assert second.wait() == 0, second.output
        assert (view.epoch(), epoch.data) == (epoch, b"2")
        assert view.committed() == TRANSACTIONS
    check_epochs(output, [1, 2])
    check_totals(output, rows_of(TRANSACTIONS))
