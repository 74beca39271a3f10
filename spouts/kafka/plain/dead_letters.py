"""Where records go that can't be processed: those that failed too often, and those that can't be deserialized."""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
from deltalake import write_deltalake

from spouts.kafka.log import KafkaRecord
from state.delta.log.location import Location
from txtopo.api.arguments import checked_arguments
from txtopo.errors import ConfigError

if TYPE_CHECKING:
    from spouts.kafka.plain.progress import MessageId
    from spouts.kafka.plain.reader import Reader

AGAIN_MS = 10_000
"""How long a record waits for its next try after the hook has failed to take it."""

_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("fails", pa.int64()),
        ("reason", pa.string()),
    ]
)


@attrs.frozen
class DeadLetter:
    """A record that was given up, and why. It has failed 0 times if it could not be deserialized."""

    record: KafkaRecord
    fails: int
    reason: str


class DeadLetterHook(ABC):
    """Takes the records that a spout gives up. Must pickle."""

    @abstractmethod
    def take(self, letters: Sequence[DeadLetter]) -> None:
        """Keep records, durably.

        *You* may be slow: calls run one after another, in a thread of their own. *txtopo* guarantees that a record's
        offset is committed only after this has returned. If it raises, or the worker dies first, the record is
        processed again, and comes here again if it still fails.
        """


class DeltaDeadLetters(DeadLetterHook):
    """Appends the records that are given up to a Delta table, at least once.

    The first write creates the table, with the columns topic, partition, offset, timestamp, key, value, fails, reason.
    """

    @checked_arguments
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        Location.resolve(self._path, None)  # refuses what delta-rs can't use

    def take(self, letters: Sequence[DeadLetter]) -> None:
        """Append rows."""
        rows = [
            {
                "topic": letter.record.topic,
                "partition": letter.record.partition,
                "offset": letter.record.offset,
                "timestamp": letter.record.timestamp,
                "key": letter.record.key,
                "value": letter.record.value,
                "fails": letter.fails,
                "reason": letter.reason,
            }
            for letter in letters
        ]
        write_deltalake(self._path, pa.Table.from_pylist(rows, schema=_SCHEMA), mode="append")


class _CalledHook(DeadLetterHook):
    def __init__(self, function: Callable[[DeadLetter], Any]) -> None:
        self._function = function

    def take(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            self._function(letter)


def dead_letter_hook(given: Any) -> DeadLetterHook | None:
    """Return what ``dead_letter`` means: the path of a Delta table, a function that takes a letter, a hook, or None."""
    match given:
        case None | DeadLetterHook():
            return given
        case str() | os.PathLike():
            return DeltaDeadLetters(os.fspath(given))
        case _ if callable(given):
            return _CalledHook(given)
        case _:
            raise ConfigError(f"dead_letter must be the path of a table, a function or a DeadLetterHook, not {given!r}")


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
        self._reader.partitions[message_id.partition].done(message_id.offset)

    def _run_hook(self) -> None:
        """Call the hook in another thread; records that come meanwhile wait for its next call."""
        hook = self._reader.config.dead_letter
        if hook is None or self._is_hook_running or not self._waiting:
            return
        self._is_hook_running = True
        given, self._waiting = self._waiting, []

        def on_done(done: Future[None]) -> None:
            self._is_hook_running = False
            error = done.exception()
            if error is not None:
                self._reader.collector.report_error(error)
            for message_id, _ in given:
                # None if the partition was revoked while the hook ran: its new owner gives these records up again.
                progress = self._reader.in_flight(message_id)
                if progress is not None and error is None:
                    progress.done(message_id.offset)
                elif progress is not None:
                    progress.retry(message_id, self._reader.now_ms() + AGAIN_MS)
            self._run_hook()

        self._reader.context.offload(functools.partial(hook.take, [letter for _, letter in given]), on_done)
