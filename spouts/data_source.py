"""``DataSourceSpout``: a stream of any data source that is written for PySpark in Python.

Metadata has the source's offsets: ``{"start": …, "end": …}``.
"""

from __future__ import annotations

import inspect
import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txtopo.api.arguments import check_positive, check_secs, checked_arguments
from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.spout import Coordinator, Emitter, Metadata, TransactionalSpout
from txtopo.api.data.fields import Fields
from txtopo.attempts import TransactionAttempt
from txtopo.errors import ConfigError, FieldsError, InputError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

__all__ = ["DataSourceSpout"]

ROWS = 10_000
"""How many rows that come one by one are made columns at a time."""

_COLUMN = re.compile(r"\s*(`[^`]+`|[^\s:`]+)\s*:?\s*(.+?)(?:\s+NOT\s+NULL)?(?:\s+COMMENT\s+.*)?\s*", re.IGNORECASE)
"""A column of a schema in SQL: its name and its type."""


class DataSourceSpout(TransactionalSpout):
    """Emits what a Python data source of PySpark streams; in columns.

    The source is one that ``spark.dataSource.register`` takes, with ``streamReader`` or ``simpleStreamReader``. Spark's
    checkpoint is not used: the offsets are a transaction's metadata.

    *You* keep what a range of offsets holds until ``commit`` was called with its end, and see to it that
    ``partitions(start, end)``, ``read`` and ``readBetweenOffsets`` return the same in any process, as Spark asks, too.

    *txtopo* guarantees that each range is in exactly one transaction, in order, and calls ``commit`` once a range and
    all before it are committed, not for each.

    Args:
        source: the class, a subclass of ``pyspark.sql.datasource.DataSource``. It must pickle.
        options: its options.
        fields: the columns, with types; None: those of the source's ``schema()``.
        rows_max: the maximum number of rows in a transaction, for sources whose ``latestOffset`` takes a limit; None:
            the source's own limit.
        until_end: whether the run ends when the source has nothing new. Otherwise it ends by ``run(…, until=…)``,
            SIGINT or SIGTERM.
        poll_secs: the seconds between two looks for what is new.

    Raises:
        ConfigError: an argument is wrong.
        FieldsError: the source's schema is none.
    """

    @checked_arguments
    def __init__(  # noqa: PLR0913 - all but three by name
        self,
        source: type[DataSource],
        options: Mapping[str, str] | None = None,
        fields: Fields | None = None,
        *,
        rows_max: int | None = None,
        until_end: bool = False,
        poll_secs: float = 1.0,
    ) -> None:
        if not callable(getattr(source, "streamReader", None)):
            raise ConfigError(f"{source!r} is no data source; give a subclass of pyspark.sql.datasource.DataSource")
        if rows_max is not None:
            check_positive("rows_max", rows_max)
        check_secs("poll_secs", poll_secs)
        self.source = source
        self.options = dict(options or {})
        self.values = (fields or _fields_of(source(self.options))).with_attempt().without_attempt()
        """The fields after the attempt."""
        self.values.arrow_schema()
        self.output_fields = self.values.with_attempt()
        self.rows_max = rows_max
        self.until_end = until_end
        self.poll_secs = poll_secs

    def reader(self) -> _Reader:
        """Open the source for a process."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - PySpark's own interface, where it is used

        source, schema = self.source(self.options), from_arrow_schema(self.values.arrow_schema())
        try:
            return _StreamReader(source.streamReader(schema), self.rows_max)
        except NotImplementedError:
            return _SimpleReader(source.simpleStreamReader(schema))

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """Return the coordinator."""
        del config, context
        return _DataSourceCoordinator(self)

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        """Return the emitter of every n-th partition from ``this_task_index`` on, where n is the number of tasks."""
        del config
        return _DataSourceEmitter(
            self, context.this_task_index, len(context.component_tasks(context.this_component_id))
        )

    def input_ranges(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, tuple[Any, Any]] | None:
        """Return the source's offsets."""
        del previous_metadata
        return {self.source.name(): (metadata["start"], metadata["end"])}


class _StreamReader:
    """A reader that knows partitions."""

    def __init__(self, reader: Any, rows_max: int | None) -> None:
        self._reader = reader
        self._takes_limit = bool(inspect.signature(reader.latestOffset).parameters)
        self._rows_max = rows_max
        self.commit, self.stop, self.initial = reader.commit, reader.stop, reader.initialOffset
        if rows_max is not None and not self._takes_limit:
            raise ConfigError(f"rows_max: latestOffset() of {type(reader).__name__} takes no limit; leave it out")

    def latest(self, start: Any) -> Any:
        """Return the offset up to which there is something."""
        if not self._takes_limit:
            return self._reader.latestOffset()
        limit = self._reader.getDefaultReadLimit()
        if self._rows_max is not None:
            from pyspark.sql.streaming.datasource import ReadMaxRows  # noqa: PLC0415 - since PySpark 4.2

            limit = ReadMaxRows(self._rows_max)
        return self._reader.latestOffset(start, limit)

    def read(self, start: Any, end: Any, task: int, tasks: int) -> Iterable[Any]:
        """Return what a task emits of a range."""
        partitions = list(self._reader.partitions(start, end))[task::tasks]
        return itertools.chain.from_iterable(map(self._reader.read, partitions))


