"""``DataSourceSpout``: a stream of any data source that is written for PySpark in Python.

Metadata has the source's offsets: ``{"start": …, "end": …}``; if several tasks read them, also ``partitions``, a digest
of what ``partitions()`` has returned, by which each task sees that it divides the same ones.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txtopo.api.arguments import check_positive, check_secs, checked_arguments
from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.spout import Coordinator, Emitter, Metadata, TransactionalSpout
from txtopo.api.data.fields import Fields
from txtopo.api.data.types import ddl_name
from txtopo.attempts import TransactionAttempt
from txtopo.errors import ConfigError, FieldsError, InputError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

ROWS = 10_000
"""How many rows that come one by one are made columns at a time."""

logger = logging.getLogger(__name__)

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

_COLUMN = re.compile(r"\s*(`[^`]+`|[^\s:`]+)\s*:?\s*(.+?)(?:\s+NOT\s+NULL)?(?:\s+COMMENT\s+.*)?\s*", re.IGNORECASE)
"""A column of a schema in SQL: its name and its type."""


class DataSourceSpout(TransactionalSpout):
    """Emits what a Python data source of PySpark streams; in columns.

    The source is one that ``spark.dataSource.register`` takes, with ``streamReader`` or ``simpleStreamReader``. Spark's
    checkpoint is not used: the offsets are a transaction's metadata.

    *You* keep what a range of offsets holds until ``commit`` was called with its end, and see to it that
    ``partitions(start, end)``, ``read`` and ``readBetweenOffsets`` return the same in any process, as Spark asks, too;
    in which order partitions come does not matter.

    *txtopo* guarantees that each range is in exactly one transaction, in order, and calls ``commit`` once a range and
    all before it are committed, not for each. One that fails is logged, and called again after the next transaction.
    Values are converted as Spark does it: a named ``Row`` by its names, times without a zone as local ones.
    Offsets that go back in all their numbers that change, as those of a replica may, are taken for nothing new.

    Args:
        source: the class, a subclass of ``pyspark.sql.datasource.DataSource``. It must pickle.
        options: its options.
        fields: the columns, with types; None: those of the source's ``schema()``.
        rows_max: the maximum number of rows in a transaction, for sources whose ``latestOffset`` takes a limit; None:
            the source's own limit.
        until_end: whether the run ends when the source has nothing new, as with Spark's ``availableNow``: a source with
            ``prepareForTriggerAvailableNow`` is told so. Otherwise it ends by ``run(…, until=…)``, SIGINT or SIGTERM.
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
        self.values = (fields or _fields_of(self._made_source())).with_attempt().without_attempt()
        """The fields after the attempt."""
        self.values.arrow_schema()
        self.output_fields = self.values.with_attempt()
        self.rows_max = rows_max
        self.until_end = until_end
        self.poll_secs = poll_secs

    def reader(self) -> _Reader:
        """Open the source for a process."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - PySpark's interface, where it is used

        source, schema = self._made_source(), from_arrow_schema(self.values.arrow_schema())
        try:
            return _StreamReader(source.streamReader(schema), self.rows_max)
        except NotImplementedError:
            return _SimpleReader(source.simpleStreamReader(schema))

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """Return the coordinator."""
        del config
        return _DataSourceCoordinator(self, len(context.component_tasks(context.this_component_id)))

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

    def _made_source(self) -> DataSource:
        from pyspark.sql.datasource import CaseInsensitiveDict  # noqa: PLC0415 - as above

        return self.source(CaseInsensitiveDict(self.options))


class _StreamReader:
    """A reader that knows partitions."""

    def __init__(self, reader: Any, rows_max: int | None) -> None:
        self._takes_limit = bool(inspect.signature(reader.latestOffset).parameters)
        self._rows_max = rows_max
        self.reader, self.stop = reader, reader.stop
        if rows_max is not None and not self._takes_limit:
            raise ConfigError(f"rows_max: latestOffset() of {type(reader).__name__} takes no limit; leave it out")

    def latest(self, start: Any) -> Any:
        """Return the offset up to which there is something."""
        if not self._takes_limit:
            return self.reader.latestOffset()
        limit = self.reader.getDefaultReadLimit()
        if self._rows_max is not None:
            from pyspark.sql.streaming.datasource import ReadMaxRows  # noqa: PLC0415 - since PySpark 4.2

            limit = ReadMaxRows(self._rows_max)
        return self.reader.latestOffset(start, limit)

    def digest(self, start: Any, end: Any) -> str:
        """Return a digest of the partitions of a range, whatever their order."""
        return _digest(map(_description, self.reader.partitions(start, end)))

    def read(self, start: Any, end: Any, task: int, tasks: int, expected: str | None) -> Iterable[Any]:
        """Return what a task emits of a range."""
        partitions = list(self.reader.partitions(start, end))
        if tasks > 1:  # Spark asks for no order of them, so each has its place by what it is
            descriptions = [_description(partition) for partition in partitions]
            if expected is not None and _digest(descriptions) != expected:
                raise InputError(
                    f"partitions({start}, {end}) of {type(self.reader).__name__} returns others in a task than in the "
                    "driver, so tasks would leave some out; let it depend on the offsets alone, or read with one task"
                )
            order = sorted(range(len(descriptions)), key=lambda at: (descriptions[at], at))
            partitions = [partitions[at] for at in sorted(order[task::tasks])]
        return itertools.chain.from_iterable(map(self.reader.read, partitions))


def _description(partition: Any) -> str:
    """Return what a partition is made of."""
    text = json.dumps(getattr(partition, "__dict__", repr(partition)), sort_keys=True, default=repr, skipkeys=True)
    return _ADDRESS.sub("", f"{type(partition).__qualname__} {text}")


def _digest(descriptions: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(descriptions)).encode()).hexdigest()[:16]


class _SimpleReader:
    """A reader without partitions, which one task reads."""

    def __init__(self, reader: Any) -> None:
        self.reader = reader
        self._has_found: bool | None = None

    def latest(self, start: Any) -> Any:
        """Return the offset up to which there is something; what it has read is read again when it is emitted."""
        rows, end = self.reader.read(start)
        self._has_found = _has_rows(rows)
        if _as_json(end) == start and self._has_found:
            raise InputError(
                f"read({start}) of {type(self.reader).__name__} returns rows and the same offset as their end, so "
                "they would be read again and again; return an offset after them"
            )
        return end

    def digest(self, start: Any, end: Any) -> str:
        """Return whether a range has rows, which is all that one reader can tell another one of them."""
        is_unasked = self._has_found is None
        return str(_has_rows(self.reader.readBetweenOffsets(start, end)) if is_unasked else self._has_found)

    def read(self, start: Any, end: Any, task: int, tasks: int, expected: str | None) -> Iterable[Any]:
        """Return what a task emits of a range: the first one all of it."""
        del tasks, expected
        return self.reader.readBetweenOffsets(start, end) if task == 0 else ()

    def stop(self) -> None:
        """Do nothing: it has nothing to stop."""


_Reader = _StreamReader | _SimpleReader


def _has_rows(rows: Iterable[Any]) -> bool:
    return next(iter(rows), None) is not None


def _as_json(offset: Any) -> Any:
    """Return an offset as it is read back from metadata, in which form it is compared; InputError if it is no JSON."""
    try:
        return json.loads(json.dumps(offset, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"the source's offset {offset!r} can't be kept: {error}; give numbers, texts, dicts") from None


def _numbers(offset: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what an offset has at its ends, each after where it is."""
    if isinstance(offset, dict):
        for name, part in offset.items():
            yield from _numbers(part, f"{at}/{name}")
    elif isinstance(offset, list):
        for number, part in enumerate(offset):
            yield from _numbers(part, f"{at}/{number}")
    else:
        yield at, offset


