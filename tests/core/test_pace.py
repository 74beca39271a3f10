"""How large packs become."""

from __future__ import annotations

from txtopo.core.limits import Limits
from txtopo.core.pace import FIRST_PACK_TRANSACTIONS, Pace

LIMITS = Limits(1_000, 64, 2, 64, timeout_ms=1_000, pack_target_ms=1_000)


def grown(pace: Pace, *elapsed_ms: int, limits: Limits = LIMITS) -> list[int]:
    """Return the packs' sizes, each pack as full as it may be."""
    sizes = [pace.transactions_max]
    for each in elapsed_ms:
        pace = pace.after(pace.transactions_max, each, limits)
        sizes.append(pace.transactions_max)
    return sizes


def test_small_transactions() -> None:
    """Packs of small transactions grow quickly until they hold all they may, however long the first one took."""
    assert FIRST_PACK_TRANSACTIONS == 2
    assert grown(Pace.at_start(LIMITS), 5_000, 90, 400, 200, 200) == [2, 4, 20, 40, 64, 64]


def test_large_transactions() -> None:
    """Packs of transactions that take long shrink until a job takes about as long as it should, one at least."""
    assert grown(Pace.at_start(LIMITS), 9_000, 8_000, 700, 1_400, 3_000, 5_000, 9_000) == [2, 4, 1, 2, 2, 1, 1, 1]


def test_packs_that_are_not_full() -> None:
    """A pack that held less than it might says nothing for larger ones."""
    pace = Pace(16, is_warm=True)
    assert pace.after(3, 50, LIMITS) == pace
    assert pace.after(3, 6_000, LIMITS).transactions_max == 1
    assert pace.after(4, 2_400, LIMITS).transactions_max == 2, "as many as come nearest to the target"


def test_no_target() -> None:
    """Without a target every pack holds what it may."""
    limits = Limits(100, 32, 2, 64, timeout_ms=1_000)
    assert grown(Pace.at_start(limits), 9_000, 1, limits=limits) == [32, 32, 32]
