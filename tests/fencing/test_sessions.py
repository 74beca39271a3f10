"""Sessions of a running topology: expiry ends the lead, a lost connection alone does not."""

from __future__ import annotations

import pathlib
import socket
from collections.abc import Iterator

import pytest

from state.stores.zookeeper import ZooKeeperStore
from tests.fencing.deadline import until
from tests.fencing.delta_log import all_versions, check_epochs, check_totals
from tests.fencing.inline_run import InlineRun
from tests.fencing.topologies import rows_of
from tests.fencing.zookeeper_log import logged_in
from tests.fencing.zookeeper_view import ZooKeeperView, end_session, viewing
from txtopo.errors import LostLead, StopError
from txtopo.testing.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.slow

TRANSACTIONS = 120
SESSION_SECS = 5.0
BREAKS = 10


@pytest.fixture
def view(server: ZooKeeperServer, root: str) -> Iterator[ZooKeeperView]:
    """A view of what the test's topology has in ZooKeeper."""
    with viewing(server.hosts, root) as opened:
        yield opened


def wait_for_commits(run: InlineRun, view: ZooKeeperView, txid: int) -> None:
    """Wait until a run has committed a transaction, and is in the middle of its input."""
    until(lambda: view.committed() >= txid or run.has_ended(), f"transaction {txid} is committed")
    assert not run.has_ended(), run.result()


@pytest.mark.long
def test_expired_session(server: ZooKeeperServer, root: str, view: ZooKeeperView, tmp_path: pathlib.Path) -> None:
    """A run whose session expires ends with LostLead and writes nothing more; the next one's totals are exact."""
    store = ZooKeeperStore(server.hosts, root, SESSION_SECS)
    session, _ = store.session.client.client_id
    run = InlineRun(tmp_path, TRANSACTIONS, store)
    wait_for_commits(run, view, 20)
    end_session(view, store.session.client)
    with pytest.raises(LostLead, match=r"'words', epoch 1, is lost"):
        run.result()
    logged = logged_in(server.data)
    (ended,) = (each.zxid for each in logged if each.session == session and each.is_session_end)
    assert any(each.session == session and each.is_write for each in logged)
    assert not any(each.is_write for each in logged if each.zxid > ended)
    committed = view.committed()
    assert 20 <= committed < TRANSACTIONS
    for versions in all_versions(tmp_path).values():  # what was noted as under way may still have landed
        assert len({version.txid for version in versions if (version.txid or 0) > committed}) <= 1
    resumed = InlineRun(tmp_path, TRANSACTIONS, ZooKeeperStore(server.hosts, root, SESSION_SECS))
    assert resumed.result().committed_txid == TRANSACTIONS
    check_epochs(tmp_path, [1, 2])
    check_totals(tmp_path, rows_of(TRANSACTIONS))


def test_broken_connections(server: ZooKeeperServer, root: str, view: ZooKeeperView, tmp_path: pathlib.Path) -> None:
    """Connections that break again and again, within the session, lose nothing and double nothing: one run, one epoch."""
    store = ZooKeeperStore(server.hosts, root, SESSION_SECS)
    run = InlineRun(tmp_path, TRANSACTIONS, store)
    for number in range(BREAKS):
        wait_for_commits(run, view, 5 + number * (TRANSACTIONS - 20) // BREAKS)
        broken = store.session.client._connection._socket
        broken.shutdown(socket.SHUT_RDWR)
        until(lambda broken=broken: store.session.client._connection._socket is not broken, "it connects again")
    assert run.result().committed_txid == TRANSACTIONS
    check_epochs(tmp_path, [1])
    check_totals(tmp_path, rows_of(TRANSACTIONS))


@pytest.mark.long
def test_server_killed_and_restarted(
    server: ZooKeeperServer, root: str, view: ZooKeeperView, tmp_path: pathlib.Path
) -> None:
    """A server that is killed and comes back within the session is waited for: the same run goes on to its end."""
    # A server in the middle of its start may take a connection and never answer it. kazoo waits for the answer as long
    # as a session lasts, divided by the number of hosts: were there only one, the session would be over by then.
    hosts = ",".join([server.hosts] * 3)
    run = InlineRun(tmp_path, TRANSACTIONS, ZooKeeperStore(hosts, root, SESSION_SECS))
    for txid in (20, 50, 80):
        wait_for_commits(run, view, txid)
        server.kill()
        assert not run.has_ended()
        server.start()
    assert run.result().committed_txid == TRANSACTIONS
    check_epochs(tmp_path, [1])
    check_totals(tmp_path, rows_of(TRANSACTIONS))


@pytest.mark.long
def test_server_away_for_longer_than_the_session(
    server: ZooKeeperServer, root: str, view: ZooKeeperView, tmp_path: pathlib.Path
) -> None:
    """With no server for longer than a session the run stops and names the hosts; started again it goes on, exactly."""
    run = InlineRun(tmp_path, TRANSACTIONS, ZooKeeperStore(server.hosts, root, 0.6))
    wait_for_commits(run, view, 20)
    server.kill()
    try:
        with pytest.raises(StopError, match=f"{server.hosts} has not answered"):
            run.result()
    finally:
        server.start()
    assert 20 <= view.committed() < TRANSACTIONS
    until(lambda: view.leading_session() is None, "the session of the run that has stopped ends")
    resumed = InlineRun(tmp_path, TRANSACTIONS, ZooKeeperStore(server.hosts, root, SESSION_SECS))
    assert resumed.result().committed_txid == TRANSACTIONS
    check_epochs(tmp_path, [1, 2])
    check_totals(tmp_path, rows_of(TRANSACTIONS))
