"""Keys are found where they are, whatever their types; what the driver holds of a table is what the table holds."""

import datetime as dt
import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings, strategies as st

from state import DeltaState, TransactionalValue, read_table
from state.delta.keyed import segments
from state.delta.keyed.segments import Segments
from tests.budgets import examples
from tests.state.delta.delta_tables import LARGE, sized
from txtopo import Fields
from txtopo.api.values import KEYED_KINDS
from txtopo.columnar import mapped
from txtopo.columnar.key_index import HashIndex, IndexSizes, are_equal, hashes_of
from txtopo.columnar.progress_probe import ProgressProbe
from txtopo.errors import StateFailure
from txtopo.transactional.commit.views import GroupState
from txtopo.transactional.commit.write_buffer import group_state

KINDS = {
    "string": (pa.string(), st.text(max_size=20)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "boolean": (pa.bool_(), st.booleans()),
    "binary": (pa.binary(), st.binary(max_size=20)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        st.datetimes(timezones=st.just(dt.UTC)),
    ),
    "decimal": (pa.decimal128(20, 2), st.integers(-(10**9), 10**9).map(lambda cents: Decimal(cents).scaleb(-2))),
}


def table_of(kinds: tuple[str, ...], keys: list[tuple]) -> pa.Table:
    columns = list(zip(*keys, strict=True)) or [()] * len(kinds)
    arrays = [pa.array(column, KINDS[kind][0]) for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, names=[f"k{number}" for number in range(len(kinds))])


@st.composite
def keys_of_some_types(draw):
    kinds = tuple(draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=2)))
    key = st.tuples(*(KINDS[kind][1] for kind in kinds))
    first, later = draw(st.lists(key, unique=True, max_size=30)), draw(st.lists(key, unique=True, max_size=30))
    return kinds, first, [key for key in later if key not in first], draw(st.lists(key, unique=True, max_size=10))


@pytest.mark.slow
@given(keys_of_some_types())
def test_found_where_they_are(drawn) -> None:
    """A key is found at its row, in an index made at once as in one that later rows were added to."""
    kinds, first, later, others = drawn
    rows = table_of(kinds, [*first, *later])
    wanted = [*reversed(later), *first, *others]
    positions = {key: position for position, key in enumerate([*first, *later])}
    for index in (index_of(rows, [len(first) + len(later)]), index_of(rows, [len(first), len(later)])):
        assert found_in(index, rows, table_of(kinds, wanted)) == [positions.get(key, -1) for key in wanted]


def index_of(rows: pa.Table, counts: list[int]) -> HashIndex:
    """Return an index of rows, to which some are added at a time; each row's number is its place."""
    index, at = HashIndex(sum(counts)), 0
    for count in counts:
        index.add(hashes_of(rows.slice(at, count)), np.arange(at, at + count))
        at += count
    return index


def found_in(index: HashIndex, rows: pa.Table, wanted: pa.Table) -> list[int]:
    are_same = lambda own, numbers: are_equal(wanted.take(own), rows.take(numbers))
    return index.find(hashes_of(wanted), are_same).tolist()


