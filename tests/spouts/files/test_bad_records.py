"""Bad records: told from good ones whatever stands around them, and kept with the place that they were at."""

import csv
import functools
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from spouts.files import bad_records as files_bad
from spouts.files.formats.csv_records import QuotedRecords
from spouts.files.limits import ReadLimits
from spouts.files.spout import FilesTransactionalSpout
from tests.budgets import examples
from tests.spouts.reading import collected, plan, written
from txtopo.api.data.fields import Fields
from txtopo.errors import ConfigError, InputError
from txtopo.testing.conformance.spout import TransactionalSpoutConformance

FIELDS = Fields("word: string", "n: long", "day: date", "cents: decimal(5,2)", "at: timestamp")
LINES = Fields("line: string")
MARK = "\ufeff".encode()


def read(path, fields, tasks=1, limits=None, **options):
    """Return the good tuples and the dead letters (offset, line, text, reason) of all transactions, in their order."""
    spout = FilesTransactionalSpout(path, fields, dead_letter="/nowhere/bad", **options)
    spout.read_limits = limits or spout.read_limits
    return taken(spout, tasks)


def taken(spout, tasks=1):
    """Return what a spout reads: as above."""
    collector = collected(spout, plan(spout, tasks=tasks), tasks)
    return [values[1:] for values in collector.tuples], [values[2:] for values in collector.on("bad-records")]


@functools.cache
def alone(line, name, options):
    """Return what becomes of a record in a file of its own: its tuples, and its dead letters."""
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder) / f"a.{name}", line)
        return read(path, LINES if name == "txt" else FIELDS, format=FORMATS[name], **dict(options))


FORMATS = {"txt": "text", "json": "json", "csv": "csv"}

JSON_GOOD = [
    b'{"word": "a", "n": 1, "day": "2024-02-03", "cents": 1.25, "at": "2024-02-03T04:05:06Z"}',
    b'{"n": 2, "word": null}',
    b"{}",
    b"",
    b" \t",
    b' {"n": 3} \t',
    b'{"more": {"n": "x"}, "more": [1], "n": -0}',
    b'{"word": "\\u0000"}',
    b'{"cents": 999.99}',
]
JSON_BAD = [
    b'{"n": 4}\r{"n": 5}',
    b'{"n": 1.5}',
    b'{"n": "1"}',
    b'{"n": 9223372036854775808}',
    b'{"word": 1}',
    b'{"word": {}}',
    b'{"word": "a\tb"}',
    b'{"word": "\\ud800"}',
    b'{"day": "2024-02-30"}',
    b'{"day": 5}',
    b'{"cents": "1.255"}',
    b'{"cents": 1000}',
    b'{"cents": "x"}',
    b'{"at": "yesterday"}',
    b'{"at": "2024-02-03T04:05:06"}',
    b'{"at": "9999-12-31T23:00:00-02:00"}',
    b'{"more": 1e400}',
    b'{"more": 1e-400}',
    b'{"n": 1, "n": 2}',
    b'{"n": 1}}',
    b'{"n": 1} {"n": 2}',
    b'{"n": 1},{"n": 2}',
    b'{"x":[{}',
    b'{"x": "}',
    b'{"n": 1',
    b'"n": 1}',
    b"null",
    b"5",
    b"[{}]",
    b'{"word": "\xff"}',
    b'{"more": "\xed\xa0\x80"}',
    b"\xff",
    "\u00a0".encode(),
]

CSV_GOOD = [
    b"a,1,2024-02-03,1.25,2024-02-03T04:05:06Z",
    b"b,2,,,",
    b",,,,",
    b"",
    b"\r",
    b"c, 3 ,,,",
    b"a\x00b,10,,,",
    b"d,4,,,\re,5,,,",
    b"e,5,,999,",
]
CSV_BAD = [
    b"a,1",
    b"a,1,,,,",
    b"a,1.5,,,",
    b"a,+1,,,",
    b"a,0x10,,,",
    b"a, 0XfF,,,",
    b"a,1,,,0001-01-01T00:00:00+02:00",
    b"a,1,0000-12-31,,",
    b"a,9223372036854775808,,,",
    b"a,1,2024-02-30,,",
    b"a,1,,1.255,",
    b"a,1,,1000,",
    b"a,1,,,yesterday",
    b"\xff,1,,,",
    b"a,\xff,,,",
    b"a,1,,,\rb,x,,,",
    b" ",
    "\u2028,x,,,".encode(),
]

