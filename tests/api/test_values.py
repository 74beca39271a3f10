"""The values of the three kinds, against a plain model of transactions that are replayed."""

from itertools import accumulate

import pytest
from hypothesis import given, strategies as st

from txtopo.api.values import (
    OpaqueValue,
    StateKind,
    StateValue,
    TransactionalValue,
    stored_value,
)

AMOUNTS = st.integers(-100, 100)
SAME_REPLAYS = st.lists(st.tuples(AMOUNTS, st.integers(1, 4)), min_size=1, max_size=12)
"""For each transaction: what it adds, and how often it is tried."""
OTHER_REPLAYS = st.lists(st.lists(AMOUNTS, min_size=1, max_size=4), min_size=1, max_size=12)
"""For each transaction: what each try at it adds."""


def added(kind: StateKind, kept: StateValue | None, txid: int, amount: int) -> StateValue:
    """Add as txtopo does: unless the transaction is in the value, from the value before it."""
    if kept is None:
        return stored_value(kind, txid, amount)
    if kept.is_applied(txid):
        return kept
    before = kept.value_before(txid)
    return kept.written(txid, (before or 0) + amount)


@pytest.mark.slow
@given(SAME_REPLAYS)
def test_transactional_values_count_a_transaction_once(transactions):
    """Replays with the same tuples change nothing: the total is as if each transaction ran once."""
    kept = None
    for txid, (amount, tries) in enumerate(transactions, start=1):
        for _ in range(tries):
            kept = added(StateKind.TRANSACTIONAL, kept, txid, amount)
    assert kept == TransactionalValue(len(transactions), sum(amount for amount, _ in transactions))


@given(OTHER_REPLAYS)
def test_opaque_values_count_the_last_try(transactions):
    """Replays with other tuples replace what the earlier try added, and nothing else."""
    kept = None
    for txid, tries in enumerate(transactions, start=1):
        for amount in tries:
            kept = added(StateKind.OPAQUE, kept, txid, amount)
    totals = list(accumulate(tries[-1] for tries in transactions))
    previous = totals[-2] if len(totals) > 1 else None
    assert kept == OpaqueValue(len(transactions), totals[-1], previous)


@given(OTHER_REPLAYS, st.integers(1, 12))
def test_opaque_values_ignore_what_came_long_ago(transactions, late):
    """A try at a transaction before the last one changes nothing."""
    kept = None
    for txid, tries in enumerate(transactions, start=1):
        kept = added(StateKind.OPAQUE, kept, txid, tries[-1])
    if late < len(transactions):
        assert added(StateKind.OPAQUE, kept, late, 1_000) == kept
        assert kept.written(late, 1_000) == kept


@given(st.lists(AMOUNTS, min_size=2, max_size=5))
def test_an_opaque_value_put_by_hand_keeps_what_was_before(puts):
    """Several puts of one transaction leave the value before the transaction as the previous one."""
    kept = OpaqueValue(1, 7, None)
    for value in puts:
        kept = kept.written(2, value)
    assert kept == OpaqueValue(2, puts[-1], 7)
