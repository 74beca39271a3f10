"""The files spout: planning, resuming, and what it refuses."""

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings, strategies as st

from spouts.files.formats.text_format import TextFormat
from spouts.files.limits import ReadLimits
from spouts.files.spout import FORMATS, FilesTransactionalSpout
from tests.budgets import examples
from tests.spouts.files.growing import Growing
from tests.spouts.reading import collected, plan, written
from txtopo.api.data.fields import Fields
from txtopo.errors import ConfigError, FieldsError, InputError
from txtopo.testing.conformance.spout import TransactionalSpoutConformance
from txtopo.testing.context import PlainContext


class TestManyFiles(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self, tmp_path):
        for name, count in (("a.txt", 40), ("b/c.txt", 1), ("b/d.txt", 0), ("z.txt", 300)):
            written(tmp_path / name, "".join(f"{name} line {n}\n" for n in range(count)))
        return FilesTransactionalSpout(tmp_path, batch_bytes=333)


class TestPythonObjects(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self, tmp_path):
        written(tmp_path / "a", "one\r\ntwo\n\nfour")
        return FilesTransactionalSpout(tmp_path / "a", Fields("text"), batch_bytes=5)


def emitted(spout, *planned):
    return [values[1] for values in collected(spout, planned).tuples]


def lines_of(spout, begun=()):
    return emitted(spout, *plan(spout, begun))


@settings(max_examples=examples(150), deadline=None)
@given(
    contents=st.lists(st.text(alphabet="ab\r\né", max_size=30), min_size=1, max_size=4),
    batch_bytes=st.integers(1, 40),
    tasks=st.integers(1, 4),
)
def test_every_line_once_wherever_the_cuts_fall(tmp_path_factory, contents, batch_bytes, tasks):
    """Whatever the files and the cuts, the lines are those of the files read at once, in their order."""
    folder = tmp_path_factory.mktemp("files")
    expected = []
    for index, content in enumerate(contents):
        assume("\n" in content or content.count("\r") < 2)
        written(folder / f"{index}.txt", content)
        lines = content.split("\n")
        expected += [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]
    spout = FilesTransactionalSpout(folder, batch_bytes=batch_bytes)
    assert emitted(spout, *plan(spout, tasks=tasks)) == expected


def test_metadata_holds_ranges_and_position(tmp_path):
    """A range says name, start, end, size and mtime_ns; the position is where the next transaction begins."""
    first, second = written(tmp_path / "a.txt", "x" * 10 + "\n"), written(tmp_path / "sub" / "b.txt", "y\n")
    metadata = plan(FilesTransactionalSpout(tmp_path, batch_bytes=8))
    mtimes = [path.stat().st_mtime_ns for path in (first, second)]
    assert [one["ranges"] for one in metadata] == [
        [["a.txt", 0, 8, 11, mtimes[0]]],
        [["a.txt", 8, 11, 11, mtimes[0]], ["sub/b.txt", 0, 2, 2, mtimes[1]]],
    ]
    assert [one["position"] for one in metadata] == [["a.txt", 8, mtimes[0]], ["sub/b.txt", 2, mtimes[1]]]
    assert [one["taken"][0] for one in metadata] == [1, 2]


def test_quotes_that_begin_in_the_middle_of_a_file(tmp_path):
    """A file that was cut without quotes is neither left nor read anew when the next run has them; a whole one is."""
    written(tmp_path / "a.csv", "n\n1\n2\n3\n")
    cut, whole = (
        FilesTransactionalSpout(tmp_path, Fields("n: long"), quote=quote, batch_bytes=5) for quote in (None, '"')
    )
    begun = plan(cut)
    assert emitted(cut, *begun) == [1, 2, 3]
    assert plan(whole, begun) == []
    with pytest.raises(InputError, match=r"a\.csv was taken up to byte 5 by a run with quote=None"):
        plan(whole, begun[:1])
    for each in begun:
        with pytest.raises(InputError, match="by a run with quote=None"):
            emitted(whole, each)


@pytest.mark.parametrize(
    ("options", "names_bytes", "ranges"),
    [
        ({}, 10**5, [10]),
        ({"batch_bytes": 24}, 10**5, [3, 3, 3, 1]),
        ({"batch_files_max": 4}, 10**5, [4, 4, 2]),
        ({}, 11, [3, 3, 3, 1]),
    ],
)
def test_small_files_share_a_transaction(tmp_path, options, names_bytes, ranges):
    """Files are packed up to batch_bytes, up to batch_files_max of them, and up to so many bytes of their names."""
    spout = FilesTransactionalSpout(tmp_path, **options)
    spout.read_limits = ReadLimits(names_bytes=names_bytes)
    for n in range(10):
        written(tmp_path / f"{n}.txt", "1234567\n")
    assert [len(one["ranges"]) for one in plan(spout)] == ranges


