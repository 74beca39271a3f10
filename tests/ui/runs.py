"""Runs whose page is looked at: without Spark, in this process, with names and texts that are HTML."""

from pathlib import Path

import attrs

from spouts.memory import MemoryTransactionalSpout
from state.delta.keyed.state import DeltaState
from tests.bolts import Count
from txtopo import BasicBolt, Config, FailedException, Fields, TransactionalTopologyBuilder
from txtopo.attempts import epoch_and_try
from txtopo.engine.runner import run_with
from txtopo.engine.timeline.ends import metadata_dir_if_any, place_of
from txtopo.engine.timeline.observer import Timeline
from txtopo.testing.inline import inline_environment
from txtopo.topology.topology import TransactionalTopology

EVIL = "<img src=x onerror=alert(1)>"
SCRIPT = "<script>alert(1)</script>"
SECRET = "hunter2-hunter2"
ROWS = {0: [["storm"], [SCRIPT], ["storm"]] * 4}
TRANSACTIONS = 6


class FailsFirst(BasicBolt):
    """Fails the first attempt at every transaction that is a multiple of 3, with a text that is HTML."""

    output_fields = Fields("attempt", "word: string")

    def prepare(self, config, context):
        self.context = context

    def execute(self, tuple, collector):
        attempt = tuple[0]
        if attempt.txid % 3 == 0 and epoch_and_try(attempt.attempt)[1] == 1:
            raise FailedException(f"{SCRIPT} refuses {SECRET}\n  in a second line")
        collector.emit(tuple.values)


def topology_in(output: Path) -> TransactionalTopology:
    """Return a topology whose names, keys and errors are HTML."""
    builder = TransactionalTopologyBuilder(EVIL, "spout", MemoryTransactionalSpout(ROWS, Fields("word: string"), 2))
    builder.set_bolt("fails", FailsFirst()).shuffle_grouping("spout")
    builder.set_bolt("count", Count(EVIL)).shuffle_grouping("fails")
    builder.set_state(EVIL, DeltaState(output / "counts", Fields("word: string"), Fields("n: long")))
    return builder.build()


CONFIG = Config({"topology.max.spout.pending": 4, "shop.password": SECRET})


def run_in(output: Path, until: int | None = None, flush_secs: float = 0.01) -> Path:
    """Run it in an output folder, and return the folder of its timeline."""
    return run_topology(topology_in(output), until, flush_secs)


def run_topology(topology: TransactionalTopology, until: int | None = None, flush_secs: float = 0.01) -> Path:
    """Run a topology, and return the folder of its timeline."""
    folder = place_of(topology, CONFIG)
    assert folder is not None
    with Timeline(topology, CONFIG, folder, flush_secs, metadata_dir_if_any(topology, CONFIG)) as timeline:
        environment = attrs.evolve(inline_environment(), observer=timeline)
        on_progress = timeline.progressed
        timeline.ended = run_with(topology, CONFIG, environment, until=until, on_progress=on_progress).reason
    return folder
