"""Captures the output of user code, apart from all other output, with its origin and within bounds.

``user_code`` marks a thread that runs user code with an :class:`OutputOrigin`: the thread works for one component, task
and attempt at a time. In a worker process all output belongs to the current job, including that of a bolt's own
threads. In the driver only the output of marked threads is captured; what the main thread prints passes unchanged.

This costs nothing per tuple, and nothing at all until something is printed or logged.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any, ClassVar, TextIO

import attrs

from txtopo.attempts import TransactionAttempt, attempt_words, epoch_and_try
from txtopo.text.printable import escaped
from txtopo.text.secrecy import secrets_kept, without_secrets
from txtopo.workers.process_wide import until_the_last

USER_LOGGER = "txtopo.user"
"""The logger of all output of user code."""

PRINT = 25
"""The level of printed lines: above INFO, because they are shown by default, and below WARNING."""

LINES_MAX = 1_000
"""The most lines of an attempt, in one process."""

CHARACTERS_MAX = 256 * 1024
"""The most characters of an attempt, in one process."""

LINE_CHARACTERS_MAX = 8 * 1024
"""The longest line; longer ones are cut."""

_LEFT_OUT_CHARACTERS = 64
"""At least as many as say how many are left out."""
_SHARES_MAX = 4096
"""How many attempts are counted at a time, some times as many as run in a process; the oldest go first."""
_HANDLE = logging.Handler.handle.__code__

logging.addLevelName(PRINT, "PRINT")


class OutputOrigin:
    """The origin of a thread's output: a component, the attempt, and the task if known."""

    __slots__ = ("attempt", "component", "task")

    running: ClassVar[dict[int, OutputOrigin]] = {}
    """The origins of threads that run user code now, by thread identity."""

    def __init__(self, component: str, attempt: TransactionAttempt | None = None, task: int | None = None) -> None:
        self.component = component
        self.attempt = attempt
        self.task = task


@attrs.frozen
class Line:
    """One line of output, or one log record."""

    level: int
    text: str
    """The printed or logged text; a record's traceback follows on further lines of it."""
    source: str
    """``stdout``, ``stderr`` or the name of the logger."""
    component: str | None = None
    """None if one of its own threads printed while no method of it was running."""
    task: int | None = None
    """The task index; None if unknown, or for the spout's coordinator."""
    txid: int | None = None
    attempt: int | None = None
    """The attempt number; 0 for the spout's coordinator, which works for all attempts."""

    @property
    def origin(self) -> str:
        """The origin in brackets, as in errors."""
        parts = [] if self.component is None else [f"component {self.component!r}"]
        if self.task is not None:
            parts.append(f"task {self.task}")
        if self.txid is not None:
            parts.append(f"txid {self.txid}")
        if self.attempt:
            parts.append(attempt_words(self.attempt))
        return f"[{', '.join(parts)}]" if parts else "[user code]"


def line_of(level: int, text: str, source: str, where: OutputOrigin | None) -> Line:
    """Return a line with its origin."""
    if where is None:
        return Line(level, text, source)
    if where.attempt is None:
        return Line(level, text, source, where.component, where.task)
    return Line(level, text, source, where.component, where.task, where.attempt.txid, where.attempt.attempt)


@attrs.define
class _Share:
    """How much an attempt has printed."""

    lines: int = 0
    characters: int = 0
    dropped: int = 0


