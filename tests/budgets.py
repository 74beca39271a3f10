"""How much hypothesis tries: the budget of a test, scaled by the profile that is loaded."""

from hypothesis import settings

USUAL = 100
"""As many does hypothesis try by itself, and as many are meant where a test has no number of its own."""


def examples(usual: int) -> int:
    """Return how many examples a test tries: a share of `usual` in `make fast` and `make test`, more in `make long`."""
    return max(3, usual * settings().max_examples // USUAL)
