"""Text, CSV, JSON and Parquet: what is read, and where what does not fit is."""

import codecs
import csv
import datetime as dt
import decimal
import gzip
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from spouts.files.limits import ReadLimits
from spouts.files.spout import FilesTransactionalSpout
from tests.budgets import examples
from tests.spouts.reading import plan, read, written
from txtopo.api.data.fields import Fields
from txtopo.api.data.types import ddl_name
from txtopo.errors import InputError
from txtopo.testing.conformance.spout import TransactionalSpoutConformance

FIELDS = Fields("word: string", "n: long")
ROWS = [(f"word {n}", n) for n in range(200)]


def csv_of(rows, **options):
    file = io.StringIO(newline="")
    csv.writer(file, **options).writerows(rows)
    return file.getvalue()


class TestCsv(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self, tmp_path):
        for name in ("a.csv", "b.csv"):
            written(tmp_path / name, csv_of([FIELDS.names, *ROWS, ('line\nbreak and "quote"', 1)]))
        return FilesTransactionalSpout(tmp_path, FIELDS, batch_bytes=500)


class TestCsvWithoutQuotes(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self, tmp_path):
        written(tmp_path / "a.csv", csv_of([("n", "other", "word"), *((n, "", word) for word, n in ROWS)]))
        return FilesTransactionalSpout(tmp_path, FIELDS, batch_bytes=300, quote=None)


class TestJson(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self, tmp_path):
        written(tmp_path / "a.json", "".join(json.dumps({"n": n, "word": word}) + "\n" for word, n in ROWS))
        return FilesTransactionalSpout(tmp_path, FIELDS, batch_bytes=400)


class TestParquet(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self, tmp_path):
        table = pa.table({"n": [n for _, n in ROWS], "other": [0.5] * len(ROWS), "word": [word for word, _ in ROWS]})
        for name in ("a.parquet", "b.parquet"):
            pq.write_table(table, tmp_path / name, row_group_size=30)
        pq.write_table(table.slice(0, 0), tmp_path / "c.parquet")
        return FilesTransactionalSpout(tmp_path, FIELDS, batch_bytes=1000)


def test_text_lines_end_at_newlines_alone(tmp_path):
    """Other things that end lines for Python do not; one carriage return before the end is kept off."""
    path = written(tmp_path / "a.txt", "a\u2028b\x0bc\rd\r\r\n\n\r")
    assert read(FilesTransactionalSpout(path)) == [("a\u2028b\x0bc\rd\r",), ("",), ("",)]


def test_long_ranges_are_read_in_bounded_chunks(tmp_path):
    """Chunks end at lines, also where one is longer than a chunk; batches have a bounded number of rows."""
    lines = ["x" * n for n in (0, 3, 20, 6, 7, 8, 0, 1)]
    path = written(tmp_path / "a.txt", "\n".join(lines) + "\n")
    spout = FilesTransactionalSpout(path)
    spout.read_limits = ReadLimits(chunk_bytes=7, batch_rows=2)
    assert read(spout) == [(line,) for line in lines]


VALUES = st.text(alphabet='a,"\né ', min_size=1, max_size=6)


@settings(max_examples=examples(60), deadline=None)
@given(rows=st.lists(st.tuples(VALUES, st.none() | st.integers(-5, 5)), max_size=8))
def test_csv_reads_what_a_csv_writer_writes(tmp_path_factory, rows):
    """Quotes, delimiters and newlines within values are kept; an empty number is null."""
    path = written(tmp_path_factory.mktemp("csv") / "a.csv", csv_of([FIELDS.names, *rows]))
    assert read(FilesTransactionalSpout(path, FIELDS)) == rows


@pytest.mark.parametrize("quote", ['"', None])
def test_csv_columns_are_found_by_name_or_by_place(tmp_path, quote):
    """With a header, fields are found by name; without, they are the columns in their order."""
    path = written(tmp_path / "a.csv", "\ufeffn,x,word\r\n1,,one\r\n\r\n2,,\r\n,,three")
    spout = FilesTransactionalSpout(path, FIELDS, quote=quote)
    assert read(spout) == [("one", 1), ("", 2), ("three", None)]
    path = written(tmp_path / "b.csv", "one|1\ntwo|2\n")
    spout = FilesTransactionalSpout(path, FIELDS, quote=quote, header=False, delimiter="|")
    assert read(spout) == [("one", 1), ("two", 2)]


