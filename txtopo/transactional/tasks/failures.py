"""Repeated failures: counted, logged with their reason at growing intervals, and kept for the display."""

from __future__ import annotations

import logging
import os
from typing import Any

import attrs

from txtopo.attempts import TransactionAttempt
from txtopo.errors import FailedException, ReportedFailedException, SourceFailure
from txtopo.text.secrecy import without_secrets
from txtopo.transactional.core.events import Failed
from txtopo.transactional.core.record.facts import Trouble

logger = logging.getLogger("txtopo")

BUSY = 2.0
"""With so many processes for each core, each is slowed down by others."""


def failed(
    attempt: TransactionAttempt, failure: FailedException, metadata: Any = None, cpu_secs: float = 0.0
) -> Failed:
    """Return the event of a failed attempt; log it, but a plain FailedException, which :class:`FailureLog` does."""
    is_loud = type(failure) is not FailedException
    if is_loud:
        level = logging.ERROR if isinstance(failure, ReportedFailedException) else logging.WARNING
        logger.log(level, "%s", without_secrets(str(failure)))
    return Failed(
        attempt,
        str(failure),
        metadata,
        is_logged=is_loud,
        component=failure.component,
        is_outage=isinstance(failure, SourceFailure),
        cpu_secs=cpu_secs,
    )


def _hint(error: str) -> str:
    """Return the end of a line about an attempt without progress, if this machine has more to do than it can."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if not error.startswith("no progress for ") or load < BUSY * cores:
        return ""
    return (
        f"; the driver's machine is busy, on average {load:.0f} processes wait for {cores} cores: raise "
        "topology.message.timeout.secs, or give it less to do"
    )


def is_logged(times: int) -> bool:
    """Whether to log a failure that happened for the ``times``-th time: the 1st, 2nd, 4th, 8th and so on."""
    return times & (times - 1) == 0


@attrs.define(eq=False)
class FailureLog:
    """The failures of a run, of attempts and spouts' coordinators: a first one is logged at INFO, others at WARNING."""

    failures: int = 0
    """The number of failed attempts."""
    last: Trouble | None = None
    _source_failures: int = 0

    def add(self, failure: Trouble) -> None:
        """Count a failed attempt, and log it if that is due."""
        self.failures += 1
        self.last = failure
        if is_logged(failure.times):
            level = logging.INFO if failure.times == 1 else logging.WARNING
            reason = "" if failure.is_logged else f": {without_secrets(failure.reason.strip())}{_hint(failure.reason)}"
            txid, times = failure.attempt.txid, _times(failure.times)
            logger.log(level, "transaction %d has failed %s%s", txid, times, reason)

    def source_failed(self, error: Exception) -> None:
        """Log that the spout could not begin a transaction, if this failure in a row is due."""
        self._source_failures += 1
        if is_logged(self._source_failures):
            times = _times(self._source_failures)
            reason = without_secrets(str(error))
            logger.warning("the spout could not begin a transaction, %s in a row; asking it again: %s", times, reason)

    @property
    def last_reason(self) -> str:
        """The reason of the last failed attempt, without secrets; empty if none has failed."""
        return "" if self.last is None else without_secrets(self.last.reason)

    @property
    def is_source_failing(self) -> bool:
        """Whether the last question to the spout has failed."""
        return self._source_failures > 0

    def source_answered(self) -> None:
        """Reset the count of the spout's failures in a row."""
        self._source_failures = 0


def _times(times: int) -> str:
    return "once" if times == 1 else f"{times:,} times"
