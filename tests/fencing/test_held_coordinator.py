"""Promise 11, moment by moment: a coordinator held at any durable step while another leads writes nothing more."""

import pathlib

import pytest

from state.stores.zookeeper import ZooKeeperStore
from tests.fencing.delta_log import all_versions, check_epochs, check_totals
from tests.fencing.inline_run import InlineRun, holding, stopping
from tests.fencing.topologies import rows_of
from tests.fencing.zookeeper_view import end_session, viewing
from tests.waiting import wait_for
from txtopo.errors import LostLead, StopError
from txtopo.failpoints import known_failpoints
from txtopo.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.slow

TRANSACTIONS = 24
SESSION_SECS = 5.0


def named(*prefixes: str) -> list[str]:
    """Return the failpoints whose names begin so."""
    return [name for name in known_failpoints() if name.startswith(prefixes)]


AT_THE_START = named("lead.take.after", "table.open.")
IN_THE_MIDDLE = named("metadata.save.", "group.", "table.write.", "table.maintain.", "delta.")
RECOVERY = named("recovery.write.", "recovery.commit.", "recovery.confirm.")


def check_fenced(server: ZooKeeperServer, root: str, output: pathlib.Path, name: str, count: int, epoch: int) -> None:
    """Hold a coordinator of some epoch at a failpoint while the next one does all the work; then let it go on."""
    store = ZooKeeperStore(server.hosts, root, SESSION_SECS)
    with viewing(server.hosts, root) as view:
        with holding(name, count) as hold:
            zombie = InlineRun(output, TRANSACTIONS, store)
            wait_for(f"{name} is reached", lambda: hold.is_reached.is_set() or zombie.has_ended())
            assert not zombie.has_ended(), zombie.result()
            assert view.committed() < TRANSACTIONS / 2
            end_session(view, store.session.client)
            successor = InlineRun(output, TRANSACTIONS, ZooKeeperStore(server.hosts, root, SESSION_SECS))
            assert successor.result().committed_txid == TRANSACTIONS
            before = view.tree(), all_versions(output)
            hold.let_go()
            with pytest.raises(LostLead):
                zombie.result()
        assert (view.tree(), all_versions(output)) == before
        assert view.epoch().data == str(epoch + 1).encode()
    check_totals(output, rows_of(TRANSACTIONS))


@pytest.mark.parametrize("name", IN_THE_MIDDLE)
def test_held_in_the_middle(server: ZooKeeperServer, root: str, tmp_path: pathlib.Path, name: str) -> None:
    """Wherever the session of a running coordinator ends, all that it does from there on is refused."""
    check_fenced(server, root, tmp_path / "out", name, 4, epoch=1)
    check_epochs(tmp_path / "out", [1, 2])


@pytest.mark.parametrize("name", AT_THE_START)
def test_held_at_the_start(server: ZooKeeperServer, root: str, tmp_path: pathlib.Path, name: str) -> None:
    """A coordinator that was held before it had fenced its tables does not fence its successor's."""
    check_fenced(server, root, tmp_path / "out", name, 1, epoch=1)


@pytest.mark.parametrize("name", RECOVERY)
def test_held_in_recovery(server: ZooKeeperServer, root: str, tmp_path: pathlib.Path, name: str) -> None:
    """A coordinator held while it finishes what a dead one left finds it finished by its successor."""
    with stopping("table.write.after", StopError("it dies between two tables"), 7) as is_dead:
        first = InlineRun(tmp_path / "out", TRANSACTIONS, ZooKeeperStore(server.hosts, root, SESSION_SECS))
        with pytest.raises(StopError, match="dies"):
            first.result()
        assert is_dead()
    check_fenced(server, root, tmp_path / "out", name, 1, epoch=2)
    check_epochs(tmp_path / "out", [1, 2, 3])
