"""The pace: how many transactions the next pack may hold, learnt from how long the last ones took.

A pack is a job, which has its cost however little is in it: so packs of small transactions grow, the faster the less
time they take, until they hold all they may. Of large transactions a pack soon takes seconds, and then its first
transaction waits for its last, its failure costs all of it, and its results wait in memory: so those shrink. The first
pack of a run pays for the start of the executors, which says nothing of its transactions.
"""

from __future__ import annotations

import attrs

from txtopo.core.limits import Limits

FIRST_PACK_TRANSACTIONS = 2
"""Transactions in the first pack, of which nothing is known yet."""

GROWTH_MAX = 8
"""By how much packs grow at most from one to the next, where their jobs take next to no time."""


@attrs.frozen
class Pace:
    """How many transactions the next pack may hold.

    Args:
        transactions_max: as many.
        is_warm: whether a pack has ended before.
    """

    transactions_max: int
    is_warm: bool = False

    @classmethod
    def at_start(cls, limits: Limits) -> Pace:
        """Return the pace of a run that has seen no pack yet."""
        if limits.pack_target_ms is None:
            return cls(limits.pack_transactions_max)
        return cls(min(limits.pack_transactions_max, FIRST_PACK_TRANSACTIONS))

    def after(self, transactions: int, elapsed_ms: int, limits: Limits) -> Pace:
        """Return the pace once a pack has ended.

        Args:
            transactions: how many it held.
            elapsed_ms: how long its job took.
            limits: the bounds; ``pack_target_ms`` is how long a job should take.
        """
        target_ms = limits.pack_target_ms
        if target_ms is None:
            return self
        is_full = transactions >= self.transactions_max
        if is_full and (elapsed_ms < target_ms or not self.is_warm):
            factor = min(max(2, target_ms // max(1, 2 * elapsed_ms)), GROWTH_MAX)
            return Pace(min(limits.pack_transactions_max, self.transactions_max * factor), is_warm=True)
        if elapsed_ms > 2 * target_ms and self.is_warm:
            fitting = max(1, (transactions * target_ms + elapsed_ms // 2) // elapsed_ms)
            return Pace(min(self.transactions_max, fitting), is_warm=True)
        return attrs.evolve(self, is_warm=True)
