"""Compressed files: what is read of them is what is read of them unpacked."""

import bz2
import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from spouts.files.limits import ReadLimits
from spouts.files.spout import FilesTransactionalSpout
from tests.budgets import examples
from tests.spouts.files.test_bad_records import (
    CSV_BAD,
    CSV_GOOD,
    FIELDS,
    FORMATS,
    JSON_BAD,
    JSON_GOOD,
    LINES,
    MARK,
    QUOTED,
    QUOTED_BAD,
    QUOTED_GOOD,
    TEXT_BAD,
    TEXT_GOOD,
    UNQUOTED,
    files,
    read as read_all,
)
from tests.spouts.reading import plan, read, written
from tests.variants import variants
from txtopo.api.data.fields import Fields
from txtopo.errors import InputError
from txtopo.testing.conformance.spout import TransactionalSpoutConformance

PACKERS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: pa.Codec("zstd").compress(content, asbytes=True),
}


class TestPackedText(TransactionalSpoutConformance):
    @pytest.fixture
    def spout(self, tmp_path):
        for name in ("a", "b", "c"):
            content = "".join(f"{name} {number}\n" for number in range(50))
            written(tmp_path / f"{name}.txt.gz", gzip.compress(content.encode()))
        return FilesTransactionalSpout(tmp_path, LINES, batch_bytes=10, dead_letter=tmp_path / "_bad")


@pytest.mark.few(4)
@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize(
    ("records", "name", "options"),
    [
        ([b"", MARK, *TEXT_GOOD, *TEXT_BAD], "txt", {}),
        (JSON_GOOD + JSON_BAD, "json", {}),
        (CSV_GOOD + CSV_BAD, "csv", UNQUOTED),
        (QUOTED_GOOD + QUOTED_BAD, "csv", QUOTED),
    ],
    ids=["text", "JSON", "CSV without quotes", "CSV with quotes"],
)
@settings(max_examples=examples(15), deadline=None)
@given(data=st.data())
def test_what_is_read_is_what_the_unpacked_file_has(tmp_path_factory, data, records, name, options, suffix):
    """Good records, and offsets, lines and reasons of bad ones: whatever the bounds, and in several members, too."""
    pairs, batch_bytes, tasks = data.draw(files(records))
    content = b"".join(record + end for record, end in pairs)
    cut = data.draw(st.integers(0, len(content)))
    folder = tmp_path_factory.mktemp("packed")
    plain = written(folder / "plain" / f"a.{name}", content)
    members = [PACKERS[suffix](part) for part in (content[:cut], content[cut:])]
    packed = written(folder / "packed" / f"a.{name}{suffix}", b"".join(members))
    size_max = data.draw(st.integers(1, 60))
    fields = LINES if name == "txt" else FIELDS
    options = {**options, "format": FORMATS[name], "batch_bytes": batch_bytes}
    limits = ReadLimits(record_bytes=size_max, chunk_bytes=data.draw(st.integers(1, size_max)))
    assert read_all(packed, fields, tasks, limits, **options) == read_all(plain, fields, tasks, limits, **options)


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("damage", [lambda packed: packed[:-10], lambda packed: packed[:20], lambda _: b"plain text"])
def test_a_damaged_file(tmp_path, suffix, damage):
    """It is refused by name, and never taken for a shorter one."""
    content = "".join(f"line {number}\n" for number in range(2000)).encode()
    path = written(tmp_path / f"a.txt{suffix}", damage(PACKERS[suffix](content)))
    with pytest.raises(InputError, match=rf"a\.txt\{suffix} can't be unpacked after byte \d+ of its content"):
        read(FilesTransactionalSpout(path))


@pytest.mark.few(1)
@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("options", variants({"quote": None}, slow=[{}]))
def test_cut_anywhere(tmp_path, suffix, options):
    """A file that has lost its end, wherever, is refused; only whole members are a file."""
    member = PACKERS[suffix](b"word,n\n" + b"".join(b"w%d,%d\n" % (number, number) for number in range(40)))
    path = written(tmp_path / f"a.csv{suffix}", member)
    spout = FilesTransactionalSpout(path, Fields("word: string", "n: long"), dead_letter=tmp_path / "bad", **options)
    assert len(read(spout)) == 40
    for size in {*range(1, 2 * len(member))} - {len(member)}:
        path.write_bytes((member + member)[:size])
        with pytest.raises(InputError, match="can't be unpacked after byte"):
            read(spout)


@pytest.mark.parametrize("suffix", PACKERS)
def test_members(tmp_path, suffix):
    """A line may be in several members, and members may be empty; the first bytes of one are never passed over."""
    members = [*map(PACKERS[suffix], [b"", b"a\nb", b"", b"c\n", b"d", b""])]
    path = written(tmp_path / f"a.txt{suffix}", b"".join(members))
    assert read(FilesTransactionalSpout(path)) == [("a",), ("bc",), ("d",)]
    for damaged in (b"x" + members[4][1:], members[4][:1], members[4][:2], b"\n"):
        written(path, b"".join([*members[:4], damaged]))
        with pytest.raises(InputError, match="can't be unpacked after byte"):
            read(FilesTransactionalSpout(path))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".gz", ".bz2"])
def test_zeros_after_a_member(tmp_path, suffix):
    """They fill the blocks of a tape."""
    packed = PACKERS[suffix](b"a\n")
    written(tmp_path / f"a.txt{suffix}", packed + bytes(5000) + packed + bytes(3_000_000))
    assert read(FilesTransactionalSpout(tmp_path)) == [("a",), ("a",)]


@pytest.mark.slow
@pytest.mark.parametrize("quote", ['"', None])
def test_a_bomb_is_a_bad_record(tmp_path, quote):
    """A file that unpacks to one endless line is read in parts; its neighbours are read, and it is a bad record."""
    size = 64 * 1024 * 1024
    content = b"word,n\na,1\n" + b"x" * size + b",2\nb,3\n"
    written(tmp_path / "a.csv.gz", gzip.compress(content, 1))
    tuples, letters = read_all(tmp_path, Fields("word: string", "n: long"), quote=quote)
    assert tuples == [("a", 1), ("b", 3)]
    assert [letter[:2] for letter in letters] == [(11, 3)]
    assert letters[0][3].endswith(f"of {size + 2})")


def test_the_format_is_that_of_the_content(tmp_path):
    """Suffixes of compression are left out; a compressed file is one range; packed and plain files may be together."""
    written(tmp_path / "a.csv.gz", gzip.compress(b"word,n\na,1\n"))
    written(tmp_path / "b.CSV.BZ2", bz2.compress(b"n,word\n2,b\n"))
    written(tmp_path / "c.csv", "word,n\nc,3\n")
    spout = FilesTransactionalSpout(tmp_path, Fields("word: string", "n: long"), quote=None, batch_bytes=20)
    assert read(spout) == [("a", 1), ("b", 2), ("c", 3)]
    assert [len(each["ranges"]) for each in plan(spout)] == [1, 1, 1]


def test_a_packed_parquet_file(tmp_path):
    """It says that it has compression of its own."""
    pq.write_table(pa.table({"n": [1]}), tmp_path / "_a")
    written(tmp_path / "a.parquet.gz", gzip.compress((tmp_path / "_a").read_bytes()))
    with pytest.raises(InputError, match="Parquet files have compression of their own"):
        read(FilesTransactionalSpout(tmp_path, Fields("n: long")))
