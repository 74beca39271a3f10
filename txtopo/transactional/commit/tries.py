"""Tries of what reads or writes a table, which may be out of reach for a while."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from txtopo.errors import FailedException, StateFailure, StopError
from txtopo.files.durable import wait_for_descriptor
from txtopo.text.secrecy import without_secrets

logger = logging.getLogger("txtopo")

WRITE_TRIES_MAX = 5
"""How often a failed read or write of a table is tried before the run stops and leaves the rest to recovery: with the
pauses, 3 s are enough for an answer that was lost, and an outage is for whoever starts the run again."""

WRITE_RETRY_SECS = 0.2
"""The pause before the second try, doubled before each further one."""

_LONG_PAUSE_SECS = 5.0
"""The pause before each further try of a state that is tried for longer."""


class Try:
    """The context of one try: keeps a FailedException, and lets every other error pass."""

    failure: FailedException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, FailedException):
            self.failure = error
        return self.failure is not None


def tries(
    sleep: Callable[[float], None], txid: int, step: str, what_now: str, retry_secs: float = 0.0
) -> Iterator[Try]:
    """Yield contexts to read or write tables in, until one ends without a FailedException.

    Args:
        sleep: pauses before the next one.
        txid: the transaction.
        step: what is done to a table, for messages.
        what_now: what a failure leaves, and what to do.
        retry_secs: for how long it is tried, if longer than 3 s.

    Raises:
        StopError: the last one has failed.
    """
    for count, pause_secs in enumerate(_pauses(retry_secs), 1):
        wait_for_descriptor(sleep)
        attempt = Try()
        yield attempt
        if attempt.failure is None:
            return
        if pause_secs is None:
            raise StopError(
                f"a table could not be {step} in {count} tries; {what_now}", txid=txid, cause=str(attempt.failure)
            ) from attempt.failure
        why = without_secrets(str(attempt.failure))
        logger.warning("a table can't be %s for transaction %d; trying again: %s", step, txid, why)
        sleep(pause_secs)


def _pauses(retry_secs: float) -> Iterator[float | None]:
    """Yield the pause after each try: 0.2, 0.4, 0.8 and 1.6 seconds, then 5 each time, and None after the last try."""
    for count in range(WRITE_TRIES_MAX - 1):
        yield WRITE_RETRY_SECS * 2**count
    secs_left = retry_secs - 3.0
    while secs_left > 0:
        yield min(secs_left, _LONG_PAUSE_SECS)
        secs_left -= _LONG_PAUSE_SECS
    yield None


def state_failure_below(error: BaseException | None) -> StateFailure | None:
    """Return the StateFailure that an error is or was raised from, perhaps by user code; None if there is none."""
    while error is not None:
        if isinstance(error, StateFailure):
            return error
        error = error.__cause__ or error.__context__
    return None
