"""Tasks that run in the partitions of the DataFrame that they read.

If a job's only Python component is one bolt, usually a committer, grouped by fields of one DataFrame component, Spark
itself partitions the rows by key, and each partition is a task of the bolt. Rows that Spark SQL has grouped by the same
fields are in the right partition already. On the general way, rows leave Spark SQL as shuffle messages, Spark shuffles
them again, and a Python worker reads them a second time: 15 % of the CPU time of a large transaction.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import attrs
import cloudpickle
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from txtopo.api.components.bolt import BatchBolt
from txtopo.api.components.groupings import GroupingKind
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import DEFAULT_STREAM, TupleSource
from txtopo.columnar.chunks import Chunk
from txtopo.columnar.conversion import cast_rows
from txtopo.columnar.reducing import ReductionCombiner
from txtopo.spark.sql.combining import combined, combiner_of, uncombined
from txtopo.spark.tasks.worker import run_stage
from txtopo.topology.plans.plan import ComponentKind, Edge, Plan
from txtopo.topology.user_code.blame import user_code
from txtopo.transactional.jobs.layout import Layout, PartitionAssignment, Stage
from txtopo.transactional.jobs.stage_run import Job, Report
from txtopo.transactional.tasks.batch_run import ShuffleMessage

REPORT_COLUMN = "report"


def last_edge(spark: SparkSession, plan: Plan, layout: Layout) -> Edge | None:
    """Return the edge into a job's only Python bolt if its tasks can run in the DataFrame's partitions; else None."""
    # With adaptive execution, Spark may merge partitions; then a partition is not a task.
    *before, last = layout.stages
    is_alone = len(last.components) == 1 and not any(stage.components for stage in before)
    is_adaptive = str(spark.conf.get("spark.sql.adaptive.enabled", "true")).lower() != "false"
    components = plan.dataframes
    has_one_way = all(len(plan.outputs(component.id, DEFAULT_STREAM)) == 1 for component in components)
    edges = plan.inputs(last.components[0]) if is_alone else ()
    if len(edges) != 1 or is_adaptive or not has_one_way:
        return None
    edge = edges[0]
    bolt = plan.by_id[edge.target].component
    # A combiner that Spark SQL does not know has its place on the general way, before the rows are placed.
    combiner = bolt.combiner() if isinstance(bolt, BatchBolt) else None
    if combiner is not None and not isinstance(combiner, ReductionCombiner):
        return None
    return edge if edge.grouping.kind is GroupingKind.FIELDS and _keys(plan, edge) else None


_Reports = dict[tuple[int, int], Report | None]
"""What the tasks report, by the transaction's index in its job and the task's; None where it was combined too much."""


class DataFrameTasks:
    """The tasks of one bolt, which run in the partitions of a DataFrame for each transaction."""

    def __init__(self, spark: SparkSession, package: Any, job: Job, plan: Plan, edge: Edge) -> None:
        self._spark = spark
        self._package = package
        self._job = job
        self._edge = edge
        self._tasks = plan.by_id[edge.target].tasks
        self._fields = plan.by_id[edge.source].streams[edge.stream]
        self._keys = _keys(plan, edge)
        self._combiner: ReductionCombiner | None = None
        if plan.by_id[edge.source].kind is ComponentKind.DATAFRAME_SPOUT:  # a DataFrameBolt can combine rows itself
            with user_code(edge.target, job.attempts[0].attempt):
                self._combiner = combiner_of(plan.by_id[edge.target].component, self._fields, self._keys)

    def run(self, frames: list[DataFrame]) -> list[Report]:
        """Run the tasks on the job's DataFrames, one for each transaction, and return their reports."""
        reports = self._run(frames, self._combiner)
        # A combined row exceeded its bound: run again without combining.
        if None in reports.values():
            reports = self._run(frames, None)
        tasks = {(index, task) for index in range(len(frames)) for task in range(self._tasks)}
        reports |= self._run_without_rows(sorted(tasks - reports.keys()))
        return [report for report in reports.values() if report is not None]

    def _run(self, frames: list[DataFrame], combiner: ReductionCombiner | None) -> _Reports:
        """Run the tasks that have a partition."""
        parts = [self._on(frame, index, combiner) for index, frame in enumerate(frames)]
        rows = reduce(DataFrame.unionAll, parts).collect()
        reports: _Reports = {}
        for row in rows:
            index, task, report = pickle.loads(row[0])  # noqa: S301 - our own bytes, from our own executors
            reports[index, task] = report
        return reports

    def _run_without_rows(self, tasks: list[tuple[int, int]]) -> _Reports:
        """Run the tasks that had no partition, which happens if the key is a literal or there are no rows."""
        if not tasks:
            return {}
        package, jobs = self._package, {index: self._job_of(index) for index, _ in tasks}

        def run(key: tuple[int, int]) -> tuple[tuple[int, int], Report]:
            index, task = key
            [(_, report)] = run_stage(package.value, jobs[index], 0, task, ())
            assert isinstance(report, Report), "a task without rows has nothing to send"
            return key, report

        return dict(self._spark.sparkContext.parallelize(tasks, len(tasks)).map(run).collect())

    def _on(self, frame: DataFrame, index: int, combiner: ReductionCombiner | None) -> DataFrame:
        columns = [f"`{name}`" for name in self._fields.without_attempt()]
        rows = frame.select(*columns) if combiner is None else combined(frame, combiner)
        placed = rows.repartition(self._tasks, *(f"`{name}`" for name in self._keys))
        run = _task_function(self._package, self._job_of(index), index, self._edge, self._fields, self._tasks, combiner)
        return placed.mapInArrow(run, f"{REPORT_COLUMN} binary")

    def _job_of(self, index: int) -> Job:
        """Return a job of one transaction, in which each task has its own partition."""
        stage = Stage((self._edge.target,), PartitionAssignment.BY_TASK)
        layout = Layout(self._tasks, (stage,), ((),))
        return attrs.evolve(self._job, attempts=(self._job.attempts[index],), layout=layout)


