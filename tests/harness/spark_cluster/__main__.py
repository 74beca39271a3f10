"""The cluster: ``python -m tests.harness.spark_cluster --kill``.

It runs a words topology on this machine's cores, and then on a real standalone cluster of two workers whose Python
knows nothing of txtopo. With ``--kill`` it runs once more, and one worker dies with its executor in the middle. All
tables must be equal, row by row, and agree with a plain count.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import click
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from state import read_table
from tests.harness.spark_cluster.bare_python import HIDDEN, make_bare_python
from tests.harness.spark_cluster.seen import JobsSeen, executors_alive, jobs_of_packs, look_at_executors
from tests.harness.spark_cluster.standalone import HOST, StandaloneCluster, java_options, running_cluster
from tests.harness.spark_cluster.topology import LARGE_TRANSACTIONS, Lines, topology_of
from txtopo import Config, run
from txtopo.engine.metrics import RunMetrics
from txtopo.errors import TxtopoError
from txtopo.spark.session import spark_session
from txtopo.testing.checkers import Violation
from txtopo.transactional.run.report import Progress, RunReport

WORKERS = 2

Tables = dict[str, list[dict[str, Any]]]
"""The rows of each table, sorted by key."""


@attrs.frozen
class Outcome:
    """The result of one run."""

    name: str
    report: RunReport
    jobs: JobsSeen
    tables: Tables


@attrs.define(eq=False)
class Killer:
    """Kills a worker with its executor once half of a run is committed and more is being processed."""

    cluster: StandaloneCluster
    console: Console
    transactions: int
    killed_at: int | None = None

    def look(self, progress: Progress) -> None:
        """Kill once, when it is time."""
        if self.killed_at is None and progress.processing and progress.transactions >= self.transactions // 2:
            self.killed_at = progress.transactions
            killed = self.cluster.workers[0].kill()
            self.console.print(
                f"killed a worker with {len(killed) - 1} processes below it: {progress.transactions} transactions were "
                f"committed, {progress.processing} being processed",
                highlight=False,
            )


@attrs.define(eq=False)
class Comparison:
    """Runs the same topology in several places and compares the tables."""

    lines: Lines
    folder: Path
    console: Console
    outcomes: list[Outcome] = attrs.field(factory=list)

    def run_here(self) -> None:
        """Run on this machine's cores, without a cluster."""
        with spark_session(self._config("local[2]"), "here") as session:
            self._run("two cores", session)

    def run_on(self, cluster: StandaloneCluster, kill: bool) -> None:
        """Run on a cluster whose Python has no txtopo, and with ``kill`` once more under a kill.

        Raises:
            Violation: the executors can import txtopo before it is shipped, or no worker was killed in the middle.
        """
        os.environ["PYSPARK_PYTHON"] = str(make_bare_python(self.folder / "python"))
        with spark_session(self._config(cluster.url), "there") as session:
            self._check_executors(session)
            self._run("cluster", session)
            if kill:
                killer = Killer(cluster, self.console, self.lines.transactions)
                metrics = RunMetrics("lines")
                self._run("cluster, a worker killed", session, killer.look, metrics)
                alive = executors_alive(session.sparkContext)
                if b'txtopo_executors_lost_total{topology="lines"} 1.0' not in metrics.text():
                    raise Violation(f"the metrics do not show that an executor was lost: {metrics.text().decode()}")
                if killer.killed_at is None or alive != WORKERS - 1:
                    raise Violation(f"nothing was killed in the middle of the run: {alive} executors are alive")

    def check(self) -> None:
        """Compare all tables.

        Raises:
            Violation: they differ from each other or from a plain count, or a run had jobs of one layout only.
        """
        counts, buckets = dict(self.lines.word_counts()), dict(self.lines.buckets())
        for outcome in self.outcomes:
            words = {row["word"]: row["count"] for row in outcome.tables["word_counts"]}
            bars = {row["bucket"]: row["count"] for row in outcome.tables["buckets"]}
            if words != counts or bars != buckets:
                raise Violation(f"{outcome.name}: the tables are not what a plain count says")
            if outcome.tables != self.outcomes[0].tables:
                raise Violation(f"{outcome.name}: rows differ from those of {self.outcomes[0].name}")
            if not outcome.jobs.together or not outcome.jobs.spread:
                raise Violation(f"{outcome.name}: not both layouts were seen: {outcome.jobs}")

    def tell(self) -> None:
        titles = ("run", "transactions", "attempts", "failures", "jobs spread", "together", "tasks lost", "seconds")
        table = Table(*titles)
        for outcome in self.outcomes:
            report, jobs = outcome.report, outcome.jobs
            numbers = (report.transactions, report.attempts, report.failures)
            seen = (jobs.spread, jobs.together, jobs.tasks_lost)
            table.add_row(outcome.name, *map(str, numbers + seen), f"{report.elapsed_secs:.1f}")
        self.console.print(table)

    def _run(
        self,
        name: str,
        session: SparkSession,
        look: Callable[[Progress], None] | None = None,
        metrics: RunMetrics | None = None,
    ) -> None:
        output = self.folder / "tables" / name.replace(", ", "-").replace(" ", "-")
        before = jobs_of_packs(session.sparkContext)
        config = self._config(session.sparkContext.master)
        report = run(topology_of(self.lines, output), config, spark=session, on_progress=look, observer=metrics)
        jobs = jobs_of_packs(session.sparkContext) - before
        if report.transactions != self.lines.transactions:
            raise SystemExit(f"{name}: {report.transactions} transactions were committed: {report.reason}")
        tables = {
            table: read_table(output / table).sort_by(key).to_pylist()
            for table, key in (("word_counts", "word"), ("buckets", "bucket"))
        }
        self.outcomes.append(Outcome(name, report, jobs, tables))

    def _check_executors(self, session: SparkSession) -> None:
        descriptions = look_at_executors(session.sparkContext, WORKERS)
        found = {name for description in descriptions for name in description.found}
        if found or len(descriptions) != WORKERS:
            raise Violation(f"{len(descriptions)} executors can import {sorted(found)} before anything is shipped")
        self.console.print(
            f"{len(descriptions)} executors, each in a folder of its own; before the first run "
            f"none can import {', '.join(HIDDEN)}",
            highlight=False,
        )

    def _config(self, master: str) -> Config:
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        return Config(
            {
                "topology.max.spout.pending": 24,
                "topology.spark.master": master,
                "spark.driver.defaultJavaOptions": java_options(scratch),
                "spark.executor.extraJavaOptions": java_options(scratch),
                "spark.executor.memory": "600m",
                "spark.driver.host": HOST,
                "spark.local.dir": str(scratch),
                "spark.ui.retainedJobs": "1000000",
            }
        )