class _SimpleReader:
    """A reader without partitions, which one task reads."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.commit, self.initial = reader.commit, reader.initialOffset

    def latest(self, start: Any) -> Any:
        """Return the offset up to which there is something; what it has read is read again when it is emitted."""
        rows, end = self._reader.read(start)
        if end == start and next(iter(rows), None) is not None:
            raise InputError(
                f"read({start}) of {type(self._reader).__name__} returns rows and the same offset as their end, so "
                "they would be read again and again; return an offset after them"
            )
        return end

    def read(self, start: Any, end: Any, task: int, tasks: int) -> Iterable[Any]:
        """Return what a task emits of a range: the first one all of it."""
        del tasks
        return self._reader.readBetweenOffsets(start, end) if task == 0 else ()

    def stop(self) -> None:
        """Do nothing: it has nothing to stop."""


_Reader = _StreamReader | _SimpleReader


class _DataSourceCoordinator(Coordinator):
    def __init__(self, spout: DataSourceSpout, now_secs: Callable[[], float] = time.monotonic) -> None:
        self._spout = spout
        self._reader = spout.reader()
        self._now_secs = now_secs
        self._place: Any = None
        self._latest: Any = None
        self._polled_secs: float | None = None
        self._ends: dict[int, Any] = {}

    def resume(self, txid: int, metadata: Metadata) -> None:
        """Begin where the last transaction has ended, or at the source's initial offset."""
        self._place = self._latest = self._reader.initial() if metadata is None else metadata["end"]
        if metadata is not None:
            self._ends[txid] = metadata["end"]

    def rewind(self, txid: int, metadata: Metadata, undone: Any) -> bool:
        """Return True: nothing is kept in the store, and whether the source has the ranges still is its own affair."""
        del txid, metadata, undone
        return True

    def is_ready(self) -> bool:
        """Whether the source has something after the last transaction."""
        now_secs = self._now_secs()
        is_due = self._polled_secs is None or now_secs >= self._polled_secs + self._spout.poll_secs
        if self._latest == self._place and is_due:
            self._polled_secs = now_secs
            self._latest = self._reader.latest(self._place)
        return bool(self._latest != self._place)

    def is_exhausted(self) -> bool:
        """Whether the run ends with what there is, and all is taken."""
        return self._spout.until_end and not self.is_ready()

    def initialize_transaction(self, txid: int, previous_metadata: Metadata) -> Metadata:
        """Take what there is after the last transaction."""
        if previous_metadata is not None and previous_metadata["end"] != self._place:
            self._place = self._latest = previous_metadata["end"]
            self._polled_secs = None
        self.is_ready()
        metadata = {"start": self._place, "end": self._latest}
        self._place = self._ends[txid] = self._latest
        self._polled_secs = None
        return metadata

    def cleanup_before(self, txid: int) -> None:
        """Tell the source up to where all is committed."""
        committed = [each for each in self._ends if each < txid]
        if committed:
            self._reader.commit(self._ends[max(committed)])
        for each in committed:
            del self._ends[each]

    def close(self) -> None:
        """Stop the source."""
        self._reader.stop()


class _DataSourceEmitter(Emitter):
    def __init__(self, spout: DataSourceSpout, task: int, tasks: int) -> None:
        self._name = spout.source.name()
        self._schema = spout.values.arrow_schema()
        self._reader = spout.reader()
        self._share = task, tasks

    def emit_batch(self, attempt: TransactionAttempt, metadata: Metadata, collector: BatchOutputCollector) -> None:
        del attempt
        start, end = metadata["start"], metadata["end"]
        if start != end:
            for batch in self._batches(iter(self._reader.read(start, end, *self._share))):
                collector.emit_batch(batch)

    def close(self) -> None:
        self._reader.stop()

    def _batches(self, rows: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        """Yield rows, and batches among them, as batches of the fields."""
        waiting: list[Any] = []
        for row in rows:
            is_batch = isinstance(row, pa.RecordBatch)
            if not is_batch:
                waiting.append(row)
            if waiting and (is_batch or len(waiting) >= ROWS):
                yield self._batch_of(waiting)
                waiting = []
            if is_batch:
                yield self._fitted(row)
        if waiting:
            yield self._batch_of(waiting)

    def _batch_of(self, rows: list[Any]) -> pa.RecordBatch:
        wrong = next((row for row in rows if len(row) != len(self._schema)), None)
        if wrong is not None:
            raise InputError(
                f"source {self._name!r} returned a row of {len(wrong)} values, and there are {len(self._schema)} "
                f"fields: {', '.join(self._schema.names)}"
            )
        columns = zip(*rows, strict=True)
        return pa.RecordBatch.from_arrays(
            [self._array(values, field) for values, field in zip(columns, self._schema, strict=True)],
            schema=self._schema,
        )

    def _array(self, values: Any, field: pa.Field) -> pa.Array:
        try:
            return pa.array(values, field.type)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise InputError(f"source {self._name!r}, field {field.name!r}: {error}") from error

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return batch.select(self._schema.names).cast(self._schema)
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise InputError(
                f"source {self._name!r} returned columns {', '.join(batch.schema.names)} that are not the fields "
                f"{', '.join(self._schema.names)}: {error}"
            ) from error


def _fields_of(source: DataSource) -> Fields:
    """Return the fields of a source's schema."""
    schema = source.schema()
    if not isinstance(schema, str):
        return Fields(*(f"{field.name}: {field.dataType.simpleString()}" for field in schema))
    columns = [_COLUMN.fullmatch(text) for text in _split(schema)]
    if not columns or None in columns:
        raise FieldsError(f"the schema of {source.name()!r} is {schema!r}; give fields=Fields('name: type', …)")
    return Fields(*(f"{column[1].strip('`')}: {column[2]}" for column in columns if column is not None))


def _split(schema: str) -> Iterator[str]:
    """Yield the columns of a schema, which are separated by commas that no bracket encloses."""
    depth, text = 0, ""
    for letter in schema:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            yield text
            text = ""
        else:
            text += letter
    if text.strip():
        yield text