def test_all_tasks_get_work(tmp_path):
    """A large file's share of a transaction is cut into about as many equal ranges as there are tasks."""
    written(tmp_path / "a.txt", "0123456789abcde\n" * 8192)
    metadata = plan(FilesTransactionalSpout(tmp_path, batch_bytes=65536), tasks=4)
    assert [[end - start for _, start, end, _, _ in one["ranges"]] for one in metadata] == [[16384] * 4] * 2


def test_files_that_came_before_the_position_are_taken(tmp_path):
    """New files that sort before what was taken are the next run's, too, in the order of their names."""
    run = Growing(tmp_path / "in", watch=False, options={"batch_bytes": 3})
    for name in ("b.txt", "d.txt"):
        run.write(name, f"{name}\n")
    run.start()
    assert run.drain() == {"b.txt": 1, "d.txt": 1}
    for name in ("c.txt", "a.txt", "e.txt"):
        run.write(name, f"{name}\n")
    for _ in range(6):  # each run takes one transaction's share
        run.start()
        run.begin()
        run.commit()
    assert run.coordinator.is_exhausted()
    names = [piece[0] for metadata in run.saved[4:] for piece in metadata["ranges"]]
    assert names == ["a.txt", "a.txt", "c.txt", "c.txt", "e.txt", "e.txt"]
    assert set(run.lines.values()) == {1}


def test_files_that_came_before_a_former_runs_position(tmp_path):
    """Metadata of a former txtopo has no log: files that came since are told by when they came, or refused."""
    run = Growing(tmp_path / "in", watch=False)
    for name in ("b.txt", "d.txt"):
        run.write(name, f"{name}\n")
    run.start()
    run.drain()
    former = [{key: value for key, value in metadata.items() if key not in {"next", "log"}} for metadata in run.saved]
    for name in ("a.txt", "c.txt"):
        run.write(name, f"{name}\n")
    for watch in (False, True):
        again = Growing(run.folder, watch=watch, saved=list(former), committed=len(former), clock=run.clock)
        again.start()
        assert again.drain() == {"a.txt": 1, "c.txt": 1}
    os.utime(run.folder / "d.txt")  # now it is the latest of them
    os.utime(run.folder / "b.txt")
    again = Growing(run.folder, watch=False, saved=list(former), committed=len(former))
    with pytest.raises(InputError, match=r"the 2 files up to 'd.txt' are taken, but there are 4 now.*latest are '[bd]"):
        again.start()


def test_files_that_were_taken_are_named(tmp_path):
    """With the log, an error says which of the files that were taken is gone, or has grown."""
    run = Growing(tmp_path / "in", watch=False)
    for name in ("a.txt", "b.txt", "c.txt"):
        run.write(name, "1\n")
    run.start()
    run.drain()
    run.write("b.txt", "1\n2\n")
    with pytest.raises(
        InputError, match=r"b.txt is taken and has changed since: it had 2 bytes, now it has 4; put the"
    ):
        run.start()
    (run.folder / "b.txt").unlink()
    with pytest.raises(
        InputError, match=r"1 of the 3 files that are taken from .* are missing: 'b.txt'; put them back"
    ):
        run.start()
    run.watch = True
    run.start()
    assert run.drain() == {"1": 3}


def test_watch_is_switched_on_and_off(tmp_path):
    """At any moment, in the middle of a file too, nothing is read twice or lost."""
    run = Growing(tmp_path / "in", watch=False, options={"batch_bytes": 5})
    for name in ("m.txt", "z.txt"):
        run.write(name, "".join(f"{name} {n}\n" for n in range(4)))
    for number in range(30):
        run.start()
        if number == 7:
            run.write("a.txt", "a\n")
        if run.watch:
            run.wait()
        run.begin()
        run.commit()
        run.watch = not run.watch
    assert run.lines == {"a": 1, **{f"{name} {n}": 1 for name in ("m.txt", "z.txt") for n in range(4)}}


def test_a_rewrite_while_a_file_is_read_is_refused(tmp_path, monkeypatch):
    """Also one that comes after the first look at the file, and leaves its size as it was."""
    path = written(tmp_path / "a.txt", "1\n2\n")
    spout = FilesTransactionalSpout(tmp_path)
    (metadata,) = plan(spout)
    read = TextFormat.read

    def rewritten(self, *arguments):
        yield from read(self, *arguments)
        written(path, "3\n4\n")
        os.utime(path, (10**9, 10**9))

    monkeypatch.setattr(TextFormat, "read", rewritten)
    with pytest.raises(InputError, match=r"a.txt has changed since its transaction was planned"):
        emitted(spout, metadata)


