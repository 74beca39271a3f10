"""Page views: JSON lines into four tables, beside a warm plain PySpark batch job."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from tests.harness.benchmarks.event_time import topologies
from tests.harness.benchmarks.event_time.batch_peer import BATCH_JOB, four_tables_by_batch
from tests.harness.benchmarks.event_time.ours import events_contender
from tests.harness.benchmarks.event_time.page_views import TABLES, VIEWS, PageViews, check_tables
from tests.harness.benchmarks.measuring import Bench, Contender, Sample, measure
from tests.harness.benchmarks.outcome import Outcome, Role, Target, Unit
from tests.harness.benchmarks.txtopo_contender import TXTOPO

LARGER = f"{TXTOPO}, 16 MiB a transaction"
LARGER_BYTES = 16 * 2**20

WARM_UP = 1
"""A whole round, so that the batch job is as warm as it gets."""


def page_views(bench: Bench) -> Outcome:
    """Measure the job as people have it, with the defaults and with larger transactions."""
    measured = measure(_contenders, bench, WARM_UP)
    return Outcome(
        workload="page_views",
        title=f"{_views(bench).count:,} page views as JSON lines, into four tables",
        unit=Unit("views/s"),
        lines=measured.lines,
        targets=(Target(TXTOPO, BATCH_JOB, 0.5), Target(LARGER, BATCH_JOB, 0.5)),
        phases=measured.phases,
        notes=(
            "the four tables: every view; totals by page; totals and last time by user; views by page and minute",
            "the batch job parses the lines once, keeps them in memory, and writes each table once, as Delta",
        ),
    )


def _contenders(bench: Bench) -> Sequence[Contender]:
    views = _views(bench)
    source = views.write(bench.work / "inputs" / f"page-views-{views.count}")
    expected = views.answers()

    def batch(folder: Path) -> Sample:
        secs = four_tables_by_batch(bench.spark, source, folder)
        check_tables(BATCH_JOB, _read(folder), expected)
        return Sample({"": views.count / secs})

    peer = Contender(BATCH_JOB, Role.LIMIT, batch, needs_delta_jars=True)

    def ours(name: str, batch_bytes: int | None) -> Contender:
        make = functools.partial(topologies.four_tables, source, batch_bytes=batch_bytes)
        return events_contender(
            bench.spark, name, make, views.count, lambda folder: check_tables(name, _read(folder), expected)
        )

    return [ours(TXTOPO, None), ours(LARGER, LARGER_BYTES), peer]


def _read(folder: Path) -> Mapping[str, pa.Table]:
    return {
        name: pa.table(DeltaTable(str(folder / name)).scan(columns=list(columns))) for name, columns in TABLES.items()
    }


def _views(bench: Bench) -> PageViews:
    return PageViews(bench.times(VIEWS, 1_000))
