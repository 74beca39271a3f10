"""Benchmarks: totals are checked, outcomes are kept, ratios say what they mean. Nothing is timed here."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import attrs
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from rich.console import Console

from state import read_table
from tests.harness.benchmarks.core_secs import CoreSecs
from tests.harness.benchmarks.forms import BY_FRAMES, BY_STEPS, DEAR
from tests.harness.benchmarks.groups import main as groups_main
from tests.harness.benchmarks.history import EACH
from tests.harness.benchmarks.inputs import DrawnWords, LargeRows, Rows, TouchedKeys, WrongTotalsError, check_totals
from tests.harness.benchmarks.joins import main as joins_main
from tests.harness.benchmarks.log_times import LogWatch, visible_at
from tests.harness.benchmarks.measuring import Bench
from tests.harness.benchmarks.outcome import Line, Outcome, Role, Target, Unit, print_outcome, write_json
from tests.harness.benchmarks.workloads.beside_peers import small
from tests.harness.benchmarks.workloads.dataframes import dataframes
from tests.harness.benchmarks.workloads.latency import STEPS, latency_sample
from tests.streams.forms import Job, made
from tests.waiting import wait_for
from txtopo import run

LINES = (
    Line("txtopo", Role.TXTOPO, "", (100.0, 300.0, 200.0)),
    Line("slow", Role.PEER, "", (2.0,)),
    Line("quick", Role.PEER, "", (10.0,)),
)


@pytest.mark.long
def test_small(spark: SparkSession, tmp_path: Path) -> None:
    """A tiny run checks its totals, prints a table, and writes every figure; no path of this machine is in it."""
    console = Console(record=True, width=120)
    work = tmp_path / "work"
    bench = Bench(spark, work, console, rounds=1, scale=0.0015, has_delta_jars=False, has_warm_up=False)
    outcome = small(bench)
    print_outcome(console, outcome)
    text = write_json(tmp_path / "out", outcome, scale=bench.scale).read_text(encoding="utf-8")
    document = json.loads(text)
    ours = ["txtopo", "txtopo, ReduceCommitter", "txtopo, real-time", "txtopo, real-time, ReduceCommitter"]
    contenders = [*ours, "foreachBatch + delta-rs"]
    assert [line["contender"] for line in document["lines"]] == contenders
    assert all(len(line["rounds"]) == 1 and line["rounds"][0] > 0 for line in document["lines"])
    assert document["settings"] == {"scale": 0.0015}
    assert document["cores"] > 0
    assert str(tmp_path) not in text
    assert "foreachBatch + delta-rs" in console.export_text()


@pytest.mark.spark
@pytest.mark.parametrize("job", [*BY_STEPS.values(), *BY_FRAMES.values()], ids=[*BY_STEPS, *BY_FRAMES])
def test_forms(spark: SparkSession, tmp_path: Path, job: Job) -> None:
    """A bolt for each step, and a DataFrame bolt, make the table of the flow that they are compared with."""
    tables = []
    for name, make in {"built": job.built, "said": job.said}.items():
        run(made(make, tmp_path / name), spark=spark)
        tables.append(read_table(tmp_path / name / "out" / "dear").sort_by([(each, "ascending") for each in DEAR]))
    assert tables[0].num_rows == 42
    assert tables[0].equals(tables[1])


@pytest.mark.parametrize("rows", [DrawnWords(100, 10), DrawnWords(7, 10, 3), LargeRows(100, 10), TouchedKeys(60, 5, 3)])
def test_totals(rows: Rows) -> None:
    """The totals of rows are their sums; a wrong total and a doubled row are found."""
    transactions = 5
    every = pa.concat_tables([rows.batch(txid) for txid in range(1, transactions + 1)])
    sums = every.group_by("word").aggregate([("n", "sum")]).rename_columns(["word", "n"])
    totals = rows.totals(transactions)
    check_totals("test", sums, totals)
    assert totals.sum() == sum(every["n"].to_pylist())
    with pytest.raises(WrongTotalsError, match="1 wrong totals"):
        check_totals("test", sums, totals + np.eye(1, len(totals), dtype=np.int64)[0])
    with pytest.raises(WrongTotalsError, match="instead of"):
        check_totals("test", pa.concat_tables([sums, sums.slice(0, 1)]), totals)


_BURN = "import sys, time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\nsys.stdin.read()"


@pytest.mark.slow
def test_core_seconds() -> None:
    """Those of this process and of processes below it count; one that has ended meanwhile takes none back."""
    before = CoreSecs.now()
    with subprocess.Popen([sys.executable, "-c", _BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as below:
        assert below.stdout is not None
        below.stdout.readline()
        python, jvm = (during := CoreSecs.now()).since(before)
        assert below.stdin is not None
        below.stdin.close()
    assert python >= 0.4
    assert jvm >= 0
    assert CoreSecs.now().since(during)[0] >= 0


@pytest.mark.long
def test_dataframes(spark: SparkSession, tmp_path: Path) -> None:
    """Each way to sum up files has figures of cores and of the clock, and right totals."""
    bench = Bench(spark, tmp_path, Console(quiet=True), rounds=1, scale=0.002, has_warm_up=False)
    outcome = dataframes(bench)
    assert {line.contender for line in outcome.lines} >= {"txtopo", EACH, "one plain Spark job"}
    assert {line.figure for line in outcome.lines} == {"cores", "cores of the JVM", "cores of Python", "clock"}
    assert [verdict.target.against for verdict in outcome.verdicts()] == [
        f"{against} {figure}" for against in (EACH, "one plain Spark job") for figure in ("cores", "clock")
    ]


def test_higher_is_better() -> None:
    """A ratio says how many times better; the best peer is the quickest one."""
    targets = (Target("txtopo", "slow", 50), Target("txtopo", "quick", 50), Target("txtopo", "absent", 1))
    outcome = Outcome("w", "t", Unit("transactions/s"), LINES, targets)
    assert [verdict.ratio for verdict in outcome.verdicts()] == [100, 20]
    assert [verdict.is_reached for verdict in outcome.verdicts()] == [True, False]
    assert outcome.best(LINES[0], Role.PEER) == LINES[2]
    assert outcome.best(LINES[0], Role.LIMIT) is None


def test_lower_is_better() -> None:
    """The lowest time is best; a ratio that must not rise compares figure by figure."""
    targets = (Target("quick", "txtopo", 10), Target("quick", "slow", 4, is_at_most=True))
    outcome = Outcome("w", "t", Unit("ms", is_lower_better=True), LINES, targets)
    assert [verdict.ratio for verdict in outcome.verdicts()] == [20, 5]
    assert [verdict.is_reached for verdict in outcome.verdicts()] == [True, False]
    assert outcome.best(LINES[0], Role.PEER) == attrs.evolve(LINES[1])


@pytest.mark.slow
def test_how_fast_a_join_is() -> None:
    """The command says how fast rows are joined with those that are kept; each new one has found about one."""
    said = CliRunner().invoke(
        joins_main, ["kept", "--rows", "2000", "--each", "20", "--transactions", "2", "--groups", "1"]
    )
    assert said.exit_code == 0, said.output
    assert re.fullmatch(
        r"2,000 rows kept: [\d,]+ rows a CPU-second, [\d,]+ without .*; [01]\.\d\d pairs a row\n", said.output
    )


@pytest.mark.slow
def test_what_groups_cost() -> None:
    """The command says what groups cost, by rows and touched keys; more keys than there are rows are left out."""
    said = CliRunner().invoke(groups_main, ["--rows", "1000", "--touched", "10", "--touched", "5000", "--groups", "2"])
    assert said.exit_code == 0, said.output
    start, index, line = said.output.splitlines()
    assert start.startswith("1,000 rows: a start takes ")
    assert index.startswith("  the index takes ")
    assert line.startswith("  10 keys: ")
    assert " KB; " in line
    assert line.endswith(" MB of files in memory")


def test_latencies_without_those_of_the_start() -> None:
    """A start of 4 seconds is in no latency; of a try that ends before its start, the last arrival counts."""
    available = np.arange(0.0, 6.0, 0.2)
    sample = latency_sample(available, np.maximum(available + 0.01, 4.1))
    assert sample.figures["p99"] == pytest.approx(10.0)
    sample = latency_sample(available, np.full(len(available), 7.0))
    assert sample.figures["p50"] == pytest.approx(1_200.0)


def test_a_log_is_watched_from_outside(tmp_path: Path) -> None:
    """A file of the log counts as seen when it has got its name, by a link or a rename, and no draft does."""
    table, versions = tmp_path / "table", itertools.count()
    draft = table / "_delta_log" / ".draft"
    draft.parent.mkdir(parents=True)

    def is_told_of_another() -> bool:
        version = next(versions)
        draft.write_text(json.dumps({"txn": {"appId": "a", "version": version}}), encoding="utf-8")
        draft.rename(draft.with_name(f"{version:020d}.json"))
        return bool((tmp_path / "table-seen").read_bytes())

    with LogWatch(table) as watch:
        wait_for("another process is told of a file", is_told_of_another)
    last = max(watch.seen)
    assert watch.seen[last] >= (draft.with_name(f"{last:020d}.json")).stat().st_ctime
    assert visible_at(table, "a", last, last, watch.seen).tolist() == [watch.seen[last]]


def test_steps_add_up_to_the_latency() -> None:
    """A transaction is decided before its last step, and the steps that are printed take as long as all together."""
    available = np.arange(0.0, 20.0, 0.2)
    each = available[:, None] + np.cumsum(np.full((len(available), len(STEPS)), 0.002), axis=1)
    sample = latency_sample(available, each[:, -1], between=each[:, :-1])
    assert sample.figures["decided p50"] == pytest.approx(14.0)
    assert sample.figures["p50"] == pytest.approx(16.0)
    assert sample.steps == {**dict.fromkeys(STEPS, "2.00 ms"), "in all": "16.00 ms"}
