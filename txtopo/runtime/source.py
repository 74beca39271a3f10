"""The source: asks the spout's coordinator for transactions, in a thread of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from txtopo.contracts.optional import call_if_there
from txtopo.contracts.partitioned import partition_list
from txtopo.core.actions import CreateMetadata
from txtopo.core.attempts import TransactionAttempt
from txtopo.core.events import Event, MetadataCreated, RuleBroken, SourceStatus, TransactionMetadata
from txtopo.errors import FailedException, TxtopoError
from txtopo.phases.tasks import user_code
from txtopo.runtime.ledger import as_json

WAITING_SHARE = 10
"""A source that has nothing is left alone for so many times as long as it took to say so."""

logger = logging.getLogger("txtopo")


class Source:
    """Begins transactions, as the spout's coordinator decides.

    Args:
        spout_id: the spout, for errors.
        coordinator: the user's coordinator.
        now_secs: tells the time.
        is_opaque: whether it is an opaque spout's, which knows partitions instead of beginning transactions.
    """

    def __init__(
        self, spout_id: str, coordinator: Any, now_secs: Callable[[], float] = time.monotonic, *, is_opaque: bool
    ) -> None:
        self._spout_id = spout_id
        self._is_opaque = is_opaque
        self._coordinator = coordinator
        self._now_secs = now_secs
        self._has_resumed = False
        self._ask_again_secs = 0.0

    def create(self, action: CreateMetadata) -> Event:
        """Begin up to as many transactions as asked for, and say how the source stands.

        A source that waits, and takes long to say so, is asked less often.
        """
        started = self._now_secs()
        if started < self._ask_again_secs:
            return MetadataCreated((), SourceStatus.WAITING)
        event = self._create(action)
        if event == MetadataCreated((), SourceStatus.WAITING):
            now = self._now_secs()
            self._ask_again_secs = now + WAITING_SHARE * (now - started)
        return event

    def _create(self, action: CreateMetadata) -> Event:
        begun: list[TransactionMetadata] = []
        previous = action.previous_metadata
        attempt = TransactionAttempt(action.first_txid, 0)
        try:
            with user_code(self._spout_id, attempt):
                self._resume(action.first_txid - 1, previous)
            for txid in range(action.first_txid, action.first_txid + action.count):
                attempt = TransactionAttempt(txid, 0)
                with user_code(self._spout_id, attempt):
                    status = self._status()
                    if status is not SourceStatus.READY:
                        return MetadataCreated(tuple(begun), status)
                    previous = as_json(self._begin(txid, previous))
                begun.append(TransactionMetadata(txid, previous))
            with user_code(self._spout_id, attempt):
                return MetadataCreated(tuple(begun), self._status())
        except FailedException as error:
            logger.warning("the spout could not begin a transaction and is asked again: %s", error)
            return MetadataCreated(tuple(begun), SourceStatus.WAITING)
        except TxtopoError as error:
            return RuleBroken(error)

    def close(self) -> None:
        """Close the user's coordinator."""
        call_if_there(self._coordinator, "close")

    def _resume(self, txid: int, metadata: Any) -> None:
        """Tell the coordinator how far things are: at the start; and an opaque one, which can't know, always."""
        if self._is_opaque or not self._has_resumed:
            call_if_there(self._coordinator, "resume", txid, (metadata or {}) if self._is_opaque else metadata)
        self._has_resumed = True

    def _status(self) -> SourceStatus:
        if call_if_there(self._coordinator, "is_exhausted", default=False):
            return SourceStatus.EXHAUSTED
        is_ready = call_if_there(self._coordinator, "is_ready", default=True)
        return SourceStatus.READY if is_ready else SourceStatus.WAITING

    def _begin(self, txid: int, previous: Any) -> Any:
        if self._is_opaque:
            return {"partitions": partition_list(self._coordinator.partitions())}
        return self._coordinator.initialize_transaction(txid, previous)
