"""What a run does to the process that it is in."""

import gc
import logging
import sys
import threading
from collections.abc import Callable

from spouts import MemoryTransactionalSpout
from state import MemoryState
from tests.acceptance.topologies import CountTuples
from tests.topologies import committing
from tests.waiting import DEADLINE_SECS
from txtopo import Config, Fields, Progress
from txtopo.engine.runner import run_with
from txtopo.testing.inline import inline_environment
from txtopo.topology.user_code.output import USER_LOGGER


def test_threads_take_turns_soon_while_it_runs() -> None:
    """What works beside a commit holds it up for half a millisecond at a time; afterwards all is as before."""
    seen: list[float] = []

    def look(_: Progress) -> None:
        seen.append(sys.getswitchinterval())

    before = sys.getswitchinterval()
    spout = MemoryTransactionalSpout([["word"]], Fields("word"), 1)
    topology = committing(spout, CountTuples(), total=MemoryState(Fields("name"), Fields("n")))
    run_with(topology, Config(), inline_environment(), on_progress=look)
    assert max(seen) <= 0.00051
    assert sys.getswitchinterval() == before


def test_of_two_runs_the_later_one_ends_last() -> None:
    """Two runs in threads of a process leave it as it was, also if they end in the order in which they began."""
    is_later_in, is_first_over = threading.Event(), threading.Event()

    def run_one(wait: Callable[[], object]) -> None:
        spout = MemoryTransactionalSpout([["word"]], Fields("word"), 1)
        topology = committing(spout, CountTuples(), total=MemoryState(Fields("name"), Fields("n")))
        run_with(topology, Config(), inline_environment(), on_progress=lambda _: wait())

    def of_later() -> None:
        is_later_in.set()
        assert is_first_over.wait(DEADLINE_SECS)

    def of_process() -> tuple[object, ...]:
        user_logger = logging.getLogger(USER_LOGGER)
        return sys.getswitchinterval(), gc.get_threshold(), user_logger.level, [*user_logger.handlers]

    before = of_process()
    later = threading.Thread(target=run_one, args=(of_later,))

    def of_first() -> None:
        if not is_later_in.is_set():
            later.start()
            assert is_later_in.wait(DEADLINE_SECS)

    run_one(of_first)
    meanwhile = of_process()
    is_first_over.set()
    later.join(DEADLINE_SECS)
    assert meanwhile[0] < before[0]
    assert of_process() == before
