"""Progress: a watch that moves is told to the driver; one that stands still is not."""

import contextlib
import logging
import queue
from collections.abc import Iterator

import pytest

from spouts import MemoryTransactionalSpout
from state import MemoryState
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo import Fields, TransactionalTopologyBuilder, TransactionAttempt
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.errors import UserCodeError
from txtopo.spark.tasks.progress import BEGUN_REPORTS, ProgressListener, ProgressSender
from txtopo.spark.tasks.run_package import RunPackage, pack_up
from txtopo.spark.tasks.user_lines import LATE, LineListener, LinesAddress
from txtopo.spark.tasks.worker import close_task_factories, task_factory_of
from txtopo.topology.user_code.blame import user_code
from txtopo.topology.user_code.output import Line
from txtopo.transactional.tasks.factory import prototypes_of

KEY, OTHER = b"k" * 16, b"o" * 16


@pytest.fixture
def told() -> queue.Queue[str]:
    """What the listener has been told."""
    return queue.Queue()


@pytest.fixture(params=["127.0.0.1", "localhost"])
def listener(request, told) -> Iterator[ProgressListener]:
    """A driver that listens for job 1; executors may know it by another address than its own, as in a container."""
    with contextlib.closing(ProgressListener(request.param, KEY, bind_host="127.0.0.1")) as listener:
        listener.listen(1, lambda: told.put("job 1"))
        yield listener


def test_told(listener, told) -> None:
    """Datagrams of this run and job reach the listener; another run's and job's do not."""
    with contextlib.ExitStack() as senders:
        for key, jobs in ((OTHER, [1]), (KEY, [2]), (KEY, [3, 1])):
            probe = ProgressProbe()
            senders.enter_context(ProgressSender(listener.address, key, jobs.copy, probe))
            probe.rows = iter([1, 2, 3])
        assert told.get(timeout=DEADLINE_SECS) == "job 1"
    assert {*told.queue} <= {"job 1"}, "it may have been told again"


def test_at_work(listener) -> None:
    """The driver learns which component an attempt has been in for a while, and forgets it when that returns."""

    def learns(expected: dict[TransactionAttempt, str]) -> None:
        wait_for(f"{expected} at work", lambda: listener.at_work() == expected)

    with ProgressSender(listener.address, KEY, lambda: [1], ProgressProbe()):
        with user_code("slow", TransactionAttempt(7, 2)):
            learns({TransactionAttempt(7, 2): "slow"})
        learns({})
        with user_code("slower", TransactionAttempt(8, 1)):
            learns({TransactionAttempt(8, 1): "slower"})
            listener.forget(1)
            assert listener.at_work() == {}


def test_standing_still(listener, told) -> None:
    """A watch that does not move tells that its job is begun, some times as a datagram may be lost, and nothing more."""
    with ProgressSender(listener.address, KEY, lambda: [1], ProgressProbe()):
        for _ in range(BEGUN_REPORTS):
            assert told.get(timeout=DEADLINE_SECS) == "job 1"
        with pytest.raises(queue.Empty):
            told.get(timeout=0.8)


def test_an_executor_tells_what_is_done_too_late() -> None:
    """A process that works for a run knows whom to tell, though no task of that run is at work any more."""
    builder = TransactionalTopologyBuilder("t", "spout", MemoryTransactionalSpout([], Fields("n"), 1))
    builder.set_state("unused", MemoryState(Fields("k"), Fields("v")))
    plan = builder.build().plan
    told: queue.Queue[Line] = queue.Queue()
    listener = LineListener("127.0.0.1", KEY, take=told.put)
    try:
        lines = LinesAddress("127.0.0.1", listener.port, 0)
        package = RunPackage(KEY, pack_up(plan.without_states(), {}, prototypes_of(plan)), (), ("127.0.0.1", 0), lines)
        task_factory_of(package).record_late(UserCodeError("too late", component="words", txid=7, attempt=1))
        assert told.get(timeout=DEADLINE_SECS) == Line(logging.ERROR, "too late", LATE, "words", None, 7, 1)
    finally:
        close_task_factories()
        listener.close()
