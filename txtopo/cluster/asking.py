"""Asks others on threads, several at once, so that one that hangs makes nobody wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

T = TypeVar("T")

_LOOK_SECS = 0.5
"""The longest wait at a time: a Ctrl-C that came to another thread is seen only when this one runs."""


class NobodyAnswers(Exception):
    """None of those that were asked has given an answer; ``errors`` has what came instead, in the order it came."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        super().__init__("; ".join(str(error) or type(error).__name__ for error in errors))
        self.errors = tuple(errors)


def asked(ask: Callable[[], T]) -> Future[T]:
    """Call ``ask`` on a thread of its own, which nobody waits for when the process ends."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            answer.set_exception(error)

    threading.Thread(target=run, name="ask", daemon=True).start()
    return answer


def is_answered(answer: Future[T], secs: float) -> bool:
    """Wait for an answer or an error, but not longer than some seconds; return whether one came."""
    return bool(_completed([answer], time.monotonic() + secs))


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
    errors: list[Exception] = []
    left, waiting = list(asks), list[Future[T]]()
    deadline, next_at = time.monotonic() + secs, 0.0
    while left or waiting:
        while left and time.monotonic() >= next_at:
            waiting.append(asked(left.pop(0)))
            next_at = time.monotonic() + apart_secs
        came = _completed(waiting, min(deadline, next_at) if left else deadline)
        for answer in came:
            waiting.remove(answer)
            error = answer.exception()
            if error is None or not isinstance(error, unsound):
                return answer.result()
            errors.append(error)
            next_at = 0.0
        if not came and time.monotonic() >= deadline:
            errors.append(TimeoutError(f"no answer within {secs:g} s"))
            break
    raise NobodyAnswers(errors)


def _completed(answers: Sequence[Future[T]], until: float) -> list[Future[T]]:
    """Return the answers that are there; wait for the first one until a time."""
    while True:
        secs = min(_LOOK_SECS, max(0.0, until - time.monotonic()))
        done = wait(answers, secs, FIRST_COMPLETED).done
        if done or time.monotonic() >= until:
            return [each for each in answers if each in done]