QUOTED_GOOD = [
    *CSV_GOOD,
    b'"a\nb",1,,,',
    b'"a\r\n\r\nb","2",,,',
    b'"a ""b"", c",3,,,',
    b'"",,,,',
    b'"a"b,4,,,',
    b'"a\rb",1,,,\r"c\nd",2,,,',
]
QUOTED_BAD = [
    *[line for line in CSV_BAD if b"\r" not in line],
    b'"a\nb",x,,,',
    b'"a\nb"',
    b'"\n\n",1,2024-02-30,,',
]

TEXT_GOOD = [b"a", b"\r", b"a\rb", "é\u2028".encode(), MARK, b"a\x00"]
TEXT_BAD = [b"\xff", b"ab\xc3", b"\xed\xa0\x80"]

UNQUOTED, QUOTED = {"quote": None, "header": False}, {"header": False}


@pytest.mark.parametrize(
    ("good", "bad", "name", "options"),
    [
        (TEXT_GOOD, TEXT_BAD, "txt", {}),
        (JSON_GOOD, JSON_BAD, "json", {}),
        (CSV_GOOD, CSV_BAD, "csv", UNQUOTED),
        (QUOTED_GOOD, QUOTED_BAD, "csv", QUOTED),
    ],
)
def test_what_is_bad(good, bad, name, options):
    """Values are what Arrow makes of them; one out of its type's range, or of another type, is bad."""
    options = tuple(options.items())
    assert [alone(line, name, options)[1] for line in good] == [[]] * len(good)
    verdicts = [
        (tuples, [letter[:2] for letter in letters]) for tuples, letters in (alone(b, name, options) for b in bad)
    ]
    assert verdicts == [([], [(0, 1)])] * len(bad)


@st.composite
def files(draw, lines):
    """Draw records, what ends each of them, and how the file is cut."""
    drawn = draw(st.lists(st.sampled_from(lines), max_size=150))
    ends = [draw(st.sampled_from([b"\n", b"\n", b"\n", b"\r\n"])) for _ in drawn]
    if ends and draw(st.booleans()):
        ends[-1] = b""
    return list(zip(drawn, ends, strict=True)), draw(st.integers(1, 600)), draw(st.integers(1, 3))


