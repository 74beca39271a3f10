"""What jobs cost as flows, beside the same with a builder: ``python -m tests.harness.benchmarks.forms [JOB]…``.

Both forms run over the same input in turns, in one process; a figure is the CPU seconds of all processes for a run, from
its start to its end, with the same steps in both: an example whose bolts do something else is built anew. A ratio is those
of the builder by those of the flow: 1.1 is a flow that does 1.1 times as much with a second of a
core. *inline* is without Spark, whose own seconds would hide differences, and by the finer clock of this process alone.

``rows_by_steps`` is the flow of row-wise steps beside a bolt for each of them, ``rows_by_frames`` beside a DataFrame bolt.
"""

import contextlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import click
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from committers import AppendCommitter
from state import DeltaRows
from tests.harness.benchmarks.core_secs import CoreSecs
from tests.harness.benchmarks.session import benchmark_session
from tests.streams.forms import JOBS, ORDER, Dear, Job, Size, built, made, rows_said, sized
from txtopo import ArrowBatchBolt, DataFrameBolt, Fields, TransactionalTopology, run
from txtopo.api.components.bolt import Bolt
from txtopo.testing import run_inline

DEAR = Dear.output_fields.without_attempt()


class Filtered(ArrowBatchBolt):
    output_fields = ORDER.with_attempt()

    def execute(self, batch: pa.RecordBatch) -> None:
        self.collector.emit_batch(batch.filter(pc.greater(batch["price"], 3)))


class Widened(ArrowBatchBolt):
    output_fields = (ORDER + Fields("cents: long", "hour: timestamp")).with_attempt()

    def execute(self, batch: pa.RecordBatch) -> None:
        wide = batch.append_column("cents", pc.multiply(batch["price"], 100))
        self.collector.emit_batch(wide.append_column("hour", pc.floor_temporal(batch["at"], unit="hour")))


class Selected(ArrowBatchBolt):
    output_fields = DEAR.with_attempt()

    def execute(self, batch: pa.RecordBatch) -> None:
        self.collector.emit_batch(batch.select(list(DEAR)))


class InFrames(DataFrameBolt):
    output_fields = DEAR.with_attempt()

    def transform(self, frame: DataFrame) -> DataFrame:
        dear = frame.where("price > 3")
        return dear.selectExpr("attempt", "id", "price * 100 AS cents", "date_trunc('hour', at) AS hour")


def rows_by(*bolts: Bolt) -> Callable[[Path, str], TransactionalTopology]:
    """Return how to make the job with these bolts, one after another."""

    def make(_: Path, output: str) -> TransactionalTopology:
        builder, before = built("rows"), "orders"
        for number, bolt in enumerate(bolts):
            builder.set_bolt(f"step-{number}", bolt, 2).local_or_shuffle_grouping(before)
            before = f"step-{number}"
        builder.set_bolt("append", AppendCommitter("dear"), 2).local_or_shuffle_grouping(before)
        builder.set_state("dear", DeltaRows(f"{output}/dear", DEAR))
        return builder.build()

    return make


BY_STEPS = {"rows_by_steps": Job(rows_by(Filtered(), Widened(), Selected()), rows_said, ["dear"])}
BY_FRAMES = {"rows_by_frames": Job(rows_by(InFrames()), rows_said, ["dear"])}
"""Spark runs it, so there is none inline."""

IN_MEMORY = "clickstream"
"""It reads a log in the memory of this process, so there is none on Spark."""

INLINE, MODES = "inline", ("inline", "micro-batch", "real-time")
LEAST = 0.97
"""A ratio below is a flow that is behind."""


@attrs.frozen
class Turns:
    """What each turn of a job has cost in both forms, in CPU seconds."""

    built: list[float] = attrs.field(factory=list)
    said: list[float] = attrs.field(factory=list)

    @property
    def ratios(self) -> list[float]:
        """How much of the builder's throughput the flow has, in each turn."""
        return [built / said for built, said in zip(self.built, self.said, strict=True)]

    @property
    def ratio(self) -> float:
        """The ratio of the medians, which one turn that something else has disturbed does not move."""
        return statistics.median(self.built) / statistics.median(self.said)


@click.command()
@click.argument("names", nargs=-1, metavar="[JOB]…")
@click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), default=[INLINE], show_default=True)
@click.option("--orders", default=20_000, show_default=True, type=click.IntRange(60), help="Rows of input.")
@click.option("--each", default=1_000, show_default=True, type=click.IntRange(3), help="Rows of a transaction.")
@click.option("--turns", default=5, show_default=True, type=click.IntRange(1), help="After one to warm up.")
def main(names: tuple[str, ...], modes: tuple[str, ...], orders: int, each: int, turns: int) -> None:
    """Measure jobs in both forms."""
    everywhere = {**JOBS, **BY_STEPS}
    unknown = [name for name in names if name not in {**everywhere, **BY_FRAMES}]
    if unknown:
        raise click.BadParameter(f"there is no job {unknown[0]!r}; there are {', '.join([*everywhere, *BY_FRAMES])}")
    click.echo("| job | mode | CPU s, builder | CPU s, flow | ratio | least to most |\n|---|---|---|---|---|---|")
    with contextlib.ExitStack() as stack:
        stack.enter_context(sized(Size(orders, keys=max(orders // 3, 23), each=each)))
        spark = None if {*modes} == {INLINE} else stack.enter_context(benchmark_session())
        found = []
        for mode in modes:
            jobs = {**everywhere, **BY_FRAMES}
            left_out = BY_FRAMES.keys() if mode == INLINE else {IN_MEMORY}
            for name in [name for name in names or jobs if name not in left_out]:
                costs = measured(jobs[name], mode, turns, spark)
                found.append(costs.ratio)
                built, said = (statistics.median(each) for each in (costs.built, costs.said))
                behind = " behind" if costs.ratio < LEAST else ""
                spread = f"{min(costs.ratios):.2f} to {max(costs.ratios):.2f}"
                click.echo(f"| {name} | {mode} | {built:.2f} | {said:.2f} | {costs.ratio:.2f}{behind} | {spread} |")
    click.echo(f"| median | | | | {statistics.median(found):.2f} | |")


def measured(job: Job, mode: str, turns: int, spark: SparkSession | None) -> Turns:
    """Run both forms of a job in turns; the one that is first changes."""
    costs = Turns()
    for turn in range(-1, turns):
        forms = [(job.alike or job.built, costs.built), (job.said, costs.said)]
        for make, secs in forms if turn % 2 else reversed(forms):
            folder = Path(tempfile.mkdtemp(prefix="txtopo-forms-"))
            try:
                topology = made(make, folder)
                cost = cost_inline(topology) if mode == INLINE else cost_on_spark(topology, mode, spark)
            finally:
                shutil.rmtree(folder)
            if turn >= 0:
                secs.append(cost)
    return costs


def cost_inline(topology: TransactionalTopology) -> float:
    """Return the CPU seconds of a run in this process."""
    before = time.process_time()
    run_inline(topology)
    return time.process_time() - before


def cost_on_spark(topology: TransactionalTopology, mode: str, spark: SparkSession | None) -> float:
    """Return the CPU seconds of a run on Spark, those of all of its processes."""
    before = CoreSecs.now()
    run(topology, {"topology.processing.mode": mode}, spark=spark)
    return sum(CoreSecs.now().since(before))


if __name__ == "__main__":
    main()
