"""Spout semantics: all that differs between the kinds of spouts, each kind an object.

The core asks its part, :class:`~txtopo.core.spout_policy.SpoutPolicy`, which transactions are independent of each
other. The rest is here: how the spout's coordinator is asked, how its emitters are called, where its metadata comes
from, and what a replay may say of it. A new kind of spout is a class of these and a line in :data:`SEMANTICS`.
"""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import attrs

from txtopo.api.collector import BatchOutputCollector
from txtopo.api.copying import copied_json
from txtopo.api.optional import call_if_there
from txtopo.api.partitioned import as_transactional, partition_key, partition_list
from txtopo.api.spout import OpaquePartitionedTransactionalSpout, PartitionedTransactionalSpout
from txtopo.attempts import TransactionAttempt
from txtopo.core import spout_policy

Emitted = Mapping[str, Any]
"""What one task's emitter says of its share of a batch: metadata by partition key."""


class Emissions(ABC):
    """The batches that one process emits in a job."""

    @abstractmethod
    def emit(
        self, emitter: Any, share: tuple[int, int], attempt: TransactionAttempt, metadata: Any, collector: Any
    ) -> Emitted | None:
        """Let a task's emitter emit its share of a batch.

        Args:
            emitter: the user's.
            share: the index of the task, and how many there are.
            attempt: the attempt.
            metadata: the transaction's.
            collector: what is emitted on.

        Returns:
            What :meth:`emitted` takes note of, once all of it has been worked off.
        """

    def emitted(self, attempt: TransactionAttempt, emitted: Emitted | None) -> None:
        """Take note of what a task has emitted."""

    def metadata_of(self, attempt: TransactionAttempt) -> Emitted | None:
        """Return what the tasks here have said of an attempt; None if they say nothing."""
        del attempt
        return None


class SpoutSemantics(ABC):
    """What a kind of spout means for those who run it. Stateless."""

    name: ClassVar[str]
    """What coordinator state and journal call it: written down, so it never changes."""
    policy: ClassVar[spout_policy.SpoutPolicy]
    """What it asks of the order of transactions."""
    emits_in_turn: ClassVar[bool]
    """Whether a task emits the transactions of a job one after another, in one place."""
    summary: ClassVar[str]
    """What a user should know of a replay, in a few words."""

    def prototype(self, spout: Any) -> Any:
        """Return what runs in the place of the spout as it was declared."""
        return spout

    @abstractmethod
    def resume(self, coordinator: Any, txid: int, metadata: Any, *, is_first: bool) -> None:
        """Tell the spout's coordinator how far things are, before it is asked for transactions.

        Args:
            coordinator: the user's.
            txid: the last transaction that has begun.
            metadata: what is known of it.
            is_first: whether this is the first time in this run.
        """

    @abstractmethod
    def begin(self, coordinator: Any, txid: int, previous_metadata: Any) -> Any:
        """Return the metadata that a new transaction begins with."""

    @abstractmethod
    def emissions(self, previous_metadata: Any) -> Emissions:
        """Return what emits a job's batches, which begin behind a transaction with such metadata."""

    @abstractmethod
    def metadata_after(self, previous_metadata: Any, emitted: Iterable[Emitted]) -> Any:
        """Return the metadata that the emitters' reports make of a whole batch; None if it was known before."""

    @abstractmethod
    def metadata_to_replay(
        self, coordinator: Callable[[], Any], txid: int, previous_metadata: Any, metadata: Any
    ) -> Any:
        """Return what a committed transaction is emitted from once more.

        Args:
            coordinator: makes the spout's coordinator.
            txid: the transaction.
            previous_metadata: that of the transaction before.
            metadata: what it was committed with.
        """

    @abstractmethod
    def moved_elsewhere(self, then: Any, now: Any) -> str | None:
        """Return how a replay's metadata differs from what was committed; None if it does not, or says nothing."""

    @abstractmethod
    def emits_other_tuples(self, counts: str) -> str:
        """Return what it means that a replay emits other tuples."""


class _Repeatable(SpoutSemantics):
    """The coordinator says what a transaction holds, and the emitters emit just that, as often as they are asked."""

    name = "repeatable"
    policy = spout_policy.REPEATABLE
    emits_in_turn = False
    summary = "a replay carries the same tuples"

    def resume(self, coordinator: Any, txid: int, metadata: Any, *, is_first: bool) -> None:
        if is_first:
            call_if_there(coordinator, "resume", txid, copied_json(metadata))

    def begin(self, coordinator: Any, txid: int, previous_metadata: Any) -> Any:
        return coordinator.initialize_transaction(txid, copied_json(previous_metadata))

    def emissions(self, previous_metadata: Any) -> Emissions:
        del previous_metadata
        return _FromMetadata()

    def metadata_after(self, previous_metadata: Any, emitted: Iterable[Emitted]) -> Any:
        del previous_metadata, emitted

    def metadata_to_replay(
        self, coordinator: Callable[[], Any], txid: int, previous_metadata: Any, metadata: Any
    ) -> Any:
        del coordinator, txid, previous_metadata
        return metadata

    def moved_elsewhere(self, then: Any, now: Any) -> str | None:
        del then, now
        return None

    def emits_other_tuples(self, counts: str) -> str:
        return (
            f"the source is not repeatable: it emits something else for the same metadata ({counts}); or the "
            "spout's parallelism or fields have changed"
        )


