"""What a task of :class:`KafkaSpout` gives up, on its way to the hook for dead letters."""

from __future__ import annotations

import functools
from concurrent.futures import Future

from spouts.kafka.log import KafkaRecord
from spouts.kafka.plain.dead_letters import DeadLetter
from spouts.kafka.plain.progress import MessageId
from spouts.kafka.plain.reader import Reader

AGAIN_MS = 10_000
"""How long a record waits for its next try after the hook has failed to take it."""


class GivenUp:
    """The records that a task gives up. They go to its hook, one call at a time.

    A record is done, and its offset may be committed, only when the hook has it. A crash in between lets the record be
    emitted again, so the hook may get it twice.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._waiting: list[tuple[MessageId, DeadLetter]] = []
        self._is_hook_running = False

    def add(self, message_id: MessageId, record: KafkaRecord | None, reason: str) -> None:
        """Give up a message that is in flight; without a hook its record was not kept, and it is done at once."""
        if record is not None:
            self._waiting.append((message_id, DeadLetter(record, message_id.fails, reason)))
            self._run_hook()
            return
        self._reader.report_input(f"{message_id}: given up, {reason}; dead_letter would keep it")
        self._reader.partitions[message_id.partition].record_done(message_id.offset)

    def _run_hook(self) -> None:
        """Call the hook in another thread; records that come meanwhile wait for its next call."""
        hook = self._reader.config.dead_letter
        if hook is None or self._is_hook_running or not self._waiting:
            return
        self._is_hook_running = True
        records, self._waiting = self._waiting, []

        def on_done(future: Future[None]) -> None:
            self._is_hook_running = False
            error = future.exception()
            if error is not None:
                self._reader.collector.report_error(error)
            for message_id, _ in records:
                # None if the partition was revoked while the hook ran: its new owner gives these records up again.
                progress = self._reader.in_flight(message_id)
                if progress is not None and error is None:
                    progress.record_done(message_id.offset)
                elif progress is not None:
                    progress.retry(message_id, self._reader.now_ms() + AGAIN_MS)
            self._run_hook()

        self._reader.context.offload(functools.partial(hook.take, [letter for _, letter in records]), on_done)
