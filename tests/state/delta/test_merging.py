"""Files that are merged beside writes: whatever the writes do meanwhile, a table is what it would be without merges."""

import shutil
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap64

from state import DeltaRows, DeltaState, read_table
from state.delta.log.data_files import DATA_FOLDER, DataFile, DataFolder, Sizes
from state.delta.log.location import Location
from state.delta.log.vectors import bitmap_of
from state.delta.merging import FILE_BYTES, Merging, Policy, in_bins, is_mostly_dead
from tests.budgets import examples
from tests.crashes import Crash, survives
from tests.state.delta.delta_tables import (
    LARGE,
    MANY_FILES,
    held_merges,
    merge,
    merge_at_once,
    put_merged,
    sized,
    step_beside,
)
from tests.state.delta.expiring import expiring_tables
from tests.state.delta.expiring.expiring_tables import held
from tests.state.delta.foreign import live_files
from tests.state.delta.rows import rows_tables
from tests.state.delta.vector_tables import VectorTable
from tests.variants import variants
from tests.waiting import wait_for
from txtopo import Fields
from txtopo.api.values import TransactionalValue
from txtopo.columnar.mapped import mapped_rows
from txtopo.columnar.rows_by_time import BEFORE_ALL
from txtopo.transactional.commit.write_buffer import group_state

OFTEN = {"upkeep_every_writes": 1, "files_max": 1}
DAYS = st.sampled_from(["mo", "tu"])

MERGES = st.sampled_from([("merge",), ("merge slowly",), ("open again",), ("optimize",)])
BACK = st.tuples(st.just("go back"), st.integers(1, 4))


class Rows:
    """A table of rows in partitions, and the rows that it should hold."""

    def __init__(self, path: Path, **sizes: int) -> None:
        self.path, self.sizes, self.epoch, self.txid = path, sizes, 0, 0
        self.rows: Counter = Counter()
        self.former = [self.rows]
        self.opened: list[Any] = []
        self.open()

    def open(self) -> None:
        self.epoch += 1
        self.state = rows_tables.opened(self.path, epoch=self.epoch, partition_by="day", sizes=self.sizes, **OFTEN)
        self.opened.append(self.state)

    def write(self, how: str, new: list[tuple[str, int]]) -> None:
        self.txid += 1
        rows_tables.put(self.state, (self.txid, (how, new)))
        days = {day for day, _ in new} if how == "replace_partitions" else set()
        stays = Counter({row: count for row, count in self.rows.items() if row[0] not in days})
        self.rows = stays + Counter((*row, self.txid) for row in new)
        self.former.append(self.rows)

    def go_back(self, count: int) -> None:
        self.txid = max(1, self.txid - count)
        self.rows = self.former[self.txid]
        del self.former[self.txid + 1 :]
        self.state.roll_back(self.txid)

    def check(self) -> None:
        assert rows_tables.rows(self.path) == self.rows


class Expiring:
    """A table of rows that expire, and the rows that it should hold, with the time up to which others are taken."""

    def __init__(self, path: Path, **sizes: int) -> None:
        self.path, self.sizes, self.epoch, self.txid = path, sizes, 0, 0
        self.rows: list[tuple[str, int]] = []
        self.mark = -1
        self.former = [(self.rows, self.mark)]
        self.opened: list[Any] = []
        self.open()

    def open(self) -> None:
        self.epoch += 1
        self.state = expiring_tables.opened(self.path, epoch=self.epoch, key="k", sizes=self.sizes, **OFTEN)
        self.opened.append(self.state)

    def write(self, how: str, what: Any) -> None:
        self.txid += 1
        if how == "take":
            until = self.mark + what
            (found,) = expiring_tables.put(self.state, (self.txid, until))
            assert found == sorted(row for row in self.rows if row[1] <= until)
            self.mark = max(self.mark, until)
            self.rows = [row for row in self.rows if row[1] > self.mark]
        else:
            new = [(day, self.mark + 1 + second) for day, second in what]
            expiring_tables.put(self.state, (self.txid, new))
            self.rows = self.rows + new
        self.former.append((self.rows, self.mark))

    def go_back(self, count: int) -> None:
        self.txid = max(1, self.txid - count)
        self.rows, self.mark = self.former[self.txid]
        del self.former[self.txid + 1 :]
        self.state.roll_back(self.txid)

    def check(self) -> None:
        assert expiring_tables.in_table(self.path) == sorted(self.rows)
        view = group_state(self.state).begin(self.txid + 1)
        assert held(view.rows_of(pa.table({"k": ["mo", "tu"]}))) == sorted(self.rows)
        view.discard()


