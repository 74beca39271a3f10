"""The cluster: ``python -m tests.harness.spark_cluster --kill``.

The topology of the soak runs in both layouts on a real standalone cluster of two workers whose Python knows nothing of
txtopo. With ``--kill``, one worker dies with its executor in the middle of the second run. All tables must be what a
plain calculation says, row by row.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import attrs
import click
from pyspark import SparkContext
from pyspark.sql import SparkSession
from rich.console import Console

from tests.harness.soak.processes import pause
from tests.harness.soak.transactions.oracle import Judge
from tests.harness.soak.transactions.topology import TOPOLOGY_ID, Setup, config_of, words_topology
from tests.harness.spark_cluster.bare_python import HIDDEN, make_bare_python
from tests.harness.spark_cluster.standalone import HOST, START_SECS, StandaloneCluster, running_cluster, settings_on
from txtopo import Config, Progress, run
from txtopo.engine.metrics import RunMetrics
from txtopo.errors import TxtopoError
from txtopo.spark.session.sessions import spark_session
from txtopo.testing.checkers import Violation

WORKERS = 2
SEED = 7
LAYOUTS = ("spread", "together")

_MANY = 100
"""Tasks of a look at the executors: so many that each executor gets one."""


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


def run_on(cluster: StandaloneCluster, folder: Path, transactions: int, console: Console, *, kill: bool) -> None:
    """Run in both layouts, the second time under a kill, and compare the tables.

    Raises:
        Violation: the executors can import txtopo before it is shipped, no worker was killed in the middle, or the
            tables are wrong.
    """
    os.environ["PYSPARK_PYTHON"] = str(make_bare_python(folder / "python"))
    with spark_session(_config(cluster, _setup(folder, LAYOUTS[0], transactions)), "cluster") as session:
        console.print(
            f"{check_executors(session.sparkContext)} executors, each in a folder of its own; before the first run "
            f"none can import {', '.join(HIDDEN)}",
            highlight=False,
        )
        for layout in LAYOUTS:
            setup = _setup(folder, layout, transactions)
            killer = Killer(cluster, console, transactions) if kill and layout == LAYOUTS[-1] else None
            _run(session, setup, _config(cluster, setup).with_settings({"topology.layout": layout}), console, killer)


def _setup(folder: Path, layout: str, transactions: int) -> Setup:
    return Setup(str(folder / layout / "tables"), SEED, transactions)


def _config(cluster: StandaloneCluster, setup: Setup) -> Config:
    config = config_of(setup)
    scratch = Path(config["spark.local.dir"])
    scratch.mkdir(parents=True, exist_ok=True)
    return config.with_settings(settings_on(cluster.url, scratch))


def _run(session: SparkSession, setup: Setup, config: Config, console: Console, killer: Killer | None) -> None:
    metrics = RunMetrics(TOPOLOGY_ID)
    look = killer.look if killer is not None else None
    report = run(words_topology(setup), config, spark=session, on_progress=look, observer=metrics)
    console.print(
        f"{config['topology.layout']}: {report.transactions} transactions in {report.attempts} attempts, "
        f"{report.elapsed_secs:.1f} s",
        highlight=False,
    )
    Judge(setup).check_end(report.committed_txid)
    if killer is not None:
        alive = executors_alive(session.sparkContext)
        if f'txtopo_executors_lost_total{{topology="{TOPOLOGY_ID}"}} 1.0' not in metrics.text().decode():
            raise Violation(f"the metrics do not show that an executor was lost: {metrics.text().decode()}")
        if killer.killed_at is None or alive != WORKERS - 1:
            raise Violation(f"nothing was killed in the middle of the run: {alive} executors are alive")


def check_executors(context: SparkContext) -> int:
    """Wait for all executors, and return how many there are; raise a Violation if one can import txtopo."""
    deadline = time.monotonic() + START_SECS
    while executors_alive(context) < WORKERS:
        if time.monotonic() > deadline:
            raise Violation("executors do not start")
        pause()
    names = HIDDEN

    def look(_: int) -> tuple[str, tuple[str, ...]]:  # travels by value: the executors could not import this module
        from importlib.util import find_spec
        from pathlib import Path

        return str(Path.cwd()), tuple(name for name in names if find_spec(name) is not None)

    seen = set(context.parallelize(range(_MANY), _MANY).map(look).collect())
    found = {name for _, importable in seen for name in importable}
    if found or len(seen) != WORKERS:
        raise Violation(f"{len(seen)} executors can import {sorted(found)} before anything is shipped")
    return len(seen)


def executors_alive(context: SparkContext) -> int:
    """Return the number of executors that Spark considers alive."""
    return len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1  # one of them is the driver


@click.command()
@click.option("--transactions", default=600, show_default=True, type=click.IntRange(20), help="In each run.")
@click.option("--kill", is_flag=True, help="Kill a worker in the middle of the second run.")
@click.option(
    "--output", type=click.Path(path_type=Path), help="A new folder for tables and logs, kept if a promise is broken."
)
def main(transactions: int, kill: bool, output: Path | None) -> None:
    """Run a topology on a standalone cluster, and see that its tables are exact."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that no process is left behind
    os.environ["SPARK_LOCAL_IP"] = HOST
    console = Console(width=120 if not sys.stdout.isatty() else None)
    folder = Path(tempfile.mkdtemp(prefix="txtopo-cluster-")) if output is None else output.absolute()
    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"{folder} is not empty; give a new folder, or remove this one")
    is_kept = False
    try:
        with running_cluster(folder / "cluster", WORKERS) as cluster:
            run_on(cluster, folder, transactions, console, kill=kill)
    except (Violation, TxtopoError) as violation:
        is_kept = True
        console.print(f"a promise is broken:\n{violation}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"everything is kept in {folder}", soft_wrap=True)
        sys.exit(1)
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)
    console.print("all tables are exact, in both layouts")


if __name__ == "__main__":
    main()
