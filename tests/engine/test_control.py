"""Runs that are steered from another thread."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from spouts import MemoryTransactionalSpout
from state import MemoryState
from tests.acceptance.topologies import CountTuples
from tests.topologies import committing
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo import Config, Fields, Progress, RunControl, TransactionalTopology
from txtopo.engine.runner import run_with
from txtopo.testing.inline import inline_environment
from txtopo.transactional.core.actions import StopReason

TRANSACTIONS = 40


def topology() -> TransactionalTopology:
    spout = MemoryTransactionalSpout([[f"word {n}"] for n in range(TRANSACTIONS)], Fields("word"), 1)
    return committing(spout, CountTuples(), total=MemoryState(Fields("name"), Fields("n")))


class Run:
    """A run in another thread, and how far it is."""

    def __init__(self, control: RunControl) -> None:
        self.seen: list[Progress] = []
        self._pool = ThreadPoolExecutor(1)
        config = Config(max_spout_pending=2, group_transactions_max=1)
        self.ended = self._pool.submit(
            run_with, topology(), config, inline_environment(), on_progress=self.seen.append, control=control
        )
        self._pool.shutdown(wait=False)

    def wait_for(self, condition: Callable[[Progress], bool]) -> Progress:
        """Wait until a new report of its progress is as wanted, or is the last one."""
        count = len(self.seen)
        wait_for("its progress", lambda: self.ended.done() or (len(self.seen) > count and condition(self.seen[-1])))
        return self.seen[-1]


def test_deactivated_from_the_start() -> None:
    """Nothing begins before it is activated; then all of it is committed."""
    control = RunControl()
    control.deactivate()
    run = Run(control)
    for _ in range(3):
        progress = run.wait_for(lambda _: True)
        assert (progress.committed_txid, progress.processing, progress.ready) == (0, 0, 0)
    control.activate()
    report = run.ended.result(DEADLINE_SECS)
    assert (report.reason, report.committed_txid) == (StopReason.EXHAUSTED.value, TRANSACTIONS)


def test_deactivated_on_the_way() -> None:
    """What has begun is committed, then nothing happens any more; a stop ends it."""
    control = RunControl()
    run = Run(control)
    control.deactivate()
    run.wait_for(lambda _: True)  # it may have been on its way when the run was deactivated
    idle = run.wait_for(lambda p: not (p.processing or p.processed or p.committing or p.ready))
    for _ in range(3):
        progress = run.wait_for(lambda _: True)
        assert progress.committed_txid == idle.committed_txid
    control.stop()
    report = run.ended.result(DEADLINE_SECS)
    assert report.committed_txid == idle.committed_txid
    # A quick run may have ended before it was deactivated.
    assert report.reason == (StopReason.REQUESTED if idle.committed_txid < TRANSACTIONS else StopReason.EXHAUSTED).value


def test_stop_before_the_start() -> None:
    """It is carried out as soon as the run has begun."""
    control = RunControl()
    control.stop()
    assert control.is_stopping
    assert Run(control).ended.result(DEADLINE_SECS).reason == StopReason.REQUESTED.value