APPENDED = st.lists(st.tuples(DAYS, st.integers(0, 6)), min_size=1, max_size=4)
STEPS = {
    Rows: st.one_of(st.tuples(st.sampled_from(["append", "append", "replace_partitions"]), APPENDED), MERGES, BACK),
    Expiring: st.one_of(
        st.tuples(st.just("append"), APPENDED), st.tuples(st.just("take"), st.integers(0, 4)), MERGES, BACK
    ),
}


@contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    yield path
    shutil.rmtree(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "bytes_max"), [(Rows, None), (Expiring, None), (Expiring, 0)], ids=["rows", "expiring", "in files"]
)
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_any_steps(kind: type[Rows | Expiring], bytes_max: int | None, data: st.DataObject) -> None:
    """Whatever is appended, replaced, taken, moved by others, gone back and opened again while files are merged.

    So it is where there is no room in memory for rows that expire.
    """
    with folder() as path, pytest.MonkeyPatch.context() as patch:
        gate, _ = held_merges(patch)
        sizes = {"file_rows": 8} if kind is Expiring else {}
        table = kind(path, **sizes, **({} if bytes_max is None else LARGE))
        for step in data.draw(st.lists(STEPS[kind], max_size=14)):
            match step:
                case ("optimize",):
                    DeltaTable(path / "t").optimize.compact()
                case ("append" | "replace_partitions" | "take" as how, what):
                    table.write(how, what)
                case _:
                    step_beside(table, gate, step)
            table.check()
        gate.set()
        merge(table.state)
        table.check()
        table.open()
        table.check()
        for each in table.opened:  # one that was followed may still look after its log
            each.close()


def begun(state: Any, gate: Event, has_begun: Event) -> None:
    """Begin to merge, and wait until files are read."""
    gate.clear()
    state.maintain()
    assert has_begun.wait(600)


def merged_in(path: Path) -> list[str]:
    return [name for name in live_files(path) if "merged" in name]


