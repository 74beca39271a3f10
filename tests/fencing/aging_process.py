"""A coordinator of the changing topology in a process of its own, on a clock that leaps at each look.

``python -m tests.fencing.aging_process WHEN NOW_SECS LOOK_SECS NAME=VALUE…`` runs it up to transaction WHEN, or goes
back to one with ``back-WHEN``. The values are those of ``--set``; ``stop_at_deletion=N`` stops the process before the
N-th file of a table is deleted.
"""

import itertools
import os
import signal
import sys

from click.testing import CliRunner

from tests.harness.history.clock import SimulatedClock
from tests.harness.soak.changes.story import MODULE
from txtopo.files.folder import LocalFolder
from txtopo.main.group import txtopo as command_line
from txtopo.testing.inline import run_inline
from txtopo.topology.user_code.loading import load_target


def run(until: int, clock: SimulatedClock, look_secs: float, values: dict[str, str]) -> None:
    """Run up to a transaction, while the time goes on by a step at each look."""

    def look() -> float:
        clock.go_on(look_secs)
        return clock.now_secs

    target = load_target(MODULE, values)
    with clock.instead_of_the_real_one():
        run_inline(target.topology, target.config, until=until, wall_secs=look)


def call(*words: str, values: dict[str, str]) -> str:
    """Call a command of the topology; return what it has told."""
    sets = [each for name, value in values.items() for each in ("--set", f"{name}={value}")]
    told = CliRunner().invoke(command_line, [*words, *sets])
    assert told.exit_code == 0, told.output
    return told.output


def stop_at_deletion(number: int) -> None:
    """Stop this process before the n-th file of a table is deleted."""
    left, delete = itertools.count(number, -1), LocalFolder.delete

    def stopping(folder: LocalFolder, path: str, *, is_durable: bool = False) -> None:
        if "/journal" not in str(folder) and next(left) == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        delete(folder, path, is_durable=is_durable)

    LocalFolder.delete = stopping  # type: ignore[method-assign]


def main() -> None:
    when, now_secs, look_secs, *pairs = sys.argv[1:]
    values = dict(pair.split("=", 1) for pair in pairs)
    stop_at_deletion(int(values.pop("stop_at_deletion", "0")))
    if when.startswith("back-"):
        call("rewind", MODULE, when.removeprefix("back-"), "--yes", values=values)
    else:
        run(int(when), SimulatedClock(float(now_secs)), float(look_secs), values)


if __name__ == "__main__":
    main()
