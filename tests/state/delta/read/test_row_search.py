"""Looks for rows in a table: what a read of all of them, filtered and sorted, would return."""

import datetime as dt
import gc
import random
from decimal import Decimal

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from state import DeltaRows, DeltaState, TransactionalValue, read_table
from state.delta.log.data_files import DataFolder, Sizes, files_of
from state.delta.log.location import Location
from state.delta.read import history, reading
from state.delta.read.history import look_up
from tests.budgets import examples
from tests.state.delta.read.kinds import ALL, KINDS, VALUES, fields_of
from tests.state.delta.rows.rows_tables import put
from txtopo import Fields
from txtopo.columnar.conversion import python_rows
from txtopo.errors import StateAccessError


@pytest.fixture(scope="module", params=KINDS)
def filled(request, tmp_path_factory):
    """A table of one of the kinds."""
    return KINDS[request.param](tmp_path_factory.mktemp("kinds"))


def expected(every, keys, limit):
    """Return what a look should find of all rows: the first ones, how many there are, and of how many."""
    rows = every
    for name, text in zip(rows.column_names, keys, strict=False):
        rows = rows.filter(pc.equal(rows[name], pa.scalar(text).cast(rows.schema.field(name).type)))
    rows = rows.sort_by([(name, "ascending") for name in rows.column_names])
    first = repr(list(python_rows(rows.slice(0, limit))))
    return first, rows.num_rows, every.num_rows


def seen(path, keys, txid, limit):
    """Return what a look finds, likewise."""
    found = look_up(path, keys, txid, limit)
    return repr(list(python_rows(found.first))), found.found, found.total


def some_keys(rows, draw):
    """Return keys of rows and others: of the first column, of two, and of none."""
    texts = [rows[name].cast(pa.string()).to_pylist() for name in rows.column_names[:2] if name != "y"]
    known = [each for each in zip(*texts, strict=True) if None not in each]
    return [(), ("77777",), *(each[:1] for each in draw.sample(known, 2)), draw.choice(known)]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("binary", [b"abc", b"\xff\x00'", b"", b"b'abc'", "ä".encode()]),
        ("decimal(38,10)", [Decimal("12345678901234567890.1234567890"), Decimal(-1)]),
        ("date", [dt.date(2024, 2, 29), dt.date(1969, 12, 31)]),
        ("timestamp", [dt.datetime(1969, 12, 31, 23, 59, 59, 123456, dt.UTC)]),
        ("boolean", [True, False]),
        ("string", ["", " a ", "b'a'", "null"]),
        ("long", [-(2**63), 0]),
    ],
)
def test_a_key_is_found_by_the_text_that_is_shown(tmp_path, kind, keys):
    """Of each type; bytes also by the text that they are in UTF-8, and bytes that look like others by themselves."""
    state = DeltaState(tmp_path, key=Fields(f"k: {kind}"), value=Fields("n: long")).open("t", "s", "life", 1)
    state.write(1, {key: TransactionalValue(1, number) for number, key in enumerate(keys)})
    state.close()
    for row in python_rows(read_table(tmp_path)):
        found = look_up(str(tmp_path), [str(row["k"])])
        assert (list(python_rows(found.first)), found.found) == ([row], 1)
    if kind == "binary":
        assert look_up(str(tmp_path), ["ä"]).found == 1


def test_the_last_transaction_is_the_tables(tmp_path):
    """Not that of a row, which it may have removed."""
    state = DeltaState(tmp_path, key=Fields("k: string"), value=Fields("n: long")).open("t", "s", "life", 1)
    for txid, written in ((1, TransactionalValue(1, 1)), (2, None)):
        state.write(txid, {"a": written})
    state.close()
    assert [look_up(str(tmp_path), (), txid).last_txid for txid in (0, 1, 2, None)] == [None, 1, 2, 2]
    assert look_up(str(tmp_path), ["a"]).last_txid == 2


@pytest.mark.slow
def test_a_look_finds_what_all_rows_have(filled):
    """Now and in the past, with keys and without, at each limit round the number of rows."""
    path, draw = str(filled.path), random.Random(3)
    for txid in (None, 2):
        every = read_table(path, txid)
        for keys in some_keys(every, draw):
            count = expected(every, keys, None)[1]
            for limit in {0, count - 1, count, None} - {-1}:
                assert seen(path, keys, txid, limit) == expected(every, keys, limit)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.dictionaries(st.sampled_from(VALUES["s"]), st.none() | st.integers(-3, 3), min_size=1),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
    st.integers(0, 12),
)
def test_texts_of_every_form_are_found(tmp_path_factory, groups, deletion_vectors, limit):
    """Texts that the log cuts, and that readers of it take for others, in several files with dead rows."""
    path = tmp_path_factory.mktemp("texts") / "t"
    state = DeltaState(path, Fields("s: string"), Fields("n: long"), deletion_vectors=deletion_vectors)
    opened = state.open("t", "texts", "life", 1)
    for txid, group in enumerate(groups, 1):
        opened.write(txid, {key: None if n is None else TransactionalValue(txid, n) for key, n in group.items()})
    opened.close()
    every = read_table(path)
    for keys in [(), *((key,) for key in VALUES["s"])]:
        assert seen(path, keys, None, limit) == expected(every, keys, limit)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ALL)