@pytest.mark.parametrize("batch_bytes", [1, 3, 5, 8, 100])
def test_a_csv_header_counts_once_wherever_the_cuts_fall(tmp_path, batch_bytes):
    """The header is the first line that is not blank, and no range takes it for a record."""
    path = written(tmp_path / "a.csv", "\n\nword,n\n\na,1\nb,2\n")
    spout = FilesTransactionalSpout(path, FIELDS, quote=None, batch_bytes=batch_bytes)
    assert read(spout, tasks=2) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("quote", ['"', None])
@pytest.mark.parametrize(
    ("content", "header"),
    [
        ("", True),
        ("\ufeff", True),
        ("\ufeff\r\n", True),
        ("\n\n", True),
        ("\ufeff", False),
        ("word,n", True),
        ("word,n\n", True),
        ("\r\nword,n\r\n\r\n", True),
        ("\n\r\n\n", False),
    ],
)
def test_a_csv_file_without_records(tmp_path, content, header, quote):
    """It may be empty, or hold a header or blank lines only."""
    path = written(tmp_path / "a.csv", content)
    assert read(FilesTransactionalSpout(path, FIELDS, quote=quote, header=header)) == []


@pytest.mark.parametrize("quote", ['"', None])
def test_a_long_csv_header(tmp_path, quote):
    """A name in it may be as long as a record; a header that is longer is refused by name."""
    path = written(tmp_path / "a.csv", "word," + "x" * 200_000 + ",n\na,b,1\n")
    spout = FilesTransactionalSpout(path, FIELDS, quote=quote)
    assert read(spout) == [("a", 1)]
    spout.read_limits = ReadLimits(record_bytes=1000)
    with pytest.raises(InputError, match=r"a\.csv, line 1: the header: it is longer than 1000 bytes"):
        read(spout)


@pytest.mark.parametrize("quote", ['"', None])
def test_names_in_a_csv_header(tmp_path, quote):
    """A name may look like a number; what is not UTF-8 is replaced, and does not hide the other columns."""
    path = written(tmp_path / "a.csv", b"01,\xff,n\nx,y,1\n")
    assert read(FilesTransactionalSpout(path, Fields("01: string", "n: long"), quote=quote)) == [("x", 1)]
    with pytest.raises(InputError, match="column '1' is not in the header, which is not UTF-8, 01, \ufffd, n"):
        read(FilesTransactionalSpout(path, Fields("1: string"), quote=quote))


