"""A table as of a transaction that shares its Delta write with others: exact, or refused."""

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from state import DeltaState, TransactionalValue, read_table
from state.delta.read.consistent import read_tables
from state.delta.read.history import look_up
from tests.state.delta.rows.rows_tables import opened, put, rows
from txtopo import Fields
from txtopo.errors import StateAccessError
from txtopo.files.folder import LocalFolder
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalTable, JournalTransaction
from txtopo.journal.folders import FOLDER
from txtopo.journal.writer import JournalWriter


def keyed(folder):
    return DeltaState(folder / "words", key=Fields("word: string"), value=Fields("n: long")).open(
        "t", "words", "life", 1
    )


def counts(folder, txid, **options):
    return {row["word"]: row["n"] for row in read_table(folder / "words", txid, **options).to_pylist()}


def write(state, last, **words):
    """Write a group up to ``last``: the count and txid of each word, None for one that goes."""
    state.write(last, {w: None if kept is None else TransactionalValue(kept[1], kept[0]) for w, kept in words.items()})


def enter(folder, state, *groups, removed=0):
    """Keep a journal beside the table in which these groups wrote it, and removed so many keys of it each."""
    tables = {"words": JournalTable("words", state.identity)}
    header = JournalHeader("t", "life", 1, {"spout": "repeatable"}, 0, None, tables, {"words": None})
    journal = JournalWriter(LocalFolder(folder / "_txtopo" / FOLDER / "t"), header, 1 << 20)
    for first, last in groups:
        transactions = tuple(JournalTransaction(txid, 1, None, {}) for txid in range(first, last + 1))
        journal.enter(JournalEntry({"words": (1, removed)} if last % 10 == 0 else {}, transactions))


def test_what_a_later_transaction_overwrote_is_kept_nowhere(tmp_path):
    """Between 10 and 20 the value of a may have been anything; the ends can be shown, and the nearest one below."""
    state = keyed(tmp_path)
    write(state, 10, a=(1, 10))
    write(state, 20, a=(3, 18), b=(1, 12))
    for txid in (11, 12, 17):
        with pytest.raises(StateAccessError, match="written as of 10 and as of 20"):
            read_table(tmp_path / "words", txid)
        assert counts(tmp_path, txid, nearest=True) == {"a": 1}
    assert (counts(tmp_path, 10), counts(tmp_path, 20)) == ({"a": 1}, {"a": 3, "b": 1})


def test_behind_the_last_change_of_a_group_a_keyed_table_is_exact(tmp_path):
    """From 18 on nothing was touched, so the write of 20 is what it held then."""
    state = keyed(tmp_path)
    write(state, 10, a=(1, 10))
    write(state, 20, a=(3, 18), b=(1, 12))
    enter(tmp_path, state, (1, 10), (11, 20))
    assert counts(tmp_path, 18) == counts(tmp_path, 19) == {"a": 3, "b": 1}


def test_a_key_that_is_gone_may_have_gone_at_any_time(tmp_path):
    """It leaves no txid behind."""
    state = keyed(tmp_path)
    write(state, 10, a=(1, 10), b=(1, 10))
    write(state, 20, a=(2, 12), b=None)
    enter(tmp_path, state, (1, 10), (11, 20), removed=1)
    with pytest.raises(StateAccessError, match="written as of 10 and as of 20"):
        read_table(tmp_path / "words", 19)


@pytest.mark.parametrize("has_journal", [True, False])
def test_a_key_that_came_and_went_within_a_group_is_in_no_version(tmp_path, has_journal):
    """Transaction 15 put b and 17 removed it: neither version tells of it, so 16 can't be shown, nor without journal."""
    state = keyed(tmp_path)
    write(state, 10, a=(1, 10))
    write(state, 20, a=(2, 12), b=None)
    if has_journal:
        enter(tmp_path, state, (1, 10), (11, 20), removed=1)
    with pytest.raises(StateAccessError, match="written as of 10 and as of 20"):
        read_table(tmp_path / "words", 16)