def _has_gone_back(offset: Any, before: Any) -> bool:
    """Return whether an offset differs from an earlier one only by smaller numbers."""
    now, former = dict(_numbers(offset)), dict(_numbers(before))
    pairs = [(value, former[at]) for at, value in now.items() if at in former and value != former[at]]
    are_numbers = all(isinstance(each, int | float) for pair in pairs for each in pair)
    return bool(pairs) and now.keys() == former.keys() and are_numbers and all(new < old for new, old in pairs)


class _DataSourceCoordinator(Coordinator):
    def __init__(self, spout: DataSourceSpout, tasks: int, now_secs: Callable[[], float] = time.monotonic) -> None:
        self._spout = spout
        self._opened = spout.reader()
        self._tasks = tasks
        self._now_secs = now_secs
        self._place: Any = None
        self._latest: Any = None
        self._polled_secs: float | None = None
        self._has_begun = False
        self._is_checked = False
        """Whether the source is known to read a range again, from another reader."""
        self._ends: dict[int, Any] = {}

    def resume(self, txid: int, metadata: Metadata) -> None:
        """Begin where the last transaction has ended, or at the source's initial offset."""
        if metadata is None:
            self._place = self._latest = _as_json(self._opened.reader.initialOffset())
        else:
            self._place = self._latest = self._ends[txid] = metadata["end"]
        prepare = getattr(self._opened.reader, "prepareForTriggerAvailableNow", None)
        if self._spout.until_end and prepare is not None and not self._has_begun:
            prepare()
        self._has_begun = True

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
            latest = _as_json(self._opened.latest(self._place))
            if latest is not None and _has_gone_back(latest, self._place):
                words = "source %r is at %s, and was read up to %s: taken for nothing new"
                logger.warning(words, self._spout.source.name(), latest, self._place)
            elif latest is not None:
                self._latest = latest
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
        if self._place != self._latest and (self._tasks > 1 or not self._is_checked):
            digest = self._opened.digest(self._place, self._latest)
            self._check(digest)
            if self._tasks > 1:
                metadata["partitions"] = digest
        self._place = self._ends[txid] = self._latest
        self._polled_secs = None
        return metadata

    def _check(self, digest: str) -> None:
        """Refuse a reader that has what a range holds from where no other reader can have it.

        Tasks and later runs would read nothing. Two others are asked, since what a partition has may be by chance.
        """
        if self._is_checked:
            return
        readers = [self._spout.reader() for _ in range(2)]
        first, second = (other.digest(self._place, self._latest) for other in readers)
        if first == second != digest:
            raise InputError(
                f"source {self._spout.source.name()!r} can't read again what is from {self._place} to {self._latest}: "
                f"{type(self._opened.reader).__name__} keeps it to itself, and another reader, as tasks and a run "
                "after a crash have, gets something else. Let partitions() and readBetweenOffsets() return what the "
                "offsets say, or put its rows into files or a topic first"
            )
        for other in readers:
            _stop(other, self._spout.source.name())
        self._is_checked = True

    def cleanup_before(self, txid: int) -> None:
        """Tell the source up to where all is committed."""
        committed = [number for number in self._ends if number < txid]
        if not committed:
            return
        end = self._ends[max(committed)]
        try:
            self._opened.reader.commit(end)
        except Exception:
            logger.warning("commit(%s) of source %r failed", end, self._spout.source.name(), exc_info=True)
            return  # what is committed here stays so; the source is told with the next transaction
        for number in committed:
            del self._ends[number]

    def close(self) -> None:
        """Stop the source."""
        _stop(self._opened, self._spout.source.name())