def test_files_that_were_taken_stay(tmp_path):
    """A taken file that is gone or has grown is found when the next run starts, also if another one came."""
    for name in ("a.txt", "b.txt"):
        written(tmp_path / name, "1\n")
    begun = plan(FilesTransactionalSpout(tmp_path))
    written(tmp_path / "a.txt", "1\n2\n")
    with pytest.raises(InputError, match=r"another size; the latest are 'a\.txt'"):
        plan(FilesTransactionalSpout(tmp_path), begun)
    (tmp_path / "a.txt").unlink()
    with pytest.raises(InputError, match=r"the 2 files up to 'b\.txt' are taken, but only 1 of them exist now"):
        plan(FilesTransactionalSpout(tmp_path), begun)
    written(tmp_path / "aa.txt", "1\n")
    with pytest.raises(InputError, match="renamed"):
        plan(FilesTransactionalSpout(tmp_path), begun)


def test_a_file_in_the_middle_is_the_same_file(tmp_path):
    """A file that was taken in part and then replaced by one of equal length is refused."""
    run = Growing(tmp_path / "in", watch=False, options={"batch_bytes": 4})
    run.write("a.txt", "one\ntwo\n")
    run.start()
    run.begin()
    os.utime(run.write("a.txt", "ONE\nTWO\n"), ns=(1, 1))
    with pytest.raises(InputError, match="is taken up to 4 and has changed since"):
        run.start()


def test_a_file_that_changes_before_it_is_emitted_is_refused(tmp_path):
    """Planned and emitted must be the same: size, mtime_ns, and that it is there at all."""
    path = written(tmp_path / "a.txt", "1\n")
    spout = FilesTransactionalSpout(tmp_path)
    (metadata,) = plan(spout)
    written(path, "1\n2\n")
    with pytest.raises(InputError, match=r"a.txt has changed since.*it had 2 bytes.*it has 4 bytes"):
        emitted(spout, metadata)
    path.unlink()
    with pytest.raises(InputError, match=r"a.txt is missing; it had 2 bytes"):
        emitted(spout, metadata)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a.csv", "b.CSV"], "csv"),
        (["a.jsonl", "b.json"], "json"),
        (["a.parquet"], "parquet"),
        (["a.txt", "b"], "text"),
        (["a.csv", "b.txt"], "text"),
    ],
)
def test_the_format_is_guessed_where_all_endings_agree(tmp_path, names, expected):
    """Without a format, the endings say it, and text is what remains."""
    for name in names:
        written(tmp_path / name, "word\nx\n")
    spout = FilesTransactionalSpout(tmp_path, Fields("word: string"))
    if expected == "parquet":
        with pytest.raises(InputError, match="is not a readable Parquet file"):
            spout.coordinator({}, PlainContext()).is_exhausted()
    else:
        assert spout.coordinator({}, PlainContext()).initialize_transaction(1, None)["format"] == expected


def test_a_guess_that_changes_between_runs_is_refused(tmp_path):
    """Files that were CSV before are not read as text because a text file came."""
    written(tmp_path / "a.csv", "word\nx\n")
    spout = FilesTransactionalSpout(tmp_path, Fields("word: string"))
    begun = plan(spout)
    written(tmp_path / "b.txt", "y\n")
    with pytest.raises(InputError, match="read as csv before, but are text now; give the spout format='csv'"):
        plan(spout, begun)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"format": "csv"}, FieldsError, "a csv spout needs fields with types"),
        ({"format": "json", "fields": Fields("a")}, FieldsError, "field 'a' has no type"),
        ({"format": "text", "fields": Fields("a: long")}, FieldsError, "format=.csv"),
        ({"format": "text", "fields": Fields("a: string", "b: string")}, FieldsError, "has one string field"),
        ({"format": "csv", "fields": Fields("a: array<long>")}, FieldsError, "nested type"),
        ({"format": "csv", "fields": Fields("a: long"), "delimiter": "::"}, ConfigError, "delimiter is '::'"),
        ({"format": "csv", "fields": Fields("a: long"), "quote": 34}, ConfigError, "quote is 34"),
        ({"format": "csv", "fields": Fields("a: long"), "delimiter": '"'}, ConfigError, "are both '\"'"),
        ({"format": "xml"}, ConfigError, "the formats are text, csv, tsv, json, parquet"),
        ({"batch_bytes": 0}, ConfigError, "batch_bytes is 0"),
        ({"batch_files_max": 0}, ConfigError, "batch_files_max is 0"),
        ({"watch": True, "settle_secs": -1}, ConfigError, "settle_secs is -1"),
        ({"watch": True, "settle_secs": float("inf")}, ConfigError, "settle_secs is inf"),
        ({"watch": True, "poll_secs": "1"}, ConfigError, "poll_secs is '1'"),
    ],
)
def test_wrong_arguments_are_found_at_once(arguments, error, message):
    """What is wrong whatever the files hold is found when the spout is made."""
    with pytest.raises(error, match=message):
        FilesTransactionalSpout("anywhere", **arguments)


