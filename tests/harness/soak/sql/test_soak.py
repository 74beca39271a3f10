"""A short soak; ``python -m tests.harness.soak sql`` is the long one."""

import pytest
from click.testing import CliRunner

from tests.harness.soak.sql.command import main


@pytest.mark.slow
def test_short_soak() -> None:
    """Whatever writers do beside it, and though the server is killed: each row comes once, and as it is at last."""
    done = CliRunner().invoke(main, ["--writers", "3", "--secs", "3", "--restarts", "1", "--seed", "1"])
    assert done.exit_code == 0, done.output
    assert "both copies are exact" in done.output
