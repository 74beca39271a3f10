"""From Kafka records to tuples, by their own columns, as JSON with typed fields, or by a function; and bad records."""

from __future__ import annotations

import datetime as dt
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spouts.bad_records import BadRecordRows
from spouts.files.bad_records import MISFITS, sieve
from spouts.json_records import JsonRecords, count_objects, is_json, object_fault, suspect
from spouts.kafka.log import KafkaRecord, Message, TopicPartition
from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.data.fields import Fields
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.conversion import fitted_array
from txtopo.errors import FieldsError, InputError, TxtopoError
from txtopo.text.printable import escaped
from txtopo.text.secrecy import without_secrets

RECORD_FIELDS = Fields(
    "key: binary",
    "value: binary",
    "topic: string",
    "partition: int",
    "offset: long",
    "timestamp: timestamp",
    "headers: array<struct<key:string,value:binary>>",
)
"""A record's own columns. The topic's settings say whether the timestamp is the producer's or the broker's; it is null
if there is none; a record with one after the year 9999 is a bad one, if a field wants it."""

PLACE_FIELDS = ("topic", "partition", "offset", "timestamp")
"""The record's own fields that may stand beside the members of its JSON value."""

BAD_RECORDS_FIELDS = Fields(
    "topic: string", "partition: int", "offset: long", "timestamp: timestamp", "key: binary", "value: binary",
    "reason: string",
)  # fmt: skip

_SHOWN_BYTES = 200
"""How much of a bad record is in an error."""
_ask_for_headers = operator.methodcaller("headers")
_NO_TIMESTAMP = 0
"""confluent-kafka's type of a missing timestamp."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TIMESTAMP_MS_MAX = 253_402_300_799_999
"""The end of the year 9999, the last of ``datetime``. A producer may write any number, for example microseconds."""

Deserializer = Callable[[KafkaRecord], Sequence[Any] | Mapping[str, Any] | None]
"""Returns a record's values in the order of the fields, or by their names; None for no tuple. If it raises anything but
an error of txtopo's, the record is a bad one."""


class BadRecords(ABC):
    """Takes records that can't be deserialized."""

    @abstractmethod
    def add(self, message: Message, reason: str) -> None:
        """Take a bad record, or raise InputError to refuse it."""

    def finish(self) -> None:
        """Emit what waits."""


class RefusedRecords(BadRecords):
    """Refuses any bad record."""

    def add(self, message: Message, reason: str) -> None:
        """Raise InputError with the record's place and the beginning of its value."""
        value = message.value() or b""
        shown = escaped(value[:_SHOWN_BYTES].decode(errors="backslashreplace"))
        raise InputError(
            f"{TopicPartition(message.topic(), message.partition())}, offset {message.offset()}: {escaped(reason)}: "
            f"{shown}; correct the spout's fields or deserializer, or give it dead_letter=PATH to keep such records "
            "there and go on"
        )


class BadRecordsTable(BadRecords):
    """Emits batches of bad records, with :data:`BAD_RECORDS_FIELDS`."""

    def __init__(self, emit: Callable[[pa.RecordBatch], None]) -> None:
        self._rows = BadRecordRows(BAD_RECORDS_FIELDS, emit)

    def add(self, message: Message, reason: str) -> None:
        """Keep a record until a batch is full."""
        key, value = message.key(), message.value()
        place = (message.topic(), message.partition(), message.offset(), _timestamp(message))
        self._rows.add((*place, key, value, escaped(reason)), len(key or b"") + len(value or b""))

    def finish(self) -> None:
        """Emit what waits."""
        self._rows.finish()


