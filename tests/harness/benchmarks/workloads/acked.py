"""Plain topologies: executed tuples per second of the workers' processor time, acked and unacked; and latency."""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.harness.benchmarks.measuring import Bench, Contender, Sample, measure
from tests.harness.benchmarks.outcome import Outcome, Role, Unit
from txtopo import (
    Fields,
    OutputCollector,
    PlainReport,
    PlainTopology,
    RichBolt,
    RunningTopology,
    Spout,
    SpoutOutputCollector,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    Tuples,
    start,
)
from txtopo.api.data.tuples import TupleSource
from txtopo.plain.trees.tuples import TreeTuple

WORDS = 10_000
WORDS_A_SENTENCE = 5
SENTENCES = 5_000
SETTLING_SECS = 3.0
"""The first seconds, which are left out because the workers start."""
MEASURED_SECS = 10.0
WAIT_SECS = 60.0
PACE = 10_000
"""Trees a second, of both spout tasks together, at which latency is measured."""

_random = random.Random(1)
_WORDS = [f"word{number}" for number in range(WORDS)]
_SENTENCES = [" ".join(_random.choices(_WORDS, k=WORDS_A_SENTENCE)) for _ in range(SENTENCES)]


class Sentences(Spout):
    """Emits sentences for ever, ``pace`` a second in each task, or as many as it can; tracked ones have message ids."""

    output_fields = Fields("sentence", "number")

    def __init__(self, *, is_tracked: bool, pace: float | None = None) -> None:
        self._is_tracked = is_tracked
        self._pace = pace

    def open(self, config: Mapping[str, Any], context: TopologyContext, collector: SpoutOutputCollector) -> None:
        del config, context
        self._emit = collector.emit
        self._next = 0
        self._began = time.perf_counter()

    def next_tuple(self) -> None:
        if self._pace is not None and self._next >= (time.perf_counter() - self._began) * self._pace:
            return
        number = self._next
        self._next = number + 1
        self._emit((_SENTENCES[number % SENTENCES], number), message_id=number if self._is_tracked else None)


class Split(RichBolt):
    """Splits sentences into words."""

    output_fields = Fields("word")

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        del config, context
        self._emit, self._ack = collector.emit, collector.ack

    def execute(self, tuple: Tuple) -> None:
        emit = self._emit
        for word in tuple.values[0].split(" "):
            emit((word,), tuple)
        self._ack(tuple)


class Count(RichBolt):
    """Counts words."""

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        del config, context
        self._ack = collector.ack
        self._counts: dict[str, int] = {}

    def execute(self, tuple: Tuple) -> None:
        word = tuple.values[0]
        self._counts[word] = self._counts.get(word, 0) + 1
        self._ack(tuple)


class SplitMany(RichBolt):
    """Splits many sentences at once."""

    output_fields = Fields("word")

    def __init__(self, *, is_tracked: bool) -> None:
        self._is_tracked = is_tracked

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        del config, context
        self._collector = collector

    def execute_batch(self, tuples: Tuples) -> None:
        texts = tuples.column("sentence")
        if self._is_tracked:
            words = [text.split(" ") for text in texts]
            anchors = [each for each, some in zip(tuples, words, strict=True) for _ in some]
            self._collector.emit_batch([(word,) for some in words for word in some], anchors)
        else:
            self._collector.emit_batch(list(zip(" ".join(texts).split(" "))))
        self._collector.ack_batch(tuples)


class CountMany(RichBolt):
    """Counts many words at once."""

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        del config, context
        self._collector = collector
        self._counts = Counter[str]()

    def execute_batch(self, tuples: Tuples) -> None:
        self._counts.update(tuples.column("word"))
        self._collector.ack_batch(tuples)


def word_count(spout: Spout, split: RichBolt | None = None, count: RichBolt | None = None) -> PlainTopology:
    """Return the word count, two tasks a component, by default with bolts that execute tuple by tuple."""
    builder = TopologyBuilder("acked")
    builder.set_spout("sentences", spout, 2)
    builder.set_bolt("split", split or Split(), 2).shuffle_grouping("sentences")
    builder.set_bolt("count", count or Count(), 2).fields_grouping("split", Fields("word"))
    return builder.build()


def acked(bench: Bench) -> Outcome:
    """Measure executed tuples per second of the workers' processor time."""
    measured = measure(_throughputs, bench)
    return Outcome(
        workload="acked",
        title="word count of a plain topology on two workers; a tuple is one execute()",
        unit=Unit("tuples/CPU-s"),
        lines=measured.lines,
        phases=measured.phases,
        notes=(
            "processor time is that of the workers' processes, between two moments some seconds after their start",
            "the loop calls the same bolts directly, in one process, without a topology: no routing, no acks, no network",
            "execute_batch: a tuple that a call gets counts as one execute()",
            "wall: executed tuples a second of the clock, in which the driver and the JVM share the cores with the workers",
            "asked for are 450,000 acked and 1,000,000 unacked a CPU-second with execute_batch; aims 800,000 and 2,000,000",
        ),
    )


