"""A short soak; ``python -m tests.harness.soak chain`` is the long one."""

import pytest
from click.testing import CliRunner

from tests.harness.soak.chain.command import main


@pytest.mark.long
@pytest.mark.slow
def test_short_soak() -> None:
    """Three topologies in a row, killed at random: all is exact, and again when the first has gone back."""
    done = CliRunner().invoke(main, ["--rows", "300", "--kills", "4", "--rewinds", "1", "--seed", "1"])
    assert done.exit_code == 0, done.output
    assert "1 rewinds: the tables of all three are those of 300 rows" in done.output