@pytest.mark.parametrize("name", ["a.tsv", "a.TAB", "a.tsv.gz"])
def test_values_separated_by_tabs(tmp_path, name):
    """Suffix or format say so, and another delimiter may be given."""
    content = b'word\tn\n"a\tb"\t1\nc,d\t2\n'
    path = written(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    assert read(FilesTransactionalSpout(path, FIELDS)) == [("a\tb", 1), ("c,d", 2)]
    path = written(tmp_path / "b.txt", "word|n\na|1\n")
    assert read(FilesTransactionalSpout(path, FIELDS, "tsv", delimiter="|")) == [("a", 1)]


def test_files_of_several_formats(tmp_path):
    """They are refused by their suffixes, unless all are read as text."""
    for name in ("a.csv", "b.json", "c.csv.gz"):
        written(tmp_path / name, gzip.compress(b"x") if name.endswith("gz") else "x")
    with pytest.raises(InputError, match=r"several formats \(\.csv, \.json\): give a path .*/\*\.csv, or format="):
        plan(FilesTransactionalSpout(tmp_path, FIELDS))
    assert read(FilesTransactionalSpout(tmp_path, Fields("line: string"))) == [("x",)] * 3
    assert read(FilesTransactionalSpout(tmp_path)) == [("x",)] * 3


def test_csv_files_with_quotes_are_never_cut(tmp_path):
    """A transaction takes whole files, one at least; small ones share a transaction."""
    for name in "abc":
        written(tmp_path / f"{name}.csv", "word,n\nx,1\n")
    planned = plan(FilesTransactionalSpout(tmp_path, FIELDS, batch_bytes=22), tasks=5)
    assert [[piece[:3] for piece in each["ranges"]] for each in planned] == [
        [["a.csv", 0, 11], ["b.csv", 0, 11]],
        [["c.csv", 0, 11]],
    ]


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("word,n\na,1\nb,x\n", 3, "invalid value 'x'"),
        ("word,n\na,1\nb\n", 3, "Expected 2 columns, got 1"),
        ("word,n\na,1\n\nb,2,3\n", 4, "Expected 2 columns, got 3"),
        (b"word,n\na,1\n\xff,2\n", 3, "invalid UTF8"),
        ("word,m\na,1\n", 1, "column 'n' is not in the header word, m"),
        ("word,n,n\na,1,2\n", 1, "column 'n' occurs twice in the header"),
    ],
)
@pytest.mark.parametrize("quote", ['"', None])
def test_csv_that_does_not_fit_is_named_by_line(tmp_path, content, line, message, quote):
    path = written(tmp_path / "a.csv", content)
    with pytest.raises(InputError, match=rf"(?s)a\.csv, line {line}: .*{message}"):
        read(FilesTransactionalSpout(path, FIELDS, quote=quote))


def test_csv_lines_that_end_with_carriage_returns_are_refused(tmp_path):
    """Read line by line, such a file would be one header."""
    path = written(tmp_path / "a.csv", "word,n\ra,1\rb,2\r")
    with pytest.raises(InputError, match=r"a\.csv, line 1: lines must end with"):
        read(FilesTransactionalSpout(path, FIELDS, quote=None))


def test_json_types(tmp_path):
    """Every type that JSON can hold is read, dates and timestamps as strings; what is missing is null."""
    fields = Fields(
        "b: boolean",
        "i: int",
        "d: double",
        "m: decimal(5,2)",
        "t: timestamp",
        "o: date",
        "a: array<date>",
        "s: struct<x: long>",
    )
    objects = [
        {
            "b": True,
            "i": 3,
            "d": 1,
            "m": "1.25",
            "t": "2024-02-03T04:05:06Z",
            "o": "2024-02-03",
            "a": ["2024-02-04"],
            "s": {"x": 1},
        },
        {"more": [1, {"y": None}], "o": None},
    ]
    path = written(tmp_path / "a.jsonl", "\n".join(json.dumps(one) for one in objects) + "\n \n")
    moment = dt.datetime(2024, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
    day = moment.date()
    assert read(FilesTransactionalSpout(path, fields)) == [
        (True, 3, 1.0, decimal.Decimal("1.25"), moment, day, [day + dt.timedelta(1)], {"x": 1}),
        (None,) * 8,
    ]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (
            "double",
            ["0.1", "-0.0", "0e5", "1e308", "9007199254740993"],
            ["1e400", "-1e309", "1e-400", "0." + "0" * 330 + "1", "1" * 310, "-" + "9" * 5000],
        ),
        ("float", ["0.1", "0", "3.4e38"], ["1e39", "-1e39", "1e-60", "1e400", "1" * 310]),
        ("int", ["7", "-7", "2147483647"], ["2147483648", "1.0", "1e3"]),
    ],
)
@pytest.mark.parametrize("name", ["csv", "json"])
def test_numbers_in_text(tmp_path, name, kind, good, bad):
    """A number is the nearest one of its type, but never infinite or zero where the text is not, and never cut."""
    fields = Fields("x: string", f"n: {kind}")
    shape = "a,{}\n" if name == "csv" else '{{"x": "0x1e-400", "n": {}}}\n'
    head = "x,n\n" if name == "csv" else ""
    path = written(tmp_path / f"a.{name}", head + "".join(map(shape.format, good)))
    expected = [float(np.float32(text)) if kind == "float" else float(text) for text in good]
    assert [n for _, n in read(FilesTransactionalSpout(path, fields))] == expected
    for text in bad:
        path = written(tmp_path / f"a.{name}", head + "".join(map(shape.format, [*good, text, *good])))
        with pytest.raises(InputError, match=rf"line {len(good) + (2 if head else 1)}: "):
            read(FilesTransactionalSpout(path, fields))


