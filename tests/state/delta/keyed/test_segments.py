"""A keyed table is what a dictionary is, whatever is written, merged, moved and opened again."""

import operator

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings, strategies as st

from state import DeltaState, read_table
from state.delta.log.data_files import DataFile, DataFolder, Sizes
from state.delta.log.vectors import Vector
from state.delta.merging import in_tiers, is_mostly_dead
from tests.budgets import examples
from tests.state.delta.delta_tables import (
    LARGE,
    held_merges,
    put_merged,
    sized,
    step_beside,
)
from tests.state.delta.foreign import live_files
from tests.transactional.recovery.altered_tables import put_entry
from txtopo import Fields
from txtopo.api.values import KEYED_KINDS, StateKind
from txtopo.columnar import key_index
from txtopo.columnar.key_index import IndexSizes
from txtopo.transactional.commit.write_buffer import group_state

KEY, VALUE = Fields("word: string"), Fields("n: long")
WORDS = st.sampled_from("abcdefgh")

PUTS = st.dictionaries(WORDS, st.none() | st.integers(0, 99), min_size=1)
FOLDS = st.dictionaries(WORDS, st.integers(0, 99), min_size=1)
BETWEEN = {
    "nothing": lambda _: None,
    "a version without rows": lambda path: put_entry(DeltaTable(path)),
    "an OPTIMIZE": lambda path: DeltaTable(path).optimize.compact(),
}
"""What others may do between a write's preparation and its version."""

STEPS = st.one_of(
    st.tuples(st.just("put"), PUTS, st.sampled_from([*BETWEEN])),
    st.tuples(st.just("fold"), FOLDS, st.sampled_from([*BETWEEN])),
    st.tuples(st.just("go back"), st.integers(1, 5)),
    st.tuples(st.sampled_from(["fold again", "merge", "merge slowly", "open again", "optimize", "read"])),
)


OFTEN = {"upkeep_every_writes": 1, "files_max": 1}


class Table:
    """A table whose segments are merged at once or late, and what it should hold."""

    def __init__(self, path, kind=KEYED_KINDS[0], *, deletion_vectors=True, sizes=None, **options) -> None:
        self.path, self.epoch, self.txid = path, 0, 0
        declared = DeltaState(path, KEY, VALUE, kind, deletion_vectors=deletion_vectors, **options)
        self.declared = sized(declared, **(sizes or {}))
        self.model: dict[str, int] = {}
        self.models: list[dict[str, int]] = [{}]
        self.last: dict[str, int] = {}
        self.open()

    def open(self):
        self.epoch += 1
        self.state = self.declared.open("topology", "s", "life", self.epoch)

    def write(self, name, values, between="nothing") -> None:
        self.txid += 1
        group = group_state(self.state)
        view = group.begin(self.txid)
        if name == "fold":
            view.multi_reduce(values, operator.add)
            self.model = {**self.model, **{word: self.model.get(word, 0) + n for word, n in values.items()}}
        else:
            for word, n in values.items():
                view.remove(word) if n is None else view.put(word, n)
            self.model = {word: n for word, n in {**self.model, **values}.items() if n is not None}
        view.check()
        view.finish()
        note = self.state.prepare(self.txid, group.writes())
        BETWEEN[between](self.path)
        self.state.publish(self.txid, note)
        self.models.append(self.model)
        self.last = dict.fromkeys(values, 1)

    def go_back(self, count) -> None:
        """Go back by some transactions, as a rewind does."""
        self.txid = max(1, self.txid - count)
        self.model = self.models[self.txid]
        del self.models[self.txid + 1 :]
        self.state.roll_back(self.txid)

    def check(self) -> None:
        found = read_table(self.path)
        assert found.num_rows == len(self.model)
        assert dict(zip(found["word"].to_pylist(), found["n"].to_pylist(), strict=True)) == self.model

    def check_reads(self) -> None:
        """Look keys up one by one, and all together."""
        expected = [self.model.get(word) for word in "abcdefgh"]
        assert [value and value.value for word in "abcdefgh" for value in self.state.multi_get([word])] == expected
        assert [value and value.value for value in self.state.multi_get("abcdefgh")] == expected


