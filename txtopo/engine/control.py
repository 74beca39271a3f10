"""Steering a run from other threads: deactivate, activate, stop."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class RunControl:
    """Steers a run from other threads: ``run(topology, control=control)``.

    A request made before the run begins takes effect at its start. Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_active = True
        self._is_stopping = False
        self._wait_secs: float | None = None
        self._set_run_active: Callable[[bool], None] | None = None
        self._stop_run: Callable[[float | None], None] | None = None

    @property
    def is_active(self) -> bool:
        """Whether transactions may begin, or spouts may emit."""
        return self._is_active

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was asked for."""
        return self._is_stopping

    def activate(self) -> None:
        """Let transactions begin again; in a plain topology, call ``next_tuple`` again."""
        self._activate(is_active=True)

    def deactivate(self) -> None:
        """Begin no transaction, and commit those in flight; in a plain topology, stop calling ``next_tuple``."""
        self._activate(is_active=False)

    def stop(self, wait_secs: float | None = None) -> None:
        """Ask for an orderly stop, and return at once.

        Args:
            wait_secs: how long a plain topology waits for what is pending; None: the message timeout.
        """
        with self._lock:
            self._is_stopping, self._wait_secs = True, wait_secs
            if self._stop_run is not None:
                self._stop_run(wait_secs)

    @contextlib.contextmanager
    def steering(
        self, set_active: Callable[[bool], None], stop: Callable[[float | None], None], *, is_active: bool = True
    ) -> Iterator[None]:
        """Steer a run by these functions while the context lasts; ``is_active`` is how the run has begun."""
        # Under the lock, so that no request is lost: one that comes before is passed on here, a later one calls the
        # function itself.
        with self._lock:
            self._set_run_active, self._stop_run = set_active, stop
            if self._is_active is not is_active:
                set_active(self._is_active)
            if self._is_stopping:
                stop(self._wait_secs)
        try:
            yield
        finally:
            with self._lock:
                self._set_run_active = self._stop_run = None

    def _activate(self, *, is_active: bool) -> None:
        with self._lock:
            if is_active is not self._is_active:
                self._is_active = is_active
                if self._set_run_active is not None:
                    self._set_run_active(is_active)
