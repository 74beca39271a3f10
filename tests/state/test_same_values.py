"""Every keyed state keeps the same of a value, whoever reads it, and however transactions are put into groups."""

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st

from state import DeltaRows, DeltaState, MemoryState
from tests.budgets import examples
from tests.state.delta.read.readers import delta_rs_scan, duck_db
from txtopo import Fields
from txtopo.api.data.types import python_values
from txtopo.api.reduction import Reduction, Reductions
from txtopo.api.state import State
from txtopo.api.values import KEYED_KINDS, StateKind
from txtopo.columnar.conversion import fit_array
from txtopo.columnar.rows_file import write_rows_file
from txtopo.errors import FieldsError
from txtopo.files.folder import LocalFolder
from txtopo.transactional.commit.write_buffer import group_state
from txtopo.transactional.tasks.state_handle import StateHandle

KEY, KEYS = Fields("k: string"), ["a", "b"]
BERLIN = dt.timezone(dt.timedelta(hours=2))
MOMENT = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)

WHOLE = st.sampled_from([0, 3, np.int64(3)])
OF_SQLITE = WHOLE | st.sampled_from([0.0, 0.1, -math.inf, np.float32(0.1), np.float64(0.1)])
REAL = OF_SQLITE | st.sampled_from([-0.0, math.nan])
TIME = st.sampled_from([MOMENT, MOMENT.astimezone(BERLIN)])
EXACT = st.sampled_from([2, Decimal(2), Decimal("1.5"), Decimal("1.50"), Decimal("-0.0")])
BINARY = st.sampled_from([b"x", bytearray(b"x")])
FLAT = {
    "long": WHOLE,
    "float": OF_SQLITE,
    "double": OF_SQLITE,
    "decimal(9,2)": EXACT,
    "string": st.sampled_from(["", "x"]),
    "binary": BINARY,
    "boolean": st.sampled_from([True, np.bool_(0)]),
    "date": st.just(MOMENT.date()),
    "timestamp": TIME,
    "timestamp_ntz": TIME.map(lambda time: time.replace(tzinfo=None)),
}


def lists_of(items: st.SearchStrategy) -> st.SearchStrategy:
    items = st.lists(st.none() | items, max_size=2)
    return items | items.map(tuple)


def structs_of(**members: st.SearchStrategy) -> st.SearchStrategy:
    """Return structs whose members come in either order."""
    made = st.fixed_dictionaries(members)
    return made | made.map(lambda struct: dict(reversed(struct.items())))


ALL = FLAT | {
    "float": REAL,
    "double": REAL,
    "array<double>": lists_of(REAL) | st.just(np.array([1.5, 2.5])),
    "array<float>": lists_of(REAL),
    "array<timestamp>": lists_of(TIME),
    "array<array<binary>>": lists_of(lists_of(BINARY)),
    "map<string,float>": st.dictionaries(st.sampled_from("xy"), st.none() | REAL, max_size=2),
    "map<timestamp,decimal(9,2)>": st.dictionaries(TIME, EXACT, max_size=1),
    "struct<x: double, y: array<int>>": structs_of(x=REAL, y=lists_of(WHOLE)),
    "array<struct<x: decimal(9,2), y: float>>": lists_of(structs_of(x=EXACT, y=REAL)),
}


def shown(value: Any) -> Any:
    """Return a value with all that a bolt can tell of it."""
    match value:
        case dict():
            return "dict", [(shown(key), shown(item)) for key, item in value.items()]
        case list() | tuple():
            return type(value).__name__, list(map(shown, value))
    return type(value).__name__, str(value)


@st.composite
def stories(draw: st.DrawFn, types: dict[str, st.SearchStrategy]) -> Any:
    """Return value fields, and transactions: whether a group ends with each, and what it puts, and how."""
    kinds = draw(st.lists(st.sampled_from(list(types)), min_size=1, max_size=3))
    row = st.tuples(*(st.none() | types[kind] for kind in kinds)).filter(is_some)
    put = st.tuples(st.sampled_from(["put", "update", "rows", "remove"]), st.sampled_from(KEYS), row)
    transactions = draw(
        st.lists(st.tuples(st.booleans(), st.lists(put, min_size=1, max_size=2)), min_size=2, max_size=4)
    )
    return Fields(*(f"v{at}: {kind}" for at, kind in enumerate(kinds))), transactions


def is_some(row: tuple[Any, ...]) -> bool:
    """Whether not all is null, which an opaque state can't tell from no value."""
    return any(part is not None for part in row)


def put_in(handle: StateHandle, way: str, key: str, row: tuple[Any, ...], fields: Fields) -> None:
    """Put a value for a key in one of three ways, or remove the key."""
    value = row if len(row) > 1 else row[0]
    match way:
        case "put":
            handle.put(key, value)
        case "update":
            handle.update(key, lambda _: value)
        case "remove":
            handle.remove(key)
        case _:
            wide = [pa.float64() if pa.types.is_float32(kind) else kind for kind in fields.types]
            parts = [fit_array([part], kind) for part, kind in zip(row, wide, strict=True)]
            handle.put_rows(pa.table([[key], *parts], ["k", *fields]))


