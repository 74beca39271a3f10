"""Counts the lines of a growing folder in a process of its own, without Spark.

``python -m tests.spouts.files.run_growing FOLDER OUTPUT UNTIL [name=value …]``
"""

import sys
from pathlib import Path

from spouts import FilesTransactionalSpout
from state import DeltaState
from txtopo import BatchBolt, Config, Fields, ICommitter, Topology, TransactionalTopologyBuilder
from txtopo.testing.inline import run_inline


class CountLines(BatchBolt, ICommitter):
    """Counts each line."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("lines")
        self.lines = []

    def execute(self, tuple):
        self.lines.append(tuple["line"])

    def finish_batch(self):
        for line in self.lines:
            self.state.update(line, lambda old: (old or 0) + 1)


def counting_lines(folder: str | Path, state, **options) -> Topology:
    """Return a topology that takes one file in a transaction."""
    spout = FilesTransactionalSpout(folder, watch=True, poll_secs=0, batch_files_max=1, **{"settle_secs": 0, **options})
    builder = TransactionalTopologyBuilder("growing", "spout", spout, 2)
    builder.set_committer_bolt("count", CountLines(), 1).global_grouping("spout")
    builder.set_state("lines", state)
    return builder.build()


if __name__ == "__main__":
    folder, output, until, *settings = sys.argv[1:]
    table = DeltaState(Path(output) / "lines", key=Fields("line: string"), value=Fields("n: long"))
    config = Config(max_spout_pending=4).with_settings(dict(setting.split("=", 1) for setting in settings))
    print(run_inline(counting_lines(folder, table), config, until=int(until)))
