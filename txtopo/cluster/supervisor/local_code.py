"""The code of topologies on a supervisor's machine: fetched in the background, and built to check it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from txtopo.cluster.code.distribution import ClusterConnection
from txtopo.cluster.driver.child import check_code
from txtopo.errors import CodeUnavailable

_LOG = logging.getLogger(__name__)

_FETCH_AGAIN_SECS = 1.0
"""The pause after a failed fetch: no nimbus may hold the code yet."""
_FETCHES_MAX = 8
"""How many topologies are fetched at a time: each has a thread."""
_CHECK_LIMIT = "nimbus.submission.check.secs"
_SHARE_OF_CHECK = 0.8
"""The share of that setting that a build may take: the rest is for fetching and answering."""


class LocalCode:
    """Fetches code and checks it.

    A background fetch calls ``on_end`` when it has ended, and ``on_failure`` with an unexpected error. If nobody has a
    sound copy, ZooKeeper is away or the disk is full, it only logs that: the next look at the slot fetches again.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        check_secs: float,
        on_end: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._connection = connection
        self._check_secs = check_secs
        self._on_end = on_end
        self._on_failure = on_failure
        self._fetches: dict[str, Future[None]] = {}
        self._fetch_again_at: dict[str, float] = {}
        self._locks: dict[str, threading.Lock] = {}
        """By topology: one slow fetch keeps no other topology's from its own."""
        self._threads = ThreadPoolExecutor(_FETCHES_MAX, "fetch")

    def check(self, topology: str, settings: Mapping[str, str] | None, work_dir: Path) -> Any:
        """Build a topology in a separate process, by default with the submitted settings; return the API's answer.

        Raises:
            CodeUnavailable: the code cannot be fetched.
            SubmissionError: it is not built in time, or the process died without an answer.
        """
        self._fetch(topology)
        return check_code(
            self._connection.store.path(topology),
            _SHARE_OF_CHECK * self._check_secs,
            limit=_CHECK_LIMIT,
            settings=settings,
            folder=self._connection.folder,
            work_dir=work_dir,
        )

    def begin_fetch(self, topology: str) -> None:
        """Fetch code in the background, unless that is under way or failed a moment ago."""
        running = self._fetches.get(topology)
        now = time.monotonic()
        if (running is not None and not running.done()) or now < self._fetch_again_at.get(topology, 0.0):
            return
        self._fetch_again_at[topology] = now + _FETCH_AGAIN_SECS
        self._fetches[topology] = self._threads.submit(self._fetch_or_fail, topology)

    def close(self) -> None:
        """Begin no further fetch, and leave those under way to themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _fetch_or_fail(self, topology: str) -> None:
        try:
            with self._connection.tries_again(topology):
                self._fetch(topology)
        except BaseException as error:  # noqa: BLE001 - fail fast
            self._on_failure(error)
        self._on_end()

    def _fetch(self, topology: str) -> None:
        with self._locks.setdefault(topology, threading.Lock()):
            if self._connection.store.has(topology):
                return
            manifest = self._connection.state.manifest(topology)
            if manifest is None:
                raise CodeUnavailable(f"no code of {topology!r} is published")
            self._connection.fetch(manifest)
        _LOG.info("the code of %s is here", topology)
