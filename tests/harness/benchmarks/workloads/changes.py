"""Changes of a database: ``ApplyChanges`` beside ``MERGE`` in ``foreachBatch``, by seconds of a core and by the clock."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions as F

from committers import ApplyChanges
from spouts import FilesTransactionalSpout
from tests.harness.benchmarks.history import MERGE
from tests.harness.benchmarks.inputs import FILES, write_transactions
from tests.harness.benchmarks.measuring import Bench, Contender, Sample, measure
from tests.harness.benchmarks.outcome import Outcome, Role, Target, Unit
from tests.harness.benchmarks.txtopo_contender import TXTOPO
from tests.harness.benchmarks.workloads.dataframes import CLOCK, CORES, taken
from txtopo import Config, Fields, TransactionalTopology, TransactionalTopologyBuilder, run

CHANGES = 1_000_000
KEYS = 100_000
SIZES = {"small transactions": 20_000, "large transactions": 250_000}
"""Changes of a transaction."""

BATCHES_MAX = 20
"""Batches of the peer in a round: it needs minutes for all small ones, and gets no quicker as its table grows."""

LATE = 50_000
"""A change comes up to so many changes too late."""

CHANGE = Fields("id: long", "name: string", "price: long", "lsn: long", "deleted: boolean")
COLUMNS = ("id", "name", "price", "lsn")


def changes(bench: Bench) -> Outcome:
    """Measure changes out of order, 1 of 20 of which comes twice and 1 of 10 deletes its row."""
    return Outcome(
        workload="changes",
        title=f"{bench.times(CHANGES, 1_000):,} changes of {bench.times(KEYS, 100):,} keys, out of order",
        unit=Unit("seconds for 1,000,000 changes", is_lower_better=True),
        lines=(measured := measure(_contenders, bench)).lines,
        targets=tuple(
            Target(f"{TXTOPO}, {size} {figure}", f"{MERGE}, {size} {figure}", 1)
            for size in SIZES
            for figure in (CORES, CLOCK)
        ),
        phases=measured.phases,
        notes=(
            f"{MERGE} is measured over at most {BATCHES_MAX} batches",
            ", ".join(f"{size}: {rows:,} changes" for size, rows in _sizes(bench).items()),
            "cores: of the JVM without its compilers, and of all processes of Python",
            f"{MERGE}: the latest change of each key in a batch; the table keeps deleted rows, with a flag",
        ),
    )


def _contenders(bench: Bench) -> Sequence[Contender]:
    table = made(bench.times(CHANGES, 1_000), bench.times(KEYS, 100))
    contenders = []
    for size, rows in _sizes(bench).items():
        source = write_transactions(bench.work / "inputs" / f"{table.num_rows} changes by {rows}", table, rows)
        first = table.slice(0, rows * BATCHES_MAX)
        peers_source = write_transactions(bench.work / "inputs" / f"{first.num_rows} changes by {rows}", first, rows)
        merge = functools.partial(_merged, bench.spark, peers_source, first)
        contenders += [
            Contender(f"{TXTOPO}, {size}", Role.TXTOPO, functools.partial(_ours, bench.spark, source, table)),
            Contender(f"{MERGE}, {size}", Role.PEER, merge, needs_delta_jars=True),
        ]
    return contenders


def _sizes(bench: Bench) -> dict[str, int]:
    return {size: max(100, round(rows * bench.scale)) for size, rows in SIZES.items()}


def made(count: int, keys: int) -> pa.Table:
    """Return changes as they come."""
    rng = np.random.default_rng(1)
    lsn = np.arange(count)
    doubled = rng.random(count) < 0.05
    lsn[doubled] = rng.integers(0, count, doubled.sum())
    lsn = lsn[np.argsort(np.arange(count) + rng.random(count) * min(LATE, count / 10))]
    ids = np.random.default_rng(2).integers(0, keys, count)[lsn]
    name = pa.array(lsn).cast(pa.string())
    return pa.table([ids, name, lsn * 7 % 1_000, lsn, lsn % 10 == 0], schema=CHANGE.arrow_schema())


def left(changes: pa.Table) -> pa.Table:
    """Return the rows that sorting all changes leaves, by key."""
    ordered = changes.sort_by([("id", "ascending"), ("lsn", "ascending")])
    ids = ordered["id"].to_numpy()
    last = ordered.filter(pa.array(np.append(ids[1:] != ids[:-1], values=True)))
    return last.filter(pc.invert(last["deleted"])).select(COLUMNS)


def _check(who: str, table: Path, changes: pa.Table, *, has_deleted: bool) -> None:
    columns = [*COLUMNS, "deleted"] if has_deleted else list(COLUMNS)
    rows = pa.table(DeltaTable(str(table)).scan(columns=columns)).cast(CHANGE.subset(columns).arrow_schema())
    if has_deleted:
        rows = rows.filter(pc.invert(rows["deleted"]))
    if not rows.select(COLUMNS).sort_by("id").equals(left(changes)):
        raise AssertionError(f"{who}: the rows are not those that sorting all changes leaves")


def topology(source: Path, output: Path) -> TransactionalTopology:
    """Return transactions of files → the table that they change."""
    spout = FilesTransactionalSpout(source, CHANGE, batch_bytes=2**40, batch_files_max=FILES)
    builder = TransactionalTopologyBuilder("changes", "changes", spout, 2)
    parts = {"key": Fields("id: long"), "values": CHANGE.subset(["name", "price"]), "sequence": Fields("lsn: long")}
    apply = ApplyChanges("rows", "gone", deleted="deleted", **parts)
    builder.set_committer_bolt("apply", apply, 2).fields_grouping("changes", Fields("id"))
    builder.set_state("rows", apply.state(output / "rows"))
    builder.set_state("gone", apply.tombstones(output / "gone"))
    return builder.build()


def _ours(spark: SparkSession, source: Path, changes: pa.Table, folder: Path) -> Sample:
    with taken(changes.num_rows / 1_000_000) as figures:
        report = run(topology(source, folder), Config(), spark=spark)
    _check(TXTOPO, folder / "rows", changes, has_deleted=False)
    return Sample(figures, report)


def _merged(spark: SparkSession, source: Path, changes: pa.Table, folder: Path) -> Sample:
    from delta import DeltaTable as SparkTable  # as that peer does; whoever has no delta-spark leaves it out

    schema, path = "id long, name string, price long, lsn long, deleted boolean", str(folder / "rows")
    spark.createDataFrame([], schema).write.format("delta").save(path)

    def merge(frame: DataFrame, batch_id: int) -> None:
        del batch_id
        latest = frame.groupBy("id").agg(F.max_by(F.struct(*frame.columns), "lsn").alias("last")).select("last.*")
        merger = SparkTable.forPath(spark, path).alias("t").merge(latest.alias("s"), "t.id = s.id")
        merger.whenMatchedUpdateAll("s.lsn >= t.lsn").whenNotMatchedInsertAll().execute()

    with taken(changes.num_rows / 1_000_000) as figures:
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES).parquet(str(source))
        writer = stream.writeStream.foreachBatch(merge).option("checkpointLocation", str(folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
    _check(MERGE, folder / "rows", changes, has_deleted=True)
    return Sample(figures)
