"""Runs that die at a failpoint, as a process does: nothing is done after it, whatever cleans up on the way out."""

import pathlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from txtopo import Config, Topology
from txtopo.errors import InternalError
from txtopo.failpoints import armed
from txtopo.testing.inline import run_inline

CONFIG = Config(max_spout_pending=6, group_transactions_max=2)
"""So small that a crash meets groups in every step, some behind each other."""


class CrashError(Exception):
    """The process dies here."""


@attrs.define(eq=False)
class Crash:
    """Lets a run die at the n-th failpoint that it reaches; dead processes do nothing more.

    Args:
        at: the n, from 1; 0 for never.
        look: called at each failpoint, before anything happens there.
        looks_max: how often, at most.
        only: the failpoint that counts; empty for all of them.
    """

    at: int = 0
    look: Callable[[], None] = lambda: None
    looks_max: int = 1_000_000
    only: str = ""
    reached: int = 0
    name: str = ""

    def __call__(self, name: str) -> None:
        if name.startswith(("spout.", "bolt.")):
            return
        if self.name:
            raise CrashError("dead processes do nothing")
        if self.reached < self.looks_max:
            self.look()
        self.reached += self.only in {"", name}
        if self.reached == self.at:
            self.name = name
            raise CrashError(f"at {name}")


@contextmanager
def dying(name: str, times: int = 1) -> Iterator[None]:
    """Let what runs within die where it reaches a failpoint for the n-th time; it must get there."""
    crash = Crash(times, only=name)
    with pytest.raises((CrashError, InternalError)), armed(crash):
        yield
    assert crash.name, "nothing else goes wrong"


def survives(act: Callable[[], Any], crash: Crash) -> bool:
    """Do something, and return whether it comes to its end before the crash."""
    try:
        with armed(crash):
            act()
    except (CrashError, InternalError):
        assert crash.name, "nothing else goes wrong"
        return False
    return True


def run_with_crash(make: Callable[[], Topology], crash: Crash, config: Config = CONFIG) -> bool:
    """Run a topology; return whether it came to its end."""
    return survives(lambda: run_inline(make(), config), crash)


def crash_everywhere(folder: pathlib.Path, every: int = 1) -> Iterator[tuple[Crash, pathlib.Path]]:
    """Yield a crash for each failpoint that a run reaches, or every so many, and an output folder of its own."""
    for at in range(1, 1000, every):
        crash, output = Crash(at), folder / str(at)
        yield crash, output
        if not crash.name:
            assert at > 20, "the run reaches failpoints"
            return
