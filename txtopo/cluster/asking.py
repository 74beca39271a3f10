"""Asks several others at once, each on a separate thread, so that one that hangs delays nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

T = TypeVar("T")

_POLL_SECS = 0.5
"""The longest wait at a time: a signal that another thread receives is handled only when this one wakes."""


class NobodyAnswers(Exception):
    """Nobody has answered; ``errors`` has what each raised, in the order of arrival."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        super().__init__("; ".join(str(error) or type(error).__name__ for error in errors))
        self.errors = tuple(errors)


def ask_in_thread(ask: Callable[[], T]) -> Future[T]:
    """Call ``ask`` on a daemon thread: the end of the process does not wait for it."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            answer.set_exception(error)

    threading.Thread(target=run, name="ask", daemon=True).start()
    return answer


def is_answered(answer: Future[T], secs: float) -> bool:
    """Wait up to ``secs`` for an answer or an error; return whether one came."""
    return bool(_completed([answer], time.monotonic() + secs))


def first_answer(
    asks: Sequence[Callable[[], T]],
    unsound: tuple[type[Exception], ...],
    *,
    apart_secs: float = 0.0,
    secs: float = float("inf"),
) -> T:
    """Return the first answer, and leave the slower ones to themselves.

    An ``unsound`` error does not count as an answer: the others may still give one. Any other error is the answer, and
    is raised. The next one is asked ``apart_secs`` after the last, or as soon as that one fails.

    Raises:
        NobodyAnswers: all have failed, or ``secs`` are over.
    """
    errors: list[Exception] = []
    asks_left, waiting = list(asks), list[Future[T]]()
    deadline, next_at = time.monotonic() + secs, 0.0
    while asks_left or waiting:
        while asks_left and time.monotonic() >= next_at:
            waiting.append(ask_in_thread(asks_left.pop(0)))
            next_at = time.monotonic() + apart_secs
        came = _completed(waiting, min(deadline, next_at) if asks_left else deadline)
        for answer in came:
            waiting.remove(answer)
            error = answer.exception()
            if error is None or not isinstance(error, unsound):
                return answer.result()  # which raises a sound error
            errors.append(error)
            next_at = 0.0  # after a failure the next one need not wait for its turn
        if not came and time.monotonic() >= deadline:
            errors.append(TimeoutError(f"no answer within {secs:g} s"))
            break
    raise NobodyAnswers(errors)


def _completed(answers: Sequence[Future[T]], until: float) -> list[Future[T]]:
    """Wait until ``until`` for the first answer; return all that are there."""
    while True:
        secs = min(_POLL_SECS, max(0.0, until - time.monotonic()))
        completed = wait(answers, secs, FIRST_COMPLETED).done
        if completed or time.monotonic() >= until:
            return [answer for answer in answers if answer in completed]