HASHES = st.sampled_from([0, 1, 7, 1 << 63, (1 << 64) - 1, (1 << 64) - 2])


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["add", "renumber", "remove"]), st.lists(HASHES, max_size=5))))
def test_any_steps_of_an_index(steps) -> None:
    """Whatever is added, renumbered and removed, each key has its number, among others of its hash and at the end."""
    model: dict[int, tuple[int, int]] = {}
    following = 0
    sizes = IndexSizes(slots=4, portion=2)
    index = HashIndex(0, sizes=sizes)
    for name, hashes in steps:
        slots = np.array(sorted(model)[: len(hashes)], np.int64)
        numbers = np.arange(following, following + len(hashes))
        following += len(hashes)
        match name:
            case "add":
                if not index.has_room(len(hashes)):
                    old, held = index, np.array([*model], np.int64)
                    index = HashIndex(len(model) + len(hashes), sizes=sizes)
                    added = index.add(old.hashes_at(held), old.numbers_at(held))
                    model = dict(zip(added.tolist(), model.values(), strict=True))
                added = index.add(np.array(hashes, np.uint64), numbers)
                assert index.hashes_at(added).tolist() == hashes
                model.update(zip(added.tolist(), zip(hashes, numbers.tolist(), strict=True), strict=True))
            case "renumber":
                index.renumber(slots, numbers[: len(slots)])
                for slot, number in zip(slots.tolist(), numbers.tolist(), strict=False):
                    model[slot] = model[slot][0], number
            case _:
                index.remove(slots)
                for slot in slots.tolist():
                    del model[slot]
        hashes_held = np.array([h for h, _ in model.values()], np.uint64)
        wanted = np.array([n for _, n in model.values()], np.int64)
        found = index.find(hashes_held, lambda own, numbers: numbers == wanted[own])  # noqa: B023
        assert found.tolist() == wanted.tolist()
        assert index.find(np.array([5, 0], np.uint64), lambda own, _: own < 0).tolist() == [-1, -1]
        for h, n in model.values():
            assert index.find_one(h, n.__eq__) == n
        assert index.find_one(3, lambda _: True) == -1


def test_progress_of_many_keys(tmp_path) -> None:
    """Millions of keys are indexed, looked up and written in portions, and each of them is progress."""
    declared = DeltaState(tmp_path / "t", Fields("n: long"), Fields("m: long"), cached_keys_max=100)
    sized(declared, portion_rows=100, index=IndexSizes(portion=100))
    table = declared.open("topology", "s", "life", 1)
    table.write(1, {n: TransactionalValue(1, n) for n in range(1_000)})
    table.close()
    table = declared.open("topology", "s", "life", 2)
    for steps_min, work in (
        (20, lambda: table.multi_get([5])),
        (10, lambda: table.multi_get(range(1_000))),
        # Those that are new are looked up, and added to an index that is built again for them.
        (40, lambda: table.write(2, {n: TransactionalValue(2, n) for n in range(500, 1_500)})),
    ):
        probe = ProgressProbe()
        with probe.current():
            work()
        assert probe.steps >= steps_min
    assert [value.value for value in table.multi_get(range(1_500))] == list(range(1_500))
    table.close()


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.tuples(st.text(max_size=3), st.integers(-3, 3)), unique=True, min_size=1, max_size=12))
def test_single_keys(tmp_path_factory, keys) -> None:
    """A key of several fields is found by itself as it is with others; one that is not there is not."""
    path = tmp_path_factory.mktemp("index")
    state = DeltaState(path / "t", Fields("k: string", "j: long"), Fields("n: long", "m: string"), cached_keys_max=1)
    table = state.open("topology", "s", "life", 1)
    table.write(1, {key: TransactionalValue(1, (n, str(n))) for n, key in enumerate(keys)})
    for n, key in enumerate(keys):
        assert table.multi_get([key]) == [(1, (n, str(n)))]
        assert table.multi_get([(key[0], 7)]) == [None]
    table.close()


def test_single_keys_become_recent(tmp_path, monkeypatch) -> None:
    """A single key that is read again stays in the cache; the one not read for the longest time leaves it."""
    table = DeltaState(tmp_path / "t", Fields("k: string"), Fields("n: long"), cached_keys_max=2).open("t", "s", "l", 1)
    table.write(1, {key: TransactionalValue(1, n) for n, key in enumerate("abcd")})
    searched, find_one = [], Segments.find_one
    monkeypatch.setattr(Segments, "find_one", lambda held, key: (searched.append(key), find_one(held, key))[1])
    for key in "abacab":
        assert table.multi_get([key]) == [(1, "abcd".index(key))]
    assert searched == ["a", "b", "c", "b"]
    table.close()


