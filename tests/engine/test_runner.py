"""What a run does to the process that it is in."""

from __future__ import annotations

import sys

from spouts import MemoryTransactionalSpout
from state import MemoryState
from tests.acceptance.topologies import CountTuples
from tests.topologies import committing
from txtopo import Config, Fields, Progress
from txtopo.engine.runner import run_with
from txtopo.testing.inline import inline_environment


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