@pytest.mark.parametrize("path", [["in", "az://container/in/*.csv"], ["s3://bucket/in", "file:///tmp/in"]])
def test_an_address_and_a_path_are_refused(path):
    """Names would not be relative to one root; ``s3:`` is no folder of the working directory."""
    with pytest.raises(InputError, match=r"(s3|az)://\S+ is in an object store, and another path is not"):
        FilesTransactionalSpout(path)


def test_it_pickles_with_absolute_paths(tmp_path, monkeypatch):
    """A relative path means the same in a process that runs elsewhere."""
    written(tmp_path / "in" / "a.txt", "1\n")
    monkeypatch.chdir(tmp_path)
    pickled = pickle.dumps(FilesTransactionalSpout("in"))
    monkeypatch.chdir("/")
    assert lines_of(pickle.loads(pickled)) == ["1"]


def exchanged(path, content):
    """Rename another file over one; return what renames the former back."""
    kept, other = path.with_name("_kept"), written(path.with_name("_other"), content)
    os.link(path, kept)
    os.utime(other, (10**9, 10**9))
    other.replace(path)
    return lambda: kept.replace(path)


def test_a_file_that_is_another_one_when_it_is_opened(tmp_path, monkeypatch):
    """What is opened is looked at, for before and behind that its name may be the former file's."""
    path = written(tmp_path / "a", "1\n2\n")
    spout = FilesTransactionalSpout(tmp_path)
    (metadata,) = plan(spout)
    opened = Path.open

    def open_another(self, *arguments):
        monkeypatch.undo()
        back = exchanged(path, "foreign\n")
        handle = opened(self, *arguments)
        back()
        return handle

    monkeypatch.setattr(Path, "open", open_another)
    with pytest.raises(InputError, match="a has changed since its transaction was planned"):
        emitted(spout, metadata)


@pytest.mark.parametrize("name", ["text", "csv", "parquet"])
def test_a_file_that_is_another_one_when_it_is_read(tmp_path, monkeypatch, name):
    """The file that was opened and looked at is read, also by Arrow, which opens files itself."""
    contents = [_parquet([1, 2]), _parquet([8, 9])] if name == "parquet" else ["1\n2\n", "8\n9\n"]
    path = written(tmp_path / "a", contents[0])
    fields = Fields("n: string" if name == "text" else "n: long")
    spout = FilesTransactionalSpout(tmp_path, fields, name, header=False)
    (metadata,) = plan(spout)
    read = FORMATS[name].read

    def read_meanwhile(self, *arguments):
        back = exchanged(path, contents[1])
        batches = list(read(self, *arguments))
        back()
        yield from batches

    monkeypatch.setattr(FORMATS[name], "read", read_meanwhile)
    assert list(map(int, emitted(spout, metadata))) == [1, 2]


def _parquet(numbers):
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": numbers}), buffer, row_group_size=1)
    return buffer.getvalue().to_pybytes()


@pytest.mark.parametrize(("name", "content"), [("text", "\xff\n\n\n"), ("json", '{"n":1}\n')])
def test_what_is_written_while_it_is_read_is_no_bad_record(tmp_path, monkeypatch, name, content):
    """The error says that the file was written, and not that it is to be mended."""
    path = written(tmp_path / "a", '{"n":"1"}\n')
    spout = FilesTransactionalSpout(tmp_path, Fields("n: string"), name)
    (metadata,) = plan(spout)
    read = FORMATS[name].read

    def rewritten(self, *arguments):
        path.write_bytes(content.encode("latin-1"))
        yield from read(self, *arguments)

    monkeypatch.setattr(FORMATS[name], "read", rewritten)
    with pytest.raises(InputError, match="a has changed since its transaction was planned"):
        emitted(spout, metadata)