class _CombinedTooMuch(Exception):
    """A combined row exceeded its bound, so its value may be wrong."""


def _keys(plan: Plan, edge: Edge) -> list[str]:
    """Return the fields to partition rows by; an empty list if Spark can't hash them."""
    fields = plan.by_id[edge.source].streams[edge.stream]
    types = dict(zip(fields.names, fields.types, strict=True))
    names = [name for name in edge.grouping.fields or () if name != fields.names[0]]
    return [] if any(pa.types.is_nested(types[name]) for name in names) else names


def _task_function(  # noqa: PLR0913, PLR0917 - a task needs that many parts
    package: Any, job: Job, index: int, edge: Edge, fields: Fields, tasks: int, combiner: ReductionCombiner | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "a Spark task has a context"
        # A union concatenates the partitions of the DataFrames, which have as many as there are tasks, or fewer.
        task = context.partitionId() % tasks
        messages = (_message(_rows(batch, fields, combiner), job, edge, fields, task) for batch in batches)
        try:
            for _, report in run_stage(package.value, job, 0, task, messages):
                yield _as_row(index, task, report)
        except _CombinedTooMuch:
            yield _as_row(index, task, None)

    return run


def _as_row(index: int, task: int, report: Any) -> pa.RecordBatch:
    content = cloudpickle.dumps((index, task, report))
    return pa.RecordBatch.from_pydict({REPORT_COLUMN: pa.array([content], pa.binary())})


def _rows(batch: pa.RecordBatch, fields: Fields, combiner: ReductionCombiner | None) -> pa.RecordBatch:
    """Return a batch with the fields' declared types; raise _CombinedTooMuch if a combined row exceeded its bound."""
    schema = fields.without_attempt().arrow_schema()
    if combiner is None:
        return cast_rows(pa.RecordBatch.from_arrays(batch.columns, names=schema.names), schema, "a DataFrame")
    rows = uncombined(batch, schema.field(combiner.value).type)
    if rows is None:
        raise _CombinedTooMuch
    return cast_rows(rows, pa.schema([schema.field(name) for name in rows.schema.names]), "a DataFrame")


def _message(rows: pa.RecordBatch, job: Job, edge: Edge, fields: Fields, task: int) -> ShuffleMessage:
    chunk = Chunk(TupleSource(edge.source, edge.stream, 0, fields), batch=rows)
    return ShuffleMessage(job.attempts[0].attempt, edge.index, 0, task, 0, len(chunk), chunk.encode())
