"""Asks several others at once, so that one that hangs makes nobody wait."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import attrs

T = TypeVar("T")

_LOOK_SECS = 0.5
"""The longest wait at a time: a Ctrl-C that came to another thread is seen only when this one runs."""


class NobodyAnswers(Exception):
    """None of those that were asked has given an answer; ``errors`` has what came instead, in the order it came."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        super().__init__("; ".join(str(error) or type(error).__name__ for error in errors))
        self.errors = tuple(errors)


def first_answer(
    asks: Sequence[Callable[[], T]],
    unsound: tuple[type[Exception], ...],
    *,
    apart_secs: float = 0.0,
    secs: float = float("inf"),
) -> T:
    """Return the first answer of several. Those that have not answered by then are left to themselves.

    Args:
        asks: each is called on a thread of its own.
        unsound: errors that are no answers: the others are waited for. Any other error counts as the answer.
        apart_secs: how long to wait for those that were asked before the next one is asked, unless they fail earlier.
        secs: how long to wait in all.

    Raises:
        NobodyAnswers: all have failed, or the time is over.
    """
    came: queue.SimpleQueue[_Came[T]] = queue.SimpleQueue()
    errors: list[Exception] = []
    left = list(asks)
    deadline, next_at = time.monotonic() + secs, 0.0
    while len(errors) < len(asks):
        while left and time.monotonic() >= next_at:
            _begin(left.pop(0), came)
            next_at = time.monotonic() + apart_secs
        found = _next(came, min(deadline, next_at) if left else deadline)
        if found is None and time.monotonic() >= deadline:
            errors.append(TimeoutError(f"no answer within {secs:g} s"))
            break
        if found is not None and found.error is None:
            return found.answer  # type: ignore[return-value]  # it is what an ask has returned
        if found is not None and found.error is not None:
            if not isinstance(found.error, unsound):
                raise found.error
            errors.append(found.error)
            next_at = 0.0
    raise NobodyAnswers(errors)


@attrs.frozen
class _Came(Generic[T]):
    """What came of an ask."""

    answer: T | None = None
    error: Exception | None = None


def _begin(ask: Callable[[], T], came: queue.SimpleQueue[_Came[T]]) -> None:
    def run() -> None:
        try:
            came.put(_Came(ask()))
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            came.put(_Came(error=error))

    threading.Thread(target=run, name="ask", daemon=True).start()


def _next(came: queue.SimpleQueue[_Came[T]], until: float) -> _Came[T] | None:
    """Return what comes next; None if nothing comes until a time, or for a short while."""
    try:
        return came.get(timeout=min(_LOOK_SECS, max(0.0, until - time.monotonic())))
    except queue.Empty:
        return None
