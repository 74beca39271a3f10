"""A word count whose bolts record what they did, and when."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from txtopo import (
    BasicBolt,
    BasicOutputCollector,
    Fields,
    OutputCollector,
    PlainTopology,
    RichBolt,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from txtopo.testing.redelivering_queue import QueueSpout

WORDS = 5
"""Words of a message; its tree has one tuple for each, and the root."""


WORKERS = 2


class Split(BasicBolt):
    """Splits a message into its words."""

    output_fields = Fields("number", "position")

    def execute(self, tuple: Tuple, collector: BasicOutputCollector) -> None:
        for position in range(WORDS):
            collector.emit((tuple["number"], position))


class Record(RichBolt):
    """Writes each word with the time, and acks it then; each task has a file of its own in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        del config
        self._collector = collector
        path = self._folder / f"{os.getpid()}-{context.this_task_id}-{time.monotonic_ns()}"
        self._file = path.open("w", buffering=1)

    def execute(self, tuple: Tuple) -> None:
        """Write a line, which the kernel has before the tuple is acked: a kill of the process loses none."""
        self._file.write(f"{tuple['number']} {tuple['position']} {time.monotonic_ns()}\n")
        self._collector.ack(tuple)

    def cleanup(self) -> None:
        self._file.close()


def soak_topology(address: tuple[str, int], folder: Path) -> PlainTopology:
    builder = TopologyBuilder("acked-soak")
    builder.set_spout("messages", QueueSpout(address, Fields("number"), is_endless=True), 2)
    builder.set_bolt("split", Split(), 2).shuffle_grouping("messages")
    builder.set_bolt("record", Record(folder), 2).fields_grouping("split", Fields("number", "position"))
    return builder.build()
