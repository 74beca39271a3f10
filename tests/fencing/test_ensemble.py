"""Three ZooKeeper servers whose leader dies again and again under a running topology."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Iterator

import pytest

from state.stores.zookeeper import ZooKeeperStore
from tests.fencing.deadline import until
from tests.fencing.delta_log import check_epochs, check_totals, last_txid
from tests.fencing.inline_run import InlineRun
from tests.fencing.topologies import rows_of
from tests.fencing.zookeeper_view import viewing
from txtopo.errors import StopError
from txtopo.testing.zookeeper import ZooKeeperEnsemble, running_ensemble

pytestmark = pytest.mark.slow

TRANSACTIONS = 90
KILL_AT = (20, 60)
TICK_TIME_MS = 200
SESSION_SECS = 4.0
STARTS_MAX = 10


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    """Three servers; a test leaves all of them running."""
    with running_ensemble(tmp_path_factory.mktemp("ensemble"), tick_time_ms=TICK_TIME_MS) as running:
        yield running


def begin(ensemble: ZooKeeperEnsemble, root: str, output: pathlib.Path, session_secs: float) -> InlineRun:
    """Begin a run, or go on where the one before it stopped."""
    return InlineRun(output, TRANSACTIONS, ZooKeeperStore(ensemble.hosts, root, session_secs))


class Runs:
    """One run after another, until one comes to the end.

    Args:
        begin_next: begins each of them.
    """

    def __init__(self, begin_next: Callable[[], InlineRun]) -> None:
        self.stops: list[StopError] = []
        self._begin_next = begin_next
        self._run = begin_next()

    def has_ended(self) -> bool:
        """Whether the input is exhausted; a run that has stopped with a StopError is followed by another."""
        if not self._run.has_ended():
            return False
        try:
            self._run.result()
        except StopError as error:
            self.stops.append(error)
            assert len(self.stops) < STARTS_MAX, self.stops
            self._run = self._begin_next()
            return False
        return True


@pytest.mark.long
def test_leader_killed_again_and_again(ensemble: ZooKeeperEnsemble, root: str, tmp_path: pathlib.Path) -> None:
    """Totals are exact however often the servers' leader dies: a run goes on, or stops and goes on when started again."""
    runs = Runs(functools.partial(begin, ensemble, root, tmp_path, SESSION_SECS))
    for txid in KILL_AT:
        until(lambda txid=txid: last_txid(tmp_path) >= txid or runs.has_ended(), f"transaction {txid} is committed")
        assert not runs.has_ended()
        leader = ensemble.leader()
        leader.kill()
        leader.start()
    until(runs.has_ended, "the input is exhausted")
    print(f"{len(runs.stops)} stops: {runs.stops}")
    check_epochs(tmp_path, list(range(1, len(runs.stops) + 2)))
    check_totals(tmp_path, rows_of(TRANSACTIONS))


@pytest.mark.long
def test_majority_lost(ensemble: ZooKeeperEnsemble, root: str, tmp_path: pathlib.Path) -> None:
    """With one server of three left a run stops and names the hosts; with three again the next one goes on, exactly."""
    run = begin(ensemble, root, tmp_path, 0.6)
    until(lambda: last_txid(tmp_path) >= KILL_AT[0] or run.has_ended(), "the run is in its middle")
    killed = [ensemble.leader(), next(server for server in ensemble.servers if server.mode() == "follower")]
    try:
        for server in killed:
            server.kill()
        with pytest.raises(StopError, match=f"{ensemble.hosts} has not answered"):
            run.result()
    finally:
        for server in killed:
            server.launch()
        for server in ensemble.servers:
            server.wait_until_ready()
    assert last_txid(tmp_path) < TRANSACTIONS
    with viewing(ensemble.hosts, root) as view:
        until(lambda: view.leading_session() is None, "the session of the run that has stopped ends")
    assert begin(ensemble, root, tmp_path, SESSION_SECS).result().committed_txid == TRANSACTIONS
    check_epochs(tmp_path, [1, 2])
    check_totals(tmp_path, rows_of(TRANSACTIONS))
