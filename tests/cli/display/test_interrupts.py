"""Ctrl-C round a run."""

import pytest

from tests.processes import ran
from txtopo.cli.command import EXIT_INTERRUPTED
from txtopo.cli.display.acked import INTERRUPTED

SCRIPT = """
import os, signal
from txtopo.cli.display.interrupts import Interrupts
with Interrupts(lambda: None{}):
    if {}:
        signal.signal(signal.SIGINT, lambda *_: None)
        interrupts = Interrupts(lambda: None{})
        interrupts.wrap_handlers()
        os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize(
    ("argument", "said"),
    [("", "interrupted; the same command resumes this run"), (f", {INTERRUPTED!r}", INTERRUPTED)],
    ids=["transactional", "plain"],
)
def test_ends_at_once(is_running: bool, argument: str, said: str) -> None:
    """While Spark starts, and at the second Ctrl-C, the process ends at once and promises no more than is true."""
    ended = ran("-c", SCRIPT.format(argument, is_running, argument))
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (EXIT_INTERRUPTED, said, "")
    assert "resume" not in INTERRUPTED
