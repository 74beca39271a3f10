"""What the graph of the page counts: tuples in and out of each component, by stream, in both phases."""

import attrs

from spouts.memory import MemoryTransactionalSpout
from state.delta.keyed.state import DeltaState
from tests.bolts import Count
from tests.engine.test_metrics import REPORT
from txtopo import BasicBolt, BatchBolt, Config, Fields, ICommitter, TopologyBuilder, TransactionalTopologyBuilder
from txtopo.engine.runner import run_with
from txtopo.engine.timeline.ends import place_of
from txtopo.engine.timeline.observer import Timeline
from txtopo.files.places import folder_at
from txtopo.inspect.backend import FolderBackend
from txtopo.testing.inline import inline_environment
from txtopo.testing.redelivering_queue import QueueSpout
from txtopo.ui.views import runs_part


class Sorts(BasicBolt):
    """Sends odd numbers on a stream of their own."""

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("attempt", "word: long"))
        declarer.declare_stream("odd", Fields("attempt", "word: long"))

    def execute(self, tuple, collector):
        collector.emit(tuple.values, stream="odd" if tuple["word"] % 2 else "default")


class Passes(BatchBolt, ICommitter):
    """A committer that emits what it gets on two streams."""

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("attempt", "word: long"))
        declarer.declare_stream("again", Fields("attempt", "word: long"))

    def prepare(self, config, context, collector, transaction):
        self.collector, self.rows = collector, []

    def execute(self, tuple):
        self.rows.append(tuple.values)

    def finish_batch(self):
        for row in self.rows:
            self.collector.emit(row)
            self.collector.emit(row, stream="again")


def counts_of(backend: FolderBackend, slug: str) -> dict[str, tuple[float | None, dict[str, float]]]:
    components = backend.graph(slug).components
    return {component.id: (component.counts.in_, component.counts.out) for component in components}


def test_streams_and_phases(tmp_path):
    """A bolt behind one of several streams, a committer, and bolts of the commit phase below it show what they got."""
    rows = {0: [[n] for n in range(9)]}
    builder = TransactionalTopologyBuilder("t", "spout", MemoryTransactionalSpout(rows, Fields("word: long"), 4))
    builder.set_bolt("sorts", Sorts()).shuffle_grouping("spout")
    builder.set_committer_bolt("passes", Passes()).shuffle_grouping("sorts").shuffle_grouping("sorts", "odd")
    builder.set_bolt("odd", Count("odd")).shuffle_grouping("sorts", "odd")
    builder.set_bolt("below", Count("below")).shuffle_grouping("passes", "again")
    for name in ("odd", "below"):
        builder.set_state(name, DeltaState(tmp_path / name, Fields("word: long"), Fields("count: long")))
    topology, config = builder.build(), Config()
    with Timeline(topology, config, place_of(topology, config), 0.01) as timeline:
        environment = attrs.evolve(inline_environment(), observer=timeline)
        run_with(topology, config, environment, on_progress=timeline.progressed)
    backend = FolderBackend(folder_at(tmp_path))
    assert counts_of(backend, "t") == {
        "spout": (None, {"default": 9}),
        "sorts": (9, {"default": 5, "odd": 4}),
        "passes": (9, {"default": 9, "again": 9}),
        "odd": (4, {}),
        "below": (9, {}),
    }
    backend.close()


def test_streams_of_a_plain_topology(tmp_path):
    class Spout(QueueSpout):
        def declare_output_fields(self, declarer):
            declarer.declare(Fields("word: long"))
            declarer.declare_stream("late", Fields("word: long"))

    builder = TopologyBuilder("plain")
    builder.set_spout("spout", Spout(("localhost", 1), Fields("word: long")))
    builder.set_bolt("split", Sorts()).shuffle_grouping("spout", "late")
    with Timeline(builder.build(), Config(), tmp_path / "_txtopo" / "timeline-plain", 0.01) as found:
        found.progressed(REPORT)
    backend = FolderBackend(folder_at(tmp_path))
    assert counts_of(backend, "plain") == {
        "spout": (None, {"default": 9, "late": 1}),
        "split": (1, {"default": 30, "odd": 0}),
    }
    backend.close()


def test_earlier_runs_of_a_plain_topology(tmp_path):
    """Each has its own roots, workers and failures; one that was killed in the middle, too."""
    builder = TopologyBuilder("plain")
    builder.set_spout("spout", QueueSpout(("localhost", 1), Fields("word: long")))
    for emitted in (9, 10, 11):
        with Timeline(builder.build(), Config(), tmp_path / "_txtopo" / "timeline-plain", 0.01) as found:
            found.progressed(attrs.evolve(REPORT, emitted=emitted, acked=emitted - 1))
            found.ended = "" if emitted == 10 else "the spouts are exhausted"
    backend = FolderBackend(folder_at(tmp_path))
    runs = backend.runs("plain").runs
    assert [(run.slug, run.status, run.roots.acked) for run in runs] == [
        ("plain", "ended", 10),
        ("plain@2", "killed", 9),
        ("plain@1", "ended", 8),
    ]
    assert [backend.header(run.slug).roots.emitted for run in runs] == [11, 10, 9]
    assert backend.header("plain@1").workers.wanted == 2
    assert counts_of(backend, "plain@1")["spout"] == (None, {"default": 10})
    assert backend.plots("plain@2", 60).plots
    assert backend.errors("plain@2").total == 6
    part = runs_part(backend.runs("plain"))
    assert ("acked" in part, "dead letters" in part) == (True, False)
    backend.close()