def test_a_partition_that_is_replaced_while_it_is_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The merge of it is in vain, and its file goes; those of others are put, in the same version."""
    gate, has_begun = held_merges(monkeypatch)
    table = Rows(tmp_path)
    for n in (1, 2, 3):
        table.write("append", [("mo", n), ("tu", n)])
    begun(table.state, gate, has_begun)
    table.write("replace_partitions", [("mo", 9)])
    table.write("append", [("mo", 10)])
    gate.set()
    put_merged(table.state)
    table.check()
    (name,) = merged_in(tmp_path / "t")
    assert read_table(tmp_path / "t")["day"].to_pylist().count("tu") == 3
    assert [file.name for file in (tmp_path / "t" / DATA_FOLDER).glob("merged-*")] == [Path(name).name]
    assert len(live_files(tmp_path / "t")) == 3


@pytest.mark.parametrize("vectors", [False, True])
def test_files_that_a_write_touches_while_they_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: bool
) -> None:
    """Without vectors the others are merged all the same: a table whose files are touched all the time gets few files."""
    gate, has_begun = held_merges(monkeypatch)
    declared = DeltaState(tmp_path, Fields("k: string"), Fields("n: long"), deletion_vectors=vectors, **OFTEN)
    state = sized(declared, tier_files=4, **MANY_FILES).open("topology", "s", "life", 1)
    for txid, key in enumerate("abcdef", 1):
        state.write(txid, {key: TransactionalValue(txid, txid)})
    begun(state, gate, has_begun)
    state.write(7, {"b": TransactionalValue(7, 70)})
    gate.set()
    state._merging._under_way.exception()
    state.maintain()
    has_begun.clear()
    if not vectors:
        begun(state, gate, has_begun)
        state.write(8, {"c": TransactionalValue(8, 80)})
        gate.set()
    merge(state)
    found = dict(zip(*read_table(tmp_path).select(["k", "n"]).to_pydict().values(), strict=True))
    assert found == {"a": 1, "b": 70, "c": 3 if vectors else 80, "d": 4, "e": 5, "f": 6}
    assert [file.rows - file.live for file in state._writer.head.files.values() if "merged" in file.path] == [vectors]
    state.close()


def test_rows_that_are_taken_while_they_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that goes meanwhile, with the last of its rows, keeps nothing from being put, and nothing is taken twice."""
    gate, has_begun = held_merges(monkeypatch)
    table = Expiring(tmp_path)
    for second in (3, 6, 9):
        table.write("append", [("mo", second), ("tu", second + 1)])
    begun(table.state, gate, has_begun)
    table.write("take", 5)
    assert len(live_files(tmp_path / "t")) == 2
    table.write("append", [("mo", 2)])
    gate.set()
    table.state._merging._under_way.exception()
    put_merged(table.state)
    table.check()
    assert len(merged_in(tmp_path / "t")) == 1
    table.write("take", 4)
    table.open()
    table.check()
    table.write("take", 9)
    assert (table.rows, live_files(tmp_path / "t")) == ([], [])


def test_a_merge_is_in_vain_once_what_it_left_out_is_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows had been taken when files were merged, and the table has gone back to before that."""
    gate, has_begun = held_merges(monkeypatch)
    table = Expiring(tmp_path)
    for second in (3, 6, 9):
        table.write("append", [("mo", second), ("tu", 100)])
    table.write("take", 6)
    begun(table.state, gate, has_begun)
    table.go_back(1)
    gate.set()
    table.state._merging._under_way.exception()
    table.state.maintain()
    table.check()
    table.write("take", 6)
    table.check()


@pytest.mark.parametrize(
    ("sizes", "files_max", "chosen"),
    [
        ([1, 1], 1, [[1, 1]]),
        ([1, 1], 2, []),
        ([1, 1, 1], 2, [[1, 1, 1]]),
        ([FILE_BYTES // 2 - 1, FILE_BYTES // 2 - 1, 2], 2, [[2, FILE_BYTES // 2 - 1, FILE_BYTES // 2 - 1]]),
        ([FILE_BYTES // 2 - 1, FILE_BYTES // 2 - 1, 3], 1, [[3, FILE_BYTES // 2 - 1]]),
        ([FILE_BYTES // 2, 1], 1, []),
    ],
)
def test_small_files_are_merged_in_bins(sizes: list[int], files_max: int, chosen: list[list[int]]) -> None:
    """Those of one partition, of less than half a file."""
    for partition in ({}, {"day": None}, {"day": "mo"}):
        files = [DataFile(f"{at}", size, 9, partition=partition) for at, size in enumerate(sizes)]
        found = in_bins([*files, DataFile("other", 1, 9, partition={"day": "tu"})], is_mostly_dead, files_max)
        assert [[file.size for file in each] for each in found] == chosen


class Sources:
    """Two files of rows with times that are merged, with those left out that have expired; a portion is one row."""

    def __init__(self, path: Path, *times: list[int | None], has_vectors: bool = False) -> None:
        schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
        self.data = attrs.evolve(VectorTable(path).data, sizes=Sizes(portion_rows=1))
        self.files = [self.data.put("rows", pa.table({"at": time}, schema=schema)) for time in times]
        policy = Policy(lambda files, _, is_over: [files], time="at", has_vectors=has_vectors)
        self.merging = Merging(self.data, schema, policy)

    def named(self, *files: DataFile) -> dict[str, DataFile]:
        return {file.path: file for file in files}

    def merge(self, until: int) -> None:
        for _ in range(9):  # after one in vain, some are left out
            self.merging.begin(self.named(*self.files), until, is_upkeep_due=True)
        self.merging._under_way.exception()


@pytest.mark.parametrize(
    ("last", "until", "is_put"), [(9, 8, False), (9, 9, True), (None, 9, False), (None, (1 << 63) - 1, True)]
)
def test_a_source_that_is_gone_with_the_last_of_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int | None, until: int, is_put: bool
) -> None:
    """Its rows may have expired since, to the latest one, wherever that is: then the others are put; else not."""
    sources = Sources(tmp_path, [last, 1], [5])
    sources.merge(0)
    ended = sources.merging.ended(sources.named(sources.files[1]), until, lambda _: BitMap64())
    assert (ended is not None) == is_put
    assert ended is None or ([put.dead for put in ended.puts], ended.has_expired) == ([BitMap64()], False)


def test_rows_that_have_expired_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that leaves some out changes rows, whichever portion they were in."""
    sources = Sources(tmp_path, [1, 9], [5])
    sources.merge(1)
    assert sources.merging.ended(sources.named(*sources.files), 0, lambda _: BitMap64()) is None
    sources.merge(1)
    ended = sources.merging.ended(sources.named(*sources.files), 1, lambda _: BitMap64())
    assert ended is not None
    assert ended.has_expired
    assert [file.rows for file in ended.change.added] == [2]