def acked_latency(bench: Bench) -> Outcome:
    """Measure the time of a tree from its emission to its ack."""
    measured = measure(_latencies, bench)
    return Outcome(
        workload="acked_latency",
        title="complete latency of trees of six tuples on two workers",
        unit=Unit("ms", is_lower_better=True),
        lines=measured.lines,
        phases=measured.phases,
        notes=(
            "quantiles are exact to 4.5 %",
            f"asked for are, at {PACE:,} trees a second, 1 ms (p50) and 10 ms (p99), and 0.3 ms (p50) one at a time",
        ),
    )


def _throughputs(bench: Bench) -> Sequence[Contender]:
    def of(*, is_tracked: bool, is_batch: bool = False) -> Callable[[Path], Sample]:
        def run(_folder: Path) -> Sample:
            bolts = (SplitMany(is_tracked=is_tracked), CountMany()) if is_batch else (Split(), Count())
            topology = word_count(Sentences(is_tracked=is_tracked), *bolts)
            with start(topology, {"topology.workers": 2}, spark=bench.spark) as running:
                before, after = _two_reports(running, bench)
                running.stop(wait_secs=1.0)
            executed = _executed(after) - _executed(before)
            workers = after.worker_cpu_secs - before.worker_cpu_secs
            return Sample({"": executed / workers, "wall": executed / (after.elapsed_secs - before.elapsed_secs)})

        return run

    return [
        Contender("acked", Role.TXTOPO, of(is_tracked=True)),
        Contender("acked, execute_batch", Role.TXTOPO, of(is_tracked=True, is_batch=True)),
        Contender("unacked", Role.TXTOPO, of(is_tracked=False)),
        Contender("unacked, execute_batch", Role.TXTOPO, of(is_tracked=False, is_batch=True)),
        Contender("plain loop", Role.LIMIT, lambda _folder: Sample({"": _loop(bench)})),
    ]


def _latencies(bench: Bench) -> Sequence[Contender]:
    def of(spout: Spout, pending: int) -> Callable[[Path], Sample]:
        def run(_folder: Path) -> Sample:
            config = {"topology.workers": 2, "topology.max.spout.pending": pending}
            with start(word_count(spout), config, spark=bench.spark) as running:
                _, after = _two_reports(running, bench)
                running.stop(wait_secs=1.0)
            assert after.latency_p50_secs is not None, "trees were acked"
            assert after.latency_p99_secs is not None, "trees were acked"
            return Sample({"p50": after.latency_p50_secs * 1e3, "p99": after.latency_p99_secs * 1e3})

        return run

    paced = Sentences(is_tracked=True, pace=PACE / 2)
    return [
        Contender(f"{PACE:,} trees/s", Role.TXTOPO, of(paced, 5_000)),
        Contender("one tree at a time", Role.TXTOPO, of(Sentences(is_tracked=True), 1)),
    ]


def _two_reports(running: RunningTopology, bench: Bench) -> tuple[PlainReport, PlainReport]:
    """Return the reports of a topology some seconds after its start, and some more seconds later."""
    deadline = time.monotonic() + WAIT_SECS
    while _executed(running.report()) == 0:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing was executed within {WAIT_SECS:g} s")
        time.sleep(0.1)
    time.sleep(SETTLING_SECS)
    before = running.report()
    time.sleep(max(3.0, MEASURED_SECS * bench.scale))
    return before, running.report()


def _executed(report: PlainReport) -> int:
    return sum(report.components[name].executed for name in ("split", "count") if name in report.components)


def _loop(bench: Bench) -> float:
    """Return how many tuples a second the bolts execute if they are called directly."""
    split, count = Split(), Count()
    source = TupleSource("split", "default", 1, Fields("word"))
    executed = 0

    def emit(values: tuple[Any, ...], _anchor: Tuple) -> None:
        nonlocal executed
        executed += 1
        count.execute(TreeTuple(values, source, 0, 0))

    def ack(_tuple: Tuple) -> None:
        pass

    for bolt in (split, count):
        bolt._ack = ack
    split._emit = emit  # type: ignore[assignment]
    count._counts = {}
    began = time.process_time()
    number = 0
    while time.process_time() - began < max(1.0, MEASURED_SECS * bench.scale / 3):
        for _ in range(1_000):
            executed += 1
            split.execute(TreeTuple((_SENTENCES[number % SENTENCES], number), source, 0, 0))
            number += 1
    return executed / (time.process_time() - began)
