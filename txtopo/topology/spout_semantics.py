"""Spout semantics: everything that differs between the kinds of spouts, one object for each kind.

The core uses :class:`~txtopo.transactional.core.spout_policy.SpoutPolicy`, which decides which transactions are
independent of each other. The rest is here: how to call the spout's coordinator and emitters, what makes a
transaction's metadata, and what a replay proves. To add a kind of spout, add a class and a line in :data:`SEMANTICS`,
and its policy there.
"""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import attrs

from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.components.optional import call_if_there
from txtopo.api.components.partitioned import as_transactional, partition_key, partition_list
from txtopo.api.components.spout import OpaquePartitionedTransactionalSpout, PartitionedTransactionalSpout
from txtopo.api.data.copying import copied_json
from txtopo.attempts import TransactionAttempt

_PARTITIONS = "partitions"
"""The key of what an opaque transaction begins with. Partition keys are JSON, as this is not."""

Emitted = Mapping[str, Any]
"""The metadata that one task's emitter returned for its share of a batch, by partition key."""


class Emissions(ABC):
    """Emits the batches of one process in a job."""

    @abstractmethod
    def emit(
        self, emitter: Any, share: tuple[int, int], attempt: TransactionAttempt, metadata: Any, collector: Any
    ) -> Emitted | None:
        """Let a task's emitter emit its share, (index of the task, number of tasks), of a batch.

        Return an argument for :meth:`emitted`, to be passed once all emitted tuples are processed.
        """

    def emitted(self, attempt: TransactionAttempt, emitted: Emitted | None) -> None:
        """Record what :meth:`emit` returned for a task: the next transaction may depend on it."""

    def metadata_of(self, attempt: TransactionAttempt) -> Emitted | None:
        """Return the metadata that this process's tasks have reported for an attempt; None if they report none."""
        del attempt
        return None


class SpoutSemantics(ABC):
    """How to run a kind of spout. Stateless."""

    name: ClassVar[str]
    """The kind's name in coordinator state and journal; durable, so it never changes."""
    emits_in_turn: ClassVar[bool]
    """Whether a task emits the transactions of a job one after another, in one process."""
    summary: ClassVar[str]
    """The kind's behaviour at a replay in a few words, for users."""

    def prototype(self, spout: Any) -> Any:
        """Return the object that runs in place of the declared spout."""
        return spout

    @abstractmethod
    def resume(self, coordinator: Any, txid: int, metadata: Any, *, is_first: bool) -> None:
        """Pass the last transaction begun to the spout's coordinator, before asking it for new ones.

        ``is_first`` says whether this is the first call in this run.
        """

    def rewind(self, coordinator: Any, txid: int, metadata: Any, undone: Sequence[Any]) -> bool:
        """Let the spout's coordinator go back to a transaction; return whether it can."""
        copies = copied_json(metadata), copied_json(list(undone))
        return bool(call_if_there(coordinator, "rewind", txid, *copies, default=False))

    @abstractmethod
    def begin(self, coordinator: Any, txid: int, previous_metadata: Any) -> Any:
        """Return the initial metadata of a new transaction."""

    def begun_again(self, previous_metadata: Any, metadata: Any) -> Any:
        """Return the initial metadata of a transaction that another topology is to begin as this one has.

        ``previous_metadata`` is that of the transaction before, ``metadata`` what this transaction was committed with.
        """
        del previous_metadata
        return metadata

    @abstractmethod
    def emissions(self, previous_metadata: Any) -> Emissions:
        """Return the object that emits a job's batches, given the metadata of the transaction before the first."""

    @abstractmethod
    def metadata_after(self, previous_metadata: Any, emitted: Iterable[Emitted]) -> Any:
        """Return a transaction's metadata, merged from its emitters' reports; None if it was known before."""

    def is_complete(self, metadata: Any) -> bool:
        """Return whether metadata says what its transaction holds, not only what it has begun with."""
        del metadata
        return True

    def skipped(self, emitted: Emitted | None) -> tuple[tuple[str, Any, Any], ...]:
        """Return the input, (partition, start, end), that an emitter says it has skipped."""
        del emitted
        return ()

    @abstractmethod
    def metadata_to_replay(
        self, coordinator: Callable[[], Any], txid: int, previous_metadata: Any, metadata: Any
    ) -> Any:
        """Return the metadata from which to emit a committed transaction again.

        ``coordinator`` creates the spout's coordinator, which only some kinds need. ``previous_metadata`` is that of
        the transaction before, ``metadata`` what this transaction was committed with.
        """

    @abstractmethod
    def moved_elsewhere(self, old: Any, new: Any) -> str | None:
        """Describe how a replay's metadata differs from the committed one; None if it does not or cannot differ."""

    @abstractmethod
    def emits_other_tuples(self, counts: str) -> str:
        """Tell the user why a replay emitted different tuples."""


class _Repeatable(SpoutSemantics):
    """The coordinator decides what a transaction holds, and the emitters emit the same tuples at each attempt."""

    name = "repeatable"
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

    def skipped(self, emitted: Emitted | None) -> tuple[tuple[str, Any, Any], ...]:
        if not isinstance(emitted, Mapping):
            return ()
        return tuple((str(name), start, end) for name, spans in emitted.items() for start, end in spans)

    def metadata_to_replay(
        self, coordinator: Callable[[], Any], txid: int, previous_metadata: Any, metadata: Any
    ) -> Any:
        del coordinator, txid, previous_metadata
        return metadata

    def moved_elsewhere(self, old: Any, new: Any) -> str | None:
        del old, new
        return None

    def emits_other_tuples(self, counts: str) -> str:
        return (
            f"the source is not repeatable: it emits different tuples for the same metadata ({counts}); or the "
            "spout's parallelism or fields have changed"
        )


