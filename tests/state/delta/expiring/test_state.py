"""Rows that expire: what a take returns, what is left of a failure and of a restart, and how the table stays small."""

import gc

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from state import DeltaRows
from tests.cli.look.test_audit import audited
from tests.crashes import crash_everywhere, run_with_crash
from tests.state.delta.delta_tables import maintain
from tests.state.delta.expiring.expiring_tables import (
    FAILS,
    FIELDS,
    check,
    gone,
    held,
    holding,
    in_table,
    make_rows,
    opened,
    put,
    us,
)
from tests.variants import variants
from txtopo import Config
from txtopo.columnar import key_index, keyed_runs
from txtopo.errors import StateAccessError
from txtopo.testing.inline import run_inline
from txtopo.transactional.commit.write_buffer import group_state

SMALL = make_rows(12)
OFTEN = {"upkeep_every_writes": 1, "files_max": 2}


@pytest.mark.parametrize("group", [1, 4])
def test_a_run_takes_each_row_once(tmp_path, group):
    """Each row is taken by the first transaction whose time has passed it, in whatever groups they are written."""
    assert len(gone(make_rows())) > 40
    run_inline(holding(tmp_path), Config(max_spout_pending=6, group_transactions_max=group))
    check(tmp_path)


@pytest.mark.slow
def test_a_run_goes_on_after_a_restart(tmp_path):
    """The next run takes the rows that the last one has left."""
    run_inline(holding(tmp_path), Config(max_spout_pending=4, group_transactions_max=3), until=4)
    run_inline(holding(tmp_path), Config(max_spout_pending=4, group_transactions_max=3))
    check(tmp_path)


@pytest.mark.few(1)
@pytest.mark.parametrize("fails", [{(3, 1)}, {(1, 1), (2, 1), (5, 1), (5, 2)}], ids=["one", "some"])
def test_a_failed_transaction_leaves_nothing(tmp_path, monkeypatch, fails):
    """What a transaction appended or took before it failed is as if it had not: its replay and others find it."""
    FAILS.update(fails)
    try:
        report = run_inline(holding(tmp_path), Config(max_spout_pending=6, group_transactions_max=4))
    finally:
        FAILS.clear()
    assert report.failures >= 1
    check(tmp_path)


def test_other_states_take_nothing(tmp_path):
    """Only rows that expire can be taken, and the error says which state has them."""
    view = group_state(DeltaRows(tmp_path, FIELDS).open("topology", "s", "life", 1)).begin(1)
    with pytest.raises(StateAccessError, match="DeltaExpiringRows"):
        view.take_expired(1)


def test_keys_with_the_same_hash_are_told_apart(tmp_path, monkeypatch):
    """A key is not taken for another one whose hash is the same."""
    for module in (key_index, keyed_runs):
        monkeypatch.setattr(module, "hashes_of", lambda keys: np.full(keys.num_rows, 7, np.uint64))
    state = opened(tmp_path, key="k")
    put(state, (1, [("a", 10), ("b", 20)]), (2, [("c", 30)]))
    view = group_state(state).begin(3)
    assert held_keys(view, "abcd") == "abc"
    view.take_expired(us(10))
    assert held_keys(view, "abcd") == "bc"


def held_keys(view, keys: str) -> str:
    found = view.holds(pa.table({"k": list(keys)})).to_pylist()
    return "".join(key for key, is_held in zip(keys, found, strict=True) if is_held)


@pytest.mark.slow
@pytest.mark.parametrize(("opaque", "every"), variants((False, 6), long=[(False, 1), (True, 1)]))
def test_a_crash_anywhere(tmp_path, opaque, every):
    """Wherever a run dies, the next one goes on as if it had not; the audit finds nothing, and neither does upkeep."""
    config = Config(max_spout_pending=6, group_transactions_max=2)
    for crash, output in crash_everywhere(tmp_path, every):

        def make(output=output):
            return holding(output, SMALL, opaque=opaque, **OFTEN)

        run_with_crash(make, crash, config)
        if crash.name:
            run_inline(make(), config)
        check(output, SMALL)
        findings = audited(output).findings
        assert not findings, (crash, findings)


def test_a_table_as_of_a_transaction(tmp_path):
    """A reader sees the rows that were not taken then; between transactions written together only if none was taken."""
    state = opened(tmp_path)
    put(state, (1, [("a", 10)]), (2, [("b", 20)]))
    put(state, (3, [("c", 30)], 10), (4, [("d", 40)]))
    put(state, (5, [], 40))
    assert in_table(tmp_path, 1) == [("a", 10)]
    assert in_table(tmp_path, 2) == [("a", 10), ("b", 20)]
    with pytest.raises(StateAccessError, match="as of 2 and as of 4"):
        in_table(tmp_path, 3)
    assert in_table(tmp_path, 3, nearest=True) == [("a", 10), ("b", 20)]
    assert in_table(tmp_path, 4) == [("b", 20), ("c", 30), ("d", 40)]
    assert in_table(tmp_path, 5) == in_table(tmp_path) == []


@pytest.mark.slow
def test_files_go_with_their_rows_and_upkeep_writes_few(tmp_path):
    """A file goes with the last of its rows; upkeep makes one of many, and of those whose rows are mostly gone."""
    state = opened(tmp_path, upkeep_every_writes=1, files_max=8)
    for txid in range(1, 8):
        put(state, (txid, [(f"k{txid}", 10 * txid)]))
        maintain(state)
    assert len(files(tmp_path)) == 7
    put(state, (8, 30))
    assert len(files(tmp_path)) == 4
    for txid in range(9, 14):
        put(state, (txid, [("z", 100 * txid), ("y", 75)]))
        maintain(state)
    assert len(files(tmp_path)) == 1
    left = [(f"k{n}", 10 * n) for n in range(4, 8)] + [("y", 75)] * 5 + [("z", 100 * n) for n in range(9, 14)]
    for again in (state, opened(tmp_path, epoch=2)):
        assert held(group_state(again).begin(14).take_expired(us(10_000))) == sorted(left)
    assert in_table(tmp_path) == sorted(left)


@pytest.mark.slow
def test_rows_that_are_gone_are_not_kept(tmp_path):
    """Upkeep writes the rows anew that are left in files whose others are gone, so the table stays as small as they."""
    state = opened(tmp_path, sizes={"file_rows": 100}, upkeep_every_writes=1, files_max=1_000)
    many = [("k", 10)] * 30 + [("z", 10_000)]
    for txid in range(1, 40, 2):
        put(state, (txid, [(key, second + txid) for key, second in many]))
        put(state, (txid + 1, 10 + txid))
        maintain(state)
    rows = sum(DeltaTable(tmp_path / "t").get_add_actions(flatten=True).column("num_records").to_pylist())
    assert rows < 20 + 20 + 100 + 2 * len(many)
    assert in_table(tmp_path) == [("z", 10_000 + txid) for txid in range(1, 40, 2)]


def files(path):
    return DeltaTable(path / "t").file_uris()


@pytest.mark.slow
def test_memory_holds_what_is_left(tmp_path):
    """Of rows that are taken, memory keeps at most as many as are left, although a few of their file stay."""
    state = opened(tmp_path)
    before = pa.total_allocated_bytes()
    for txid in range(1, 60, 2):
        put(state, (txid, [("z" * 100, 10**6)] + [("k" * 100, txid)] * 2_000))
        put(state, (txid + 1, txid))
    put(state, (61, [("k" * 100, 61)] * 2_000 + [("y" * 100, 10**6)], 61))
    gc.collect()
    assert pa.total_allocated_bytes() - before < 2_000 * 100
    assert len(in_table(tmp_path)) == 31