class _Partitioned(_Repeatable):
    """A repeatable spout whose coordinator asks its emitter for each partition's share."""

    def prototype(self, spout: PartitionedTransactionalSpout) -> Any:
        return as_transactional(spout)


class _Opaque(SpoutSemantics):
    """The coordinator names partitions, and the emitters go on in each from where the transaction before ended."""

    name = "opaque"
    policy = spout_policy.OPAQUE
    emits_in_turn = True
    summary = "opaque spout: a replay may carry other tuples"

    def resume(self, coordinator: Any, txid: int, metadata: Any, *, is_first: bool) -> None:
        del is_first  # it can't know by itself how far the emitters got
        call_if_there(coordinator, "resume", txid, copied_json(metadata) or {})

    def begin(self, coordinator: Any, txid: int, previous_metadata: Any) -> Any:
        del txid, previous_metadata
        return {"partitions": partition_list(coordinator.partitions())}

    def emissions(self, previous_metadata: Any) -> Emissions:
        return _Chained(dict(previous_metadata or {}))

    def metadata_after(self, previous_metadata: Any, emitted: Iterable[Emitted]) -> Any:
        metadata = dict(previous_metadata or {})
        for each in emitted:
            metadata |= each
        return metadata

    def metadata_to_replay(
        self, coordinator: Callable[[], Any], txid: int, previous_metadata: Any, metadata: Any
    ) -> Any:
        """Return the partitions that a transaction moved, in the order that the spout's coordinator has them."""
        previous, metadata = previous_metadata or {}, metadata or {}
        moved = {key for key, now in metadata.items() if previous.get(key) != now}
        asked = coordinator()
        try:
            call_if_there(asked, "resume", txid - 1, copied_json(dict(previous)))
            known = {partition_key(each): each for each in partition_list(asked.partitions())}
        finally:
            call_if_there(asked, "close")
        ordered = [partition for key, partition in known.items() if key in moved]
        return {"partitions": [*ordered, *(json.loads(key) for key in sorted(moved - set(known)))]}

    def moved_elsewhere(self, then: Any, now: Any) -> str | None:
        return None if now == then else f"the opaque source got to {then} then, and gets to {now} now"

    def emits_other_tuples(self, counts: str) -> str:
        return f"the opaque source emits something else now, which it may ({counts}): nothing can be judged"


REPEATABLE = _Repeatable()
OPAQUE = _Opaque()

SEMANTICS: tuple[tuple[type, SpoutSemantics], ...] = (
    (OpaquePartitionedTransactionalSpout, OPAQUE),
    (PartitionedTransactionalSpout, _Partitioned()),
    (object, REPEATABLE),
)
"""The kinds of spouts, the most special first."""


def semantics_of(spout: object) -> SpoutSemantics:
    """Return the semantics of a spout as it was declared."""
    return next(semantics for base, semantics in SEMANTICS if isinstance(spout, base))


def owner_of(partition: Any, tasks: int) -> int:
    """Return the spout task that emits a partition of an opaque spout, whichever other partitions there are."""
    if isinstance(partition, int):
        return partition % tasks
    return zlib.crc32(partition_key(partition).encode()) % tasks


class _FromMetadata(Emissions):
    def emit(
        self,
        emitter: Any,
        share: tuple[int, int],
        attempt: TransactionAttempt,
        metadata: Any,
        collector: BatchOutputCollector,
    ) -> Emitted | None:
        del share  # the emitter was told when it was made
        emitter.emit_batch(attempt, copied_json(metadata), collector)
        return None


@attrs.define(eq=False)
class _Chained(Emissions):
    """Emits each partition of a task from where the transaction before ended in it."""

    chain: dict[str, Any]
    """By partition key, what the last transaction in it ended with."""
    by_attempt: dict[TransactionAttempt, Emitted] = attrs.field(factory=dict)

    def emit(
        self,
        emitter: Any,
        share: tuple[int, int],
        attempt: TransactionAttempt,
        metadata: Any,
        collector: BatchOutputCollector,
    ) -> Emitted:
        task, tasks = share
        emitted = {}
        for partition in metadata["partitions"]:
            key = partition_key(partition)
            if owner_of(partition, tasks) == task:
                previous = copied_json(self.chain.get(key))
                now = emitter.emit_batch(attempt, collector, copied_json(partition), previous)
                if now is not None:
                    emitted[key] = json.loads(json.dumps(now))
        return emitted

    def emitted(self, attempt: TransactionAttempt, emitted: Emitted | None) -> None:
        assert emitted is not None, "it says where it got to"
        self.chain.update(emitted)
        self.by_attempt[attempt] = {**self.by_attempt.get(attempt, {}), **emitted}

    def metadata_of(self, attempt: TransactionAttempt) -> Emitted | None:
        return self.by_attempt.get(attempt)
