"""Folders that grow: each file is taken once, whatever its name, and whenever a process dies."""

import itertools
import logging
import os
import random
import shutil
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from spouts.files.formats.parquet_format import ParquetFormat
from spouts.files.spout import FilesTransactionalSpout
from tests.budgets import examples
from tests.spouts.files.growing import CrashError, Fuse, Growing
from txtopo.api.components.spout import Lag
from txtopo.api.data.fields import Fields
from txtopo.errors import FailedException, InputError, LostLead
from txtopo.testing.conformance.spout import TransactionalSpoutConformance


@pytest.fixture
def growing(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    return Growing(folder)


class TestConformance(TransactionalSpoutConformance):
    is_endless = True
    transactions_max = 9

    @pytest.fixture
    def spout(self, tmp_path):
        for name in ("part-00007-ab", "a.txt", "sub/z.txt"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("".join(f"{name} line {n}\n" for n in range(40)))
        return FilesTransactionalSpout(tmp_path, batch_bytes=200, watch=True, settle_secs=0)


def test_files_are_taken_as_they_arrive(growing):
    """In whatever order their names sort, each once; an empty folder is accepted, and it never ends."""
    growing.start()
    assert (growing.wait(), growing.coordinator.is_exhausted()) == (False, False)
    names = ["part-00000-f3.txt", "part-00000-a1.txt", "2024/part-00000-c2.txt", "part-00000-b0.txt"]
    for number, name in enumerate(names, 1):
        growing.write(name, f"{name}\n")
        assert growing.wait()
        assert growing.begin()
        assert growing.coordinator.is_exhausted() is False
        growing.commit()
        assert sum(growing.lines.values()) == number
    assert growing.drain() == Counter(names)


def test_complete_means_unchanged_for_a_while(growing):
    """A file is taken when size and mtime have stayed for settle_secs, and not before."""
    growing.start()
    growing.write("a.txt", "1\n", mtime_secs=100)
    growing.coordinator.is_ready()
    growing.clock.secs += 1.5
    assert not growing.coordinator.is_ready()
    growing.write("a.txt", "2\n", mtime_secs=101)
    growing.clock.secs += 1.0
    assert not growing.coordinator.is_ready()
    growing.clock.secs += 1.9
    assert not growing.coordinator.is_ready()
    growing.clock.secs += 1.0
    assert growing.coordinator.is_ready()
    assert growing.drain() == {"2": 1}


def test_the_folder_is_looked_at_every_poll_secs(growing, monkeypatch):
    """However often the coordinator is asked; and a look that computes long is followed by a longer pause.

    One that waited, for a disk or for a core, is followed by one as long.
    """
    looks, costs_secs = [], [(0.0, 0.0)]
    scandir = os.scandir

    def counted(path):
        looks.append(growing.clock.secs)
        growing.clock.secs += costs_secs[-1][0]
        growing.spent.secs += costs_secs[-1][1]
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    growing.start()
    for cost_secs, spent_secs, pause_secs in ((0.0, 0.0, 1.0), (0.5, 0.5, 5.5), (0.5, 0.0, 1.0), (2.0, 0.0, 4.0)):
        looks.clear()
        costs_secs.append((cost_secs, spent_secs))
        while len(looks) < 5:
            assert not growing.coordinator.is_ready()
            growing.clock.secs += 0.125
        assert {later - earlier for earlier, later in itertools.pairwise(looks)} == {pause_secs}


def test_names_that_are_not_complete_are_passed_over(growing):
    """As Spark's file source does: hidden, temporary and checksum files, but not partitions that begin with _."""
    for name in ("_SUCCESS", ".a.txt.crc", "b.tmp", "c.crc", "_temporary/0/d.txt", "e.txt._COPYING_", ".f/g.txt"):
        growing.write(name, "no\n")
    for name in ("_day=1/h.txt", "i.txt", "tmp/j.txt"):
        growing.write(name, "yes\n")
    growing.start()
    assert growing.drain() == {"yes": 3}
    (growing.folder / "b.tmp").rename(growing.folder / "b.txt")
    assert growing.drain() == {"yes": 3, "no": 1}


def test_a_name_that_is_gone_is_forgotten(growing):
    """Once its transaction is committed; it is a new file when it is back, with the same content or another."""
    growing.start()
    growing.write("a.txt", "1\n", mtime_secs=100)
    growing.wait()
    assert growing.begin()
    growing.commit(0)
    (growing.folder / "a.txt").unlink()
    growing.wait()
    growing.write("a.txt", "1\n", mtime_secs=100)  # not committed yet: it was put back
    assert growing.drain() == {"1": 1}
    (growing.folder / "a.txt").unlink()
    growing.wait()
    growing.start()
    growing.write("a.txt", "1\n", mtime_secs=100)
    assert growing.drain() == {"1": 2}


def test_ranges_of_a_name_that_came_back_are_another_files(growing):
    """``txtopo audit`` finds neither gap nor overlap where a name came back: its number is told with it."""
    growing.start()
    growing.write("a.txt", "1\n")
    growing.drain()
    (growing.folder / "a.txt").unlink()
    growing.wait()
    growing.write("a.txt", "22\n")
    growing.drain()
    told = [growing.spout.input_ranges(metadata, None) for metadata in growing.saved]
    assert told == [{"a.txt #0": (0, 2)}, {"a.txt #1": (0, 3)}]


@pytest.mark.slow
def test_the_log_is_bounded_by_the_files_that_are_there(growing):
    """Over many files that come and go, the store holds a few hundred records, and reads back what is there."""
    growing.start()
    for number in range(400):
        growing.write(f"{number}.txt", f"{number}\n")
        growing.wait()
        growing.begin()
        growing.commit()
        if number:
            (growing.folder / f"{number - 1}.txt").unlink()
    growing.drain()
    assert growing.lines == Counter(map(str, range(400)))
    assert len(growing.place.values) < 270
    assert sum(map(len, growing.place.values.values())) < 20_000
    growing.start()
    assert growing.drain() == Counter(map(str, range(400)))


def take_a_part_of(growing, name):
    """Write a file of three lines, and commit the first two of them."""
    growing.options = {"batch_bytes": 4}
    growing.start()
    growing.write(name, "1\n2\n3\n", mtime_secs=100)
    growing.wait()
    assert growing.begin()
    growing.commit()


def test_a_file_that_changes_when_a_part_is_taken_is_refused(growing):
    """The rest of another file is not read behind the first part of the former one."""
    take_a_part_of(growing, "a.txt")
    growing.write("a.txt", "1\n2\n4\n", mtime_secs=101)
    with pytest.raises(InputError, match=r"a.txt is taken up to 4 and has changed since.*put the original file"):
        growing.begin()
    growing.write("a.txt", "1\n2\n3\n", mtime_secs=100)
    growing.start()
    assert growing.drain() == {"1": 1, "2": 1, "3": 1}


def test_a_file_that_is_gone_when_a_part_is_taken_is_asked_for(growing):
    """It is not forgotten: its rest is not lost, and nothing of it is read twice when it is back."""
    take_a_part_of(growing, "a.txt")
    (growing.folder / "a.txt").unlink()
    with pytest.raises(InputError, match=r"a.txt is taken up to 4 .* now it is missing; put the original file"):
        growing.wait()
    growing.write("a.txt", "1\n2\n3\n", mtime_secs=100)
    assert growing.drain() == {"1": 1, "2": 1, "3": 1}


def test_lag(growing):
    """It has the listed files that are not taken whole and their bytes, complete or not; None before a listing."""
    growing.options = {"batch_bytes": 8, "batch_files_max": 2}
    growing.write("a", "12345\n12345\n")
    growing.write("b", "1\n")
    growing.write("c", "12\n")
    coordinator = growing.start()
    assert coordinator.lag() is None
    assert not coordinator.is_ready()
    assert coordinator.lag() == Lag(files=3, bytes=17)  # they settle
    assert growing.wait()
    found = [coordinator.lag()]
    while growing.begin():
        found += [coordinator.lag(), coordinator.lag()]
    left = [Lag(files=3, bytes=17), Lag(files=3, bytes=9), Lag(files=1, bytes=3), Lag(files=0, bytes=0)]
    assert list(dict.fromkeys(found)) == left
    growing.commit()
    (growing.folder / "a").unlink()
    growing.write("d", "1234\n")
    growing.wait(0)
    assert coordinator.lag() == Lag(files=1, bytes=5)
    again = growing.start()
    growing.wait(0)
    assert again.lag() == Lag(files=1, bytes=5)


def test_lag_while_a_folder_is_away(growing):
    """It is as of the last listing."""
    growing.write("a", "1\n")
    coordinator = growing.start()
    growing.wait()
    growing.folder.rename(growing.folder.with_name("away"))
    growing.wait()
    assert coordinator.lag() == Lag(files=1, bytes=2)


def test_lag_of_files_that_are_listed_once(growing):
    """A spout without ``watch`` knows it, too, also in the run after one that has taken a part."""
    growing.watch, growing.options = False, {"batch_bytes": 8}
    growing.write("a", "12345\n12345\n")
    growing.write("b", "1\n")
    found = []
    for _ in range(4):
        coordinator = growing.start()
        found.append(coordinator.lag())
        growing.begin()
        found.append(coordinator.lag())
    assert found[0] == Lag(files=2, bytes=14)
    assert [each.bytes for each in found] == sorted((each.bytes for each in found), reverse=True)
    assert found[-1] == Lag(files=0, bytes=0)


def test_the_oldest_file_comes_first(growing):
    """Of files that are new at one look, whatever their names."""
    growing.options = {"batch_files_max": 1}
    growing.start()
    for name, mtime_secs in (("c.txt", 100), ("a.txt", 300), ("b.txt", 200), ("d.txt", 200)):
        growing.write(name, f"{name}\n", mtime_secs=mtime_secs)
    growing.drain()
    assert [metadata["ranges"][0][0] for metadata in growing.saved] == ["c.txt", "b.txt", "d.txt", "a.txt"]


def test_a_file_that_changes_before_its_turn_is_another_one(growing):
    """What was admitted and not taken yet is admitted again when it has settled; nothing is read of the former."""
    growing.options = {"batch_bytes": 2}
    growing.start()
    growing.write("a.txt", "1\n", mtime_secs=100)
    growing.write("b.txt", "2\n", mtime_secs=101)
    growing.write("c.txt", "3\n", mtime_secs=102)
    growing.wait()
    assert growing.begin()
    growing.write("b.txt", "4\n", mtime_secs=103)
    assert growing.begin()
    growing.start()  # the log says of what was passed over that it was not taken
    assert growing.drain() == {"1": 1, "3": 1, "4": 1}


def test_a_change_after_the_commit_is_told_once(growing, caplog):
    """One warning that names file and change, also over restarts; the file is never read again."""
    growing.start()
    growing.write("a.txt", "1\n", mtime_secs=100)
    growing.drain()
    with caplog.at_level(logging.WARNING, "txtopo.files"):
        for secs in (101, 102, 103):
            growing.write("a.txt", f"{secs}\n", mtime_secs=secs)
            assert growing.drain() == {"1": 1}
            growing.start()
    (told,) = caplog.messages
    assert "a.txt has changed since it was read: it had 2 bytes, mtime_ns 100000000000, now it has 4 bytes" in told
    assert "put new data in a new file" in told


def test_a_folder_that_is_not_there_for_a_while(growing, caplog):
    """A file system that is away looks like an empty folder, or none: nothing is forgotten, and it is said once."""
    for name in "abc":
        growing.write(f"{name}.txt", f"{name}\n", mtime_secs=100)
    growing.start()
    expected = growing.drain().copy()
    away = growing.folder.with_name("away")
    growing.folder.rename(away)
    with caplog.at_level(logging.WARNING, "txtopo.files"):
        assert growing.drain() == expected
        growing.folder.mkdir()
        assert growing.drain() == expected
        growing.start()
        assert growing.drain() == expected
        growing.write("d.txt", "d\n")
        assert growing.drain() == expected + Counter("d")
    assert sorted({message.partition(" (")[0].split("; ")[0][-30:] for message in caplog.messages})
    assert len(caplog.messages) <= 4
    (growing.folder / "d.txt").unlink()
    growing.folder.rmdir()
    away.rename(growing.folder)
    assert growing.drain() == expected + Counter("d")


def test_another_folder_with_the_same_names(growing):
    """Names alone do not make it the folder that files were taken from: that one may come back."""
    for name in "ab":
        growing.write(f"{name}.txt", f"{name}\n", mtime_secs=100)
    growing.start()
    expected = growing.drain().copy()
    away = growing.folder.with_name("away")
    growing.folder.rename(away)
    growing.folder.mkdir()
    other = growing.write("a.txt", "other\n", mtime_secs=200)
    assert growing.drain() == expected
    other.unlink()
    growing.folder.rmdir()
    away.rename(growing.folder)
    assert growing.drain() == expected


@pytest.mark.parametrize("pattern", ["*.txt", "**/*.txt", "a*"])
def test_globs(growing, pattern):
    """A glob is what matches it now; its folder may be away for a while, too."""
    folder = growing.folder
    for name in ("a.txt", "b.csv", "a2.txt.tmp", "sub/_c.txt"):
        growing.write(name, "x\n", mtime_secs=100)
    growing.folder = folder / pattern
    growing.start()
    assert growing.drain() == {"x": 1}
    folder.rename(folder.with_name("away"))
    folder.mkdir()
    assert growing.drain() == {"x": 1}
    folder.rmdir()
    folder.with_name("away").rename(folder)
    (folder / "b.csv").rename(folder / "abc.txt")
    assert growing.drain() == {"x": 2}


@pytest.mark.parametrize("pattern", ["**/*.txt", "**", "**/a/*", "**/a", "**/**/x.txt", "a/**/x.txt"])
@pytest.mark.parametrize("watch", [True, False])
def test_a_glob_follows_no_linked_folders(growing, pattern, watch):
    """A file has one name, however many links lead to its folder; nor is a circle of them gone round."""
    folder = growing.folder
    growing.write("a/sub/x.txt", "x\n")
    growing.write("a/.sub/x.txt", "hidden\n")
    if pattern in {"**/*.txt", "**", "**/a/*", "**/a"}:
        growing.write("a/y.txt", "y\n")
    for name in ("link", "a/circle", "a/sub/circle"):
        (folder / name).symlink_to(folder / "a")
    growing.folder, growing.watch = folder / pattern, watch
    growing.start()
    assert set(growing.drain().values()) == {1}
    assert "x" in growing.lines
    assert "hidden" not in growing.lines


def test_a_narrower_path_forgets_nothing(growing):
    """A file that no path leads to any more is there all the same: it stays known, and is not read again later."""
    folder = growing.folder
    for name in ("a.txt", "b.csv"):
        growing.write(name, "x\n")
    growing.start()
    growing.drain()
    for path in (folder / "*.txt", folder):
        growing.folder = path
        growing.start()
        assert growing.drain() == {"x": 2}
    (folder / "b.csv").unlink()
    growing.wait()
    growing.write("b.csv", "x\n")
    assert growing.drain() == {"x": 3}


@pytest.mark.parametrize("path", ["nowhere", "nowhere/*.txt"])
def test_a_folder_must_be_there_at_the_start(growing, path):
    """A mistake in the path is found before anything runs."""
    growing.folder = growing.folder / path
    with pytest.raises(InputError, match=r"there is no (file or )?folder .*nowhere"):
        growing.start()


def test_a_moved_folder_is_the_same(growing):
    """A folder that was moved as a whole is gone on with; so is one that more paths were given beside."""
    growing.write("a.txt", "a\n", mtime_secs=100)
    growing.start()
    growing.drain()
    moved = growing.folder.with_name("moved")
    growing.folder.rename(moved)
    growing.folder = moved
    growing.start()
    assert growing.drain() == {"a": 1}
    growing.folder = moved.parent
    growing.start()
    growing.write("moved/b.txt", "b\n")
    assert growing.drain() == {"a": 1, "b": 1}


def test_another_folder_is_refused(growing):
    """Names below another folder would mean other files."""
    growing.write("a.txt", "a\n")
    growing.start()
    growing.drain()
    growing.folder = growing.folder.with_name("other")
    growing.write("a.txt", "a\n")
    with pytest.raises(InputError, match=r"files were taken from .*/in, which still exists, but the paths now lead to"):
        growing.start()


def test_a_lost_log_is_refused(growing):
    """Without the log, or with one from before, it can't be told what is new: nothing is read twice."""
    growing.write("a.txt", "a\n")
    growing.start()
    growing.drain()
    before = dict(growing.place.values)
    growing.write("b.txt", "b\n")
    growing.drain()
    for values in ({}, before):
        growing.place.values.clear()
        growing.place.values.update(values)
        with pytest.raises(InputError, match=r"the log of the files .* is missing, or is not the one"):
            growing.start()


def test_a_former_leader_adds_nothing(growing):
    """One that lost the lead can neither admit nor compact: its write is refused, and the log is the new one's."""
    growing.write("a.txt", "a\n")
    zombie = growing.start()
    growing.drain()
    growing.start()
    growing.write("b.txt", "b\n")
    values = dict(growing.place.values)
    growing.clock.secs += 10
    zombie.is_ready()
    growing.clock.secs += 10
    with pytest.raises(LostLead):
        zombie.is_ready()
    assert growing.place.values == values
    assert growing.drain() == {"a": 1, "b": 1}


def test_empty_parquet_files_are_looked_into_once(growing, monkeypatch):
    """Spark writes files without rows; they are no reason to begin a transaction, nor to read them all the time."""
    growing.options = {"fields": Fields("n: long")}
    table = pa.table({"n": [1, 2]})
    for number in range(5):
        pq.ParquetWriter(growing.folder / f"{number}.parquet", table.schema).close()
    opened = []
    parquet_file = pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", lambda path, **more: opened.append(path) or parquet_file(path, **more))
    growing.start()
    for _ in range(5):
        assert not growing.wait()
    assert len(opened) == 5
    pq.write_table(table, growing.folder / "0-late.parquet")
    assert growing.drain() == {1: 1, 2: 1}


@pytest.mark.parametrize("other", [None, [7, 8]])
def test_a_parquet_file_that_goes_just_when_it_is_looked_into(growing, monkeypatch, other):
    """It stops nothing, and no transaction is cut by another file's row groups; when it is back, it is taken whole."""
    path, kept = growing.folder / "a.parquet", growing.folder / "_kept"
    growing.options = {"fields": Fields("n: long")}
    pq.write_table(pa.table({"n": range(5)}), path, row_group_size=1)
    growing.start()
    growing.coordinator.is_ready()
    sizes = ParquetFormat._group_sizes

    def exchanged(self, file):
        if not kept.exists():
            path.rename(kept)
            if other is not None:
                pq.write_table(pa.table({"n": other}), path)
        return sizes(self, file)

    monkeypatch.setattr(ParquetFormat, "_group_sizes", exchanged)
    growing.clock.secs += 3
    with pytest.raises(FailedException, match=r"a\.parquet (has changed|is missing)"):
        growing.coordinator.is_ready()
    monkeypatch.undo()
    kept.replace(path)
    assert growing.drain() == dict.fromkeys(range(5), 1)


def test_names_of_any_characters(growing):
    """Whatever a name holds that JSON and UTF-8 do, the log reads it back."""
    names = ["a b.txt", "line\u2028end.txt", "new\nline.txt", "ü\x85\x1c.txt", 'quote".txt', "-.txt"]
    for name in names:
        growing.write(name, "x\n")
    growing.start()
    growing.drain()
    growing.start()
    assert growing.drain() == {"x": len(names)}


def test_linked_files_are_files_and_linked_folders_are_passed_over(growing, tmp_path):
    """As without ``watch``."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.txt").write_text("a\n")
    (growing.folder / "folder").symlink_to(tmp_path / "elsewhere")
    (growing.folder / "file").symlink_to(tmp_path / "elsewhere" / "a.txt")
    (growing.folder / "broken").symlink_to(tmp_path / "nowhere")
    (growing.folder / "circle").symlink_to("circle")
    (growing.folder / "below").symlink_to(tmp_path / "elsewhere" / "a.txt" / "b.txt")
    growing.start()
    assert growing.drain() == {"a": 1}


class History:
    """A folder that files come to and go from, and processes that die at any step."""

    def __init__(self, growing, rng):
        self.growing = growing
        self.rng = rng
        self.names = [f"{name}.txt" for name in ("b", "a", "sub/c", "part-1")]
        self.serial = 0
        self.taken_before = {}
        self.expected = Counter()
        self.growing.options = {"batch_bytes": rng.choice([3, 7, 1000]), "batch_files_max": rng.choice([1, 2, 99])}

    def run(self, steps):
        self.restart()
        for _ in range(steps):
            act = self.rng.choice([self.arrive, self.arrive, self.vanish, self.rename, self.work, self.work, self.work])
            act()
        self.growing.start()
        self.growing.drain()
        assert self.growing.lines == self.expected

    def restart(self):
        """Start a process; it may die while it starts."""
        while True:
            fuse = Fuse(self.rng.choice([0, 0, 1, 2, 3, 5, 9]), before=self.rng.random() < 0.5)
            try:
                self.growing.start(fuse)
            except CrashError:
                continue
            return

    def surviving(self, work):
        """Do some work, in as many processes as it takes."""
        while True:
            try:
                return work()
            except CrashError:
                self.restart()

    def arrive(self):
        free = [name for name in self.names if not (self.growing.folder / name).exists()]
        if free:
            self.serial += 1
            name = self.rng.choice(free)
            lines = [f"{self.serial}.{line}" for line in range(self.rng.choice([1, 3]))]
            mtime_secs = self.rng.choice([100, 200, None])
            content = "".join(f"{line}\n" for line in lines)
            self.growing.write(name, content[:3], mtime_secs)
            if self.rng.random() < 0.5 and len(content) > 3:
                self.surviving(self.growing.coordinator.is_ready)
            self.growing.write(name, content, mtime_secs)
            self.taken_before[name] = self.growing.taken[lines[0]]
            self.expected.update(lines)

    def vanish(self):
        self.move_away(None)

    def rename(self):
        free = [name for name in self.names if not (self.growing.folder / name).exists()]
        if free:
            self.move_away(self.rng.choice(free))

    def move_away(self, target):
        """Let a file go, or have another name; what is taken must be committed first, or it would be an error."""
        there = [name for name in self.names if (self.growing.folder / name).exists()]
        if not there:
            return
        name = self.rng.choice(there)
        path = self.growing.folder / name
        lines = path.read_text().split()
        while self.growing.is_admitted(name) and self.growing.taken[lines[0]] == self.taken_before[name]:
            self.surviving(self.growing.wait)
            self.surviving(self.growing.begin)
        is_taken = self.growing.taken[lines[0]] > self.taken_before[name]
        while is_taken and self.is_open(path):
            self.surviving(self.growing.begin)
            self.growing.commit()
        if is_taken:
            self.growing.commit()
            if target is not None:
                self.expected.update(lines)
        elif target is None:
            self.expected.subtract(lines)
            self.expected += Counter()
        if target is None:
            path.unlink()
        else:
            (self.growing.folder / target).parent.mkdir(exist_ok=True)
            path.rename(self.growing.folder / target)
            self.taken_before[target] = self.growing.taken[lines[0]]
        self.surviving(self.look)

    def is_open(self, path):
        """Whether a part of a file is not taken yet."""
        name = path.relative_to(self.growing.folder).as_posix()
        ends = [piece[2] for metadata in self.growing.saved for piece in metadata["ranges"] if piece[0] == name]
        return ends[-1] < path.stat().st_size

    def look(self):
        self.growing.clock.secs += 1.0
        self.growing.coordinator.is_ready()

    def work(self):
        kind = self.rng.randrange(5)
        if kind == 0:
            self.restart()
        elif kind == 1:
            self.growing.commit(self.rng.choice([1, None]))
        elif kind == 2:
            self.surviving(self.growing.wait)
        else:
            self.surviving(self.growing.begin)


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_file_once_whatever_comes_and_goes_and_dies(tmp_path_factory, seed):
    """Arriving, vanishing, returning, renamed files, and a crash before or after any write: each file counts once."""
    folder = tmp_path_factory.mktemp("growing")
    History(Growing(folder), random.Random(seed)).run(40)
    shutil.rmtree(folder)
