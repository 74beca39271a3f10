"""A process that reads a topic: ``python -m tests.harness.soak.kafka.member SERVERS TOPIC FOLDER NAME TASKS MODE KIND``.

It runs until SIGTERM, and then stops cleanly. When its standard input ends, as that of the soak's members does when the
soak is gone, it ends at once.
"""

import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spouts.kafka import ExponentialBackoff, KafkaSpout, KafkaSpoutConfig
from txtopo import (
    Config,
    Fields,
    OutputCollector,
    PlainTopology,
    RichBolt,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    run,
)
from txtopo.testing import InlineCluster

FAILED_SHARE = 0.05


class Record(RichBolt):
    """Writes each processed record to a file of its task, and acks it then; fails some at random instead."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        del config
        self._collector = collector
        name = f"{self._name}-{os.getpid()}-{context.this_task_id}-{time.monotonic_ns()}"
        self._file = (self._folder / name).open("w", buffering=1)
        self._rng = random.Random(name)

    def execute(self, tuple: Tuple) -> None:
        """Write a line, which the kernel has before the tuple is acked: a kill of the process loses none."""
        if self._rng.random() < FAILED_SHARE:
            self._collector.fail(tuple)
            return
        self._file.write(f"{tuple['partition']} {tuple['offset']}\n")
        self._collector.ack(tuple)

    def cleanup(self) -> None:
        self._file.close()


def soak_topology(servers: str, topic: str, record: Record, tasks: int, *, subscribe: bool) -> PlainTopology:
    spout = KafkaSpoutConfig(
        servers,
        topic,
        Fields("partition", "offset"),
        group_id=topic,
        subscribe=subscribe,
        offset_commit_period_ms=300,
        retry_service=ExponentialBackoff(0, 2, delay_max_ms=1_000),
        properties={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500} if subscribe else {},
    )
    builder = TopologyBuilder("kafka-soak")
    builder.set_spout("kafka", KafkaSpout(spout), tasks)
    builder.set_bolt("record", record, 2).shuffle_grouping("kafka")
    return builder.build()


def end_with_input() -> None:
    """End the process when its standard input does, however the other end went."""
    os.read(0, 1)  # not sys.stdin, whose lock a thread that waits would hold at the end of the interpreter
    os._exit(1)


def main() -> None:
    threading.Thread(target=end_with_input, daemon=True).start()
    servers, topic, folder, name, tasks, mode, kind = sys.argv[1:8]
    logging.basicConfig(level=logging.ERROR)
    topology = soak_topology(servers, topic, Record(Path(folder), name), int(tasks), subscribe=mode == "subscribe")
    settings = {"topology.max.spout.pending": 1_000, "topology.workers": 2, "topology.message.timeout.secs": 20}
    if kind == "spark":
        run(topology, Config({**settings, "spark.driver.memory": "1g"}))
        return
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    with InlineCluster(simulated_time=False) as cluster:
        running = cluster.submit(topology, Config(settings))
        while not is_over.wait(0.2):
            running.raise_if_given_up()
        running.stop()


if __name__ == "__main__":
    main()