@pytest.mark.parametrize(("kind", "shape"), [("array<double>", "[1, {}]"), ("struct<a: float>", '{{"a": {}}}')])
def test_infinite_numbers_within_json(tmp_path, kind, shape):
    """What is infinite in the text is so in the column, and nothing else, at any depth."""
    path = tmp_path / "a.json"
    written(path, f'{{"n": {shape.format("-Infinity")}}}')
    assert "-inf" in str(read(FilesTransactionalSpout(path, Fields(f"n: {kind}"))))
    written(path, f'{{"n": null}}\n{{"n": {shape.format("1" * 400)}}}')
    with pytest.raises(InputError, match="line 2: it does not fit"):
        read(FilesTransactionalSpout(path, Fields(f"n: {kind}")))


def test_infinite_numbers_in_csv(tmp_path):
    """What is infinite, or no number, in the text is so in the column."""
    path = written(tmp_path / "a.csv", "n\ninf\n-Infinity\nnan\n\n")
    assert str(read(FilesTransactionalSpout(path, Fields("n: double")))) == "[(inf,), (-inf,), (nan,)]"


@pytest.mark.parametrize("name", ["csv", "json"])
@pytest.mark.parametrize(
    ("kind", "text", "is_good"),
    [
        ("timestamp", "2024-02-03T04:05:06+02:00", True),
        ("timestamp", "2024-02-03T04:05:06", False),
        ("timestamp_ntz", "2024-02-03T04:05:06", True),
        ("timestamp_ntz", "2024-02-03T04:05:06+02:00", False),
        ("timestamp_ntz", "2024-02-03T04:05:06Z", False),
        ("timestamp_ntz", "0000-12-31T00:00:00", False),
        ("date", "2024-02-03T00:00:00", False),
    ],
)
def test_times_in_text(tmp_path, name, kind, text, is_good):
    """A timestamp has a zone, and one of the other type none; neither is shifted, and no time becomes a date."""
    fields = Fields("x: string", f"t: {kind}")
    content = f'{{"t": "{text}"}}\n' if name == "json" else f"x,t\n,{text}\n"
    spout = FilesTransactionalSpout(written(tmp_path / f"a.{name}", content), fields)
    if is_good:
        assert read(spout)[0][1] == dt.datetime.fromisoformat(text)
    else:
        with pytest.raises(InputError, match="it does not fit"):
            read(spout)


SECOND = dt.datetime(2024, 2, 3, 4, 5, 6, 789_012)  # noqa: DTZ001 - as files hold it
ENDS = [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), None]  # noqa: DTZ001 - as above
INT96_KINDS = ("{}", "array<{}>", "struct<t: {}, n: long>", "map<string, {}>", "array<struct<t: {}>>")


@pytest.mark.parametrize("written_by", [None, {b"org.apache.spark.version": b"4.1.0"}])
@pytest.mark.parametrize("kind", INT96_KINDS)
@pytest.mark.parametrize("zone", [None, dt.UTC])
def test_parquet_int96(tmp_path, kind, zone, written_by):
    """What Spark writes by default is read in µs, at any depth, for all years that Python knows."""
    bare = Fields(f"x: {kind.format('timestamp_ntz')}").arrow_schema()
    table = pa.table({"x": [_nested(kind, moment) for moment in [SECOND, *ENDS]]}, schema=bare)
    table = table.replace_schema_metadata(written_by)
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True, row_group_size=2)
    name = "timestamp" if zone else "timestamp_ntz"
    expected = [_nested(kind, moment and moment.replace(tzinfo=zone)) for moment in [SECOND, *ENDS]]
    found = [value for (value,) in read(FilesTransactionalSpout(tmp_path, Fields(f"x: {kind.format(name)}")))]
    assert [dict(value) for value in found] == expected if kind.startswith("map") else found == expected