@click.command()
@click.option(
    "--transactions", default=600, show_default=True, type=click.IntRange(LARGE_TRANSACTIONS + 20), help="In each run."
)
@click.option("--kill", is_flag=True, help="Once more, with a worker killed in the middle.")
@click.option(
    "--output", type=click.Path(path_type=Path), help="A new folder for tables and logs, kept if a promise is broken."
)
def main(transactions: int, kill: bool, output: Path | None) -> None:
    """Run a topology on a standalone cluster, and see that its tables are those of a local run."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that no process is left behind
    os.environ["SPARK_LOCAL_IP"] = HOST
    console = Console(width=120 if not sys.stdout.isatty() else None)
    folder = Path(tempfile.mkdtemp(prefix="txtopo-cluster-")) if output is None else output.absolute()
    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"{folder} is not empty; give a new folder, or remove this one")
    folder.mkdir(parents=True, exist_ok=True)
    comparison = Comparison(Lines(transactions), folder, console)
    is_kept = False
    try:
        with running_cluster(folder / "cluster", WORKERS) as cluster:
            comparison.run_here()
            comparison.run_on(cluster, kill)
        comparison.tell()
        comparison.check()
    except (Violation, TxtopoError) as violation:
        is_kept = True
        console.print(f"a promise is broken:\n{violation}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"everything is kept in {folder}", soft_wrap=True)
        sys.exit(1)
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)
    console.print("all tables are equal, and what a plain count says")


if __name__ == "__main__":
    main()
