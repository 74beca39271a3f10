"""Counts clicks in a process of its own, without Spark.

``python -m tests.spouts.kafka.run_clicks SERVERS TOPIC OUTPUT KIND END``; KIND is ``transactional`` or ``opaque``, and END
``end`` to end with what is there, or ``endless``.
"""

import sys
from pathlib import Path

from spouts.kafka import OpaqueKafkaSpout, TransactionalKafkaSpout
from state import DeltaState, StateKind
from txtopo import BatchBolt, Config, Fields, ICommitter, Topology, TransactionalTopologyBuilder
from txtopo.testing.inline import run_inline

FIELDS = Fields("page: string", "bytes: long")
KINDS = {
    "transactional": (TransactionalKafkaSpout, StateKind.TRANSACTIONAL),
    "opaque": (OpaqueKafkaSpout, StateKind.OPAQUE),
}


class CountClicks(BatchBolt, ICommitter):
    """Counts the clicks of each page, and sums their bytes."""

    def prepare(self, config, context, collector, attempt):
        self.pages = context.state("pages")
        self.sums: dict[str, tuple[int, int]] = {}

    def execute(self, tuple):
        clicks, size = self.sums.get(tuple["page"], (0, 0))
        self.sums[tuple["page"]] = (clicks + 1, size + tuple["bytes"])

    def finish_batch(self):
        for page, (clicks, size) in self.sums.items():
            self.pages.update(page, lambda old, clicks=clicks, size=size: (
                (clicks, size) if old is None else (old[0] + clicks, old[1] + size)
            ))  # fmt: skip


def counting_clicks(spout, state) -> Topology:
    builder = TransactionalTopologyBuilder("clicks", "spout", spout, 2)
    builder.set_committer_bolt("count", CountClicks(), 2).fields_grouping("spout", Fields("page"))
    builder.set_state("pages", state)
    return builder.build()


def topology_of(servers: str, topic: str, output: Path, kind: str, **options) -> Topology:
    make, state_kind = KINDS[kind]
    spout = make(servers, topic, FIELDS, batch_records_max=5, dead_letter=output / "bad", **options)
    value = Fields("clicks: long", "bytes: long")
    return counting_clicks(spout, DeltaState(output / "pages", Fields("page: string"), value, state_kind))


if __name__ == "__main__":
    servers, topic, output, kind, end = sys.argv[1:]
    topology = topology_of(servers, topic, Path(output), kind, until_end=end == "end")
    print(run_inline(topology, Config(max_spout_pending=4, message_timeout_secs=9)))
