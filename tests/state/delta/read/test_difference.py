"""The difference between two tables is what a comparison row by row in Python finds."""

import datetime as dt
import math
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st

from state import DeltaExpiringRows, DeltaRows, DeltaState, OpaqueValue, TransactionalValue
from state.delta.log.data_files import DataFolder
from state.delta.read.difference import TableDifference, difference, stored_difference
from state.delta.read.history import FoundTable
from state.delta.read.reading import StoredRows
from tests.budgets import examples
from tests.state.delta.rows.rows_tables import put
from txtopo import Fields, StateKind
from txtopo.transactional.commit.write_buffer import group_state

KEYED = pa.schema(
    [
        pa.field("word", pa.string(), nullable=False),
        pa.field("day", pa.date32(), nullable=False),
        pa.field("n", pa.float64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("txid", pa.int64()),
    ]
)
BAG = pa.schema([pa.field("word", pa.string()), pa.field("n", pa.float64()), pa.field("txid", pa.int64())])

DAY = dt.date(2024, 1, 1)
WORDS = st.sampled_from(["", "a", "b", "c"])
NUMBERS = st.sampled_from([None, 0.0, 1.5, math.nan])
TXIDS = st.integers(1, 3)
KEYED_ROWS = st.dictionaries(
    st.tuples(WORDS, st.dates(DAY, dt.date(2024, 1, 2))),
    st.tuples(NUMBERS, st.sampled_from([None, [], ["x"], [None]]), TXIDS),
)
BAG_ROWS = st.lists(st.tuples(st.one_of(WORDS, st.none()), NUMBERS, TXIDS), max_size=8)
SINCE = st.one_of(st.none(), TXIDS)


def table(rows, schema):
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(list(each), field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def text(rows: pa.Table) -> list[str]:
    return [repr(tuple(row.values())) for row in rows.to_pylist()]


@given(a=KEYED_ROWS, b=KEYED_ROWS, since=SINCE, with_txids=st.booleans())
@example({("a", DAY): (None, [], 1)}, {("a", DAY): (math.nan, [], 1)}, None, False)
def test_tables_with_keys(a, b, since, with_txids):
    """Keys of one table, keys with other values, and equal rows, each once; a null is no NaN."""
    found = difference(
        *(table([(*key, *row) for key, row in rows.items()], KEYED) for rows in (a, b)),
        since=since,
        with_txids=with_txids,
    )
    end = 3 if with_txids else 2
    keys = {key for rows in (a, b) for key, row in rows.items() if since is None or row[2] >= since}
    shown_a, shown_b = ({key: repr((*key, *row[:end])) for key, row in rows.items() if key in keys} for rows in (a, b))
    assert text(found.only_in_a.rows) == [shown_a[key] for key in sorted(shown_a.keys() - shown_b.keys())]
    assert text(found.only_in_b.rows) == [shown_b[key] for key in sorted(shown_b.keys() - shown_a.keys())]
    both = sorted(shown_a.keys() & shown_b.keys())
    differing = [key for key in both if shown_a[key] != shown_b[key]]
    assert text(found.differing_a.rows) == [shown_a[key] for key in differing]
    assert text(found.differing_b.rows) == [shown_b[key] for key in differing]
    assert (found.equal, found.keys) == (len(both) - len(differing), ("word", "day"))


@given(a=BAG_ROWS, b=BAG_ROWS, since=SINCE)
def test_tables_without_keys(a, b, since):
    """Equal rows belong together one by one."""
    found = difference(table(a, BAG), table(b, BAG), since=since)
    bags = [Counter(repr(row[:2]) for row in rows if since is None or row[2] >= since) for rows in (a, b)]
    assert Counter(text(found.only_in_a.rows)) == bags[0] - bags[1]
    assert Counter(text(found.only_in_b.rows)) == bags[1] - bags[0]
    assert (found.equal, found.differing_a.count) == ((bags[0] & bags[1]).total(), 0)


def test_keys_that_only_one_table_has():
    """Rows belong together as those of tables without keys: what is a key in one of them may be there twice in the other."""
    a, b = (table([("a", DAY, n, None, 1)], KEYED) for n in (1.0, 2.0))
    for schema in (KEYED.set(0, pa.field("word", pa.string())), KEYED.set(1, pa.field("day", pa.date32()))):
        for found in (difference(a, b.cast(schema)), difference(a.cast(schema), b)):
            assert (found.keys, found.differing_a.count) == ((), 0)
            assert (found.only_in_a.count, found.only_in_b.count) == (1, 1)


def test_keys_of_different_types():
    """Rows belong together as those of tables without keys."""
    a, b = (
        pa.table(
            [pa.array([1, n], kind), pa.array([1, 1])],
            schema=pa.schema([pa.field("k", kind, False), ("v", pa.int64())]),
        )
        for n, kind in ((2, pa.int32()), (3, pa.int64()))
    )
    found = difference(a, b)
    assert (found.keys, found.equal) == ((), 1)
    assert [each.rows["k"].to_pylist() for each in (found.only_in_a, found.only_in_b)] == [[2], [3]]


def test_nested_values():
    """A NaN equals a NaN and a null a null, wherever they are; the two zeros are not the same there."""
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.list_(pa.float64()))])
    a, b = ([[math.nan], [None], None, [1.0], [0.0]], [[math.nan], [None], None, [None], [-0.0]])
    tables = [pa.table([pa.array(range(5)), pa.array(each, schema.field("v").type)], schema=schema) for each in (a, b)]
    assert difference(*tables).differing_a.rows["k"].to_pylist() == [3, 4]