def check(drawn, name, tmp_path_factory, **options):
    """Compare a file with what becomes of each of its records alone."""
    pairs, batch_bytes, tasks = drawn
    content, good, bad = b"", [], []
    for record, end in pairs:
        # A mark belongs to the record anywhere but at the beginning of a file.
        mark = MARK if content and record.startswith(MARK) else b""
        tuples, letters = alone(mark + record + end, name, tuple(options.items()))
        good += tuples
        lines = content.count(b"\n")
        bad += [(len(content) + offset, lines + line, text, reason) for offset, line, text, reason in letters]
        content += record + end
    path = written(tmp_path_factory.mktemp("bad") / f"a.{name}", content)
    fields = LINES if name == "txt" else FIELDS
    limits = ReadLimits(bad_rows=70)
    found = read(path, fields, tasks, limits, format=FORMATS[name], batch_bytes=batch_bytes, **options)
    assert found == (good, bad)
    for offset, _, text, _ in bad:
        assert content[offset:].decode(errors="backslashreplace").startswith(text)
    assert read(path, fields, format=FORMATS[name], **options) == (good, bad), "in one range"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("records", "name", "options"),
    [
        ([b"", *TEXT_GOOD, *TEXT_BAD], "txt", {}),
        (JSON_GOOD + JSON_BAD, "json", {}),
        (CSV_GOOD + CSV_BAD, "csv", UNQUOTED),
        ([*QUOTED_GOOD, *QUOTED_BAD, b"a,1,,,\rb,x,,,"], "csv", QUOTED),
    ],
    ids=["text", "JSON", "CSV without quotes", "CSV with quotes"],
)
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_records_are_read_one_by_one(tmp_path_factory, data, records, name, options):
    """Wherever the file is cut, a record has the values, or the reason to be bad, that it has alone.

    One of several lines has the line that it begins in.
    """
    check(data.draw(files(records)), name, tmp_path_factory, **options)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("records", "name", "options"),
    [
        ([b"", *TEXT_GOOD, *TEXT_BAD], "txt", {}),
        (JSON_GOOD + JSON_BAD, "json", {}),
        (CSV_GOOD + CSV_BAD, "csv", UNQUOTED),
        (
            [record for record in QUOTED_GOOD + QUOTED_BAD if not (b"\r" in record and record.count(b","))],
            "csv",
            QUOTED,
        ),
    ],
    ids=["text", "JSON", "CSV without quotes", "CSV with quotes"],
)
@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_what_is_too_long_for_any_bounds(tmp_path_factory, data, records, name, options):
    """Whatever the bounds, a record is bad if it exceeds the maximum without its line end, and otherwise what it is
    alone; one before it, or a bad one after it, changes nothing."""
    pairs, batch_bytes, tasks = data.draw(files(records))
    size_max = data.draw(st.integers(1, 60))
    content, good, bad = b"", [], []
    for record, end in pairs:
        start = 0 if content else len(MARK) * record.startswith(MARK)
        whole = (record + end).removesuffix(b"\n").removesuffix(b"\r")[start:]
        mark = MARK if content and record.startswith(MARK) else b""
        tuples, letters = alone(mark + record + end, name, tuple(options.items()))
        if len(whole) > size_max:
            text = whole[:size_max].decode(errors="backslashreplace")
            cut = f" (the text is its first {size_max} bytes of {len(whole)})"
            tuples, letters = [], [(start, 1, text, files_bad.TOO_LONG.format(size_max) + cut)]
        good += tuples
        lines = content.count(b"\n")
        bad += [(len(content) + offset, lines + line, text, reason) for offset, line, text, reason in letters]
        content += record + end
    path = written(tmp_path_factory.mktemp("bad") / f"a.{name}", content)
    fields = LINES if name == "txt" else FIELDS
    limits = ReadLimits(record_bytes=size_max, chunk_bytes=data.draw(st.integers(1, size_max)))
    found = read(path, fields, tasks, limits, format=FORMATS[name], batch_bytes=batch_bytes, **options)
    assert found == (good, bad)


class TestTextWithBadRecords(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self, tmp_path):
        written(tmp_path / "a.txt", b"".join(b"\xff\n" if n % 7 == 3 else b"line %d\n" % n for n in range(60)))
        return FilesTransactionalSpout(tmp_path / "a.txt", LINES, batch_bytes=100, dead_letter=tmp_path / "bad")


@pytest.mark.parametrize("batch_bytes", [1, 5, 8, 13, 1000])
def test_a_byte_order_mark_counts_at_the_beginning_of_a_file_only(tmp_path, batch_bytes):
    """Elsewhere it belongs to the record, wherever ranges begin and whether Arrow sees the record alone or not."""
    fields = Fields("word: string", "n: long")
    path = written(tmp_path / "a.csv", MARK + b"a,1\n" + MARK + b"b,2\nc,x\n" + MARK + b"d,4\n")
    good = [("a", 1), ("\ufeffb", 2), ("\ufeffd", 4)]
    for quote in (None, '"'):
        tuples, letters = read(path, fields, header=False, quote=quote, batch_bytes=batch_bytes)
        assert (tuples, [letter[:3] for letter in letters]) == (good, [(14, 3, "c,x")])
    path = written(tmp_path / "a.json", MARK + b'{"n": 1}\n' + MARK + b'{"n": 2}\n{"n": 3}\n')
    tuples, letters = read(path, Fields("n: long"), batch_bytes=batch_bytes)
    assert (tuples, [letter[:2] for letter in letters]) == ([(1,), (3,)], [(12, 2)])


