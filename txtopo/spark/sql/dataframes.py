"""Runs jobs with components of Spark SQL: DataFrame spouts and DataFrame bolts.

A DataFrame holds the rows of all transactions of a job, the attempt first, and passes as such from one DataFrame
component to the next. Between DataFrame and Python components, rows become shuffle messages, which the groupings route,
and shuffle messages become rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StringType, StructType

from txtopo.api.components.groupings import GroupingKind
from txtopo.api.components.planned import metadata_of
from txtopo.api.data.copying import copied_json
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import DEFAULT_STREAM, TupleSource
from txtopo.api.data.types import ddl_name, parse_type
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.chunks import Chunk, decode
from txtopo.columnar.conversion import takes_all
from txtopo.columnar.reducing import ReductionCombiner
from txtopo.errors import FieldsError, TopologyError
from txtopo.spark.sql.combining import combined, combiner_of
from txtopo.spark.sql.dataframe_code import dataframe_code
from txtopo.spark.tasks.worker import same_partition, stage_function, task_factory_of
from txtopo.topology.plans.plan import DATAFRAMES, ComponentKind, Edge, Plan, PlannedComponent
from txtopo.topology.user_code.blame import user_code
from txtopo.transactional.jobs.stage_run import Item, Job, PartitionItem, Report, partition_for
from txtopo.transactional.tasks.batch_run import ShuffleMessage
from txtopo.transactional.tasks.bolt_tasks import attempt_column
from txtopo.transactional.tasks.context import TaskContext
from txtopo.transactional.tasks.routing import Router

APART_MAX = 4
"""A job of at most this many transactions transforms them one by one. Each then has Spark tasks of its own, which pays
off only for large transactions."""

_ATTEMPT_TYPE = pa.struct([("txid", pa.int64()), ("attempt", pa.int64())])


class DataFrameStages:
    """One job with DataFrame components."""

    def __init__(self, spark: SparkSession, plan: Plan, package: Any, job: Job) -> None:
        self._spark = spark
        self._plan = plan
        self._package = package
        self._job = job
        self._frames: dict[str, DataFrame] = {}
        self._frames_apart: dict[str, list[DataFrame]] = {}
        """By component, one DataFrame for each transaction, if the job holds at most ``APART_MAX``."""
        self._persisted: list[Any] = []

    def run(self) -> list[Report]:
        """Run the stages, each after the DataFrames that precede it, and return the reports."""
        layout = self._job.layout
        items: Any = None
        try:
            for index, stage in enumerate(layout.stages):
                # Read more than once: once for each DataFrame component, and once for the rest.
                if any(self._takes_messages(name) for name in layout.dataframes[index]):
                    items = self._persist(items)
                components = [self._plan.by_id[name] for name in layout.dataframes[index]]
                for component in components:
                    self._make_frame(component, items)
                frames = [self._messages_of(component) for component in components]
                edges = self._edges_into(layout.dataframes[index])
                rest = items.filter(_is_of_no_edge(edges)) if edges and items is not None else items
                if stage.components:
                    rest = self._routed(rest).mapPartitionsWithIndex(stage_function(self._package, self._job, index))
                parts = [part for part in (rest, *frames) if part is not None]
                items = reduce(lambda left, right: left.union(right), parts) if parts else None
            collected = items.collect() if items is not None else []
            reports = [item for _, item in collected if isinstance(item, Report)]
        finally:
            for persisted in self._persisted:
                persisted.unpersist()
        return reports

    def _make_frame(self, component: PlannedComponent, items: Any) -> None:
        frame = (
            self._read(component) if component.kind is ComponentKind.DATAFRAME_SPOUT else self._bolt(component, items)
        )
        if len(self._plan.outputs(component.id, DEFAULT_STREAM)) > 1:
            # Persisted, or each consumer would compute it again. The parts for single transactions are not, so they go.
            frame = self._persist(frame)
            self._frames_apart.pop(component.id, None)
        self._frames[component.id] = frame

    def _messages_of(self, component: PlannedComponent) -> Any:
        """Return a component's rows as shuffle messages for its Python bolts; None if it has none."""
        consumers = self._plan.outputs(component.id, DEFAULT_STREAM)
        to_python = [edge for edge in consumers if self._plan.by_id[edge.target].kind not in DATAFRAMES]
        if not to_python:
            return None
        frame = self._frames[component.id]
        encode = _encode_function(self._package, self._job, component, to_python)
        return frame.mapInArrow(
            encode,
            "to_partition int, attempt struct<txid: bigint, attempt: bigint>, edge int, "
            "source_task int, task int, tag bigint, tuples int, encoded binary",
        ).rdd.map(_as_message)

    def _read(self, component: PlannedComponent) -> DataFrame:
        frames = []
        combiner = self._combiner_below(component)
        for assigned in self._job.attempts:
            if assigned.planned.has_input_of(component.id, assigned.metadata):
                with dataframe_code(component.id, assigned.attempt):
                    metadata = copied_json(metadata_of(assigned.metadata, component.id))
                    frame = component.component.read(self._spark, metadata)
            else:
                frame = self._without_rows(component)
            frames.append(_with_attempt(_of_fields(frame, component, combiner), assigned.attempt, component))
        if len(frames) <= APART_MAX:
            self._frames_apart[component.id] = frames
        return reduce(DataFrame.unionAll, frames)

    def _combiner_below(self, component: PlannedComponent) -> ReductionCombiner | None:
        """Return how the rows of a spout may be combined for the only bolt that gets them; None for never.

        Small transactions are many, and each would take tasks of its own. A DataFrameBolt can combine rows itself.
        """
        edges = self._plan.outputs(component.id, DEFAULT_STREAM)
        if len(edges) != 1 or len(self._job.attempts) > APART_MAX or edges[0].grouping.kind is not GroupingKind.FIELDS:
            return None
        (edge,) = edges
        fields = component.streams[DEFAULT_STREAM]
        keys = [name for name in edge.grouping.fields or () if name != fields.names[0]]
        with user_code(edge.target, self._job.attempts[0].attempt):
            return combiner_of(self._plan.by_id[edge.target].component, fields, keys)

    def _without_rows(self, component: PlannedComponent) -> DataFrame:
        types = from_arrow_schema(component.streams[DEFAULT_STREAM].without_attempt().arrow_schema())
        columns = ", ".join(f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in types)
        return self._spark.sql(f"SELECT {columns} WHERE false")

    def _bolt(self, component: PlannedComponent, items: Any) -> DataFrame:
        """Return a bolt's output; transform few transactions one by one, so that each attempt is a constant."""
        edges = self._plan.inputs(component.id)
        if all(edge.source in self._frames_apart for edge in edges):
            apart = [
                self._transformed(
                    component, [self._frames_apart[edge.source][index] for edge in edges], attempt.attempt
                )
                for index, attempt in enumerate(self._job.attempts)
            ]
            self._frames_apart[component.id] = apart
            return reduce(DataFrame.unionAll, apart)
        inputs = [self._input(edge, items) for edge in edges]
        return self._transformed(component, inputs, self._job.attempts[0].attempt)

    @staticmethod
    def _transformed(component: PlannedComponent, inputs: list[DataFrame], attempt: TransactionAttempt) -> DataFrame:
        with dataframe_code(component.id, attempt):
            frame = component.component.transform(reduce(DataFrame.unionByName, inputs))
        return _checked(frame, component)

    def _input(self, edge: Edge, items: Any) -> DataFrame:
        if edge.source in self._frames:
            return self._frames[edge.source]
        source = self._plan.by_id[edge.source]
        fields = source.streams[edge.stream]
        encoded = items.filter(_is_of_edge(edge.index)).map(_as_row)
        schema = "attempt struct<txid: bigint, attempt: bigint>, source_task int, encoded binary"
        return self._spark.createDataFrame(encoded, schema).mapInArrow(
            _decode_function(edge, fields), from_arrow_schema(_frame_schema(fields))
        )

    def _routed(self, items: Any) -> Any:
        """Shuffle items to their partitions; without items skip the shuffle, which would cost tens of milliseconds."""
        partitions = self._job.layout.partitions
        if items is None:
            return self._spark.sparkContext.parallelize([], partitions)
        return items.partitionBy(partitions, same_partition)

    def _edges_into(self, names: tuple[str, ...]) -> frozenset[int]:
        return frozenset(edge.index for name in names for edge in self._plan.inputs(name))

    def _takes_messages(self, name: str) -> bool:
        return any(edge.source not in self._frames for edge in self._plan.inputs(name))

    def _persist(self, data: Any) -> Any:
        persisted = data.persist(StorageLevel.MEMORY_AND_DISK)
        self._persisted.append(persisted)
        return persisted