class Capture:
    """Splits output into lines, limits it for each attempt, and calls ``deliver`` with each line.

    What ``deliver`` prints itself is not captured. In a worker (``is_worker``), all output belongs to user code.
    """

    def __init__(self, deliver: Callable[[Line], None], *, is_worker: bool = False) -> None:
        self.is_worker = is_worker
        self._owner = threading.get_ident()
        self._deliver = deliver
        self._lock = threading.RLock()  # re-entrant: what deliver() calls may print in the same thread
        self._partial: dict[tuple[int, str], tuple[Line, str]] = {}
        self._shares: dict[TransactionAttempt | None, _Share] = {}

    def where(self) -> OutputOrigin | None:
        """Return the calling thread's origin; in a worker, an unmarked thread has the origin of the main one."""
        where = OutputOrigin.running.get(threading.get_ident())
        return OutputOrigin.running.get(self._owner) if where is None and self.is_worker else where

    def print(self, stream: str, text: str, where: OutputOrigin | None) -> None:
        """Capture text written to ``stdout`` or ``stderr``: one or several lines, or parts of lines."""
        me = threading.get_ident()
        origin = line_of(PRINT, "", stream, where)
        with self._lock:
            before, partial = self._partial.pop((me, stream), (origin, ""))
            if partial and before != origin:  # another component has left a line without an end
                self._take(before, partial)
                partial = ""
            start = 0
            while (end := text.find("\n", start)) >= 0:
                self._take(origin, partial + text[start:end])
                partial, start = "", end + 1
            partial_after = partial + text[start:]
            if len(partial_after) > LINE_CHARACTERS_MAX:
                self._take(origin, partial_after)
            elif partial_after:
                self._partial[me, stream] = (origin, partial_after)

    def log(self, record: logging.LogRecord, where: OutputOrigin | None) -> None:
        """Capture a log record."""
        text = record.getMessage()
        if record.exc_info or record.stack_info:
            text = logging.Formatter("%(message)s").format(record)
        with self._lock:
            self._take(line_of(record.levelno, "", record.name, where), text)

    def end(self, attempt: TransactionAttempt | None = None) -> None:
        """Deliver an attempt's incomplete lines and report how many lines were dropped; None for all attempts."""
        if not self._partial and not self._shares:  # called for every attempt; most print nothing
            return
        with self._lock:
            for key, (origin, partial) in list(self._partial.items()):
                if attempt is None or (origin.txid, origin.attempt) == (attempt.txid, attempt.attempt):
                    del self._partial[key]
                    self._take(origin, partial)
            for ended in [attempt] if attempt is not None else list(self._shares):
                share = self._shares.pop(ended, None)
                if share is not None and share.dropped:
                    self._report_dropped(ended, share)

    def renew(self) -> None:
        """Begin a new share for the output that belongs to no attempt, such as that of a plain topology."""
        with self._lock:
            share = self._shares.pop(None, None)
            if share is not None and share.dropped:
                self._report_dropped(None, share)

    def _report_dropped(self, attempt: TransactionAttempt | None, share: _Share) -> None:
        line = Line(
            logging.WARNING,
            f"{share.dropped} more lines{'' if attempt is None else ' of this attempt'} were dropped",
            USER_LOGGER,
            txid=None if attempt is None else attempt.txid,
            attempt=None if attempt is None else attempt.attempt,
        )
        self._hand_over(line)

    def _take(self, origin: Line, text: str) -> None:
        is_known = origin.txid is not None and origin.attempt is not None
        attempt = TransactionAttempt(origin.txid, origin.attempt) if is_known else None  # type: ignore[arg-type]
        share = self._shares.get(attempt)
        if share is None:
            # The oldest go first: attempts that never end here would otherwise pile up.
            while len(self._shares) >= _SHARES_MAX:
                del self._shares[next(iter(self._shares))]
            share = self._shares[attempt] = _Share()
        if share.lines >= LINES_MAX or share.characters >= CHARACTERS_MAX:
            if not share.dropped:
                self._hand_over(
                    attrs.evolve(
                        origin,
                        level=logging.WARNING,
                        text=f"{'these tasks have' if attempt is None else 'this attempt has'} printed {share.lines} "
                        f"lines, {share.characters} characters, which is the maximum; further lines are dropped",
                    )
                )
            share.dropped += 1
            return
        text = _printable(text)
        share.lines += 1
        share.characters += len(text)
        self._hand_over(attrs.evolve(origin, text=text))

    def _hand_over(self, line: Line) -> None:
        me = threading.get_ident()
        where = OutputOrigin.running.pop(me, None)  # deliver() may print, which must not be captured
        try:
            self._deliver(line)
        finally:
            if where is not None:
                OutputOrigin.running[me] = where