COLLIDING = [(0, 2**61 - 1), (1, 2**61), (-1, -2), (7, 7 - (2**61 - 1))]
"""Pairs of longs that Python's hash can't tell apart."""


@pytest.mark.few(4)
@pytest.mark.parametrize("one", [*COLLIDING, *(pair[::-1] for pair in COLLIDING)], ids=str)
@pytest.mark.parametrize("cached", [1, 100], ids=["rows", "values"])
def test_keys_of_one_hash(tmp_path, one, cached) -> None:
    """A key that is missing is never answered by another one of its hash, and both can be held, changed and removed."""
    held, missing = one
    path = tmp_path / "t"
    table = DeltaState(path, Fields("k: long"), Fields("n: long"), cached_keys_max=cached).open("topology", "s", "l", 1)
    others = {key: TransactionalValue(1, key) for key in range(1_000, 1_200)}
    table.write(1, {held: TransactionalValue(1, 1), **others})
    for wanted in ([missing], [missing, held], [missing, held, *others]):
        found = [value and value.value for value in table.multi_get(wanted)]
        assert found == [{held: 1, missing: None}.get(key, key) for key in wanted]
    table.write(2, {missing: TransactionalValue(2, 2)})
    assert [value.value for value in table.multi_get([held, missing])] == [1, 2]
    table.write(3, {held: None})
    assert [value and value.value for value in table.multi_get([held, missing])] == [None, 2]
    assert {row["k"]: row["n"] for row in read_table(path).to_pylist() if row["k"] < 1_000 or row["k"] >= 1_200} == {
        missing: 2
    }
    table.close()


KEYS = [(word, part) for word in "abcd" for part in (1, 2)]
GROUPS = st.lists(
    st.dictionaries(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 99)), min_size=1, max_size=6),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("rows", ["indexed", "of the same hash", "mapped"])
@settings(max_examples=examples(20), deadline=None)
@given(groups=GROUPS, kind=st.sampled_from(KEYED_KINDS))
def test_any_writes(tmp_path_factory, rows, groups, kind) -> None:
    """Whatever is put and removed, table and driver hold the same; only the keys used last are held as values."""
    path = tmp_path_factory.mktemp("index")
    model = {}
    with pytest.MonkeyPatch.context() as patch:
        if rows == "of the same hash":
            patch.setattr(segments, "hashes_of", lambda keys: np.full(keys.num_rows, 7, np.uint64))
        key, sizes = Fields("word: string", "part: long"), LARGE if rows == "mapped" else {}
        declared = DeltaState(path / "t", key, Fields("n: long"), kind, cached_keys_max=2)
        sized(declared, portion_rows=2, **sizes)
        state = declared.open("topology", "s", "life", 1)
        for txid, values in enumerate(groups, 1):
            asked = KEYS[txid % 3 :: 2]
            assert [value and value.value for value in state.multi_get(asked)] == [model.get(key) for key in asked]
            state.write(txid, {key: None if n is None else TransactionalValue(txid, n) for key, n in values.items()})
            model = {key: n for key, n in {**model, **values}.items() if n is not None}
            written = read_table(path / "t").to_pylist()
            assert {(row["word"], row["part"]): row["n"] for row in written} == model
            assert len(written) == len(model)
        state.close()


@settings(max_examples=examples(20), deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1), min_size=1, max_size=6),
    st.sampled_from([0, 200, 1 << 30]),
)
def test_updates_of_a_large_table(tmp_path_factory, transactions, bytes_max) -> None:
    """Keys that are updated at once, or one by one, start from what the table holds; a replay changes nothing.

    Its rows may outgrow what is held as columns, at once or after some transactions.
    """
    path = tmp_path_factory.mktemp("index")
    model: dict[str, tuple[int, int]] = {}
    declared = DeltaState(path / "t", Fields("word: string"), Fields("n: long"), cached_keys_max=2)
    sized(declared, held_bytes=bytes_max, small_bytes=0)
    state = declared.open("topology", "s", "life", 1)
    for txid, keys in enumerate(transactions, 1):
        if txid > 1:  # the one before once more, which is in each of its keys
            replayed = group_state(state)
            update_in(replayed, txid - 1, transactions[txid - 2])
            assert not replayed.writes()
        group = group_state(state)
        update_in(group, txid, keys)
        state.write(txid, group.writes())
        model |= {key: (model.get(key, (0, 0))[0] + 1, txid) for key in keys}
    columns = read_table(path / "t").to_pydict()
    assert {key: (n, txid) for key, n, txid in zip(*columns.values(), strict=True)} == model
    state.close()


