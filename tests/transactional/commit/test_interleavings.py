"""Promises 8 to 10 and 16 hold in every interleaving of two coordinators."""

import pytest

from tests.transactional.commit.interleavings import explore


@pytest.mark.slow
@pytest.mark.parametrize(
    "groups", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.long)]
)
def test_no_interleaving_breaks_a_promise(groups):
    """Steps, crashes, stops and wake-ups of two coordinators, two tables: what was decided is shown, once, for ever."""
    assert explore(groups) > 500 * groups