def test_before_the_group_began_a_table_is_what_it_was(tmp_path):
    """The journal says where groups begin: of 15 to 20, 14 is before it; of the one between, no table was written."""
    state = keyed(tmp_path)
    write(state, 10, a=(1, 10))
    write(state, 20, a=(3, 18))
    enter(tmp_path, state, (1, 10), (11, 14), (15, 20))
    assert counts(tmp_path, 11) == counts(tmp_path, 14) == {"a": 1}
    for txid in (15, 16, 17):  # in 18 the value of a changed
        with pytest.raises(StateAccessError, match="written as of 14 and as of 20"):
            read_table(tmp_path / "words", txid)
    assert counts(tmp_path, 18) == counts(tmp_path, 19) == {"a": 3}
    assert look_up(tmp_path / "words", (), 18).last_txid == 18, "it is not told of what came after it"


def test_at_the_first_transaction_of_a_group(tmp_path):
    """The group holds it: the table as of it is not the one before the group, whatever can be shown instead."""
    state = keyed(tmp_path)
    write(state, 10, a=(1, 10))
    write(state, 20, a=(2, 15))
    write(state, 30, a=(3, 25))
    enter(tmp_path, state, (1, 10), (11, 14), (15, 20), (21, 30))
    assert [counts(tmp_path, txid) for txid in (14, 15, 16, 20)] == [{"a": 1}, {"a": 2}, {"a": 2}, {"a": 2}]
    with pytest.raises(StateAccessError, match="written as of 20 and as of 30"):
        read_table(tmp_path / "words", 21)


def test_all_tables_alike(tmp_path):
    """``read_tables`` is exact, or refuses; what it is asked for is what it says."""
    state = keyed(tmp_path)
    write(state, 10, a=(1, 10))
    write(state, 20, a=(3, 18))
    enter(tmp_path, state, (1, 10), (11, 14), (15, 20))
    shown = {txid: read_tables(tmp_path, txid).tables["words"]["n"].to_pylist() for txid in (10, 13, 14, 18, 20)}
    assert shown == {10: [1], 13: [1], 14: [1], 18: [3], 20: [3]}
    assert read_tables(tmp_path, 13).txid == 13
    with pytest.raises(StateAccessError, match="written as of 14 and as of 20"):
        read_tables(tmp_path, 16)
    assert read_tables(tmp_path, 16, nearest=True).txid == 10


def test_a_table_of_rows_is_exact_at_every_transaction(tmp_path):
    """Each row carries its txid, and none is ever taken out."""
    state = opened(tmp_path)
    for group in ((1, 2, 3), (4, 5)):
        put(state, *((txid, ("append", [("mon", txid)])) for txid in group))
    shown = {txid: sorted(n for _, n, _ in rows(tmp_path, txid)) for txid in range(6)}
    assert shown == {txid: list(range(1, txid + 1)) for txid in range(6)}


def test_rows_of_somebody_else_that_were_accepted(tmp_path):
    """They are of no transaction, and there at each that came later."""
    put(opened(tmp_path), (1, ("append", [("a", 1)])))
    write_deltalake(
        tmp_path / "t", pa.table({"day": ["x"], "n": [9], "txid": pa.array([None], pa.int64())}), mode="append"
    )
    state = opened(tmp_path, epoch=2)
    state.adopt()
    put(state, (2, ("append", [("b", 2)])), (3, ("append", [("c", 3)])))
    assert rows(tmp_path, 2) == {("a", 1, 1): 1, ("x", 9, None): 1, ("b", 2, 2): 1}


def test_rows_whose_partitions_may_be_replaced_are_not(tmp_path):
    """What transaction 4 put was replaced by 5 before it was ever written."""
    state = opened(tmp_path, partition_by=("day",))
    put(state, (1, ("append", [("mon", 1)])))
    put(state, (4, ("append", [("mon", 4)])), (5, ("replace_partitions", [("mon", 5)])))
    with pytest.raises(StateAccessError, match="written as of 1 and as of 5"):
        rows(tmp_path, 4)