@pytest.mark.parametrize("quote", [None, '"'])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_header_is_no_record(tmp_path, quote, end):
    """Lines and offsets are those of the file, header and blank lines included."""
    lines = ["", "word,n", "", "a,1", "b", "", "c,3"]
    path = written(tmp_path / "a.csv", end.join(lines))
    expected = "it does not fit: CSV parse error: Expected 2 columns, got 1: b"
    offset = sum(len(line) + len(end) for line in lines[:4])
    found = read(path, Fields("word: string", "n: long"), quote=quote)
    assert found == ([("a", 1), ("c", 3)], [(offset, 5, "b", expected)])
    with pytest.raises(InputError, match="column 'day' is not in the header"):
        read(path, Fields("word: string", "day: date"), quote=quote)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('word,n\na,1\n"b,2\nc,3\n', 3),
        ('word,n\na,1\nb"c,2\nd,x\n', 3),
        ('word,n\n"a\n",1\n"b""c,2\n', 4),
        ('word,n\na"b,1\n"c,2\n', 3),
    ],
)
def test_a_quote_that_stays_open_always_fails(tmp_path, content, line):
    """It would take in the rest of the file; the line that it is in is named."""
    path = written(tmp_path / "a.csv", content)
    with pytest.raises(InputError, match=rf"a\.csv, line {line}: a quote \" of the record that begins here"):
        read(path, Fields("word: string", "n: long"))


def test_csv_lines_may_end_with_carriage_returns(tmp_path):
    """Arrow takes them where values may be quoted; a bad one is left out alone."""
    path = written(tmp_path / "a.csv", 'word,n\ra,1\r"b\n",x\r"c\r",3\rd')
    tuples, letters = read(path, Fields("word: string", "n: long"))
    assert tuples == [("a", 1), ("c\r", 3)]
    assert [letter[:3] for letter in letters] == [(11, 1, '"b\n",x'), (25, 2, "d")]


@pytest.mark.slow
@pytest.mark.covering(2)
@pytest.mark.parametrize(("size", "letters"), [(16 * 1024 * 1024, []), (16 * 1024 * 1024 + 1, [(7, 2)])])
@pytest.mark.parametrize("quote", ['"', None])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_long_csv_record_costs_no_other(tmp_path, size, letters, quote, end):
    """A record of 16 MiB is read and one of a byte more is bad, whether a bad one follows or not."""
    fields = Fields("word: string", "n: long")
    for last in ([], ["c,x"]):
        content = "\n".join(["word,n", "x" * (size - 2) + f",1{end}b,2", *last])
        tuples, found = read(written(tmp_path / "a.csv", content), fields, quote=quote)
        assert [n for _, n in tuples] == [2] if letters else [1, 2]
        assert [letter[:2] for letter in found[: len(letters)]] == letters
        assert len(found) == len(letters) + len(last)
        if letters:
            spout = FilesTransactionalSpout(tmp_path / "a.csv", fields, quote=quote)
            with pytest.raises(InputError, match=r"a\.csv, line 2: it is longer than 16777216 bytes"):
                collected(spout, plan(spout))


def test_a_long_first_value_is_not_taken_for_an_empty_file(tmp_path):
    """A file whose first record holds a value of more than Python's 128 KiB is read as any other."""
    path = written(tmp_path / "a.csv", "word,n\n" + "x" * 200_000 + ",1\n")
    assert read(path, Fields("word: string", "n: long")) == ([("x" * 200_000, 1)], [])


@pytest.mark.parametrize("batch_bytes", [7, 40, 1000])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_that_is_too_long_is_a_bad_record(tmp_path, batch_bytes, end):
    """Its beginning is kept, and its length told; lines around it are read, wherever the cuts fall."""
    limits = ReadLimits(record_bytes=20, chunk_bytes=16, text_bytes=9)
    lines = [b"a", b"b" * 20, b"c" * 21, b"", b"d" * 100, b"e" * 50, b"f"]
    path = written(tmp_path / "a.txt", b"\n".join(lines) + (b"\n" + b"g" * 33 if end == b"" else end))
    tuples, letters = read(path, LINES, limits=limits, batch_bytes=batch_bytes)
    assert tuples == [("a",), ("b" * 20,), ("",), ("f",)]
    reason = "it is longer than 20 bytes; is this the file's format? (the text is its first 9 bytes of {})"
    expected = [(23, 3, "c" * 9, 21), (46, 5, "d" * 9, 100), (147, 6, "e" * 9, 50)]
    expected += [(200, 8, "g" * 9, 33)] if end == b"" else []
    assert letters == [(*letter[:3], reason.format(letter[3])) for letter in expected]