class RecordFormat(ABC):
    """Makes tuples of records; its fields are those after the attempt."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields

    def emit(
        self, attempt: TransactionAttempt, messages: Sequence[Message], bad: BadRecords, collector: BatchOutputCollector
    ) -> None:
        """Emit the tuples of records, and pass bad records on."""
        if self.fields.columnar:
            for table in self.tables(messages, bad):
                for batch in table.combine_chunks().to_batches():
                    collector.emit_batch(batch)
        else:
            for row in self.rows(messages, bad):
                collector.emit((attempt, *row))

    @abstractmethod
    def tables(self, messages: Sequence[Message], bad: BadRecords) -> Iterable[pa.Table]:
        """Return the tuples as columns, if the fields are typed."""

    @abstractmethod
    def rows(self, messages: Sequence[Message], bad: BadRecords) -> Iterable[Sequence[Any]]:
        """Return the tuples one by one, if the fields are not typed."""


def record_format(fields: Fields, deserializer: str | Deserializer | None) -> RecordFormat:
    """Return the format for a spout's arguments.

    Without a deserializer it is the record's own columns if all fields are among them, otherwise JSON.

    Raises:
        FieldsError: the fields do not suit the deserializer.
    """
    if callable(deserializer):
        return _FunctionFormat(fields, deserializer)
    if deserializer is None and set(fields) <= set(RECORD_FIELDS):
        return _OwnFormat(fields)
    if deserializer in {None, "json"}:
        return _JsonFormat(fields)
    if deserializer == "json+record":
        return _JsonFormat(fields, [name for name in fields if name in PLACE_FIELDS])
    raise FieldsError(
        f"deserializer is {deserializer!r}; give 'json', 'json+record', a function of a record, or leave it out"
    )


class _OwnFormat(RecordFormat):
    """Some or all of the record's own columns; key and value may be strings, in UTF-8."""

    _TYPES: Mapping[str, tuple[pa.DataType, ...]] = {
        "key": (pa.binary(), pa.string()),
        "value": (pa.binary(), pa.string()),
        "topic": (pa.string(),),
        "partition": (pa.int32(), pa.int64()),
        "offset": (pa.int64(),),
        "timestamp": (pa.timestamp("us", tz="UTC"),),
        "headers": (RECORD_FIELDS.types[-1],),
    }

    def __init__(self, fields: Fields) -> None:
        super().__init__(fields)
        for name, kind in zip(fields.names, fields.types, strict=True):
            if kind is not None and kind not in self._TYPES[name]:
                types = " or ".join(map(str, self._TYPES[name]))
                raise FieldsError(
                    f"field {name!r} is a record's own and has type {types}, not {kind}; for a member of a JSON value "
                    "with that name, give deserializer='json'"
                )
        self._texts = [name for name in ("key", "value") if name in fields and _type_of(fields, name) == pa.string()]
        self._has_time = "timestamp" in fields

    def tables(self, messages: Sequence[Message], bad: BadRecords) -> Iterable[pa.Table]:
        schema = self.fields.arrow_schema()
        messages, headers = self._with_headers(messages, bad)
        try:
            return [_own_table(messages, schema, headers)]
        except (pa.ArrowInvalid, UnicodeDecodeError):
            # Only now look at each record: checking all of them first would slow down the usual case, without bad ones.
            good = [index for index, message in enumerate(messages) if self.is_good(message, bad)]
            good_headers = [headers[index] for index in good] if headers else ()
            return [_own_table([messages[index] for index in good], schema, good_headers)] if good else []

    def rows(self, messages: Sequence[Message], bad: BadRecords) -> Iterable[Sequence[Any]]:
        if self._has_time:
            messages = [message for message in messages if self.is_good(message, bad)]
        messages, headers = self._with_headers(messages, bad)
        columns = (headers if name == "headers" else _own_values(messages, name) for name in self.fields)
        return zip(*columns, strict=True)

    def _with_headers(self, messages: Sequence[Message], bad: BadRecords) -> tuple[Sequence[Message], Sequence[Any]]:
        """Return the messages whose headers can be read, with their headers, if a field wants them."""
        if "headers" not in self.fields:
            return messages, ()
        good, headers = [], []
        for message in messages:
            try:
                headers.append(_headers(message))
            except ValueError as error:
                bad.add(message, str(error))
            else:
                good.append(message)
        return good, headers

    def is_good(self, message: Message, bad: BadRecords) -> bool:
        """Whether the fields can hold a record's own columns; if not, it is passed on."""
        if self._has_time and _time_ms(message) > _TIMESTAMP_MS_MAX:
            bad.add(message, f"its timestamp, {_time_ms(message)} ms since 1970, is after the year 9999")
            return False
        for name in self._texts:
            content = message.key() if name == "key" else message.value()
            try:
                (content or b"").decode()
            except UnicodeDecodeError as error:
                bad.add(message, f"its {name} is not UTF-8 at byte {error.start}")
                return False
        return True


