"""The results of attempts that are processed, until their commit or until they are dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from txtopo.attempts import TransactionAttempt
from txtopo.transactional.jobs.jobs import Processing


class Results:
    """Keeps them between the threads of jobs, which bring them, and the one that commits."""

    def __init__(self) -> None:
        self._by_attempt: dict[TransactionAttempt, Processing] = {}
        self._lock = threading.Lock()

    def keep(self, outcomes: Sequence[Processing]) -> None:
        """Keep some, before the core is told of them: the commit that answers looks them up."""
        with self._lock:
            self._by_attempt.update({outcome.attempt: outcome for outcome in outcomes})

    def of(self, attempts: Iterable[TransactionAttempt]) -> dict[TransactionAttempt, Processing]:
        """Return those of some attempts, all of which are kept."""
        with self._lock:
            return {attempt: self._by_attempt[attempt] for attempt in attempts}

    def drop(self, is_dropped: Callable[[TransactionAttempt], bool] = lambda _: True) -> None:
        """Drop some, or all, with what they have spilled."""
        with self._lock:
            dropped = [self._by_attempt.pop(attempt) for attempt in list(self._by_attempt) if is_dropped(attempt)]
        # Outside the lock: removing files takes time, and jobs wait for the lock.
        for result in dropped:
            for staged in result.staged:
                staged.remove()
