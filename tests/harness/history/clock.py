"""A clock that goes as fast as groups are committed: what is written has the time that it would have had."""

import bisect
import functools
import os
import time
import types
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import state.delta.merging
import state.delta.upkeep.rounds
import state.delta.writer
from txtopo.assembly.threads import completed
from txtopo.files import durable
from txtopo.files.folder import Item, LocalFolder

_TICK_SECS = 0.01
"""By how much a file system's clock may be behind."""


class SimulatedClock:
    """Seconds since 1970 that go on by steps.

    Args:
        began_secs: the first time. What is older than a week for the real clock, delta-rs takes for forgotten.
    """

    def __init__(self, began_secs: float) -> None:
        self.now_secs = began_secs
        self.listed = 0
        """How many names in folders were listed by it."""
        self._real = [time.time()]
        self._simulated = [began_secs]

    def go_on(self, secs: float) -> None:
        """Let some time pass at once."""
        self.now_secs += secs
        self._real.append(time.time())
        self._simulated.append(self.now_secs)

    def at(self, real_secs: float) -> float:
        """Return what this clock showed at a time of the real one; what is older than this clock has its own time."""
        index = bisect.bisect(self._real, real_secs + _TICK_SECS) - 1
        return real_secs if index < 0 else self._simulated[index]

    def settle(self, folder: Path) -> None:
        """Give files the times that they have by this clock, so that they keep them in another process."""
        for path in folder.rglob("*"):
            if path.is_file():
                secs = self.at(path.stat().st_mtime)
                os.utime(path, (secs, secs))

    @contextmanager
    def instead_of_the_real_one(self) -> Iterator[None]:
        """Let files and log entries be of this clock's times, and what goes on beside groups end within their time."""
        listed, named = LocalFolder.list, LocalFolder.names

        def list_of(folder: LocalFolder, below: str = "", after: str = "") -> Iterator[Item]:
            for item in listed(folder, below, after):
                self.listed += 1
                yield Item(item.path, item.size, self.at(item.modified_secs))

        def names_of(folder: LocalFolder, below: str = "") -> list[str]:
            names = named(folder, below)
            self.listed += len(names)
            return names

        times = types.SimpleNamespace(time=lambda: self.now_secs, clock_gettime=lambda _clock: self.now_secs)
        with (
            mock.patch.object(LocalFolder, "list", list_of),
            mock.patch.object(LocalFolder, "names", names_of),
            mock.patch.object(state.delta.writer, "time", times),
            mock.patch.object(state.delta.upkeep.rounds, "ThreadPoolExecutor", _AtOnce),
            mock.patch.object(state.delta.merging, "ThreadPoolExecutor", _AtOnce),
            # In memory nothing waits for a disk, and to hand each sync to another thread took a tenth of a group's time.
            mock.patch.object(durable, "_threads", functools.partial(_AtOnce, 1)),
        ):
            yield


class _AtOnce(ThreadPoolExecutor):
    """Does what it is given at once, in the calling thread."""

    def submit(self, do: Any, /, *args: Any, **options: Any) -> Future[Any]:
        return completed(functools.partial(do, *args, **options))
