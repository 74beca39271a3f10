"""A short soak of plain topologies; ``python -m tests.harness.soak trees`` is the long one."""

import pytest

from tests.harness.soak.trees.command import soak


@pytest.mark.long
@pytest.mark.slow
def test_short_soak() -> None:
    """Three kills: every message is confirmed, none before its tree was done, and no process is left."""
    outcome = soak(messages=20_000, kills=3, seed=1, pause_secs=1.0)
    assert outcome.early == 0
    assert outcome.left == 0
    assert outcome.messages >= 20_000
