"""A short soak; ``python -m tests.harness.soak mirror`` is the long one, of a million changes."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.harness.soak.mirror.command import main


@pytest.mark.long
@pytest.mark.slow
def test_short_soak(tmp_path: Path) -> None:
    """Changes out of order, twice and after deletes leave what sorting them leaves, whatever was killed."""
    arguments = ["--changes", "5000", "--keys", "500", "--size", "250", "--kills", "3", "--seed", "1"]
    done = CliRunner().invoke(main, [*arguments, "--folder", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "5,000 changes: the table is what sorting them leaves" in done.output