SMALL = {
    "file_rows": 4,
    "full_rows": 4,
    "portion_rows": 2,
    "tier_files": 2,
    "rewritten_rows": 1,
    "index": IndexSizes(numbers=64, slots=4),
}
"""Sizes of which few rows are many: a file is full with four, two are a portion, and numbers of rows begin anew at once."""


def follow(table: Table, steps) -> None:
    """Do some steps, and compare the table with its model after each."""
    with pytest.MonkeyPatch.context() as patch:
        gate, _ = held_merges(patch)
        for step in steps:
            match step:
                case ("put" | "fold" as name, values, *between):
                    table.write(name, values, *between)
                case ("fold again",):
                    table.write("fold", table.last)
                case ("nobody looks",):
                    put_entry(DeltaTable(table.path))
                case ("optimize",):
                    DeltaTable(table.path).optimize.compact()
                case ("read",):
                    table.check_reads()
                case _:
                    step_beside(table, gate, step)
            table.check()
        gate.set()
        table.check_reads()
        table.state.close()


@pytest.mark.few(2)
@pytest.mark.parametrize("vectors", [True, False], ids=["vectors", "rewritten"])
@pytest.mark.parametrize("rows", ["held", "mapped"])
@settings(max_examples=examples(25), deadline=None)
@given(steps=st.lists(STEPS, max_size=12), kind=st.sampled_from(KEYED_KINDS))
def test_any_steps(tmp_path_factory, rows, vectors, steps, kind) -> None:
    """Whatever is written, merged, moved by others and opened again, table and driver hold what a dictionary does."""
    path = tmp_path_factory.mktemp("segments") / "t"
    sizes = SMALL if rows == "held" else SMALL | LARGE
    follow(Table(path, kind, deletion_vectors=vectors, sizes=sizes, cached_keys_max=1, **OFTEN), steps)


STORIES = {
    "new keys, folded again after a version of others": [
        ("fold", {"a": 1, "b": 2}),
        ("fold", {"c": 1, "d": 2}, "a version without rows"),
        ("fold again",),
    ],
    "a file with dead rows, read again after a version of others": [
        ("put", dict.fromkeys("abcd", 1)),
        ("fold", {"a": 1}),
        ("fold", {"b": 1}, "a version without rows"),
        ("read",),
        ("fold", {"c": 1, "d": 1}),
    ],
    "a segment exactly full": [
        ("put", {"a": 1}),
        ("put", dict.fromkeys("bcde", 2)),
        *(("fold", {word: 3}) for word in "fgh"),
        ("fold", dict.fromkeys("abcdefgh", 1)),
    ],
    "rows dead before and while they are merged": [
        ("put", dict.fromkeys("abcd", 1)),
        ("fold", {"a": 1}),
        ("merge slowly",),
        ("fold", {"c": 1}),
        ("merge",),
        ("fold", dict.fromkeys("abcd", 1)),
    ],
    "merged after a version of others": [
        ("put", dict.fromkeys("abcd", 1)),
        ("fold", {"a": 1}),
        ("merge slowly",),
        ("fold", {"b": 1}, "a version without rows"),
        ("merge",),
        ("fold", dict.fromkeys("abcd", 1)),
    ],
    "merged on top of a version of others": [
        ("put", dict.fromkeys("abcd", 1)),
        ("fold", {"a": 1}),
        ("merge slowly",),
        ("fold", {"b": 1}),
        ("nobody looks",),
        ("merge",),
        ("fold", dict.fromkeys("abcd", 1)),
    ],
    "removed while others move rows": [
        ("put", dict.fromkeys("abcd", 1)),
        ("put", dict.fromkeys("efgh", 1)),
        ("put", dict.fromkeys("aeh", None), "an OPTIMIZE"),
        ("fold", dict.fromkeys("abcdefgh", 1)),
    ],
    "written while others move rows": [
        ("put", dict.fromkeys("abcd", 1)),
        ("put", dict.fromkeys("efgh", 1)),
        ("fold", dict.fromkeys("bdfh", 1), "an OPTIMIZE"),
        ("fold again",),
    ],
    "removed, looked for, and put again": [
        ("put", dict.fromkeys("abcd", 1)),
        ("read",),
        ("put", dict.fromkeys("bd", None)),
        ("read",),
        ("fold", {"d": 1}),
        ("read",),
    ],
    "so often that numbers begin anew": [
        *(("fold", dict.fromkeys("abc", 1)),) * 14,
        *(("put", {"a": None}), ("put", {"a": 1})) * 16,
        ("read",),
    ],
}