def _frame_schema(fields: Fields) -> pa.Schema:
    fields_schema = fields.without_attempt().arrow_schema()
    return pa.schema([pa.field(fields.names[0], _ATTEMPT_TYPE), *fields_schema])


def _of_fields(frame: DataFrame, component: PlannedComponent, combiner: ReductionCombiner | None) -> DataFrame:
    expected = list(component.streams[DEFAULT_STREAM].names[1:])
    if frame.columns != expected:
        raise TopologyError(
            f"read() returned the columns {frame.columns}, but output_fields are {expected}", component=component.id
        )
    typed = _typed(frame, component, "read()")
    return typed if combiner is None else combined(typed, combiner)


def _with_attempt(frame: DataFrame, attempt: TransactionAttempt, component: PlannedComponent) -> DataFrame:
    first, *more_names = component.streams[DEFAULT_STREAM].names
    struct = f"named_struct('txid', {attempt.txid}L, 'attempt', {attempt.attempt}L) AS `{first}`"
    return frame.selectExpr(struct, *(f"`{name}`" for name in more_names))


def _checked(frame: DataFrame, component: PlannedComponent) -> DataFrame:
    fields = component.streams[DEFAULT_STREAM]
    if frame.columns != list(fields.names):
        raise TopologyError(
            f"transform() returned the columns {frame.columns}, but output_fields are {list(fields.names)}",
            component=component.id,
        )
    return _typed(frame, component, "transform()")