class _JsonFormat(RecordFormat):
    """The members of JSON objects, as columns. A record without a value gives a tuple of nulls.

    The fields ``own`` are the record's.
    """

    def __init__(self, fields: Fields, record_fields: Sequence[str] = ()) -> None:
        super().__init__(fields)
        if not fields.columnar:
            raise FieldsError(
                f"JSON needs a type for each field, such as Fields('page: string'), not {fields}; the fields of a "
                f"record itself are {', '.join(RECORD_FIELDS)}"
            )
        members = [name for name in fields if name not in record_fields]
        if not members:
            raise FieldsError(f"all of {fields} are a record's own; leave the deserializer out")
        self._own = _OwnFormat(fields.subset(record_fields)) if record_fields else None
        self._records = JsonRecords(fields.subset(members).arrow_schema())

    def tables(self, messages: Sequence[Message], bad: BadRecords) -> Iterable[pa.Table]:
        if self._own is not None:
            messages = [message for message in messages if self._own.is_good(message, bad)]
        values = [message.value() for message in messages]
        contents = [b"{}" if value is None else value for value in values]
        table = self._all_objects(contents)
        return self._without_bad(messages, contents, bad) if table is None else [self._with_own(table, messages)]

    def rows(self, messages: Sequence[Message], bad: BadRecords) -> Iterable[Sequence[Any]]:
        del messages, bad
        raise AssertionError("the fields of JSON have types")

    def _all_objects(self, contents: Sequence[bytes]) -> pa.Table | None:
        """Return the table of all objects; None if one is bad, or has several lines: then each is looked at."""
        lines = b"\n".join(contents)
        if lines.count(b"\n") != len(contents) - 1 or b"\r" in lines:
            return None
        try:
            # The parser skips a blank line, and would give one row less than there are records.
            is_each = count_objects(pa.array(contents, pa.binary()).cast(pa.string())) == len(contents)
            table = self._records.parse(lines) if is_each else None
        except MISFITS:
            return None
        return table if table is not None and table.num_rows == len(contents) else None

    def _without_bad(
        self, messages: Sequence[Message], contents: Sequence[bytes], bad: BadRecords
    ) -> Iterable[pa.Table]:
        lines = [_on_one_line(content) for content in contents]
        reasons = {index: reason for index, line in enumerate(lines) if (reason := _json_fault(line)) is not None}
        good_numbers = [index for index in range(len(lines)) if index not in reasons]
        tables, misfits = sieve([lines[index] for index in good_numbers], self._records.parse_each, suspect)
        reasons.update({good_numbers[at]: reason for at, reason in misfits.items()})
        for index in sorted(reasons):
            bad.add(messages[index], reasons[index])
        good = [messages[index] for index in good_numbers if index not in reasons]
        return [self._with_own(pa.concat_tables(tables), good)] if tables else []

    def _with_own(self, table: pa.Table, messages: Sequence[Message]) -> pa.Table:
        if self._own is None:
            return table
        record_columns = _own_table(messages, self._own.fields.arrow_schema(), ())
        columns = [(record_columns if name in record_columns.column_names else table)[name] for name in self.fields]
        return pa.Table.from_arrays(columns, schema=self.fields.arrow_schema())