def update_in(group: GroupState, txid: int, keys: list[str]) -> None:
    view = group.begin(txid)
    view.multi_update(keys[:-1], lambda _, old: (old or 0) + 1)
    view.update(keys[-1], lambda old: (old or 0) + 1)
    view.check()
    view.finish()


def test_wide_rows_are_taken_from_chunks(tmp_path, monkeypatch) -> None:
    """However many bytes a segment has, rows are taken from a bounded part of it, in memory and in a file."""
    monkeypatch.setattr(mapped, "CHUNK_BYTES", 1 << 12)
    values = {f"k{n}": TransactionalValue(1, "x" * (n % 50) + str(n)) for n in range(2_000)}
    for name, bytes_max in (("held", 1 << 30), ("mapped", 0)):
        declared = DeltaState(tmp_path / name, Fields("k: string"), Fields("t: string"), cached_keys_max=1)
        state = declared.open("topology", "s", "l", 1)
        state.hold_rows(bytes_max)
        state.write(1, values)
        assert state.multi_get([*reversed(values)]) == [*reversed(values.values())]
        (segment,) = state._cache.mirror.held._by_path.values()
        assert max(rows.nbytes for _, rows in segment.chunks) <= 1 << 13
        state.write(2, {"k7": None, "k8": TransactionalValue(2, "new")})
        assert state.multi_get(["k7", "k8", "k9"]) == [None, (2, "new"), values["k9"]]
        state.close()


@pytest.mark.few(1)
@pytest.mark.parametrize("has_vectors", [False, True], ids=["rewritten", "vectors"])
@settings(max_examples=examples(40), deadline=None)
@given(groups=GROUPS, fails=st.sets(st.integers(0, 40)))
def test_a_disk_that_is_full_at_times(tmp_path_factory, has_vectors, groups, fails) -> None:
    """Wherever there is no room for rows or index, it is an error before the write or none, and nothing is found wrong."""
    calls = itertools.count()

    def at_times(make):
        def made(*args):
            if next(calls) in fails:
                raise StateFailure("the disk is full")
            return make(*args)

        return made

    path = tmp_path_factory.mktemp("index")
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((mapped, "mapped_rows"), (segments, "mapped_array")):
            patch.setattr(module, name, at_times(getattr(module, name)))
        key = Fields("word: string", "part: long")
        declared = DeltaState(path / "t", key, Fields("n: long"), cached_keys_max=1, deletion_vectors=has_vectors)
        sized(declared, index=IndexSizes(slots=4), **LARGE)
        state = declared.open("topology", "s", "life", 1)
        model: dict[Any, int] = {}
        for txid, values in enumerate(groups, 1):
            version = DeltaTable(path / "t").version()
            written = {key: None if n is None else TransactionalValue(txid, n) for key, n in values.items()}
            tried(lambda: state.write(txid, written))  # noqa: B023
            assert DeltaTable(path / "t").version() == version + 1
            model = {key: n for key, n in {**model, **values}.items() if n is not None}
            found = tried(lambda: state.multi_get(KEYS))
            assert [each and each.value for each in found] == [model.get(key) for key in KEYS]
        state.close()


def tried(deed):
    """Do something that may fail some times."""
    while True:
        try:
            return deed()
        except StateFailure as error:
            if "the disk is full" not in str(error):
                raise