def _cut(text: str) -> str:
    """Return a text without its middle if it is longer than a line; one that was cut is no longer than that."""
    if len(text) <= LINE_CHARACTERS_MAX:
        return text
    head, tail = LINE_CHARACTERS_MAX * 3 // 4 - _LEFT_OUT_CHARACTERS, LINE_CHARACTERS_MAX // 4
    return f"{text[:head]} … {len(text) - head - tail} characters left out … {text[-tail:]}"


def _printable(text: str) -> str:
    """Return a text that is safe to print: not too long, without control characters and invalid Unicode."""
    text = _cut(text)
    if text.isprintable():
        return text
    # Text after a carriage return overwrites the text before it.
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return escaped("\n".join(lines), keep="\t\n")


_capture: Capture | None = None
"""What captures now: a process has one standard output."""


def is_worker() -> bool:
    """Return whether this is a worker process, which runs nothing but user code."""
    return _capture is not None and _capture.is_worker


def ended(attempt: TransactionAttempt) -> None:
    """Deliver the rest of the output of an attempt that has ended in this process, at least for now."""
    if _capture is not None:
        _capture.end(attempt)


def renewed() -> None:
    """Begin a new share for output that belongs to no attempt: a long-running worker has one for each interval."""
    if _capture is not None:
        _capture.renew()


@contextlib.contextmanager
def capturing(capture: Capture, level: int = logging.NOTSET) -> Iterator[None]:
    """Capture the output of user code here unless another capture is active; in a worker, logs from ``level`` on."""
    try:
        with _installed(capture, level):
            yield
    finally:
        capture.end()


@until_the_last
@contextlib.contextmanager
def _installed(capture: Capture, level: int) -> Iterator[None]:
    global _capture  # noqa: PLW0603
    try:
        with contextlib.ExitStack() as undo:
            for stream in (_Stream("stdout", sys.stdout), _Stream("stderr", sys.stderr)):
                undo.callback(stream.give_back)
                stream.take_over()
            root, handler = logging.getLogger(), _LogHandler(capture)
            if capture.is_worker:
                handler.setLevel(level)
                undo.callback(root.setLevel, root.level)
                root.setLevel(min(root.level, level))
            root.handlers.insert(0, handler)  # first, so that other handlers see the records with their origin
            undo.callback(root.removeHandler, handler)
            _capture = capture
            yield
    finally:
        _capture = None


class _Stream:
    """Replaces standard output or error: captures what user code writes, and passes everything else on."""

    def __init__(self, name: str, original: TextIO) -> None:
        self._name = name
        self._original = original
        self.buffer = _Bytes(self, original)

    def take_over(self) -> None:
        setattr(sys, self._name, self)

    def give_back(self) -> None:
        """Restore the original, even if this stream was deleted from ``sys``, unless other code has replaced it."""
        if getattr(sys, self._name, self) is self:
            setattr(sys, self._name, self._original)

    def write(self, text: str) -> int:
        """Capture a text, or pass it on."""
        capture = _capture
        if capture is None or not isinstance(text, str):
            return self._original.write(text)
        where = capture.where()
        if capture.is_worker or (where is not None and not _is_of_a_log_handler(sys._getframe(1))):  # noqa: SLF001
            capture.print(self._name, text, where)
            return len(text)
        return self._original.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def close(self) -> None:
        """Do nothing: this object does not own the original."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class _Bytes:
    """The binary stream below a text stream: captured bytes are decoded as UTF-8."""

    def __init__(self, stream: _Stream, original: TextIO) -> None:
        self._stream = stream
        self._original = original

    def write(self, content: Any) -> int:
        """Capture bytes, or pass them on."""
        capture = _capture
        if capture is None or (not capture.is_worker and threading.get_ident() not in OutputOrigin.running):
            return self._original.buffer.write(content)
        self._stream.write(bytes(content).decode("utf-8", "backslashreplace"))
        return len(bytes(content))

    def close(self) -> None:
        """Do nothing, as the text stream does."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original.buffer, name)


