"""How much hypothesis tries: the budget of a test in the whole suite, scaled by the profile that is loaded."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100


def examples(usual: int) -> int:
    """Return how many examples a test tries: `usual` in the whole suite, fewer in the fast one, more in the long one."""
    return max(3, usual * settings().max_examples // USUAL)