class _FunctionFormat(RecordFormat):
    """What a function makes of each record."""

    def __init__(self, fields: Fields, function: Deserializer) -> None:
        super().__init__(fields)
        self._function = function

    def tables(self, messages: Sequence[Message], bad: BadRecords) -> Iterable[pa.Table]:
        rows = list(self._made(messages, bad))
        if not rows:
            return []
        try:
            return [self._table([values for _, values in rows])]
        except FieldsError:
            good = [values for message, values in rows if self._fits(message, values, bad)]
            return [self._table(good)] if good else []

    def rows(self, messages: Sequence[Message], bad: BadRecords) -> Iterable[Sequence[Any]]:
        return [values for _, values in self._made(messages, bad)]

    def _made(self, messages: Sequence[Message], bad: BadRecords) -> Iterable[tuple[Message, Sequence[Any]]]:
        for message in messages:
            try:
                values = self._function(record_of(message))
                if values is not None:
                    values = self._in_order(values)
            except TxtopoError:
                raise  # wrong for every record, such as a wrong number of values: not this record's fault
            except Exception as error:  # noqa: BLE001 - the user's function may raise anything for a record
                reason = f"the deserializer refuses it, {type(error).__name__}: {error}"
                bad.add(message, without_secrets(reason))
                continue
            if values is not None:
                yield message, values

    def _in_order(self, values: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any]:
        if isinstance(values, Mapping):
            return [values.get(name) for name in self.fields]
        if isinstance(values, str | bytes) or len(values) != len(self.fields):
            raise FieldsError(
                f"the deserializer has returned {values!r}; give one value for each of the fields "
                f"{', '.join(self.fields)}, or a mapping by their names"
            )
        return values

    def _table(self, rows: Sequence[Sequence[Any]]) -> pa.Table:
        schema = self.fields.arrow_schema()
        columns = zip(*rows, strict=True)
        arrays = [
            fitted_array(field.name, column, field.type, "from the deserializer")
            for column, field in zip(columns, schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _fits(self, message: Message, values: Sequence[Any], bad: BadRecords) -> bool:
        try:
            self._table([values])
        except FieldsError as error:
            bad.add(message, f"the deserializer's values do not fit the fields: {error}")
            return False
        return True


def _json_fault(line: bytes) -> str | None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 at byte {error.start}"
    if b"\n" in line or b"\r" in line or object_fault(line) is not None:
        return "it is not one JSON object"
    return None


def _on_one_line(content: bytes) -> bytes:
    """Return an object on one line; in valid JSON a line end is only where a blank may be."""
    if (b"\n" in content or b"\r" in content) and is_json(content):
        return content.replace(b"\n", b" ").replace(b"\r", b" ").strip()
    return content.strip(b" \t")


def _own_table(messages: Sequence[Message], schema: pa.Schema, headers: Sequence[Any]) -> pa.Table:
    arrays = []
    for field in schema:
        if field.name == "timestamp":
            milliseconds = pa.array([_time_ms(message) for message in messages], pa.int64())
            if (pc.max(milliseconds).as_py() or 0) > _TIMESTAMP_MS_MAX:
                raise pa.ArrowInvalid("a time after the year 9999")
            times = pc.if_else(pc.less(milliseconds, 0), None, milliseconds)
            arrays.append(times.cast(pa.timestamp("ms", tz="UTC")).cast(field.type))
        elif field.name == "headers":
            arrays.append(pa.array(headers, field.type))
        elif field.name == "topic":
            arrays.append(_topics(messages))
        elif field.type == pa.string():
            arrays.append(pa.array(_own_values(messages, field.name), pa.binary()).cast(pa.string()))
        else:
            arrays.append(pa.array(_own_values(messages, field.name), field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _topics(messages: Sequence[Message]) -> pa.Array:
    """Return the column of topics: all messages are of one span, hence of one topic."""
    return pa.repeat(pa.scalar(messages[0].topic()), len(messages)) if messages else pa.array([], pa.string())


def _own_values(messages: Sequence[Message], name: str) -> list[Any]:
    match name:
        case "key":
            return [message.key() for message in messages]
        case "value":
            return [message.value() for message in messages]
        case "topic":
            return [message.topic() for message in messages]
        case "partition":
            return [message.partition() for message in messages]
        case "offset":
            return [message.offset() for message in messages]
        case _:
            return [_timestamp(message) for message in messages]


def record_of(message: Message) -> KafkaRecord:
    """Return a message of confluent-kafka as a record."""
    return KafkaRecord(
        message.key(),
        message.value(),
        message.topic(),
        message.partition(),
        message.offset(),
        _timestamp(message),
        _LazyHeaders(message),
    )


def _timestamp(message: Message) -> dt.datetime | None:
    at_ms = _time_ms(message)
    return _EPOCH + dt.timedelta(milliseconds=at_ms) if 0 <= at_ms <= _TIMESTAMP_MS_MAX else None


def _time_ms(message: Message) -> int:
    kind, at_ms = message.timestamp()
    return -1 if kind == _NO_TIMESTAMP else at_ms


class _LazyHeaders(Sequence[tuple[str, bytes | None]]):
    __slots__ = ("_found", "_message")
    __hash__ = None  # type: ignore[assignment] # as a list

    def __init__(self, message: Message) -> None:
        self._message: Message | None = message
        self._found: list[tuple[str, bytes | None]] | ValueError = []

    def _read(self) -> list[tuple[str, bytes | None]]:
        if self._message is not None:
            try:
                self._found = _headers(self._message)
            except ValueError as error:
                self._found = error
            self._message = None  # see _headers: a second call would return a list with a hole
        if isinstance(self._found, ValueError):
            raise self._found
        return self._found

    def __getitem__(self, index: Any) -> Any:
        return self._read()[index]

    def __len__(self) -> int:
        return len(self._read())

    def __iter__(self) -> Iterator[tuple[str, bytes | None]]:
        return iter(self._read())

    def __eq__(self, other: object) -> bool:
        return self._read() == (other._read() if isinstance(other, _LazyHeaders) else other)

    def __repr__(self) -> str:
        try:
            return repr(self._read())
        except ValueError as error:
            return f"<{error}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (self._read(),)


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record, once; raise ValueError if a name is not UTF-8.

    For such a name, confluent-kafka (up to 2.16.1 at least) sets an exception, but also returns a list, with a hole in
    place of the name. What follows depends on the caller:

    1. A call from C checks for such an exception. It raises SystemError, with the UnicodeDecodeError as its cause.
    2. A hot call from Python (``message.headers()`` in a loop, which Python 3.11 and later specialise) does not check.
       Whoever unpacks the pair reads the hole, and the process dies.
    3. A second call returns the list of the first, with the hole, and no exception.

    Hence a methodcaller, which calls from C, and only once for each message.
    """
    try:
        headers: list[tuple[str, bytes | None]] | None = _ask_for_headers(message)
    except (SystemError, UnicodeDecodeError) as error:
        wrong = error if isinstance(error, UnicodeDecodeError) else error.__cause__
        if not isinstance(wrong, UnicodeDecodeError):
            raise
        raise ValueError(f"the name of a header is not UTF-8: {wrong.object!r}") from None
    return headers or []


def _type_of(fields: Fields, name: str) -> pa.DataType | None:
    return fields.types[fields.index(name)]
