"""Folding by the executors: what comes of it is what the driver would have made, in files of a range of parts each."""

import operator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings, strategies as st

from state import DeltaState, TransactionalValue, read_table
from state.delta.keyed.writing import FileWrites
from state.delta.log.data_files import DATA_FOLDER
from tests.budgets import examples
from tests.state.delta.delta_tables import LARGE, MANY_FILES, fold, reread, sized
from tests.state.delta.foreign import live_files, move_rows, rows_in
from tests.state.delta.inline_executors import InlineExecutors
from txtopo import Fields
from txtopo.columnar.hashing import PARTS, parts_of
from txtopo.columnar.rows_file import read_rows_file, slice_of, write_rows_file
from txtopo.errors import FieldsError
from txtopo.files.folder import LocalFolder
from txtopo.transactional.commit.write_buffer import group_state

KEY, VALUE = Fields("word: string"), Fields("n: long")
LARGEST = (1 << 63) - 1


VECTORS = pytest.mark.parametrize("vectors", [False, True], ids=["files", "vectors"])


def opened(path, *, executors=None, rows_max=0, epoch=1, vectors=False, **sizes):
    declared = sized(DeltaState(path / "t", KEY, VALUE, deletion_vectors=vectors), **sizes)
    state = declared.open("topology", "s", "life", epoch)
    if executors is not None:
        state.use_executors(executors, rows_max)
    return state


def commit(state, *transactions, function=operator.add):
    writes = fold(state, *transactions, function=function)
    state.write(transactions[-1][0], writes)
    return writes


def rows(path) -> dict:
    columns = read_table(path / "t").to_pydict()
    keys = list(columns["word"])
    assert len(set(keys)) == len(keys), "each key stands once"
    return {key: (n, txid) for key, n, txid in zip(*columns.values(), strict=True)}


def files(path) -> dict[str, int]:
    added = pa.table(DeltaTable(path / "t").get_add_actions())
    names = [Path(name).name for name in added["path"].to_pylist()]
    return dict(zip(names, added["num_records"].to_pylist(), strict=True))


def many(count, n=1):
    return {f"w{i}": n for i in range(count)}