@pytest.mark.parametrize("quote", ['"', None])
def test_a_csv_record_that_is_too_long_is_a_bad_record(tmp_path, quote):
    """Also one of many lines, or one whose quotes stand where it is cut."""
    limits = ReadLimits(record_bytes=50, chunk_bytes=16)
    fields = Fields("word: string", "n: long")
    long = "x" * 200 if quote is None else '"' + 'y""\n,"",' * 40 + '"'
    path = written(tmp_path / "a.csv", f"word,n\na,1\n{long},2\nb,3\n")
    tuples, letters = read(path, fields, limits=limits, quote=quote)
    assert tuples == [("a", 1), ("b", 3)]
    assert [(letter[0], letter[1]) for letter in letters] == [(11, 3)]
    assert letters[0][3].startswith("it is longer than 50 bytes")
    assert letters[0][3].endswith(f"of {len(long) + 2})")


def test_texts_are_bounded(tmp_path):
    """A text of more than 64 KiB ends with a whole character, and the reason says what was cut."""
    line = "{" + "é" * 40_000
    path = written(tmp_path / "a.json", line + "\n{}\n")
    tuples, letters = read(path, Fields("n: long"))
    assert tuples == [(None,)]
    reason = "each line must be one JSON object (the text is its first 65535 bytes of 80001)"
    assert letters == [(0, 1, line[:32_768], reason)]


@pytest.mark.parametrize("name", ["txt", "json", "csv"])
def test_a_file_may_hold_nothing_good(tmp_path, name):
    """Every record is in the table then, and in small batches."""
    path = written(tmp_path / f"a.{name}", b"\xff\xfe\n" * 1000)
    options = {"limits": ReadLimits(bad_rows=10)} | ({"header": False} if name == "csv" else {})
    tuples, letters = read(path, LINES if name == "txt" else Fields("n: long"), format=FORMATS[name], **options)
    assert tuples == []
    assert [letter[:3] for letter in letters] == [(3 * n, n + 1, "\\xff\\xfe") for n in range(1000)]


JSON_MIX = [b'{"n": %d}', b'{"n": %d.5}', b'{"n": "%d"}', b'{"n": %d} {}', b'{"n": %d', b'{"word": %d}', b'{"n": %d}}']
CSV_MIX = [b"a,%d", b"a,%d.5", b"a%d", b"a,%d,", b"\xff,%d"]