class _Partitioned(_Repeatable):
    """A repeatable spout whose coordinator asks its emitter for each partition's share."""

    def prototype(self, spout: PartitionedTransactionalSpout) -> Any:
        return as_transactional(spout)


class _Opaque(SpoutSemantics):
    """The coordinator lists partitions, and the emitters continue in each where the transaction before ended."""

    name = "opaque"
    emits_in_turn = True
    summary = "opaque spout: a replay may carry different tuples"

    def resume(self, coordinator: Any, txid: int, metadata: Any, *, is_first: bool) -> None:
        del is_first  # the coordinator needs every call: it does not see the emitters' metadata otherwise
        call_if_there(coordinator, "resume", txid, copied_json(metadata) or {})

    def rewind(self, coordinator: Any, txid: int, metadata: Any, undone: Sequence[Any]) -> bool:
        # What was never emitted has taken no input.
        return super().rewind(coordinator, txid, metadata or {}, [each for each in undone if self.is_complete(each)])

    def begin(self, coordinator: Any, txid: int, previous_metadata: Any) -> Any:
        del txid, previous_metadata
        return {_PARTITIONS: partition_list(coordinator.partitions())}

    def begun_again(self, previous_metadata: Any, metadata: Any) -> Any:
        return {_PARTITIONS: [json.loads(key) for key in sorted(_moved(previous_metadata, metadata))]}

    def emissions(self, previous_metadata: Any) -> Emissions:
        return _Chained(dict(previous_metadata or {}))

    def metadata_after(self, previous_metadata: Any, emitted: Iterable[Emitted]) -> Any:
        # On top of the previous one, which keeps the place in partitions that emitted nothing.
        metadata = dict(previous_metadata or {})
        for each in emitted:
            metadata |= each
        return metadata

    def is_complete(self, metadata: Any) -> bool:
        return metadata is None or _PARTITIONS not in metadata

    def metadata_to_replay(
        self, coordinator: Callable[[], Any], txid: int, previous_metadata: Any, metadata: Any
    ) -> Any:
        """Return the partitions that the transaction took input from, in the coordinator's order, then unknown ones."""
        moved = _moved(previous_metadata, metadata)
        spout_coordinator = coordinator()
        try:
            call_if_there(spout_coordinator, "resume", txid - 1, copied_json(dict(previous_metadata or {})))
            partitions_now = {partition_key(each): each for each in partition_list(spout_coordinator.partitions())}
        finally:
            call_if_there(spout_coordinator, "close")
        ordered = [partition for key, partition in partitions_now.items() if key in moved]
        return {_PARTITIONS: [*ordered, *(json.loads(key) for key in sorted(moved - set(partitions_now)))]}

    def moved_elsewhere(self, old: Any, new: Any) -> str | None:
        return None if new == old else f"the opaque source ended at {old} when committed, and at {new} in the replay"

    def emits_other_tuples(self, counts: str) -> str:
        return f"the opaque source emits different tuples now, as it may ({counts}), so the replay proves nothing"


def _moved(previous_metadata: Any, metadata: Any) -> set[str]:
    """Return the keys of the partitions that an opaque transaction took input from."""
    previous = previous_metadata or {}
    return {key for key, now in (metadata or {}).items() if previous.get(key) != now}


REPEATABLE = _Repeatable()
OPAQUE = _Opaque()

SEMANTICS: tuple[tuple[type, SpoutSemantics], ...] = (
    (OpaquePartitionedTransactionalSpout, OPAQUE),
    (PartitionedTransactionalSpout, _Partitioned()),
    (object, REPEATABLE),
)
"""The kinds of spouts; the first match counts."""


def semantics_of(spout: object) -> SpoutSemantics:
    """Return the semantics of a declared spout."""
    return next(semantics for base, semantics in SEMANTICS if isinstance(spout, base))


def owner_of(partition: Any, tasks: int) -> int:
    """Return the task that emits a partition of an opaque spout; it does not depend on the other partitions."""
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
        del share  # the emitter got it from its context when it was created
        skipped: Emitted | None = emitter.emit_batch(attempt, copied_json(metadata), collector)
        return skipped


@attrs.define(eq=False)
class _Chained(Emissions):
    """Emits each partition of a task from where the transaction before ended."""

    chain: dict[str, Any]
    """The last metadata of each partition, by partition key."""
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
        for partition in metadata[_PARTITIONS]:
            key = partition_key(partition)
            if owner_of(partition, tasks) == task:
                previous = copied_json(self.chain.get(key))
                now = emitter.emit_batch(attempt, collector, copied_json(partition), previous)
                if now is not None:  # copied through JSON: what is kept is what the journal will give back
                    emitted[key] = json.loads(json.dumps(now))
        return emitted

    def emitted(self, attempt: TransactionAttempt, emitted: Emitted | None) -> None:
        assert emitted is not None, "emit() always returns metadata"
        self.chain.update(emitted)
        self.by_attempt[attempt] = {**self.by_attempt.get(attempt, {}), **emitted}

    def metadata_of(self, attempt: TransactionAttempt) -> Emitted | None:
        return self.by_attempt.get(attempt)
