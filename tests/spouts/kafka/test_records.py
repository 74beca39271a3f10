"""From records to tuples, and what happens to bad ones."""

import datetime as dt
import json
import pickle

import attrs
import pytest

from spouts.kafka.records import (
    BAD_RECORDS_FIELDS,
    RECORD_FIELDS,
    BadRecordsTable,
    RefusedRecords,
    record_format,
    record_of,
)
from tests.processes import ran
from txtopo import Fields
from txtopo.attempts import TransactionAttempt
from txtopo.errors import FieldsError, InputError
from txtopo.testing import RecordingCollector

ATTEMPT = TransactionAttempt(7, 1)
PAGES = Fields("page: string", "bytes: long")


@attrs.frozen
class Sent:
    """A record as the client gives it."""

    sent_value: bytes | None
    sent_key: bytes | None = None
    sent_offset: int = 0
    sent_headers: list | None = None
    sent_time: tuple[int, int] = (1, 1_700_000_000_123)

    def topic(self):
        return "clicks"

    def partition(self):
        return 3

    def offset(self):
        return self.sent_offset

    def key(self):
        return self.sent_key

    def value(self):
        return self.sent_value

    def timestamp(self):
        return self.sent_time

    def headers(self):
        return self.sent_headers


def sent(*values: bytes | None) -> list[Sent]:
    return [Sent(value, sent_offset=offset) for offset, value in enumerate(values)]


def emitted(fields: Fields, messages, deserializer=None, letters: list | None = None) -> list[tuple]:
    """Return the values of what is emitted after the attempt; bad records are refused or go to ``letters``."""
    collector = RecordingCollector(ATTEMPT, fields.with_attempt())
    bad = RefusedRecords() if letters is None else BadRecordsTable(lambda batch: letters.extend(batch.to_pylist()))
    record_format(fields, deserializer).emit(ATTEMPT, messages, bad, collector)
    bad.finish()
    return [values[1:] for values in collector.tuples]


def test_members_beside_the_records_own_fields():
    """The place of a record stands beside the members of its value, also if one between them is bad."""
    fields = Fields("partition: int", "page: string", "offset: long", "topic: string", "key: string")
    records = sent(b'{"page": "/a", "partition": 9, "key": "k"}', None, b"no", b'{"page": "/b"}')
    letters = []
    found = emitted(fields, records, "json+record", letters)
    assert found == [(3, "/a", 0, "clicks", "k"), (3, None, 1, "clicks", None), (3, "/b", 3, "clicks", None)]
    assert [(letter["offset"], letter["value"]) for letter in letters] == [(2, b"no")]
    assert emitted(fields, records[:2], "json+record") == found[:2]
    with pytest.raises(FieldsError, match="leave the deserializer out"):
        record_format(Fields("offset: long"), "json+record")
    with pytest.raises(FieldsError, match="is a record's own and has type"):
        record_format(Fields("page: string", "partition: string"), "json+record")


@pytest.mark.long
def test_a_header_whose_name_is_not_text():
    """Makes a bad record where a field or a function wants headers, with its place; elsewhere nobody looks at it.

    In a process of its own: confluent-kafka, asked carelessly, lets such a record end it.
    """
    ended = ran("-m", "tests.spouts.kafka.odd_headers")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    fault = r"the name of a header is not UTF-8: b'caf\xe9'"
    reasons = {
        "typed": fault,
        "untyped": fault,
        "function": f"the deserializer refuses it, ValueError: {fault}",
        "plain": f"no tuple can be made of it: ValueError: {fault}",
    }
    for how, reason in reasons.items():
        assert found.pop(how) == {"tuples": 305, "bad": [["odd-headers", 0, 300, reason]]}
    assert set(found) == {"function of values", "other fields", "plain, other fields"}
    assert list(found.values()) == [{"tuples": 306, "bad": []}] * 3