@pytest.mark.few(5)
@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("rows", "vectors"), [("held", True), ("mapped", True), ("held", False), ("mapped", False)], ids=str
)
@pytest.mark.parametrize("story", STORIES)
def test_stories(tmp_path, rows, vectors, story) -> None:
    """What has gone wrong, or would by one wrong number, with the driver's rows in memory and without."""
    sizes = SMALL if rows == "held" else SMALL | LARGE
    table = Table(tmp_path / "t", deletion_vectors=vectors, sizes=sizes, cached_keys_max=1, **OFTEN)
    follow(table, STORIES[story])


DEEDS = {
    "replaced": lambda table: table.write("fold", {"b": 1}),
    "removed": lambda table: table.write("put", {"b": None, "d": None}),
    "one whole segment": lambda table: table.write("put", {"a": 7, "b": 8}),
    "all": lambda table: table.write("put", {"a": None, "b": 1, "c": 2, "d": 3}),
    "twice": lambda table: [table.write("fold", {"b": 1}), table.write("fold", {"c": 1, "b": 1})],
    "gone back": lambda table: table.go_back(1),
    "moved by others": lambda table: DeltaTable(table.path).optimize.compact(),
    "nothing": lambda _: None,
}


@pytest.mark.few(4)
@pytest.mark.parametrize("rows", ["held", "mapped"])
@pytest.mark.parametrize("deed", DEEDS)
def test_rows_that_die_while_their_segments_are_merged(tmp_path, monkeypatch, rows, deed) -> None:
    """A merge outlasts writes: what they have replaced and removed meanwhile is dead in the new segment, too."""
    gate, begun = held_merges(monkeypatch)
    gate.clear()
    table = Table(tmp_path / "t", sizes={"tier_files": 3, "portion_rows": 3, **(LARGE if rows != "held" else {})})
    for values in ({"a": 1, "b": 2}, {"c": 3, "d": 4}, {"e": 5, "a": 6}):
        table.write("put", values)
    assert len(live_files(table.path)) == 3
    table.state.maintain()
    assert begun.wait(600)
    DEEDS[deed](table)
    gate.set()
    put_merged(table.state)
    table.check()
    assert "merged" in " ".join(live_files(table.path)) or deed in {"gone back", "moved by others", "all"}
    assert [value and value.value for value in table.state.multi_get("abcdef")] == [
        table.model.get(w) for w in "abcdef"
    ]
    table.write("fold", dict.fromkeys("abcdef", 1))
    table.check()
    table.state.close()


