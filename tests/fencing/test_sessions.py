"""Sessions of a running topology: expiry ends the lead, a lost connection alone does not."""

import pathlib
import socket
from collections.abc import Iterator

import pytest

from state.stores.zookeeper import ZooKeeperStore
from tests.fencing.delta_log import check_epochs, check_totals
from tests.fencing.inline_run import InlineRun, holding
from tests.fencing.topologies import rows_of
from tests.fencing.zookeeper_view import ZooKeeperView, viewing
from tests.waiting import wait_for
from txtopo.errors import StopError
from txtopo.servers.zookeeper import ZooKeeperServer

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
    wait_for(f"transaction {txid} is committed", lambda: view.committed() >= txid or run.has_ended())
    assert not run.has_ended(), run.result()


def test_broken_connections(server: ZooKeeperServer, root: str, view: ZooKeeperView, tmp_path: pathlib.Path) -> None:
    """Connections that break again and again, within the session, lose nothing and double nothing: one run, one epoch."""
    store = ZooKeeperStore(server.hosts, root, SESSION_SECS)
    with holding("group.decide.before", TRANSACTIONS - 10):  # so that it is not over before the last break
        run = InlineRun(tmp_path, TRANSACTIONS, store, group_max=1)
        for number in range(BREAKS):
            wait_for_commits(run, view, 5 + number * (TRANSACTIONS - 20) // BREAKS)
            broken = store.session.client._connection._socket
            broken.shutdown(socket.SHUT_RDWR)
            wait_for(
                "it connects again", lambda old=broken: store.session.client._connection._socket not in {None, old}
            )
    assert run.result().committed_txid == TRANSACTIONS
    check_epochs(tmp_path, [1])
    check_totals(tmp_path, rows_of(TRANSACTIONS))


@pytest.mark.long
def test_server_away_for_longer_than_the_session(
    server: ZooKeeperServer, root: str, view: ZooKeeperView, tmp_path: pathlib.Path
) -> None:
    """With no server for longer than a session the run stops and names the hosts; started again it goes on, exactly."""
    with holding("group.decide.before", TRANSACTIONS - 10):  # so that it is not over before the server is away
        run = InlineRun(tmp_path, TRANSACTIONS, ZooKeeperStore(server.hosts, root, 2.0), group_max=1)
        wait_for_commits(run, view, 20)
        server.kill()
    try:
        with pytest.raises(StopError, match=f"{server.hosts} has not answered"):
            run.result()
    finally:
        server.start()
    assert 20 <= view.committed() < TRANSACTIONS
    wait_for("the session of the run that has stopped ends", lambda: view.leading_session() is None)
    resumed = InlineRun(tmp_path, TRANSACTIONS, ZooKeeperStore(server.hosts, root, SESSION_SECS))
    assert resumed.result().committed_txid == TRANSACTIONS
    check_epochs(tmp_path, [1, 2])
    check_totals(tmp_path, rows_of(TRANSACTIONS))