def test_headers_are_a_sequence():
    """A record's headers are compared, pickled, shown and read as a list of pairs, though they are read on demand."""
    record = record_of(Sent(b"v", sent_headers=[("h", b"1"), ("h", None)]))
    assert record.headers == [("h", b"1"), ("h", None)]
    assert record == pickle.loads(pickle.dumps(record))
    assert (list(record.headers), record.headers[-1], len(record.headers)) == (
        [("h", b"1"), ("h", None)],
        ("h", None),
        2,
    )
    assert dict(record.headers) == {"h": None}
    assert "headers=[('h', b'1'), ('h', None)]" in repr(record)
    assert not record_of(Sent(b"v")).headers


def test_what_an_error_quotes_is_printable():
    """A record's bytes do not reach the terminal as they are, nor does what a function says of them."""
    wild = "\x1b[2J\x9b31m\r\n\u202e\x00"
    escaped = r"\x1b[2J\x9b31m\r\n\u202e\x00"

    def refuse(record):
        raise ValueError(record.value.decode())

    with pytest.raises(InputError) as caught:
        emitted(PAGES, sent(wild.encode()))
    assert escaped in str(caught.value)
    assert str(caught.value).isprintable()
    letters: list = []
    assert emitted(PAGES, sent(wild.encode()), refuse, letters) == []
    assert letters[0]["reason"] == f"the deserializer refuses it, ValueError: {escaped}"


def test_a_letter_holds_no_secret():
    """Anybody may read the table, and the function may say with what it failed to reach a registry."""

    def refuse(record):
        raise OSError("https://me:hunter2@registry is down")

    letters: list = []
    assert emitted(PAGES, sent(b"v"), refuse, letters) == []
    assert letters[0]["reason"] == "the deserializer refuses it, OSError: https://…@registry is down"


def test_a_record_has_fields_of_its_own():
    """All of them by default; the time is null if the record has none."""
    at = dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=dt.UTC)
    full = Sent(b"v", b"k", 5, [("h", b"1"), ("h", None)])
    bare = Sent(None, None, 6, None, (0, -1))
    headers = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert emitted(RECORD_FIELDS, [full, bare]) == [
        (b"k", b"v", "clicks", 3, 5, at, headers),
        (None, None, "clicks", 3, 6, None, []),
    ]


@pytest.mark.parametrize(
    ("fields", "deserializer"),
    [
        (Fields("timestamp: timestamp"), None),
        (Fields("timestamp"), None),
        (Fields("timestamp: timestamp", "n: long"), "json+record"),
    ],
)
@pytest.mark.parametrize("at", [1_700_000_000_123_456, 2**62, 253_402_300_800_000])
def test_a_time_that_no_field_can_hold(fields, deserializer, at):
    """Microseconds for milliseconds, say: the record is bad if a field wants its time, and its dead letter has none."""
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC)
    messages = [Sent(b"{}", sent_time=(1, each)) for each in (253_402_300_799_999, at, -5)]
    letters: list = []
    assert [values[0] for values in emitted(fields, messages, deserializer, letters)] == [last, None]
    assert [letter["timestamp"] for letter in letters] == [None]
    assert letters[0]["reason"] == f"its timestamp, {at} ms since 1970, is after the year 9999"
    with pytest.raises(InputError, match="is after the year 9999"):
        emitted(fields, messages, deserializer)
    assert emitted(Fields("value: string"), messages) == [("{}",)] * 3


def test_some_of_them_in_any_order():
    """With or without types; key and value may be texts."""
    messages = [Sent("ä".encode(), b"k", 5)]
    assert emitted(Fields("offset: long", "value: string"), messages) == [(5, "ä")]
    assert emitted(Fields("value", "partition", "headers"), messages) == [("ä".encode(), 3, [])]
    with pytest.raises(FieldsError, match="'offset' is a record's own and has type int64, not string"):
        record_format(Fields("offset: string"), None)


def test_a_text_that_is_none_is_bad():
    letters: list = []
    messages = [Sent(b"a", sent_offset=1), Sent(b"\xff", sent_offset=2), Sent(None, sent_offset=3)]
    assert emitted(Fields("value: string"), messages, letters=letters) == [("a",), (None,)]
    assert [(letter["offset"], letter["reason"]) for letter in letters] == [(2, "its value is not UTF-8 at byte 0")]


