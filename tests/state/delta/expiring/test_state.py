"""Rows that expire: what a take returns, what is left of a failure and of a restart, and how the table stays small."""

from __future__ import annotations

import json

import pytest

from state import DeltaRows
from tests.state.delta.expiring.expiring_tables import (
    FAILS,
    FIELDS,
    check,
    gone,
    holding,
    in_table,
    make_rows,
    opened,
    put,
    some,
    us,
)
from txtopo import Config
from txtopo.errors import FieldsError, StateAccessError
from txtopo.testing.inline import run_inline
from txtopo.transactional.commit.write_buffer import GroupState


@pytest.mark.parametrize("group", [1, 4])
def test_a_run_takes_each_row_once(tmp_path, group):
    """Each row is taken by the first transaction whose time has passed it, in whatever groups they are written."""
    assert len(gone(make_rows())) > 40
    run_inline(holding(tmp_path), Config(max_spout_pending=6, group_transactions_max=group))
    check(tmp_path)


def test_a_run_goes_on_after_a_restart(tmp_path):
    """The next run takes the rows that the last one has left."""
    run_inline(holding(tmp_path), Config(max_spout_pending=4, group_transactions_max=3), until=4)
    run_inline(holding(tmp_path), Config(max_spout_pending=4, group_transactions_max=3))
    check(tmp_path)


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


def test_what_a_take_returns(tmp_path):
    """A take returns durable rows, those of earlier transactions of its group and its own; each is returned once."""
    state = opened(tmp_path)
    assert put(state, (1, [("a", 10), ("b", 20)]), (2, [("c", 5)])) == []
    assert put(
        state,
        (3, [("d", 12), ("e", 30)], 12),
        (4, [("f", 15), ("g", 14)], 14, 14),
        (5, 13, 20),
    ) == [[("a", 10), ("c", 5), ("d", 12)], [("g", 14)], [], [], [("b", 20), ("f", 15)]]
    assert in_table(tmp_path) == [("e", 30)]
    assert put(opened(tmp_path, epoch=2), (6, 29), (7, 30)) == [[], [("e", 30)]]
    assert in_table(tmp_path) == []


def test_a_row_that_comes_too_late_is_refused(tmp_path):
    """A row that expires at a time that is taken already is refused, whether that was in this group or before it."""
    state = opened(tmp_path)
    put(state, (1, [("a", 10)], 10))
    for again in (state, opened(tmp_path, epoch=2)):
        view = GroupState(again).begin(2)
        with pytest.raises(StateAccessError, match="1970-01-01T00:00:10"):
            view.append(some(("b", 11), ("c", 10)))
        view.append(some(("b", 11)))
        view.take_expired(us(11))
        with pytest.raises(StateAccessError, match="too late"):
            view.append(some(("d", 11)))
    with pytest.raises(FieldsError, match="'end'"):
        view.append([("d", None)])


def test_other_states_take_nothing(tmp_path):
    """Only rows that expire can be taken, and the error says which state has them."""
    view = GroupState(DeltaRows(tmp_path, FIELDS).open("topology", "s", "life", 1)).begin(1)
    with pytest.raises(StateAccessError, match="DeltaExpiringRows"):
        view.take_expired(1)


def test_a_prepared_take_outlives_who_prepared_it(tmp_path):
    """The next coordinator publishes what the last one prepared, and then takes what is left; again does nothing."""
    state = opened(tmp_path)
    put(state, (1, [("a", 10), ("b", 20)]))
    notes = []
    put(state, (2, [("c", 11), ("d", 40)], 15), then=lambda txid, writes: notes.append(state.prepare(txid, writes)))
    assert in_table(tmp_path) == [("a", 10), ("b", 20)]
    again = opened(tmp_path, epoch=2)
    for _ in range(2):
        again.publish(2, json.loads(json.dumps(notes[0])))
        assert in_table(tmp_path) == [("b", 20), ("d", 40)]
    assert put(again, (3, 40)) == [[("b", 20), ("d", 40)]]