def test_rows_that_die_meanwhile_are_marked_where_they_are_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind those that were dead before, in whichever portion and file."""
    sources = Sources(tmp_path, [5, 6, 7], [8, 9], has_vectors=True)
    sources.files[:1] = sources.data.with_dead(sources.files[:1], {sources.files[0].path: BitMap64([0])})
    sources.merge(0)
    dead = dict(zip(sources.named(*sources.files), (BitMap64([0, 2]), BitMap64([1])), strict=True))
    ended = sources.merging.ended(sources.named(*sources.files), 0, lambda file: dead[file.path])
    assert ended is not None
    assert [put.dead for put in ended.puts] == [BitMap64([1, 3])]


@pytest.mark.parametrize("is_there", [True, False])
def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    """It is an error, unless one of them is no longer in the table: then the next round begins anew."""
    sources = Sources(tmp_path, [1], [5])
    with monkeypatch.context() as patched:
        patched.setattr(DataFolder, "portions", lambda *_, **__: (_ for _ in ()).throw(OSError("cut off")))
        sources.merge(0)
    files = sources.named(*sources.files[: 1 + is_there])
    if is_there:
        with pytest.raises(OSError, match="cut off"):
            sources.merging.ended(files, 0, lambda _: BitMap64())
    assert sources.merging.ended(files, 0, lambda _: BitMap64()) is None
    sources.merge(0)
    assert sources.merging.ended(sources.named(*sources.files), 0, lambda _: BitMap64()) is not None


KINDS: dict[str, Callable[[Path], Any]] = {
    "rows": lambda path: DeltaRows(path, Fields("k: string", "n: long"), **OFTEN),
    "keyed": lambda path: DeltaState(path, Fields("k: string"), Fields("n: long"), **OFTEN),
    "vectors": lambda path: DeltaState(path, Fields("k: string"), Fields("n: long"), deletion_vectors=True, **OFTEN),
}


def write(state: Any, kind: str, txid: int) -> None:
    if kind == "rows":
        rows_tables.put(state, (txid, ("append", [("k", txid)])))
    else:
        state.write(txid, {f"k{txid % 4}": TransactionalValue(txid, txid)})


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("every", variants(27, slow=[9], long=[1]))
@pytest.mark.parametrize("kind", KINDS)
def test_a_death_at_each_step_beside_a_merge(tmp_path: Path, kind: str, every: int) -> None:
    """Wherever a coordinator dies while files are merged or put, the next one finds each transaction once."""
    for at in range(1, 999, every):
        path, crash = tmp_path / str(at), Crash(at)
        declared = sized(KINDS[kind](path), tier_files=2, **MANY_FILES)
        state = declared.open("t", "s", "life", 1)

        def run(state: Any) -> None:
            for txid in range((state.last_txid or 0) + 1, 9):
                write(state, kind, txid)
                merge(state)

        is_over = survives(lambda state=state: run(state), crash)
        if not is_over:
            run(declared.open("t", "s", "life", 2))
        found = read_table(path)
        assert sorted(found["n"].to_pylist()) == ([*range(1, 9)] if kind == "rows" else [5, 6, 7, 8])
        if is_over:
            break
    assert at > 20
    assert [*(path / DATA_FOLDER).glob("merged-*")]


@pytest.mark.slow
def test_merges_that_are_in_vain_become_rare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where others move all rows after each write, fewer and fewer are begun; where they stop, some are put again."""
    merge_at_once(monkeypatch)
    begun: list[object] = []
    submit = Merging._submit
    monkeypatch.setattr(Merging, "_submit", lambda self, *rest: (begun.append(self), submit(self, *rest)))
    declared = DeltaState(tmp_path, Fields("k: string"), Fields("n: long"), deletion_vectors=True)
    state = sized(declared, tier_files=2).open("topology", "s", "life", 1)

    def write(txid: int) -> None:
        for own in (2 * txid, 2 * txid + 1):  # two files of a tier, so that a merge is due
            state.write(own, {f"k{own}": TransactionalValue(own, own)})
        state.maintain()

    for txid in range(1, 31):
        write(txid)
        DeltaTable(tmp_path).optimize.compact()
    assert len(begun) < 8
    for txid in range(31, 70):
        write(txid)
    assert merged_in(tmp_path)
    assert read_table(tmp_path).num_rows == 2 * 69


