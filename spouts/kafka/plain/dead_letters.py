"""Where records go that can't be processed: those that failed too often, and those that can't be deserialized."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pyarrow as pa
from deltalake import write_deltalake

from spouts.kafka.log import KafkaRecord
from state.delta.log.location import Location
from txtopo.api.arguments import checked_arguments
from txtopo.errors import ConfigError

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

        *You* may be slow: calls run one after another, in a separate thread. *txtopo* guarantees that a record's
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


def dead_letter_hook(value: Any) -> DeadLetterHook | None:
    """Return what ``dead_letter`` means: the path of a Delta table, a function that takes a letter, a hook, or None."""
    match value:
        case None | DeadLetterHook():
            return value
        case str() | os.PathLike():
            return DeltaDeadLetters(os.fspath(value))
        case _ if callable(value):
            return _CalledHook(value)
        case _:
            raise ConfigError(f"dead_letter must be the path of a table, a function or a DeadLetterHook, not {value!r}")