def test_columns_of_one_table_are_named():
    """What only one table has is not compared, and said so; a number of another type is not the same."""
    a = pa.table({"n": [1], "old": [1]})
    b = pa.table({"n": [1], "new": [1]})
    assert difference(a, b).unlike == ("old", "new")
    assert difference(a, b).count == 0


@pytest.mark.slow
def test_a_million_rows_take_seconds():
    """It works in columns."""
    count = 1_000_000
    schema = pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("n", pa.int64())])
    words = pa.array(np.arange(count)).cast(pa.string())
    a = pa.Table.from_arrays([words, pa.array(np.arange(count))], schema=schema)
    b = pa.Table.from_arrays([words, pa.array(np.arange(count) + (np.arange(count) % 1000 == 0))], schema=schema)
    started = time.process_time()
    found = difference(a, b.slice(10))
    assert time.process_time() - started < 60
    assert (found.only_in_a.count, found.differing_a.count) == (10, count // 1000 - 1)


# Versions of tables: each is written by groups, from which a fork goes on.

GROUPS = st.lists(st.dictionaries(st.integers(0, 11), NUMBERS, min_size=1, max_size=5), min_size=1, max_size=4)
VALUE = Fields("n: double")
HOUR_US = 3_600_000_000


def keyed(path, kind=StateKind.TRANSACTIONAL, *, has_vectors=True):
    state = DeltaState(path, Fields("id: long"), VALUE, kind, deletion_vectors=has_vectors)

    def write(opened, txid, rows):
        """A value of 1.5 removes the key."""
        of = {StateKind.OPAQUE: lambda n: OpaqueValue(txid, n, None)}.get(kind, lambda n: TransactionalValue(txid, n))
        opened.write(txid, {key: None if n == 1.5 else of(n) for key, n in rows.items()})

    return state, write


def duplicates(path):
    fields = Fields("id: long") + VALUE

    def write(opened, txid, rows):
        columns = {"id": [key % 3 for key in rows], "n": list(rows.values())}
        put(opened, (txid, ("append", pa.table(columns, schema=fields.arrow_schema()))))

    return DeltaRows(path, fields), write


def expiring(path):
    fields = Fields("until: timestamp") + VALUE

    def write(opened, txid, rows):
        """Each row of an id expires that many hours after its transaction, which is an hour after the one before."""
        group = group_state(opened)
        view = group.begin(txid)
        times = pa.array([(txid + key) * HOUR_US for key in rows], pa.timestamp("us", "UTC"))
        view.append(pa.table({"until": times, "n": list(rows.values())}, schema=fields.arrow_schema()))
        view.take_expired(txid * HOUR_US)
        view.check()
        view.finish()
        opened.write(txid, group.writes())

    return DeltaExpiringRows(path, fields, "until"), write


TABLES = {
    "keys": keyed,
    "keys without vectors": lambda path: keyed(path, has_vectors=False),
    "opaque keys": lambda path: keyed(path, StateKind.OPAQUE),
    "rows": duplicates,
    "rows that expire": expiring,
}


def forked(declare, root, groups, of_fork):
    """Write groups to a table, fork it after the first one, and write others to the fork; return both paths."""
    state, write = declare(root / "origin")
    opened = state.open("t", "s", "life", 1)
    for txid, rows in enumerate(groups, 1):
        write(opened, txid, rows)
    opened.close()
    fork, write = declare(root / "fork")
    fork.fork(str(root / "origin"), 1, "fork", "s", "other life", 1)
    opened = fork.open("fork", "s", "other life", 2)
    for txid, rows in enumerate(of_fork, 2):
        write(opened, txid, rows)
    opened.close()
    return root / "origin", root / "fork"


def shown(found: TableDifference):
    """Return what a difference says, whatever the order of rows without keys."""
    kinds = [found.only_in_a, found.only_in_b, found.differing_a, found.differing_b]
    rows = [text(kind.rows) if found.keys else sorted(text(kind.rows)) for kind in kinds]
    return found.keys, found.values, found.unlike, found.equal, [kind.count for kind in kinds], rows


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("is_read_whole", [False, True])
def test_versions_differ_as_their_rows_do(kind, is_read_whole, monkeypatch):
    """Versions of a table and of its fork: whether their files can be read one by one, and in how many shares."""
    if is_read_whole:  # as a table with columns of other names in its files, which only delta-rs reads
        monkeypatch.setattr(StoredRows, "files", lambda _rows: None)

    @settings(max_examples=examples(8), deadline=None)
    @given(groups=GROUPS, of_fork=GROUPS, since=SINCE, with_txids=st.booleans(), share_rows=st.sampled_from([5, 10**6]))
    def agree(groups, of_fork, since, with_txids, share_rows):
        with tempfile.TemporaryDirectory() as root:
            origin, fork = map(FoundTable.at, forked(TABLES[kind], Path(root), groups, of_fork))
            last = origin.stored(None)
            for a, b in ((origin.stored(1), last), (last, fork.stored(None)), (fork.stored(1), last), (last, last)):
                how = {"since": since, "with_txids": with_txids}
                assert shown(stored_difference(a, b, share_rows=share_rows, **how)) == shown(
                    difference(a.read(), b.read(), **how)
                )

    agree()


@pytest.fixture
def read_files(monkeypatch):
    """The files of which something is read."""
    read, portions = [], DataFolder.portions

    def counted(self, file, schema, **options):
        read.append(file.path)
        return portions(self, file, schema, **options)

    monkeypatch.setattr(DataFolder, "portions", counted)
    return read


@pytest.mark.parametrize("has_vectors", [False, True])
def test_what_both_have_is_not_read(tmp_path, read_files, has_vectors):
    """Of a table of 20 files and its fork, those that one of them has, and the row that died in one of them."""
    state, write = keyed(tmp_path / "origin", has_vectors=has_vectors)
    opened = state.open("t", "s", "life", 1)
    for txid in range(1, 21):
        write(opened, txid, dict.fromkeys(range(txid * 10, txid * 10 + 10), 0.0))
    write(opened, 21, {15: 2.0})
    table = FoundTable.at(tmp_path / "origin")
    read_files.clear()
    found = stored_difference(table.stored(20), table.stored(None))
    assert (found.equal, found.differing_a.count, found.count) == (199, 1, 1)
    assert len(read_files) == 2
    read_files.clear()
    assert (stored_difference(table.stored(None), table.stored(None)).equal, read_files) == (200, [])


def test_no_more_rows_are_returned_than_wanted():
    """The first ones by their keys, with the number of all; pairs stay pairs."""
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("n", pa.int64())])
    a = pa.table([[5, 4, 3, 2, 1, 9], [1] * 6], schema=schema)
    found = difference(a, pa.table([[1, 2, 3, 4, 8], [2, 2, 1, 2, 2]], schema=schema), limit=2)
    assert [found.differing_a.rows["k"].to_pylist(), found.differing_b.rows["k"].to_pylist()] == [[1, 2], [1, 2]]
    assert (found.differing_a.count, found.only_in_a.count, found.only_in_b.count, found.equal) == (3, 2, 1, 1)
    assert found.only_in_a.rows["k"].to_pylist() == [5, 9]