@VECTORS
@pytest.mark.slow
@pytest.mark.parametrize("function", [operator.add, min, max], ids=["sum", "min", "max"])
@settings(max_examples=examples(12), deadline=None)
@given(
    st.lists(
        st.lists(st.dictionaries(st.text("abcä", max_size=2), st.integers(-50, 50)), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 5),
)
def test_any_groups(tmp_path_factory, vectors, function, groups, slots) -> None:
    """Whatever the groups and places, the values and last txids are those of a plain dictionary."""
    path = tmp_path_factory.mktemp("ranges")
    state, model, txid = opened(path, vectors=vectors, executors=InlineExecutors(slots), rows_max=0), {}, 0
    for parts in groups:
        transactions = []
        for values in parts:
            txid += 1
            transactions.append((txid, values))
            model.update({key: (function(model[key][0], n) if key in model else n, txid) for key, n in values.items()})
        touched = {key for values in parts for key in values}
        writes = fold(state, *transactions, function=function)
        assert isinstance(writes, FileWrites) == bool(touched)
        assert len(writes) == len(touched)
        state.write(txid, writes)
        assert rows(path) == model
    assert all(name.startswith("keys-" if vectors else ("keys-", "rest-")) for name in files(path))


@VECTORS
def test_small_groups_stay_with_the_driver(tmp_path, vectors) -> None:
    """Only groups of more rows than the driver may fold go to the executors."""
    executors = InlineExecutors()
    state = opened(tmp_path, vectors=vectors, executors=executors, rows_max=3)
    assert not isinstance(commit(state, (1, {"a": 1}), (2, {"a": 1, "b": 1})), FileWrites)
    assert executors.calls == []
    assert isinstance(commit(state, (3, {"a": 1}), (4, many(3))), FileWrites)
    assert rows(tmp_path) == {"a": (3, 3), "b": (1, 2), **dict.fromkeys(many(3), (1, 4))}


@VECTORS
def test_driver_and_executors_take_turns(tmp_path, vectors) -> None:
    """Each folds on what the other has written, whether files or rows of them are replaced."""
    state = opened(tmp_path, vectors=vectors)
    commit(state, (1, many(50)))
    state.use_executors(InlineExecutors(), 10)
    commit(state, (2, many(40, 2)))
    commit(state, (3, {"w0": 5}))
    view = group_state(state).begin(4)
    assert view.get("w0").value == 8
    commit(state, (4, many(50, 3)))
    expected = {f"w{i}": (1 + 2 * (i < 40) + 5 * (i == 0) + 3, 4) for i in range(50)}
    assert rows(tmp_path) == expected


@pytest.mark.slow
@VECTORS
def test_ranges_by_the_rows_of_a_group(tmp_path, vectors) -> None:
    """The more rows a group has, the more ranges; each file has the keys of one, until others' rows are left alone."""
    executors = InlineExecutors()
    state = opened(tmp_path, executors=executors, vectors=vectors, range_rows=50)
    model = {}
    for txid, count in enumerate((60, 120, 240, 480), 1):
        before = len(executors.calls)
        commit(state, (txid, many(count)))
        model = {key: (model.get(key, (0, 0))[0] + 1, txid) for key in many(count)}
        assert rows(tmp_path) == model
        assert len(executors.calls[before]) == 1 << txid
        new = [name for name in files(tmp_path) if name.startswith(f"keys-{txid}-")]
        assert len(new) == 1 << txid
        for name in new:
            parts = parts_of(pq.ParquetFile(tmp_path / "t" / DATA_FOLDER / name).read().select(["word"]))
            assert len({part * (1 << txid) // PARTS for part in parts.tolist()}) == 1


def test_a_file_that_is_not_touched_stays(tmp_path) -> None:
    """Executors write the rest of the files that a fold's keys are in, and leave the others; one is shared by pieces."""
    executors = InlineExecutors(slots=4)
    state = opened(tmp_path, executors=executors)
    commit(state, (1, many(200)))
    before = files(tmp_path)
    assert len(before) == 4
    commit(state, (2, {"w7": 1}))
    after = files(tmp_path)
    assert len(before.keys() & after.keys()) == 3
    assert sorted(name[:7] for name in after.keys() - before.keys()) == ["keys-2-", "rest-2-"]
    assert rows(tmp_path) == {**dict.fromkeys(many(200), (1, 1)), "w7": (2, 2)}
    assert [len(items) for items in executors.calls] == [4, 1, 1]


@VECTORS
def test_files_of_the_driver_beside_those_of_executors(tmp_path, vectors) -> None:
    """Their rows stay, whichever files the next fold leaves alone."""
    state = opened(tmp_path, executors=InlineExecutors(slots=4), vectors=vectors)
    commit(state, (1, many(200)))
    opened(tmp_path, epoch=2, vectors=vectors, **MANY_FILES).write(
        2, {f"new{i}": TransactionalValue(2, i) for i in range(50)}
    )
    commit(opened(tmp_path, epoch=3, executors=InlineExecutors(slots=4), vectors=vectors), (3, {"w7": 1}))
    new = {f"new{i}": (i, 2) for i in range(50)}
    assert rows(tmp_path) == {**dict.fromkeys(many(200), (1, 1)), **new, "w7": (2, 3)}


@VECTORS
@pytest.mark.parametrize("portion_rows", [1, 7])
def test_keys_in_every_portion_of_a_file(tmp_path, vectors, portion_rows) -> None:
    """Each is folded with its own row, and the others stay."""
    state = opened(tmp_path, executors=InlineExecutors(slots=1), vectors=vectors, portion_rows=portion_rows)
    state.write(1, {f"w{i}": TransactionalValue(1, i) for i in range(20)})
    for txid in (2, 3):
        commit(state, (txid, {f"w{i}": 100 for i in range(txid, 20, 3)}))
    expected = {f"w{i}": (i, 1) for i in range(20)}
    expected |= {f"w{i}": (100 + i, txid) for txid in (2, 3) for i in range(txid, 20, 3)}
    assert rows(tmp_path) == expected


@VECTORS
def test_an_applied_transaction_goes_key_by_key(tmp_path, vectors) -> None:
    """Promise 8: a transaction that is in the table already is not folded again."""
    state = opened(tmp_path, vectors=vectors, executors=InlineExecutors())
    commit(state, (5, many(20)))
    assert fold(state, (5, {"w1": 1})) == {}
    made = fold(state, (4, {"w1": 1}), (6, {"w2": 1}))
    assert made.rows.to_pylist() == [{"word": "w2", "n": many(20)["w2"] + 1, "txid": 6}]
    before = files(tmp_path)
    state.write(5, {})
    assert files(tmp_path) == before


@VECTORS
def test_a_sum_that_does_not_fit_goes_key_by_key(tmp_path, vectors) -> None:
    """A sum beyond the type of its column is not folded; key by key it is refused with its key."""
    state = opened(tmp_path, vectors=vectors, executors=InlineExecutors())
    commit(state, (1, {"a": LARGEST}))
    with pytest.raises(FieldsError, match="'a'") as refusal:
        fold(state, (1, {"b": 1}), (2, {"a": 1}))
    assert refusal.value.txid == 2


@pytest.mark.few(2)
@VECTORS
@pytest.mark.parametrize("is_prepared", [False, True], ids=["folded", "prepared"])
def test_files_that_were_moved_meanwhile(tmp_path, vectors, is_prepared) -> None:
    """Rows that somebody puts into other files, between fold and write, are there once: touched or not."""
    state = opened(tmp_path, vectors=vectors, executors=InlineExecutors(slots=4))
    commit(state, (1, many(200)))
    writes = fold(state, (2, {"w7": 1, "new": 5}))
    note = reread(state.prepare(2, writes)) if is_prepared else None
    table = DeltaTable(tmp_path / "t")
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert 0 < len(writes.removed) < 4
    if note is None:
        state.write(2, writes)
    else:
        opened(tmp_path, vectors=vectors, epoch=2).publish(2, note)
    assert rows(tmp_path) == {**dict.fromkeys(many(200), (1, 1)), "w7": (2, 2), "new": (5, 2)}
    again = opened(tmp_path, vectors=vectors, epoch=3, executors=InlineExecutors(slots=4))
    commit(again, (3, many(200)))
    assert rows(tmp_path) == {**dict.fromkeys(many(200), (2, 3)), "w7": (3, 3), "new": (5, 2)}


@VECTORS
@pytest.mark.few(1)
@pytest.mark.parametrize("way", ["executors", "driver"])
@pytest.mark.parametrize("is_prepared", [False, True], ids=["folded", "prepared"])
@pytest.mark.parametrize("is_touched", [False, True], ids=["others", "one"])
@pytest.mark.parametrize("times", [1, 2])
def test_some_of_the_files_were_moved_meanwhile(tmp_path, vectors, way, is_prepared, is_touched, times) -> None:
    """Of the files that a write replaces, somebody may have moved one, once or twice, and left the others alone."""
    state = opened(tmp_path, vectors=vectors, executors=InlineExecutors(slots=8))
    commit(state, (1, many(200)))
    deltas = {"w7": 1, "w8": 1, "w9": 1, "new": 5}
    if way == "driver":
        state = opened(tmp_path, vectors=vectors, epoch=2, **LARGE)
        writes = {key: TransactionalValue(2, n + (1 if key != "new" else 0)) for key, n in deltas.items()}
    else:
        writes = fold(state, (2, deltas))
    note = reread(state.prepare(2, writes)) if is_prepared else None
    touched = {files_of_key(tmp_path, key) for key in deltas if key != "new"}
    assert len(touched) == 3
    others = [file for file in live_files(tmp_path / "t") if file not in touched]
    for _ in range(times):
        others[:2] = [move_rows(tmp_path / "t", [*(touched.pop() for _ in range(is_touched)), *others[:2]])]
    if note is None:
        state.write(2, writes)
    else:
        opened(tmp_path, vectors=vectors, epoch=3).publish(2, note)
    expected = {**dict.fromkeys(many(200), (1, 1)), **dict.fromkeys(deltas, (2, 2)), "new": (5, 2)}
    assert rows(tmp_path) == expected


def files_of_key(path, key) -> str:
    """Return the data file that holds a key."""
    (found,) = (file for file in live_files(path / "t") if key in rows_in(path / "t", [file])["word"].to_pylist())
    return found


@VECTORS
def test_keys_that_several_files_have_had(tmp_path, vectors) -> None:
    """Of the rows that a key has had in several files, the last one is folded on."""
    state = opened(tmp_path, vectors=vectors, executors=InlineExecutors(1))
    for txid, words in enumerate(("abc", "ab", "a", "abc", "cb"), 1):
        commit(state, (txid, dict.fromkeys(words, 1)))
    assert rows(tmp_path) == {"a": (4, 4), "b": (4, 5), "c": (3, 5)}


@VECTORS
def test_a_folder_named_as_a_partition(tmp_path, vectors) -> None:
    """A table below a folder with a name such as n=5 is read as every other: only the log tells of partitions."""
    path = tmp_path / "n=5" / "word=x"
    state = opened(path, vectors=vectors, executors=InlineExecutors())
    commit(state, (1, {"a": 1, "b": 2}))
    commit(state, (2, {"a": 1}))
    assert rows(path) == {"a": (2, 2), "b": (2, 1)}


# Parts


PARTS_OF_TEXTS = [0, 89, 47, 175, 250, 12]
PARTS_OF_NUMBERS = [50, 230, 32, 242]
PARTS_OF_PAIRS = [82, 52]


def test_parts_are_the_same_everywhere() -> None:
    """Executors share a group's keys by parts, so a key's part depends on the key alone."""
    assert parts_of(pa.table({"k": ["", "a", "b", "cat", "ä", "x" * 100]})).tolist() == PARTS_OF_TEXTS
    assert parts_of(pa.table({"k": pa.array([0, 1, -1, 10**12])})).tolist() == PARTS_OF_NUMBERS
    assert parts_of(pa.table({"k": ["a", "b"], "m": pa.array([1, 2])})).tolist() == PARTS_OF_PAIRS
    assert parts_of(pa.table({"k": pa.array([b"a", b"cat"])})).tolist() == [PARTS_OF_TEXTS[1], PARTS_OF_TEXTS[3]]
    assert parts_of(pa.table({"k": pa.array([], pa.string())})).tolist() == []


def test_parts_of_whole_numbers_mind_no_width() -> None:
    """A key of a stream's int falls where the same key of the table's long does."""
    numbers = [0, 1, -5, 127]
    assert len({tuple(parts_of(pa.table({"k": pa.array(numbers, kind)}))) for kind in (pa.int8(), pa.int64())}) == 1
    texts = ["a", "", "bcd"]
    kinds = (pa.string(), pa.large_string())
    assert len({tuple(parts_of(pa.table({"k": pa.array(texts, kind)}))) for kind in kinds}) == 1


@pytest.mark.slow
@given(st.lists(st.text(max_size=5), max_size=30), st.data())
def test_parts_of_slices_and_chunks(texts, data) -> None:
    """Sliced and chunked columns fall where whole ones do."""
    whole = parts_of(pa.table({"k": pa.array(texts, pa.string())}))
    first = data.draw(st.integers(0, len(texts)))
    end = data.draw(st.integers(first, len(texts)))
    table = pa.table({"k": pa.array(texts, pa.string())})
    assert parts_of(table.slice(first, end - first)).tolist() == whole[first:end].tolist()
    chunked = pa.concat_tables([table.slice(0, first), table.slice(first, 0), table.slice(first)])
    assert parts_of(chunked).tolist() == whole.tolist()


def test_parts_are_spread() -> None:
    """A hundred thousand keys fall into all parts, none of them with twice its share."""
    parts = parts_of(pa.table({"k": [f"word-{i}" for i in range(100_000)]}))
    counts = np.bincount(parts, minlength=PARTS)
    assert len(counts) == PARTS
    assert counts.min() > 0
    assert counts.max() < 2 * 100_000 / PARTS


# Rows in a file


def test_a_rows_file_gives_what_was_put_in(tmp_path) -> None:
    """The parts of a file hold each row once, where its key falls."""
    table = pa.table({"k": [f"w{i % 40}" for i in range(300)], "n": pa.array(range(300))})
    file = write_rows_file(LocalFolder(tmp_path / "new"), "7-1", table, ["k"])
    assert sorted(read_rows_file(file)["n"].to_pylist()) == list(range(300))
    for first, end in ((0, 100), (100, 256), (3, 3)):
        part = read_rows_file(file, first, end)
        parts = parts_of(part.select(["k"]))
        assert all((parts >= first) & (parts < end))
    assert sum(read_rows_file(file, part, part + 1).num_rows for part in range(PARTS)) == 300
    assert slice_of(file, 10, 20).equals(read_rows_file(file).slice(10, 10))


def test_a_rows_file_without_keys(tmp_path) -> None:
    """Without keys rows lie as they came, and each part has as many."""
    table = pa.table({"n": pa.array(range(1000))})
    file = write_rows_file(LocalFolder(tmp_path), "7-1", table, ())
    assert read_rows_file(file).equals(table)
    sizes = np.diff(file.offsets)
    assert (file.offsets[0], file.offsets[-1], sizes.min(), sizes.max()) == (0, 1000, 3, 4)
    assert write_rows_file(LocalFolder(tmp_path), "7-1", table.slice(0, 0), ()).rows == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("keys", [(), ("n",)], ids=["as they came", "by key"])
def test_a_rows_file_of_many_portions(tmp_path, keys) -> None:
    """A file is written in portions of a million rows: none is doubled or lost where they meet."""
    count = 2_000_001
    table = pa.table({"n": np.arange(count, dtype=np.int32)})
    file = write_rows_file(LocalFolder(tmp_path), "7-1", table, keys)
    with pa.memory_map(str(tmp_path / file.path)) as mapped:
        written = pa.ipc.open_file(mapped).read_all()["n"].to_numpy()
    assert (file.rows, file.offsets[-1], len(written)) == (count, count, count)
    assert np.array_equal(np.sort(written), table["n"])
    assert np.array_equal(read_rows_file(file)["n"], written)


@VECTORS
@pytest.mark.parametrize("prefix", ["x" * 300, "", "\U0001f600"], ids=["long", "short", "beyond 16 bits"])
def test_a_key_is_found_by_its_own_predicate(tmp_path, vectors, prefix):
    """Delta-rs skips files by what the log says of them; none that has the key."""
    words = {f"{prefix}{letter}": 1 for letter in ("abc" if prefix.isascii() else ("", "\U00020000"))}
    commit(opened(tmp_path, vectors=vectors, executors=InlineExecutors(slots=2)), (1, words))
    for word in words:
        found = pa.table(DeltaTable(tmp_path / "t").scan(columns=["word"], predicate=f"word = '{word}'"))
        assert found["word"].to_pylist() == [word]
