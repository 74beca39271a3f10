"""Audits and replays that a page begins: each in a separate process, one at a time."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import attrs

from txtopo.errors import RuleError
from txtopo.files.records import DAMAGE, from_json, in_camel_case, written_as
from txtopo.inspect.audit.report import AuditProgress, AuditReport, CheckLine, ReplayReport
from txtopo.inspect.run.status import Header
from txtopo.text.secrecy import without_secrets
from txtopo.text.words import duration

OUTPUT_BYTES_MAX = 64 * 1024
"""How much of what a check prints is kept: more is no page."""
SECS_MAX = 1_800.0
"""A check that takes longer is ended, so that another one can begin."""
KEPT_MAX = 20
"""How many checks are remembered; the oldest go first."""

_CANCELLED = "it was cancelled"


class CheckRuns(RuleError):
    """Another check runs."""


@attrs.frozen(field_transformer=in_camel_case)
class Begun:
    """The number of a check that has begun, or is cancelled."""

    check: int


@attrs.define(eq=False, field_transformer=in_camel_case)
class Check:
    """An audit or a replay. Its ``state`` is that it runs, or the outcome: same, differs, cancelled, failed."""

    number: int = attrs.field(metadata=written_as("check"))
    kind: str
    slug: str
    txid: int | None
    started_at: float
    state: str = "running"
    ended_at: float | None = None
    progress: AuditProgress | None = None
    audit: AuditReport | None = None
    replay: ReplayReport | None = None
    reason: str = ""
    """Why it has ended before it was done."""
    output: str = ""
    """The end of what its processes have printed besides, as user code does."""


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
        """Begin a check, given the words after the command; raise CheckRuns if another one runs."""
        with self._lock:
            running = [check for check in self._checks.values() if check.state == "running"]
            if running or self._is_closed:
                raise CheckRuns(f"the {running[0].kind if running else 'page'} is at work; try again when it is done")
            pipes = [_pipe(), _pipe()]
            process = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-m", "txtopo", kind, "--for-page", *words],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=pipes[0][1],
                stderr=pipes[1][1],
                env={**os.environ, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"},
                start_new_session=True,  # so that all its processes can be killed
            )
            self._last += 1
            check = Check(self._last, kind, slug, txid, time.time())
            self._checks[check.number] = check
            while len(self._checks) > KEPT_MAX:
                self._checks.pop(next(iter(self._checks)))
            self._process = process
        threading.Thread(target=self._follow, args=(check, process, pipes), name="check", daemon=True).start()
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

    def _follow(
        self, check: Check, process: subprocess.Popen[bytes], pipes: Sequence[tuple[IO[bytes], IO[bytes]]]
    ) -> None:
        too_long = threading.Timer(self._secs_max, self._end_late, [check, process])
        too_long.daemon = True
        too_long.start()
        end = secrets.token_hex().encode() + b"\n"
        reading = [
            threading.Thread(target=target, args=(check, _lines_of(outlet, end)), name="check", daemon=True)
            for target, (outlet, _) in zip((_take, _collect), pipes, strict=True)
        ]
        for thread in reading:
            thread.start()
        status = process.wait()
        too_long.cancel()
        with contextlib.suppress(ProcessLookupError):  # what it has begun may be left
            os.killpg(process.pid, signal.SIGKILL)
        for thread, (outlet, inlet) in zip(reading, pipes, strict=True):
            with outlet, inlet:
                inlet.write(end)  # behind all of the process: what is in another session may hold the pipe for ever
                thread.join()
        outcome = _outcome_of(check)
        if outcome in {"same", "differs"}:
            check.reason = ""  # it was done before it could be killed
        elif not check.reason:
            killed = f"its process was killed: {signal.Signals(-status).name}" if status < 0 else ""
            check.reason = killed or f"it ended with status {status} before it was done"
        check.progress, check.ended_at = None, time.time()
        check.state = outcome  # the last: a page that sees it does not ask again

    def _end_late(self, check: Check, process: subprocess.Popen[bytes]) -> None:
        check.reason = f"it was ended after {duration(self._secs_max)}"
        _kill(process)


def _outcome_of(check: Check) -> str:
    if check.audit is not None:
        return "same" if check.audit.is_proved else "differs"
    if check.replay is not None:
        return "same" if check.replay.difference is None else "differs"
    return "cancelled" if check.reason == _CANCELLED else "failed"


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    outlet, inlet = os.pipe()
    return os.fdopen(outlet, "rb"), os.fdopen(inlet, "wb", 0)


def _lines_of(stream: IO[bytes], end: bytes) -> Iterator[bytes]:
    """Yield the lines of a stream up to its end, which may be within a line."""
    for line in stream:
        yield line.removesuffix(end)
        if line.endswith(end):
            return


def _take(check: Check, lines: Iterable[bytes]) -> None:
    """Keep what the page is told."""
    for line in lines:
        with contextlib.suppress(*DAMAGE):  # it was killed within a line, which so tells nothing
            told = from_json(json.loads(line), CheckLine)
            check.progress = told.progress
            check.audit, check.replay = told.audit, told.replay
            check.reason = check.reason or told.error


def _collect(check: Check, lines: Iterable[bytes]) -> None:
    """Keep the end of what is printed, in whole lines, of which it is known where secrets begin; but none too long."""
    printed = b""
    for line in lines:
        printed += line if len(line) < OUTPUT_BYTES_MAX else "…\n".encode()
        if len(printed) > OUTPUT_BYTES_MAX:
            printed = printed[-OUTPUT_BYTES_MAX:].partition(b"\n")[2]
    check.output = without_secrets(printed.decode(errors="replace"))


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.killpg(process.pid, signal.SIGKILL)
