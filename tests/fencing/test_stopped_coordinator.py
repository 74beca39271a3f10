"""Promise 11 with real processes: a coordinator stopped past its session wakes up, and writes nothing more."""

from __future__ import annotations

import pathlib
import re
import signal

import pytest

from state.stores.zookeeper import ZooKeeperStore
from tests.fencing.coordinator_process import CoordinatorProcess, coordinator_process
from tests.fencing.deadline import until
from tests.fencing.delta_log import all_versions, check_epochs, check_totals
from tests.fencing.inline_run import InlineRun
from tests.fencing.topologies import rows_of
from tests.fencing.zookeeper_log import writing_sessions
from tests.fencing.zookeeper_view import ZooKeeperView, viewing
from txtopo.testing.zookeeper import ZooKeeperServer

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


def stop_past_its_session(first: CoordinatorProcess, view: ZooKeeperView, *, to_jvm: bool) -> None:
    """Stop a coordinator in the middle of its run, and wait until it has lost its session."""
    until(lambda: view.committed() >= FIRST_COMMITS or not first.is_running(), "the first commits")
    assert first.is_running(), first.output
    first.signal(signal.SIGSTOP, to_jvm=to_jvm)
    until(lambda: view.leading_session() is None, "the session of a stopped process ends")
    assert FIRST_COMMITS <= view.committed() < TRANSACTIONS - SECOND_COMMITS - 20


def check_end_of(first: CoordinatorProcess) -> None:
    """Check that a coordinator ended because it lost the lead, and says so."""
    assert first.wait() == 1
    assert LOST.search(first.output), first.output


@pytest.mark.long
def test_stopped_driver_and_jvm_wake_beside_their_successor(
    server: ZooKeeperServer, root: str, tmp_path: pathlib.Path
) -> None:
    """Driver and JVM are stopped and wake up while another process leads: not one write of theirs is taken."""
    output = tmp_path / "out"
    given = settings(server, root, output)
    with viewing(server.hosts, root) as view, coordinator_process(tmp_path / "first.log", given) as first:
        stop_past_its_session(first, view, to_jvm=True)
        stopped_at = view.committed()
        with coordinator_process(tmp_path / "second.log", given) as second:
            until(lambda: view.leading_session() or not second.is_running(), "the second leads")
            second_session, epoch = view.leading_session(), view.epoch()
            goal = stopped_at + SECOND_COMMITS
            until(lambda: view.committed() >= goal or not second.is_running(), "the second commits")
            first.signal(signal.SIGCONT, to_jvm=True)
            assert second.is_running(), second.output
            check_end_of(first)
            assert second.wait() == 0, second.output
        assert writing_sessions(server.data, epoch.changed_zxid) == {second_session}
        assert (view.epoch(), epoch.data) == (epoch, b"2")
        assert view.committed() == TRANSACTIONS
    check_epochs(output, [1, 2])
    check_totals(output, rows_of(TRANSACTIONS))


@pytest.mark.long
def test_stopped_driver_wakes_after_its_successor(server: ZooKeeperServer, root: str, tmp_path: pathlib.Path) -> None:
    """Only the driver is stopped, its JVM is not; it wakes up when all is done and the lead is free: nothing changes."""
    output = tmp_path / "out"
    given = settings(server, root, output)
    with viewing(server.hosts, root) as view, coordinator_process(tmp_path / "first.log", given) as first:
        stop_past_its_session(first, view, to_jvm=False)
        second = InlineRun(output, TRANSACTIONS, ZooKeeperStore(server.hosts, root, SESSION_SECS), window=24)
        assert second.result().committed_txid == TRANSACTIONS
        before = view.tree(), all_versions(output)
        first.signal(signal.SIGCONT, to_jvm=False)
        check_end_of(first)
        assert (view.tree(), all_versions(output)) == before
    check_epochs(output, [1, 2])
    check_totals(output, rows_of(TRANSACTIONS))