def file_of(live: int, dead: int = 0, mib: int = 0) -> DataFile:
    return DataFile(f"{live}-{dead}", mib << 20, live + dead, vector=Vector("i", "", None, 0, dead) if dead else None)


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        ([file_of(900)] * 7, 0),
        ([file_of(900)] * 8, 8),
        ([file_of(8_191)] * 7 + [file_of(8_192)], 0),
        ([file_of(8_192)] * 8 + [file_of(1)], 8),
        ([file_of(8_192)] * 8 + [file_of(1)] * 8, 8),
        ([file_of(1_000_000)] * 8, 0),
        ([file_of(600_000)] * 8, 8),
        ([file_of(5_000_000), file_of(4_000_000, 3_999_999)], 0),
        ([file_of(5_000_000), file_of(2_000_000, 2_000_001)], 1),
        ([file_of(100, 5_000)], 0),
        ([file_of(8_000_000, 8_000_001)], 1),
        ([file_of(900, mib=128)] * 8, 8),
        ([file_of(900, mib=129)] * 9, 0),
        ([file_of(900, 2_700, mib=512)] * 8, 8),
        ([file_of(100, 5_000, mib=127)], 0),
        ([file_of(100, 5_000, mib=128)], 1),
        ([file_of(900, 901, mib=1_000)] * 3, 2),
    ],
)
def test_what_is_merged(files, chosen) -> None:
    """A tier that is full is, the smallest first, up to the largest segment; so is one that is mostly dead, if large."""
    found = [file for own in in_tiers(files, is_mostly_dead, Sizes()) for file in own]
    assert len(found) == chosen
    assert len({file.live.bit_length() for file in found}) <= 1


@pytest.mark.parametrize("rows", ["held", "mapped"])
def test_rows_whose_vectors_change_are_not_read_again(tmp_path, monkeypatch, rows) -> None:
    """Where a table has gone back, or others have marked rows, those are found that are there now."""
    table = Table(tmp_path / "t", cached_keys_max=1, sizes=LARGE if rows != "held" else None)
    table.write("put", dict.fromkeys("abcdef", 1))
    table.write("put", {"a": 2, "b": None})
    table.write("put", {"a": 3, "c": 3, "g": 3})
    read, portions = [], DataFolder.portions
    monkeypatch.setattr(
        DataFolder,
        "portions",
        lambda *args, **options: (read.append(portion) or portion for portion in portions(*args, **options)),
    )
    for count in (1, 1):
        table.go_back(count)
        found = table.state.multi_get([*"abcdefg"])
        assert [each and each.value for each in found] == [table.model.get(word) for word in "abcdefg"]
    assert [rows.num_rows for rows in read] == [1], "all rows of the second file had died, so it was let go"
    table.write("put", {"a": 4, "g": 4})
    table.check()
    table.state.close()


@pytest.mark.parametrize("kind", [StateKind.TRANSACTIONAL, StateKind.OPAQUE])
def test_an_update_looks_its_keys_up_once(tmp_path, monkeypatch, kind) -> None:
    """In a table of more keys than are cached, an update's old values, its fold and its marks are of one look-up."""
    looked_up, slots_of = [], key_index.HashIndex.slots_of
    monkeypatch.setattr(
        key_index.HashIndex,
        "slots_of",
        lambda self, hashes, are_same: looked_up.append(len(hashes)) or slots_of(self, hashes, are_same),
    )
    table = Table(tmp_path / "t", kind, cached_keys_max=1)
    for txid, keys in enumerate(["cab", "dbac"], 1):
        looked_up.clear()
        group = group_state(table.state)
        view = group.begin(txid)
        view.multi_update([*keys], lambda old: (old or 0) + 1)
        view.check()
        view.finish()
        table.state.write(txid, group.writes())
        assert looked_up == [len(keys)]
    found = table.state.multi_get([*"abcd"])
    assert [each.value for each in found] == [2, 2, 2, 1]
    if kind is StateKind.OPAQUE:
        assert [each.previous for each in found] == [1, 1, 1, None]
    table.state.close()


@pytest.mark.parametrize("rows", ["held", "mapped"])
def test_a_file_that_comes_back_with_dead_rows(tmp_path, rows) -> None:
    """It is read beside the files that have stayed, and its live rows are found where they are."""
    table = Table(tmp_path / "t", cached_keys_max=1, sizes=LARGE if rows != "held" else None)
    table.write("put", dict.fromkeys("abcd", 1))
    table.write("put", dict.fromkeys("abe", 2))
    table.write("put", dict.fromkeys("cd", 3))
    table.check_reads()
    table.go_back(1)
    table.check_reads()
    table.write("fold", dict.fromkeys("abcdef", 1))
    table.check()
    table.state.close()