@pytest.mark.slow
def test_the_memory_of_a_merge_does_not_grow_with_its_rows(tmp_path: Path) -> None:
    """What is read, and the new file, pass in portions; that of positions needs a bit a row, and not 8 bytes."""
    peaks = {rows: _peak_of_a_merge(tmp_path / str(rows), rows) for rows in (1_600_000, 4_800_000)}
    few, many = peaks.values()
    assert many < few * 1.5, peaks


def _peak_of_a_merge(path: Path, rows: int) -> int:
    """Return the most bytes of arrays while a file of some rows, of which each third is dead, is merged."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    (path / DATA_FOLDER).mkdir(parents=True)
    data = DataFolder(Location.resolve(str(path), None))
    numbers = np.arange(rows)
    dead = bitmap_of(numbers[::3])
    file = data.put("keys", pa.table([numbers * 7919 % 1_000_003, numbers], schema=schema))
    (file,) = data.with_dead([file], {file.path: dead})
    merging = Merging(
        data,
        schema,
        Policy(lambda files, _, __: [files], has_vectors=True, kept=lambda portions: mapped_rows(schema, portions)),
    )
    del numbers
    pool, former = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        merging.begin({file.path: file}, BEFORE_ALL, is_upkeep_due=True)
        wait_for("the end of the merge", lambda: merging.is_due({}))
        ended = merging.ended({file.path: file}, BEFORE_ALL, lambda _: dead)
        peak = tracemalloc.get_traced_memory()[1] + (pool.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(former)
        merging.close()
    assert ended is not None
    assert [each.rows for each in ended.change.added] == [rows - len(range(0, rows, 3))]
    return peak