def test_members_of_json():
    """By the fields' names: missing ones are null, others are left out; a record without a value is all null."""
    values = sent(b'{"page": "/a", "bytes": 1}', b'{"bytes": 2, "more": [3]}', None)
    assert emitted(PAGES, values) == [("/a", 1), (None, 2), (None, None)]


def test_json_on_several_lines():
    """Line ends between the members are blanks."""
    assert emitted(PAGES, sent(b'{\r\n "page": "/a",\n "bytes": 1\n}\n', b' {"bytes": 2}')) == [("/a", 1), (None, 2)]


def test_json_members_with_names_of_records():
    """Need to be asked for."""
    fields = Fields("key: string", "value: long")
    assert emitted(fields, sent(b'{"key": "k", "value": 1}'), "json") == [("k", 1)]


BAD = [
    b'{"page": "/a", "bytes": "many"}',
    b"",
    b"null",
    b"[1]",
    b'{"page": "/a"} {"page": "/b"}',
    b'{"page": "/a"',
    b'{"page": "\xff"}',
    b'{"page": "a\nb"}',
]


@pytest.mark.parametrize("value", BAD)
def test_json_that_does_not_fit_is_refused(value):
    """The error names topic, partition and offset, and what to do."""
    with pytest.raises(InputError, match=r"topic 'clicks', partition 3, offset 1: it .*dead_letter=PATH"):
        emitted(PAGES, sent(b'{"page": "/ok", "bytes": 1}', value))


def test_bad_json_goes_to_the_dead_letters():
    """With its bytes; what is around it is emitted, and its reason does not depend on that."""
    good = b'{"page": "/ok", "bytes": 1}'
    letters: list = []
    messages = sent(*(value for bad in BAD for value in (good, bad)))
    assert emitted(PAGES, messages, letters=letters) == [("/ok", 1)] * len(BAD)
    assert [letter["value"] for letter in letters] == BAD
    assert [letter["offset"] for letter in letters] == [2 * index + 1 for index in range(len(BAD))]
    assert set(letters[0]) == set(BAD_RECORDS_FIELDS)
    alone: list = []
    for bad in BAD:
        emitted(PAGES, sent(bad), letters=alone)
    assert [letter["reason"] for letter in alone] == [letter["reason"] for letter in letters]


def test_a_function():
    """Takes a record, and returns values in the order of the fields, or by their names; None gives no tuple."""

    def read(record):
        if record.offset == 1:
            return None
        members = json.loads(record.value)
        return members if record.offset == 0 else (members["page"], record.partition)

    values = sent(b'{"page": "/a"}', b"{}", b'{"page": "/b"}')
    assert emitted(PAGES, values, read) == [("/a", None), ("/b", 3)]
    assert emitted(Fields("page", "bytes"), values, read) == [("/a", None), ("/b", 3)]


def test_a_record_that_a_function_refuses():
    """Any exception of its makes a bad record, and so do values that do not fit."""
    values = sent(b'{"page": "/a"}', b"nonsense", b'{"page": 5}')

    def read(record):
        return (json.loads(record.value)["page"], 1)

    letters: list = []
    assert emitted(PAGES, values, read, letters) == [("/a", 1)]
    assert [letter["offset"] for letter in letters] == [1, 2]
    assert "JSONDecodeError" in letters[0]["reason"]
    with pytest.raises(InputError, match=r"offset 1: the deserializer refuses it, JSONDecodeError"):
        emitted(PAGES, values, read)


def test_a_function_that_returns_something_else():
    """Is a bug, not a bad record."""
    with pytest.raises(FieldsError, match="give one value for each of the fields page, bytes"):
        emitted(PAGES, sent(b"x"), lambda record: ("/a",), letters=[])


@pytest.mark.parametrize(
    ("fields", "deserializer", "message"),
    [
        (Fields("page"), None, "JSON needs a type for each field"),
        (Fields("page: map<string,string>"), None, "maps cannot be read from JSON"),
        (Fields("page: string"), "avro", "deserializer is 'avro'"),
    ],
)
def test_fields_that_do_not_suit(fields, deserializer, message):
    with pytest.raises(FieldsError, match=message):
        record_format(fields, deserializer)