def test_rows_of_each_kind_of_column_come_in_their_order(tmp_path, monkeypatch, name):
    """The column is the first one, with nulls and NaN, which are after all others, and rows come in small portions."""
    portions, small = DataFolder.portions, Sizes(portion_rows=3)
    monkeypatch.setattr(
        DataFolder,
        "portions",
        lambda self, *args, **options: portions(attrs.evolve(self, sizes=small), *args, **options),
    )
    fields = fields_of(name) + Fields("id: long")
    opened = DeltaRows(tmp_path / "t", fields).open("t", "rows", "life", 1)
    draw = random.Random(1)
    for txid in range(1, 6):
        drawn = [draw.choice([*VALUES[name], None]) for _ in range(10)]
        rows = pa.table([drawn, range(txid * 10, txid * 10 + 10)], schema=fields.arrow_schema())
        put(opened, (txid, ("append", rows)))
    opened.close()
    every = read_table(tmp_path / "t")
    for limit in (1, 3, 25, 49, 50, 51):
        assert seen(tmp_path / "t", (), None, limit) == expected(every, (), limit)


@pytest.mark.few(3)
@pytest.mark.parametrize("txid", [2, 3, 4])
@pytest.mark.parametrize("keys", [(), ("7",), ("17",)])
def test_a_look_between_two_writes_sees_the_rows_up_to_there(tmp_path, txid, keys):
    """Transactions 3 and 4 were written together: only the rows' numbers tell them apart."""
    fields = Fields("id: long")
    opened = DeltaRows(tmp_path / "t", fields).open("t", "rows", "life", 1)
    some = [("append", pa.table({"id": range(n, n + 10)}, schema=fields.arrow_schema())) for n in (0, 10, 20)]
    put(opened, (2, some[0]))
    put(opened, (3, some[1]), (4, some[2]))
    opened.close()
    every = read_table(tmp_path / "t", txid)
    assert every.num_rows == (txid - 1) * 10
    for limit in (1, 9, 10, None):
        assert seen(tmp_path / "t", keys, txid, limit) == expected(every, keys, limit)


@pytest.fixture
def in_order(tmp_path):
    """A table of 20 files, each of the next 100 keys."""
    state = DeltaState(tmp_path / "t", Fields("id: long"), Fields("s: string"), deletion_vectors=False)
    opened = state.open("t", "keys", "life", 1)
    for txid in range(20):
        keys = range(txid * 100, txid * 100 + 100)
        opened.write(txid + 1, {key: TransactionalValue(txid + 1, "x" * 1_000) for key in keys})
    return opened


@pytest.fixture
def portions(monkeypatch):
    """The files that are read, each with the columns."""
    read, original = [], DataFolder.portions

    def spy(self, file, schema, **options):
        read.append((file.path, tuple(schema.names)))
        yield from original(self, file, schema, **options)

    monkeypatch.setattr(DataFolder, "portions", spy)
    return read


def test_files_without_the_key_are_not_read(in_order, portions):
    """The log has the bounds of each: one file may have a key, and all its columns are read only if it has."""
    path = in_order.declared.path
    found = look_up(path, ["777"])
    assert (found.found, found.total, found.last_txid) == (1, 2_000, 20)
    assert [columns for _, columns in portions] == [("id",), ("id", "s", "txid")]
    portions.clear()
    assert (look_up(path, ["2000"]).found, portions) == (0, [])


def test_files_after_the_first_rows_are_not_read(in_order, portions):
    """The first file has as many rows as are shown, and no other begins before their last."""
    found = look_up(in_order.declared.path, limit=100)
    assert found.first["id"].to_pylist() == [*range(100)]
    assert len(portions) == 1


@pytest.mark.slow
@pytest.mark.parametrize("keys", [(), ("1234",)])
def test_a_look_holds_a_portion_and_what_it_shows(tmp_path, monkeypatch, keys):
    """However many rows there are, and wherever the key is."""
    opened = DeltaState(tmp_path / "t", Fields("id: long"), Fields("s: string")).open("t", "keys", "life", 1)
    for txid in range(1, 21):
        opened.write(txid, {n: TransactionalValue(txid, "x" * 1_000) for n in range(txid, 10_000, 20)})
    opened.close()
    whole, held, original = read_table(tmp_path / "t").nbytes, [], DataFolder.portions
    gc.collect()
    before = pa.total_allocated_bytes()

    def spy(self, file, schema, **options):
        for rows in original(attrs.evolve(self, sizes=Sizes(portion_rows=200)), file, schema, **options):
            held.append(pa.total_allocated_bytes() - before)
            yield rows

    monkeypatch.setattr(DataFolder, "portions", spy)
    look_up(str(tmp_path / "t"), keys, limit=20)
    assert len(held) > 40
    assert max(held) < whole / 4


@pytest.mark.parametrize("look_at", [lambda path: look_up(path, ["7"]).total, lambda path: read_table(path).num_rows])
def test_a_look_whose_files_go_meanwhile_is_taken_again(in_order, monkeypatch, look_at):
    """A run merges, and removes what only the older version has: the look is of the newer one then."""
    location, shown_schema, txids = Location.resolve(in_order.declared.path, None), history.shown_schema, iter([21, 22])

    def written_meanwhile(table, kind):
        txid = next(txids, None)
        if txid is not None:
            old = files_of(location, table)
            in_order.write(txid, {txid: TransactionalValue(txid, "new"), -txid: TransactionalValue(txid, "new")})
            for path in old.keys() - files_of(location, location.handle()):
                location.folder.delete(path)
        return shown_schema(table, kind)

    monkeypatch.setattr(history, "shown_schema", written_meanwhile)
    assert look_at(in_order.declared.path) == 2_002
    assert next(txids, None) is None


def test_a_look_at_a_table_that_lost_a_file_is_an_error(in_order, monkeypatch):
    """Nobody has written it since, so it is not a matter of time; it is looked at once."""
    looks = []

    def gone(*_arguments):
        looks.append(1)
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(reading, "files_of", gone)
    with pytest.raises(StateAccessError, match="its files may have been vacuumed"):
        look_up(in_order.declared.path, ["7"])
    assert looks == [1]