def _is_of_a_log_handler(frame: FrameType | None, depth: int = 40) -> bool:
    """Return whether a logging handler is writing: its record was captured already, or is not from user code.

    Rich's handler and logging's last resort look up ``sys.stderr`` when they write, and nothing says for whom. So what
    they print for a line of user code would itself be captured. Only user code in the driver, where few components run,
    pays for this look at the stack.
    """
    while frame is not None and depth:
        if frame.f_code is _HANDLE:
            return True
        frame, depth = frame.f_back, depth - 1
    return False


class _LogHandler(logging.Handler):
    """Captures the log records of user code from any logger."""

    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self._capture = capture

    def emit(self, record: logging.LogRecord) -> None:
        """Capture a record in a worker; in the driver, pass it to our logger's handlers before others see it."""
        where = self._capture.where()
        if self._capture.is_worker:
            if not _is_printed(record):
                try:
                    self._capture.log(record, where)
                except Exception:  # noqa: BLE001 - for example, the message does not fit its arguments
                    self.handleError(record)
            return
        is_ours = record.name.partition(".")[0] == "txtopo" and record.name != USER_LOGGER
        if where is None or is_ours or hasattr(record, "component"):
            if logging.lastResort is not None and record.levelno >= logging.lastResort.level and not _has_other(record):
                logging.lastResort.handle(record)  # as logging does without handlers; this one does not count
            return
        came_through_ours = record.name == USER_LOGGER
        mark(record, line_of(record.levelno, "", record.name, where))
        ours = logging.getLogger(USER_LOGGER)
        if not came_through_ours and ours.isEnabledFor(record.levelno):
            for logger in (ours, logging.getLogger("txtopo")):
                for handler in logger.handlers:
                    if record.levelno >= handler.level:
                        handler.handle(record)


def _has_other(record: logging.LogRecord) -> bool:
    """Return whether a handler other than ours gets a record."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if any(not isinstance(handler, _LogHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _is_printed(record: logging.LogRecord) -> bool:
    """Return whether a user's handler writes a record to a captured stream."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if any(isinstance(getattr(handler, "stream", None), _Stream) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def mark(record: logging.LogRecord, line: Line) -> None:
    """Add the origin to a record, as attributes and in front of its message; cut what is too long, and hide secrets."""
    try:
        record.msg = f"{line.origin} {_discreet(record.getMessage())}"
        if record.exc_info:
            record.exc_text = _discreet(logging.Formatter().formatException(record.exc_info))
    except Exception:  # noqa: BLE001 - the message does not fit its arguments; logging itself reports that
        return
    record.args = ()
    record.name = USER_LOGGER
    record.component, record.task, record.txid = line.component, line.task, line.txid
    record.epoch, record.attempt = (None, None) if line.attempt is None else epoch_and_try(line.attempt)
    record.source = line.source


def _discreet(text: str) -> str:
    return without_secrets(_cut(text))


def log_line(line: Line) -> None:
    """Log a line."""
    logger = logging.getLogger(USER_LOGGER)
    if logger.isEnabledFor(line.level):
        record = logger.makeRecord(USER_LOGGER, line.level, "(user code)", 0, line.text, (), None)
        mark(record, line)
        logger.handle(record)


@contextlib.contextmanager
def user_output_logged(settings: Mapping[str, object]) -> Iterator[None]:
    """Log the output of user code in this process with :data:`USER_LOGGER`, without the secrets of a run's settings.

    If logging is not configured, the output goes to standard error. Printed lines are shown unless the logger has a
    level of its own.
    """
    with _user_logger_ready(), secrets_kept(settings), capturing(Capture(log_line)):
        yield


@until_the_last
@contextlib.contextmanager
def _user_logger_ready() -> Iterator[None]:
    logger = logging.getLogger(USER_LOGGER)
    level = logger.level
    handler: logging.Handler | None = None
    if level == logging.NOTSET and logger.getEffectiveLevel() > PRINT:
        logger.setLevel(PRINT)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(level)
        if handler is not None:
            logger.removeHandler(handler)
