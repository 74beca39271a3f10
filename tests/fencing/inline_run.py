"""A topology that runs in a thread of this process, without Spark, over a ZooKeeper store of the test's own."""

import contextlib
import pathlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from state.stores.zookeeper import ZooKeeperStore
from tests.fencing.topologies import words
from tests.waiting import DEADLINE_SECS
from txtopo.assembly.environment import Environment
from txtopo.assembly.report import RunReport
from txtopo.config import Config
from txtopo.engine.runner import run_with
from txtopo.failpoints import armed
from txtopo.testing.inline import InlineJobRunner
from txtopo.topology.plans.plan import Plan


class InlineRun:
    """A run of the words topology, begun at once.

    Args:
        output: where its tables lie.
        transactions: how many its input makes.
        store: what keeps its coordinator state; closed at its end.
        window: ``topology.max.spout.pending``.
        group_max: ``topology.group.transactions.max``.
    """

    def __init__(
        self, output: pathlib.Path, transactions: int, store: ZooKeeperStore, window: int = 4, group_max: int = 4
    ) -> None:
        @contextlib.contextmanager
        def make_runner(plan: Plan, config: Config, prototypes: dict[str, bytes]) -> Iterator[InlineJobRunner]:
            runner = InlineJobRunner(plan, config, prototypes)
            yield runner
            runner.close()

        environment = Environment(make_runner, make_store=lambda: store)
        topology = words(str(output), transactions)
        config = Config(max_spout_pending=window, group_transactions_max=group_max)
        self._pool = ThreadPoolExecutor(1, "coordinator")
        self._ended: Future[RunReport] = self._pool.submit(run_with, topology, config, environment)
        self._pool.shutdown(wait=False)

    def has_ended(self) -> bool:
        """Whether it has, well or not."""
        return self._ended.done()

    def result(self) -> RunReport:
        """Wait for its end; return its report, or raise what it stopped for."""
        return self._ended.result(DEADLINE_SECS)


class Hold:
    """Holds the thread of a coordinator at a failpoint until it is let go.

    Args:
        name: the failpoint.
        count: at which time that it is reached.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._left = count
        self._let_go = threading.Event()
        self.is_reached = threading.Event()

    def __call__(self, name: str) -> None:
        if name == self._name:
            self._left -= 1
            if self._left == 0:
                self.is_reached.set()
                assert self._let_go.wait(DEADLINE_SECS), "it is let go"

    def let_go(self) -> None:
        """Let it go on."""
        self._let_go.set()


@contextlib.contextmanager
def holding(name: str, count: int = 1) -> Iterator[Hold]:
    """Hold whoever reaches a failpoint for the ``count``-th time; at the end of a ``with`` block it is let go."""
    hold = Hold(name, count)
    with armed(hold):
        try:
            yield hold
        finally:
            hold.let_go()


@contextlib.contextmanager
def stopping(name: str, error: Exception, count: int = 1) -> Iterator[Callable[[], bool]]:
    """Raise an error where a failpoint is reached for the ``count``-th time."""
    raised = threading.Event()
    left = [count]

    def stop(reached: str) -> None:
        if reached == name:
            left[0] -= 1
            if left[0] == 0:
                raised.set()
                raise error

    with armed(stop):
        yield raised.is_set
