"""When a message that failed is emitted again.

A :class:`RetryPolicy` says how long a message waits after its n-th failure, and is a value; a :class:`RetrySchedule` is
the waiting list of one task. (Storm's retry service is both, and its default is one object that spouts share.)
Times are in milliseconds, of whatever clock the caller has.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Collection
from itertools import count

import attrs

from spouts.kafka.log import TopicPartition
from spouts.kafka.plain.offsets import MessageId
from txtopo.errors import ConfigError

RETRIES_UNLIMITED = 2**31 - 1
_SHIFT_MAX = 62


class RetryPolicy(ABC):
    """Says how long a failed message waits. Must pickle."""

    @abstractmethod
    def delay_ms(self, fails: int) -> float | None:
        """Return how long to wait after a failure; None to give the message up.

        Args:
            fails: how often it has failed: 1, 2 …
        """


@attrs.frozen
class ExponentialBackoff(RetryPolicy):
    """Waits ``initial_ms`` after the first failure and ``period_ms * 2 ** (n - 1)`` after the n-th.

    The delay saturates at ``delay_max_ms`` however often a message fails. (Storm's overflows: with its default period
    it is 0 from the 57th failure on, so that a poison record becomes a hot loop after some six minutes.)

    Args:
        initial_ms: after the first failure.
        period_ms: see above.
        retries_max: after so many retries a message is given up.
        delay_max_ms: the longest delay.

    Raises:
        ConfigError: one of them is below 0.
    """

    initial_ms: float = 0
    period_ms: float = 2
    retries_max: int = RETRIES_UNLIMITED
    delay_max_ms: float = 10_000

    def __attrs_post_init__(self) -> None:
        if min(self.initial_ms, self.period_ms, self.retries_max, self.delay_max_ms) < 0:
            raise ConfigError(f"delays and retries_max must be 0 or more: {self}")

    def delay_ms(self, fails: int) -> float | None:
        """Return the delay after a failure; None after more failures than ``retries_max``."""
        if fails > self.retries_max:
            return None
        wanted = self.initial_ms if fails <= 1 else self.period_ms * (1 << min(fails - 1, _SHIFT_MAX))
        return min(wanted, self.delay_max_ms)


@attrs.frozen
class _Entry:
    message_id: MessageId
    due_ms: float


class RetrySchedule:
    """The messages of one task that wait to be emitted again.

    Args:
        policy: says how long each waits.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._entries: dict[TopicPartition, dict[int, _Entry]] = {}
        # The heaps keep entries that were replaced or removed until they come up.
        self._waiting: list[tuple[float, int, _Entry]] = []
        self._ready: dict[TopicPartition, list[int]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def schedule(self, message_id: MessageId, now_ms: float) -> bool:
        """Let a message wait, in place of an older entry for it; return False if it is given up."""
        delay = self._policy.delay_ms(message_id.fails)
        if delay is None:
            return False
        self.schedule_at(message_id, now_ms + delay)
        return True

    def schedule_at(self, message_id: MessageId, due_ms: float) -> None:
        """Let a message wait until a time, whatever the policy."""
        entry = _Entry(message_id, due_ms)
        self._entries.setdefault(message_id.partition, {})[message_id.offset] = entry
        heapq.heappush(self._waiting, (due_ms, next(self._numbers), entry))

    def message_id(self, partition: TopicPartition, offset: int) -> MessageId | None:
        """Return the id that is scheduled, with what it knows of failures; None if there is none."""
        entry = self._entries.get(partition, {}).get(offset)
        return None if entry is None else entry.message_id

    def is_scheduled(self, partition: TopicPartition, offset: int) -> bool:
        """Whether an offset waits, whether it is due or not."""
        return offset in self._entries.get(partition, ())

    def is_ready(self, partition: TopicPartition, offset: int, now_ms: float) -> bool:
        """Whether an offset waits and is due."""
        entry = self._entries.get(partition, {}).get(offset)
        return entry is not None and entry.due_ms <= now_ms

    def ready_count(self, now_ms: float) -> int:
        """Return how many messages are due."""
        return sum(entry.due_ms <= now_ms for entries in self._entries.values() for entry in entries.values())

    def earliest_retriable_offsets(self, now_ms: float) -> dict[TopicPartition, int]:
        """Return the lowest offset that is due, for each partition that has one."""
        while self._waiting and self._waiting[0][0] <= now_ms:
            entry = heapq.heappop(self._waiting)[2]
            if self._is_current(entry):
                partition = entry.message_id.partition
                heapq.heappush(self._ready.setdefault(partition, []), entry.message_id.offset)
        for partition, offsets in list(self._ready.items()):
            while offsets and not self.is_ready(partition, offsets[0], now_ms):
                heapq.heappop(offsets)
            if not offsets:
                del self._ready[partition]
        return {partition: offsets[0] for partition, offsets in self._ready.items()}

    def remove(self, partition: TopicPartition, offset: int) -> bool:
        """Forget an offset; return whether it was there."""
        entries = self._entries.get(partition, {})
        was_there = entries.pop(offset, None) is not None
        if not entries:
            self._entries.pop(partition, None)
        return was_there

    def retain_all(self, partitions: Collection[TopicPartition]) -> None:
        """Forget every partition but these."""
        kept = set(partitions)
        self._entries = {partition: entries for partition, entries in self._entries.items() if partition in kept}

    def _is_current(self, entry: _Entry) -> bool:
        return self._entries.get(entry.message_id.partition, {}).get(entry.message_id.offset) is entry