def _nested(kind, moment):
    if kind.startswith("array<struct"):
        return [{"t": moment}]
    if kind.startswith("array"):
        return [moment, None]
    if kind.startswith("struct"):
        return {"t": moment, "n": 1}
    return {"a": moment} if kind.startswith("map") else moment


@pytest.mark.parametrize("kind", INT96_KINDS)
def test_parquet_int96_with_nanoseconds(tmp_path, kind):
    """A time that no timestamp can hold is refused, never rounded."""
    schema = Fields(f"x: {kind.format('timestamp_ntz')}").arrow_schema()
    micros = pa.table({"x": [_nested(kind, SECOND)] * 3}, schema=schema)
    nanos = _of_nanoseconds(schema.field("x").type)
    exact = micros.cast(pa.schema([("x", nanos)]))
    pq.write_table(exact, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    fields = Fields(f"x: {kind.format('timestamp')}")
    assert len(read(FilesTransactionalSpout(tmp_path, fields))) == 3
    odd = np.datetime64("2024-02-03T04:05:06.789012345", "ns")
    rows = pa.array([_nested(kind, value) for value in (SECOND, odd, None)], nanos)
    pq.write_table(pa.table({"x": rows}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(InputError, match="column 'x', row group 0: a time has nanoseconds"):
        read(FilesTransactionalSpout(tmp_path, fields))


def _of_nanoseconds(kind):
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns")
    if pa.types.is_list(kind):
        return pa.list_(_of_nanoseconds(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _of_nanoseconds(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _of_nanoseconds(field.type)) for field in kind])
    return kind


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC")), "a time is not of the years 1 to 9999"),
        (pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64())), "a map has a key twice"),
        (pa.array([b"\xff"]).view(pa.string()), "Invalid UTF8"),
    ],
)
def test_parquet_values_that_nothing_in_python_can_hold(tmp_path, column, why):
    """A time of the year 10000, a map with a key twice, and a text that is none are refused by column."""
    pq.write_table(pa.table([column], ["t"]), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=f"column 't', row group 0: .*{why}"):
        read(FilesTransactionalSpout(tmp_path, Fields(f"t: {ddl_name(column.type)}")))


def test_row_groups_of_any_number_are_shared_among_any_number_of_tasks(tmp_path):
    """However many row groups a span has, and into however many ranges it is cut, every row is read once."""
    rows = [("w", n) for n in range(44)]
    pq.write_table(pa.table({"word": ["w"] * 44, "n": list(range(44))}), tmp_path / "a.parquet", row_group_size=4)
    spout = FilesTransactionalSpout(tmp_path, FIELDS)
    spout.read_limits = ReadLimits(range_bytes=1)
    for tasks in (1, 2, 3, 4, 5, 7, 10, 11, 40):
        assert sorted(read(spout, tasks)) == rows


def test_a_small_file_before_a_large_row_group(tmp_path):
    """A row group that does not fit beside what a transaction holds already is the next one's."""
    for name, count in (("a", 10), ("b", 10_000), ("c", 10)):
        pq.write_table(
            pa.table({"word": [str(n) for n in range(count)], "n": list(range(count))}), tmp_path / f"{name}.parquet"
        )
    planned = plan(FilesTransactionalSpout(tmp_path, FIELDS, batch_bytes=2_000))
    taken = [[piece[0] for piece in each["ranges"]] for each in planned]
    assert taken == [["a.parquet"], ["b.parquet"], ["c.parquet"]]