def _typed(frame: DataFrame, component: PlannedComponent, method: str) -> DataFrame:
    """Return a frame whose columns have the fields' types; it may have the attempt before them.

    Spark's CAST would lose what does not fit, and takes members of structs by their order. Here the rows are out of
    reach, so the type decides: what holds more than the field is refused, and Spark converts the rest by name.

    Raises:
        TopologyError: names a column whose type is refused.
    """
    frame_schema = frame.schema
    fields = component.streams[DEFAULT_STREAM].without_attempt().arrow_schema()
    declared = from_arrow_schema(fields)
    misfits = [field for field in declared if frame_schema[field.name].dataType != field.dataType]
    if not misfits:  # a conversion costs an analysis
        return frame
    for field in misfits:
        name, kind, theirs = field.name, fields.field(field.name).type, frame_schema[field.name].dataType
        if not _takes_all(kind, theirs):
            how = f"by F.col('{name}').cast('{ddl_name(kind)}') where that loses nothing"
            if pa.types.is_nested(kind):
                how = "member by member, since Spark casts members by their order"
            raise TopologyError(
                f"{method} returned the column '{name}' as {theirs.simpleString()}, of which the field "
                f"'{name}: {ddl_name(kind)}' does not hold every value; convert it {how}, or declare the field so",
                component=component.id,
            )
    before = [field for field in frame_schema if field.name not in declared.names]
    return frame.to(StructType([*before, *declared]))


def _takes_all(kind: pa.DataType, theirs: DataType) -> bool:
    try:
        return takes_all(kind, _arrow_type(theirs))
    except FieldsError:  # such as an interval, which no field holds
        return False


def _arrow_type(kind: DataType) -> pa.DataType:
    """Return what Arrow calls a type of Spark; Spark's function for it knows no empty ``array()``."""
    match kind:
        case ArrayType():
            return pa.list_(_arrow_type(kind.elementType))
        case MapType() if kind.keyType != NullType():  # that of map(), which is no type of Arrow
            return pa.map_(_arrow_type(kind.keyType), _arrow_type(kind.valueType))
        case StructType():
            return pa.struct([(field.name, _arrow_type(field.dataType)) for field in kind])
        case NullType():
            return pa.null()
        case StringType():  # whatever its collation
            return pa.string()
        case _:
            return parse_type(kind.simpleString())


