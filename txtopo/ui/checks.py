"""Audits and replays that a page begins: each in a separate process, one at a time."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from txtopo.errors import RuleError
from txtopo.files.records import written_as
from txtopo.inspect.answers import Header, in_camel_case
from txtopo.text.secrecy import without_secrets
from txtopo.text.words import PROGRESS, duration

OUTPUT_BYTES_MAX = 64 * 1024
"""How much of what a check prints is kept: more is no page."""
SECS_MAX = 1_800.0
"""A check that takes longer is ended, so that another one can begin."""
KEPT_MAX = 20
"""How many checks are remembered; the oldest go first."""

_SHOWN_SECS = 0.25
"""How often what a check has printed is made anew: that takes longer the more it is."""

_CANCELLED = "it was cancelled"

_STATES = {0: "same", 1: "differs"}
"""What the exit statuses of ``audit`` and ``replay`` say; others are errors."""


class CheckRuns(RuleError):
    """Another check runs."""


@attrs.frozen(field_transformer=in_camel_case)
class Begun:
    """The number of a check that has begun, or is cancelled."""

    check: int


@attrs.define(eq=False, field_transformer=in_camel_case)
class Check:
    """An audit or a replay."""

    number: int = attrs.field(metadata=written_as("check"))
    kind: str
    slug: str
    txid: int | None
    started_at: float
    state: str = "running"
    ended_at: float | None = None
    output: str = ""
    progress: str = ""
    """How far it is, while it runs."""
    reason: str = ""
    """Why it has ended before it was done, if its output does not say so."""


@attrs.frozen(field_transformer=in_camel_case)
class PageHeader(Header):
    """A topology's header with the last check that the page has made of it."""

    check: Check | None = None


class Checks:
    """Runs ``txtopo audit`` and ``replay`` in ``folder``, where the module is found; kills one after ``secs_max``."""

    def __init__(self, folder: Path, secs_max: float = SECS_MAX) -> None:
        self._folder = folder
        self._secs_max = secs_max
        self._lock = threading.Lock()
        self._checks: dict[int, Check] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._last = 0
        self._is_closed = False

    def begin(self, kind: str, slug: str, txid: int | None, words: Sequence[str]) -> Check:
        """Begin a check, given the words after ``txtopo``; raise CheckRuns if another one runs."""
        with self._lock:
            running = [each for each in self._checks.values() if each.state == "running"]
            if running or self._is_closed:
                raise CheckRuns(f"the {running[0].kind if running else 'page'} is at work; try again when it is done")
            process = subprocess.Popen(  # noqa: S603 - our command
                [sys.executable, "-m", "txtopo", *words],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"},
                start_new_session=True,  # so that all its processes can be killed
            )
            self._last += 1
            check = Check(self._last, kind, slug, txid, time.time())
            self._checks[check.number] = check
            while len(self._checks) > KEPT_MAX:
                self._checks.pop(next(iter(self._checks)))
            self._process = process
        threading.Thread(target=self._follow, args=(check, process), name="check", daemon=True).start()
        return check

    def find(self, number: int) -> Check | None:
        """Return a check; None if there is none of that number, or it was long ago."""
        return self._checks.get(number)

    def last_of(self, slug: str) -> Check | None:
        """Return the last check of a topology."""
        return next((check for check in reversed(list(self._checks.values())) if check.slug == slug), None)

    def cancel(self, slug: str) -> Check:
        """End the check of a topology that runs; raise CheckRuns if none does."""
        with self._lock:
            check, process = self.last_of(slug), self._process
            if check is None or check.state != "running" or process is None:
                raise CheckRuns("no audit and no replay of it runs")
            check.reason = _CANCELLED
            _kill(process)
        return check

    def close(self) -> None:
        """Kill a check that runs."""
        with self._lock:
            self._is_closed = True
        if self._process is not None:
            _kill(self._process)

    def _follow(self, check: Check, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None, "it is a pipe"
        too_long = threading.Timer(self._secs_max, self._end_late, [check, process])
        too_long.daemon = True
        too_long.start()
        printed, shown_at = _Printed(), -math.inf
        for line in process.stdout:
            if line.startswith(PROGRESS.encode()):
                check.progress = without_secrets(line.decode(errors="replace").removeprefix(PROGRESS).strip())
                continue
            printed.add(line)
            if time.monotonic() - shown_at > _SHOWN_SECS:
                check.output, shown_at = printed.text, time.monotonic()
        check.output = printed.text
        status = process.wait()
        too_long.cancel()
        check.ended_at, check.progress = time.time(), ""
        if status < 0 and not check.reason:
            check.reason = f"its process was killed: {signal.Signals(-status).name}"
        if status in _STATES:
            check.reason = ""  # it was done before it could be killed
        check.state = _STATES.get(status, "cancelled" if check.reason == _CANCELLED else "failed")

    def _end_late(self, check: Check, process: subprocess.Popen[bytes]) -> None:
        check.reason = f"it was ended after {duration(self._secs_max)}"
        _kill(process)


class _Printed:
    """What a check prints: the first and the last of it, where what was found stands."""

    def __init__(self) -> None:
        self._first = self._last = b""
        self._is_cut = False

    def add(self, line: bytes) -> None:
        """Keep a line, unless it is between."""
        if not self._last and len(self._first) + len(line) <= OUTPUT_BYTES_MAX // 2:
            self._first += line
            return
        self._last += line
        if len(self._last) > OUTPUT_BYTES_MAX // 2:  # whole lines, of which it is known where secrets begin
            self._is_cut, self._last = True, self._last[-OUTPUT_BYTES_MAX // 2 :].partition(b"\n")[2] or line

    @property
    def text(self) -> str:
        """What is kept, without secrets."""
        first, last = (each.decode(errors="replace") for each in (self._first, self._last))
        return without_secrets(f"{first}…\n{last}" if self._is_cut else first + last)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