@pytest.mark.slow
@pytest.mark.parametrize(("every", "count"), [(2, 1000), (10, 5000)])
@pytest.mark.parametrize(("mix", "name"), [(JSON_MIX, "json"), (CSV_MIX, "csv")])
def test_hundreds_of_bad_records_take_a_few_tries_each(tmp_path, monkeypatch, mix, name, every, count):
    """Arrow is asked a few times for each bad record, not for each record, and not for the block again and again."""
    kinds = [mix[0] if n % every else mix[1 + n // every % (len(mix) - 1)] for n in range(count)]
    lines = [kind % n for n, kind in enumerate(kinds)]
    path = written(tmp_path / f"a.{name}", b"\n".join(lines))
    asked = []
    sieve = files_bad.sieve

    def counted(records, parse, suspect):
        def parse_counted(some):
            asked.append(len(some))
            return parse(some)

        return sieve(records, parse_counted, suspect)

    monkeypatch.setattr(files_bad, "sieve", counted)
    options = {"header": False, "quote": None} if name == "csv" else {}
    tuples, letters = read(path, Fields("word: string", "n: long"), **options)
    bad = [n for n in range(count) if n % every == 0]
    assert [n for _, n in tuples] == [n for n in range(count) if n % every]
    assert [line - 1 for _, line, *_ in letters] == bad
    assert len(asked) < 3 * len(bad) + count / 32
    assert sum(asked) < 100 * len(bad) + 10 * count


def test_without_a_table_the_first_bad_record_is_refused(tmp_path):
    """File, line, byte, reason and text are named, and what to do."""
    path = written(tmp_path / "a.json", '{"n": 1}\n{"n": "x"}\n{"n"\n')
    with pytest.raises(InputError) as refusal:
        taken(FilesTransactionalSpout(path, Fields("n: long")))
    assert str(refusal.value).startswith(
        f"{path}, line 2: it does not fit: JSON parse error: Column(/n) changed from number to string: "
        '{"n": "x"} (byte 9); fix the file or the spout\'s fields, or give the spout dead_letter=PATH'
    )


def test_lines_are_counted_once(tmp_path):
    """Later ranges of a file go on counting where an earlier one ended; another file is counted anew."""
    numbers = files_bad.LineNumbers()
    content = b"x\n" * 1_500_000
    path, other = str(written(tmp_path / "a", content)), str(written(tmp_path / "b", b"\n" * 10))
    piece = files_bad.FileRange("a", 0, len(content), len(content), 0)
    assert numbers.before(path, piece, 2_500_001) == 1_250_000
    assert numbers.before(path, piece, 7) == 3
    assert numbers.before(other, files_bad.FileRange("b", 0, 10, 10, 0), 7) == 7
    assert numbers.before(path, piece, 3) == 1


@pytest.mark.parametrize(
    ("given_path", "table", "is_refused"),
    [
        ("data", "data/bad", True),
        ("data", "data/x/bad", True),
        ("data", "data", True),
        ("data", "data/_bad", False),
        ("data", "data/.x/bad", False),
        ("data", "database/bad", False),
        ("data/*.csv", "data/bad", False),
        ("data/*", "data/bad", True),
        ("data/*/in", "data/x/in/bad", True),
        ("data/**/in", "data/x/y/in/bad", True),
        ("data", "s3://data/bad", False),
    ],
)
def test_the_table_is_never_read_as_input(tmp_path, monkeypatch, given_path, table, is_refused):
    """A table among the files that are read would be the next run's input."""
    monkeypatch.chdir(tmp_path)
    if is_refused:
        with pytest.raises(ConfigError, match="which the spout reads; put the table elsewhere"):
            FilesTransactionalSpout(given_path, LINES, dead_letter=table)
    else:
        assert FilesTransactionalSpout(given_path, LINES, dead_letter=table).dead_letter == table


def test_parquet_has_no_bad_records(tmp_path):
    """A table for them is refused: what cannot be read there is a column or a row group."""
    with pytest.raises(ConfigError, match="leave it out for Parquet"):
        FilesTransactionalSpout(tmp_path, LINES, "parquet", dead_letter="bad")


@settings(max_examples=examples(150), deadline=None)
@given(content=st.text(alphabet='ab",\n\r', max_size=24))
def test_records_end_where_arrow_says(tmp_path_factory, content):
    """A bad record at the end has all others looked at one by one: they come out as Arrow reads them in one block."""
    folder = tmp_path_factory.mktemp("csv")
    fields = Fields("one: string", "two: string")
    try:
        rows, letters = taken(FilesTransactionalSpout(written(folder / "a.csv", content + "\n"), fields, header=False))
    except InputError:
        return
    assert letters == []
    path = written(folder / "b.csv", content + "\nx,y,z\n")
    found, letters = read(path, fields, header=False)
    assert (found, [letter[2] for letter in letters]) == (rows, ["x,y,z"])


@settings(max_examples=examples(150), deadline=None)
@given(content=st.text(alphabet='a",\n', max_size=24))
def test_no_quote_takes_in_the_rest_of_a_file(tmp_path_factory, content):
    """What stands behind a file's content is a record of its own, or the file is refused for a quote."""
    path = written(tmp_path_factory.mktemp("csv") / "a.csv", content + "\nx,y\n")
    rows = list(csv.reader(io.StringIO(content + "\nx,y\n", newline="")))
    if rows[-1] == ["x", "y"] and content.count('"') % 2 == 0:
        assert read(path, Fields("one: string", "two: string"), header=False)[0][-1] == ("x", "y")
    else:
        with pytest.raises(InputError, match="never closed"):
            read(path, Fields("one: string", "two: string"), header=False)


@pytest.mark.parametrize("size_max", range(1, 18))
def test_a_long_record_is_read_in_parts(size_max):
    """Wherever its parts are cut, it ends at the same place: a quote opens behind a delimiter that ends a part, too."""
    content = io.BytesIO(b'aaa,"x\ny"",",b\r\n1,2\n')
    blocks = QuotedRecords(",", '"').read(content, 0, ReadLimits(record_bytes=size_max))
    assert [(record.offset, record.size) for block in blocks for record in block.records] == [(0, 14), (16, 3)]