def _stop(opened: _Reader, name: str) -> None:
    """Stop a reader; there is nothing left that its failure could harm."""
    try:
        opened.stop()
    except Exception:
        logger.warning("stop() of source %r failed", name, exc_info=True)


class _DataSourceEmitter(Emitter):
    def __init__(self, spout: DataSourceSpout, task: int, tasks: int) -> None:
        self._name = spout.source.name()
        self._schema = spout.values.arrow_schema()
        self._opened = spout.reader()
        self._share = task, tasks

    def emit_batch(self, attempt: TransactionAttempt, metadata: Metadata, collector: BatchOutputCollector) -> None:
        del attempt
        start, end = metadata["start"], metadata["end"]
        if start != end:
            rows = self._opened.read(start, end, *self._share, metadata.get("partitions"))
            for batch in self._batches(iter(rows)):
                collector.emit_batch(batch)

    def close(self) -> None:
        _stop(self._opened, self._name)

    def _batches(self, rows: Iterator[Any]) -> Iterator[pa.RecordBatch]:
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
        columns = zip(*map(self._in_order, rows), strict=True)
        return pa.RecordBatch.from_arrays(
            [self._array(values, field) for values, field in zip(columns, self._schema, strict=True)],
            schema=self._schema,
        )

    def _in_order(self, row: Any) -> Any:
        if not isinstance(row, tuple | list):
            raise InputError(
                f"source {self._name!r} returned {row!r}; give tuples, lists, Rows or record batches, as Spark asks"
            )
        names = getattr(row, "__fields__", None)
        if len(row) != len(self._schema) or (names is not None and {*names} != {*self._schema.names}):
            what = f"a row of {len(row)} values" if names is None else f"a Row of {', '.join(names)}"
            raise InputError(
                f"source {self._name!r} returned {what}, and there are {len(self._schema)} fields: "
                f"{', '.join(self._schema.names)}"
            )
        return row if names is None else [row[name] for name in self._schema.names]

    def _array(self, values: Any, field: pa.Field) -> pa.Array:
        """Return a column as Spark makes it; Arrow makes most of them alike, at a fifth of the cost."""
        if not _has_times(field.type):
            try:
                return pa.array(values, field.type)
            except (pa.ArrowException, TypeError, OverflowError):
                pass  # such as a number for a text, a dict for a map, a decimal of another scale
        try:
            return _as_spark(values, field)
        except Exception as error:  # Spark asserts much
            first = next((value for value in values if value is not None), None)
            raise InputError(
                f"source {self._name!r}, field {field.name!r} of {ddl_name(field.type)}, with values like {first!r}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return batch.select(self._schema.names).cast(self._schema)
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise InputError(
                f"source {self._name!r} returned columns {', '.join(batch.schema.names)} that are not the fields "
                f"{', '.join(self._schema.names)}: {error}"
            ) from error


def _has_times(kind: pa.DataType) -> bool:
    """Return whether a type has times somewhere, which Spark takes for local ones if they have no zone."""
    parts = [kind.field(number).type for number in range(kind.num_fields)]
    return pa.types.is_timestamp(kind) or any(map(_has_times, parts))


def _as_spark(values: Sequence[Any], field: pa.Field) -> pa.Array:
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - as above

    try:
        from pyspark.sql.conversion import LocalDataToArrowConversion  # noqa: PLC0415 - as above
    except ImportError:
        from pyspark.sql.connect.conversion import LocalDataToArrowConversion  # noqa: PLC0415 - PySpark 4.0
    schema = from_arrow_schema(pa.schema([field]))
    made = LocalDataToArrowConversion.convert([(value,) for value in values], schema, False)
    return made.column(0).combine_chunks().cast(field.type)


def _fields_of(source: DataSource) -> Fields:
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