def _encode_function(
    package: Any, job: Job, component: PlannedComponent, edges: list[Edge]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    name, streams = component.id, component.streams

    def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoder = FrameEncoder(task_factory_of(package.value).plan, job, name, streams[DEFAULT_STREAM], edges)
        for batch in batches:
            yield from encoder.encode(batch)

    return encode


class FrameEncoder:
    """Converts rows of a DataFrame to shuffle messages; runs in a Spark task."""

    def __init__(self, plan: Plan, job: Job, name: str, fields: Fields, edges: Iterable[Edge]) -> None:
        self._plan = plan
        self._job = job
        self._source = TupleSource(name, DEFAULT_STREAM, 0, fields)
        context = TaskContext(plan, plan.by_id[name], 0, None)
        self._routers = [Router(plan, edge, 0, context) for edge in edges]

    def encode(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the shuffle messages of a batch as rows."""
        txids = pc.struct_field(batch.column(0), "txid")
        schema = self._source.fields.without_attempt().arrow_schema()
        for index, assigned in enumerate(self._job.attempts):
            attempt = assigned.attempt
            attempt_rows = batch.filter(pc.equal(txids, attempt.txid)) if len(self._job.attempts) > 1 else batch
            if not attempt_rows.num_rows:
                continue
            columns = pa.RecordBatch.from_arrays(attempt_rows.columns[1:], names=schema.names).cast(schema)
            rows = [
                (self._partition(router, index, task), router.edge.index, task, len(part), part.encode())
                for router in self._routers
                for task, part in router.route(Chunk(self._source, batch=columns), attempt, assigned.planned.at)
            ]
            if rows:
                yield _message_batch(attempt, rows)

    def _partition(self, router: Router, index: int, task: int) -> int:
        return partition_for(self._job.layout, self._plan.by_id[router.edge.target], index, task)


def _message_batch(attempt: TransactionAttempt, rows: list[tuple[int, int, int, int, bytes]]) -> pa.RecordBatch:
    partitions, edges, tasks, tuples, encoded = zip(*rows, strict=True)
    count = len(rows)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(partitions, pa.int32()),
            attempt_column(attempt, count),
            pa.array(edges, pa.int32()),
            pa.array([0] * count, pa.int32()),
            pa.array(tasks, pa.int32()),
            pa.array([0] * count, pa.int64()),
            pa.array(tuples, pa.int32()),
            pa.array(encoded, pa.binary()),
        ],
        names=["to_partition", "attempt", "edge", "source_task", "task", "tag", "tuples", "encoded"],
    )


def _as_message(row: Any) -> PartitionItem:
    attempt = TransactionAttempt(row.attempt.txid, row.attempt.attempt)
    encoded = bytes(row.encoded)
    return row.to_partition, ShuffleMessage(attempt, row.edge, row.source_task, row.task, row.tag, row.tuples, encoded)


def _is_of_edge(index: int) -> Callable[[PartitionItem], bool]:
    return lambda pair: isinstance(pair[1], ShuffleMessage) and pair[1].edge == index


def _is_of_no_edge(indices: frozenset[int]) -> Callable[[PartitionItem], bool]:
    return lambda pair: not (isinstance(pair[1], ShuffleMessage) and pair[1].edge in indices)


def _as_row(pair: tuple[int, Item]) -> tuple[Any, ...]:
    message = pair[1]
    assert isinstance(message, ShuffleMessage), "the caller filters out reports"
    return (message.attempt.txid, message.attempt.attempt), message.source_task, bytearray(message.encoded)


def _decode_function(edge: Edge, fields: Fields) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    source_id, stream, schema = edge.source, edge.stream, _frame_schema(fields)

    def decode_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                attempt = TransactionAttempt(row["attempt"]["txid"], row["attempt"]["attempt"])
                source = TupleSource(source_id, stream, row["source_task"], fields)
                columns = decode(row["encoded"], source, attempt).batch()
                first = attempt_column(attempt, columns.num_rows)
                yield pa.RecordBatch.from_arrays([first, *columns.columns], schema=schema)

    return decode_rows
