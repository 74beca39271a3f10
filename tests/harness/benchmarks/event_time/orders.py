"""Orders and payments, for joins of two streams by key within a time."""

from __future__ import annotations

import functools

import attrs
import numpy as np
import pyarrow as pa

from tests.harness.benchmarks.event_time.events import START_MS, TIMESTAMP

ORDERS = 1_000_000
MINUTES = 100
WITHIN_SECS = 600
"""For how long after its order a payment may come, so a tenth of all orders wait for one at any time."""

DELAY_SECS = 10

ORDER = "id string, at timestamp, price long"
PAYMENT = "order string, paid_at timestamp, sum long"
JOINED = ("id", "at", "price", "paid_at", "sum")

_PAID_SHARE, _TOO_LATE_SHARE = 0.95, 0.05


@attrs.frozen
class Orders:
    """Orders over 100 minutes, and as many payments, both in the order of their times, so that none is late.

    95 of 100 payments are of an order each, 5 in 100 of these after the time for it; the others are of no order. Ids are
    strings of 20 characters, as uuids are.
    """

    count: int
    seed: int = 7

    @functools.cached_property
    def orders(self) -> pa.Table:
        """The orders: id, at and price."""
        drawing = np.random.default_rng((self.seed, self.count))
        due_ms = np.arange(self.count) * (MINUTES * 60_000) // self.count
        ids = np.char.zfill((np.arange(self.count) * 7919 % self.count).astype(str), 20)
        return pa.table({"id": ids, "at": _times(due_ms), "price": drawing.integers(1, 100, size=self.count)})

    @functools.cached_property
    def payments(self) -> pa.Table:
        """The payments: order, paid_at and sum."""
        drawing = np.random.default_rng((self.seed, self.count, 2))
        after_ms = drawing.integers(0, WITHIN_SECS * 1000 + 1, size=self.count)
        after_ms[drawing.random(self.count) < _TOO_LATE_SHARE] += WITHIN_SECS * 1000 + 1
        paid_ms = np.arange(self.count) * (MINUTES * 60_000) // self.count + after_ms
        ids = np.where(
            drawing.random(self.count) < _PAID_SHARE, np.asarray(self.orders["id"]).astype(str), "of no order at all 0"
        )
        order = np.argsort(paid_ms, kind="stable")
        sums = drawing.integers(1, 100, size=self.count)
        return pa.table({"order": ids[order], "paid_at": _times(paid_ms[order]), "sum": sums[order]})

    def joined(self) -> pa.Table:
        """Return each order with each payment that came in time."""
        return joined_of(self.orders, self.payments)


def joined_of(orders: pa.Table, payments: pa.Table) -> pa.Table:
    """Return each of some orders with each of some payments that came in time, calculated by one join of all."""
    pairs = orders.join(payments, "id", "order", "inner")
    after = np.asarray(pairs["paid_at"].cast(pa.int64())) - np.asarray(pairs["at"].cast(pa.int64()))
    return pairs.filter(pa.array((after >= 0) & (after <= WITHIN_SECS * 1_000_000))).select(JOINED)


def _times(since_start_ms: np.ndarray) -> pa.Array:
    return pa.array((START_MS + since_start_ms) * 1000).cast(TIMESTAMP)