def test_parquet_values_are_cast_where_nothing_is_lost(tmp_path):
    """Narrower integers, dictionaries and nanoseconds fit the fields' types."""
    table = pa.table(
        {
            "n": pa.array([1, None], pa.int16()),
            "word": pa.array(["a", "b"]).dictionary_encode(),
            "t": pa.array([1000, 2000], pa.timestamp("ns")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    fields = Fields("word: string", "n: long", "t: timestamp_ntz")
    epoch = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a timestamp without a time zone
    second = epoch + dt.timedelta(microseconds=2)
    assert read(FilesTransactionalSpout(tmp_path, fields)) == [
        ("a", 1, epoch + dt.timedelta(microseconds=1)),
        ("b", None, second),
    ]


def test_parquet_texts_and_bytes_with_a_meaning(tmp_path):
    """JSON is its text and a UUID its bytes, as DuckDB writes them, at any depth; the suffix may be .parq."""
    texts, numbers = pa.array(["{}", None]), pa.array([bytes(range(16)), None], pa.binary(16))
    columns = {
        "j": pa.ExtensionArray.from_storage(pa.json_(pa.string()), texts),
        "u": pa.ExtensionArray.from_storage(pa.uuid(), numbers),
    }
    columns["s"] = pa.StructArray.from_arrays([columns["j"]], ["j"])
    columns["a"] = pa.ListArray.from_arrays([0, 2, 2], columns["u"])
    pq.write_table(pa.table(columns), tmp_path / "a.parq")
    fields = Fields("j: string", "u: binary", "s: struct<j: string>", "a: array<binary>")
    assert read(FilesTransactionalSpout(tmp_path, fields)) == [
        ("{}", bytes(range(16)), {"j": "{}"}, [bytes(range(16)), None]),
        (None, None, {"j": None}, []),
    ]


@pytest.mark.parametrize(
    ("zone", "field", "other"), [(None, "timestamp", "timestamp_ntz"), ("UTC", "timestamp_ntz", "timestamp")]
)
def test_times_with_and_without_a_zone_do_not_fit(tmp_path, zone, field, other):
    """A moment is no time on the wall; the error says what the column can be declared as."""
    pq.write_table(pa.table({"at": pa.array([0], pa.timestamp("us", zone))}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=rf"a\.parquet: column 'at' .* does not fit .*; declare it as {other}, "):
        read(FilesTransactionalSpout(tmp_path, Fields(f"at: {field}")))
    assert len(read(FilesTransactionalSpout(tmp_path, Fields(f"at: {other}")))) == 1


def test_parquet_that_does_not_fit_is_named_by_column_and_row_group(tmp_path):
    """Columns are checked when a file is planned, values when they are read."""
    pq.write_table(pa.table({"word": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet: column 'n' is missing; its columns are word"):
        read(FilesTransactionalSpout(tmp_path, FIELDS))
    pq.write_table(pa.table({"word": ["x"], "n": ["1"]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet: column 'n' has type string, which does not fit int64"):
        read(FilesTransactionalSpout(tmp_path, FIELDS))
    pq.write_table(pa.table({"n": [1, 2**40]}), tmp_path / "a.parquet", row_group_size=1)
    with pytest.raises(InputError, match=r"a\.parquet, column 'n', row group 1: a value of type int64"):
        read(FilesTransactionalSpout(tmp_path, Fields("n: int")))


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([[1.555]]), "array<decimal(5,2)>"),
        (pa.array([[2]]), "array<boolean>"),
        (pa.array([[1.0, 1e300]]), "array<float>"),
        (pa.array([{"A": 1}]), "struct<a: long>"),
        (pa.array([[("a", 2**40)]], pa.map_(pa.string(), pa.int64())), "map<string, int>"),
    ],
    ids=str,
)
def test_parquet_values_within_others_are_checked(tmp_path, column, kind):
    """A value within a list, a struct or a map that would become another one is refused, as one by itself."""
    pq.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet.* column 'x'.* does not fit"):
        read(FilesTransactionalSpout(tmp_path, Fields(f"x: {kind}")))


def test_parquet_members_that_no_field_asks_for(tmp_path):
    """A field may have fewer of a struct's members than the file, as the spout's fields may be some of its columns."""
    pq.write_table(pa.table({"x": [{"b": 2, "a": 1}, None]}), tmp_path / "a.parquet")
    assert read(FilesTransactionalSpout(tmp_path, Fields("x: struct<a: long>"))) == [({"a": 1},), (None,)]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"\xef\xbb\xbfword\nother\n", ["word", "other"]),
        (b"\xef\xbb\xbfword", ["word"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\nother", ["", "other"]),
        (b"word\n\xef\xbb\xbfother\n", ["word", "\ufeffother"]),
    ],
)
@pytest.mark.parametrize("batch_bytes", [1, 3, 4, 1000])
def test_text_with_a_byte_order_mark(tmp_path, content, lines, batch_bytes):
    """A byte order mark at a file's beginning is no part of the first line; anywhere else it is a character."""
    (tmp_path / "a.txt").write_bytes(content)
    spout = FilesTransactionalSpout(tmp_path, Fields("line: string"), batch_bytes=batch_bytes)
    assert [line for (line,) in read(spout)] == lines


@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE])
@pytest.mark.parametrize(
    ("name", "content"),
    [("a.txt", "one\ntwo\n"), ("a.csv", "line\none\n"), ("a.json", '{"line": "one"}\n'), ("a.txt", "")],
)
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("dead_letter", [None, "bad"])
def test_another_encoding_by_its_mark(tmp_path, mark, name, content, is_packed, dead_letter):
    """It is named, also if bad records are kept: of plain letters, all lines but the first would be of UTF-8."""
    order = "le" if mark[:1] == b"\xff" else "be"
    bits = {2: 16, 4: 32}[len(mark)]
    data = mark + content.encode(f"utf-{bits}-{order}")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / (f"{name}.gz" if is_packed else name)).write_bytes(gzip.compress(data) if is_packed else data)
    kept = None if dead_letter is None else tmp_path / dead_letter
    spout = FilesTransactionalSpout(folder, Fields("line: string"), dead_letter=kept)
    with pytest.raises(InputError, match=rf"{name}.* is UTF-{bits}: make it UTF-8, for example by iconv -f UTF-{bits}"):
        read(spout)


@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.txt", "one\ntwo\n", {}),
        ("a.txt", "one", {}),
        ("a.txt", "éà îô\n" * 3000, {}),
        ("a.txt", "\u03ac\u03bb\u03c6 \u03b2\n" * 3000, {}),
        ("a.txt", "\U0001f600 one\n" * 3000, {}),
        ("a.csv", "line\none\n", {}),
        ("a.csv", "one\ntwo\n", {"header": False}),
        ("a.csv", "one\ntwo\n", {"header": False, "quote": None}),
        ("a.json", '{"line": "one"}\n', {"dead_letter": "bad"}),
    ],
)
def test_another_encoding_without_a_mark(tmp_path, encoding, name, content, options):
    """Its lines would be of UTF-8 with null characters."""
    (tmp_path / name).write_bytes(content.encode(encoding))
    spout = FilesTransactionalSpout(tmp_path / name, Fields("line: string"), **options)
    with pytest.raises(InputError, match=rf"{name} looks like {encoding} .* by iconv -f {encoding} -t UTF-8"):
        read(spout)


@pytest.mark.parametrize(
    "lines", [["a", "b\0"], ["\0"], ["a\0b", "", "c"], ["abcdefg\0"], ["ab", "\0cd", "\0ef", "\0"]]
)
def test_null_characters(tmp_path, lines):
    """They are characters as others are, as long as the text looks like no other encoding."""
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    assert [line for (line,) in read(FilesTransactionalSpout(tmp_path))] == lines


def test_carriage_returns_alone(tmp_path):
    """A text file without any other line end is refused: all of it would be one line. Within a line they stay."""
    path = tmp_path / "a.txt"
    for content in (b"a\rb\r", b"\ra\rb", codecs.BOM_UTF8 + b"a\r\r"):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"a\.txt: lines must end with \\n or \\r\\n, not with \\r alone"):
            read(FilesTransactionalSpout(path))
    for content, lines in (
        (b"a\r", ["a"]),
        (b"a\rb", ["a\rb"]),
        (b"aaaa\nb\rc", ["aaaa", "b\rc"]),
        (b"b\rc\rd\n", ["b\rc\rd"]),
    ):
        path.write_bytes(content)
        for batch_bytes in (1, 100):
            assert [line for (line,) in read(FilesTransactionalSpout(path, batch_bytes=batch_bytes))] == lines