def kept_by(state: State, transactions: Any) -> dict[str, tuple[Any, ...]]:
    """Do transactions, each of which reads what those before have put, and the next run all; return that."""
    opened, kept = state.open("topology", "s", "life", 1), {}
    group = group_state(opened)

    def compare(found: list[Any]) -> None:
        rows = [kept.get(key) for key in KEYS]
        rows = rows if len(state.value) > 1 else [row and row[0] for row in rows]
        assert shown([stored and stored.value for stored in found]) == shown(rows), state

    for txid, (is_last, puts) in enumerate(transactions, 1):
        view = group.begin(txid)
        handle = StateHandle("bolt", "s", view, None)
        compare(handle.multi_get(KEYS))
        compare(list(map(handle.get, KEYS)))
        for way, key, row in puts:
            put_in(handle, way, key, row, state.value)
            columns = [fit_array([part], kind) for part, kind in zip(row, state.value.types, strict=True)]
            kept[key] = tuple(python_values(column)[0] for column in columns)
            if way == "remove":
                del kept[key]
        view.check("bolt")
        view.finish()
        if is_last or txid == len(transactions):
            opened.write(txid, group.writes())
            group = group_state(opened)
    opened.close()
    opened = state.open("topology", "s", "life", 2)
    compare(opened.multi_get(KEYS))
    compare([opened.multi_get([key])[0] for key in KEYS])
    opened.close()
    return kept


def compare_rows(rows: pa.Table, kept: dict[str, tuple[Any, ...]]) -> None:
    """Compare what a reader finds with what was put."""
    columns = map(python_values, rows.columns)
    assert {key: shown(row) for key, *row in zip(*columns, strict=True)} == {
        key: shown(list(row)) for key, row in kept.items()
    }


OTHER_FORMS = [
    ((3, np.int64(3)), [MOMENT.astimezone(BERLIN)], {"y": (1,), "x": 3}, 3),
    (np.array([1.5]), (MOMENT,), {"x": np.float32(0.1), "y": [np.int64(1)]}, 0.1),
    ([3.0], [MOMENT], {"x": 1.0, "y": [1]}, np.float32(0.1)),
]
FORMS = Fields("a: array<double>", "b: array<timestamp>", "c: struct<x: double, y: array<int>>", "d: float")


@pytest.mark.parametrize("kind", KEYED_KINDS, ids=lambda kind: kind.value)
@settings(max_examples=examples(40), deadline=None)
@given(story=stories(ALL))
@example(story=(FORMS, [(False, [("put", "a", row)]) for row in OTHER_FORMS]))
def test_a_value_is_read_as_it_is_kept(tmp_path_factory: pytest.TempPathFactory, kind: StateKind, story: Any) -> None:
    """By the next transaction, of the same group or of another, by the next run, in columns, and by other readers."""
    value, transactions = story
    memory, path = MemoryState(KEY, value, kind), Path(tmp_path_factory.mktemp("same"))
    kept = kept_by(memory, transactions)
    compare_rows(memory.snapshot().drop_columns(["txid"]), kept)
    for has_vectors in (False, True):
        state = DeltaState(path / str(has_vectors), KEY, value, kind, cached_keys_max=1, deletion_vectors=has_vectors)
        kept = kept_by(state, transactions)
        for reader in (delta_rs_scan, duck_db):
            compare_rows(reader(Path(state.path), None, ["k", *value]), kept)


TIMES = pa.array([10**18], pa.timestamp("us", tz="UTC"))
NO_TEXT = pa.array([b"\xff"]).view(pa.string())
TWICE = pa.array([[("a", 1), ("b", 2), ("a", 3)]], pa.map_(pa.string(), pa.int64()))
ZEROS = pa.array([[(0.0, 1), (-0.0, 2)]], pa.map_(pa.float64(), pa.int64()))


@pytest.mark.parametrize(
    ("way", "kind", "column", "why"),
    [
        ("rows", "timestamp", TIMES, "of the years 1 to 9999"),
        ("changes", "timestamp", TIMES, "of the years 1 to 9999"),
        ("fold", "timestamp", TIMES, "of the years 1 to 9999"),
        ("rows", "map<string, long>", TWICE, "a map has a key twice"),
        ("rows", "map<double, long>", ZEROS, "a map has a key twice"),
        ("rows", "string", NO_TEXT, "Invalid UTF8"),
        ("fold", "string", NO_TEXT, "Invalid UTF8"),
        ("fold a file", "string", NO_TEXT, "Invalid UTF8"),
        ("rows", "array<map<string, long>>", pa.array([[TWICE[0]]], pa.list_(TWICE.type)), "a map has a key twice"),
    ],
)
def test_columns_that_nobody_could_get(tmp_path: Path, way: str, kind: str, column: pa.Array, why: str) -> None:
    """A value that Python can't read is refused when it is put: each get() from then on would stop the run."""
    value, largest = Fields(f"v: {kind}"), Reductions((("v", Reduction.MAX),))
    rows = pa.table([["a"], column], ["k", "v"])
    for state in (MemoryState(KEY, value), DeltaState(tmp_path / "t", KEY, value)):
        view = group_state(state.open("topology", "s", "life", 1)).begin(1)
        handle = StateHandle("bolt", "s", view, None)
        with pytest.raises(FieldsError, match=f"field 'v', .*{why}"):
            if way == "rows":
                handle.put_rows(rows)
            elif way == "changes":
                handle.reduce_changes(rows, largest)
            elif way == "fold":
                handle.multi_reduce(rows, largest)
            else:
                handle.multi_reduce(write_rows_file(LocalFolder(tmp_path), "1", rows, ["k"]), largest)
        assert handle.get("a") is None


def test_rows_of_texts_that_are_none(tmp_path: Path) -> None:
    """They are refused before the table has them, which delta-rs could not read from then on."""
    rows = DeltaRows(tmp_path / "t", Fields("texts: array<string>"))
    with pytest.raises(FieldsError, match=r"field 'texts: array<string>': .*Invalid UTF8"):
        rows.as_rows("s", pa.table([pa.ListArray.from_arrays([0, 1], NO_TEXT)], ["texts"]))
