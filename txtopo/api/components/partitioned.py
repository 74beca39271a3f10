"""Adapts a partitioned spout to the transactional interface, as Storm's partitioned spout executor does.

In the driver, the coordinator asks the spout's emitter for each partition's share of a new transaction and stores the
answers in one metadata value::

    {"partitions": [[partition, metadata], …], "carried": [[partition, metadata], …]}

``partitions`` holds the shares of this transaction. ``carried`` holds the last metadata of every partition without a
share, so that a later transaction can continue from it. All of it is durable before the first tuple is emitted, so a
replay repeats it exactly: a partition that appears after a transaction began never takes part in its replays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from txtopo.api.components.bolt import OutputFieldsDeclarer
from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.optional import call_if_there
from txtopo.api.components.spout import (
    AnySpout,
    Coordinator,
    Emitter,
    Lag,
    Metadata,
    PartitionedCoordinator,
    PartitionedEmitter,
    PartitionedTransactionalSpout,
    TransactionalSpout,
)
from txtopo.api.data.copying import copied_json
from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.api.store import Lead, Store
from txtopo.attempts import TransactionAttempt
from txtopo.errors import UserCodeError

PLANNING_ATTEMPT = 0
"""The attempt number passed to ``emit_new_batch``; live attempts count from 1."""


def partition_key(partition: Any) -> str:
    """Return the name of a partition in metadata: its compact JSON with sorted keys.

    Raises:
        UserCodeError: the partition is not a JSON value.
    """
    return _encode(partition, "a partition")


def partition_list(partitions: int | Sequence[Any]) -> list[Any]:
    """Return the result of a coordinator's ``partitions()`` as a list of distinct partitions.

    Raises:
        UserCodeError: a partition is not a JSON value or appears twice.
    """
    if isinstance(partitions, int):
        return list(range(partitions))
    decoded: dict[str, Any] = {}
    for partition in partitions:
        key = partition_key(partition)
        if key in decoded:
            raise UserCodeError(f"partitions() names partition {key} twice; name each partition once")
        decoded[key] = json.loads(key)
    return list(decoded.values())


def as_transactional(spout: PartitionedTransactionalSpout) -> TransactionalSpout:
    """Return a transactional spout that emits the tuples of a partitioned one on the same streams.

    Task ``i`` of ``n`` emits every ``n``-th share of a transaction, starting with the ``i``-th.
    """
    return _AdaptedSpout(spout)


def spout_as_written(spout: AnySpout) -> AnySpout:
    """Return the user's spout, given either that spout or the adapter from :func:`as_transactional`."""
    return spout.partitioned if isinstance(spout, _AdaptedSpout) else spout


class _AdaptedSpout(TransactionalSpout):
    def __init__(self, spout: PartitionedTransactionalSpout) -> None:
        self.partitioned = spout
        self.output_fields = spout.output_fields

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        self.partitioned.declare_output_fields(declarer)

    def forked(self) -> _AdaptedSpout:
        return _AdaptedSpout(call_if_there(self.partitioned, "forked", default=self.partitioned))

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        return _AdaptedCoordinator(
            self.partitioned.coordinator(config, context), self.partitioned.emitter(config, context)
        )

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        tasks = len(context.component_tasks(context.this_component_id))
        return _AdaptedEmitter(self.partitioned.emitter(config, context), context.this_task_index, tasks)

    def input_ranges(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, tuple[Any, Any]] | None:
        last = _Shares.decode(previous_metadata).last
        ranges = {}
        for key, (partition, share) in _Shares.decode(metadata).taken.items():
            _, previous = last.get(key, (partition, None))
            taken = call_if_there(self.partitioned, "input_range", share, previous)
            if taken is None:
                return None
            ranges[key] = taken
        return ranges


class _AdaptedCoordinator(Coordinator):
    def __init__(self, coordinator: PartitionedCoordinator, emitter: PartitionedEmitter) -> None:
        self._coordinator = coordinator
        self._emitter = emitter

    def open_store(self, store: Store, lead: Lead, root: str) -> None:
        call_if_there(self._coordinator, "open_store", store, lead, root)

    def resume(self, txid: int, metadata: Metadata) -> None:
        self._tell(txid, _last_of(metadata))

    def rewind(self, txid: int, metadata: Metadata, undone: Sequence[Metadata]) -> bool:
        shares = _last_of(metadata), [_last_of(each) for each in undone]
        return bool(call_if_there(self._coordinator, "rewind", txid, *shares, default=False))

    def initialize_transaction(self, txid: int, previous_metadata: Metadata) -> Metadata:
        last = dict(_Shares.decode(previous_metadata).last)
        attempt = TransactionAttempt(txid, PLANNING_ATTEMPT)
        taken: dict[str, tuple[Any, Metadata]] = {}
        for partition in partition_list(self._coordinator.partitions()):
            key = partition_key(partition)
            _, previous = last.get(key, (partition, None))
            metadata = self._emitter.emit_new_batch(
                attempt, _ForgettingCollector(), copied_json(partition), copied_json(previous)
            )
            if metadata is not None:
                # Through JSON: the emitter may change what it has returned, and a restart would read JSON.
                taken[key] = (partition, json.loads(_encode(metadata, f"the metadata of partition {key}", txid)))
                last.pop(key, None)  # what remains is carried on
        metadata = _Shares(taken, last).encode()
        self._tell(txid, _last_of(metadata))
        return metadata

    def _tell(self, txid: int, last: Mapping[str, Metadata]) -> None:
        call_if_there(self._coordinator, "resume", txid, last)

    def cleanup_before(self, txid: int) -> None:
        call_if_there(self._coordinator, "cleanup_before", txid)

    def is_ready(self) -> bool:
        return bool(call_if_there(self._coordinator, "is_ready", default=True))

    def wait_ready(self, secs: float) -> bool:
        return bool(call_if_there(self._coordinator, "wait_ready", secs, default=False))

    def is_exhausted(self) -> bool:
        return bool(call_if_there(self._coordinator, "is_exhausted", default=False))

    def lag(self) -> int | Lag | None:
        lag: int | Lag | None = call_if_there(self._coordinator, "lag")
        return lag

    def close(self) -> None:
        call_if_there(self._emitter, "close")
        call_if_there(self._coordinator, "close")


class _AdaptedEmitter(Emitter):
    def __init__(self, emitter: PartitionedEmitter, task: int, tasks: int) -> None:
        self._emitter = emitter
        self._task = task
        self._tasks = tasks

    def emit_batch(self, attempt: TransactionAttempt, metadata: Metadata, collector: BatchOutputCollector) -> None:
        for partition, share in metadata["partitions"][self._task :: self._tasks]:
            self._emitter.emit_batch(attempt, collector, partition, share)

    def cleanup_before(self, txid: int) -> None:
        call_if_there(self._emitter, "cleanup_before", txid)

    def close(self) -> None:
        call_if_there(self._emitter, "close")


@attrs.frozen
class _Shares:
    """A transaction's metadata: partition and metadata by partition key."""

    taken: Mapping[str, tuple[Any, Metadata]]
    carried: Mapping[str, tuple[Any, Metadata]]

    @classmethod
    def decode(cls, metadata: Metadata) -> _Shares:
        if metadata is None:
            return cls({}, {})
        return cls(
            {partition_key(partition): (partition, share) for partition, share in metadata["partitions"]},
            {partition_key(partition): (partition, share) for partition, share in metadata["carried"]},
        )

    def encode(self) -> Metadata:
        return {
            "partitions": [list(pair) for pair in self.taken.values()],
            "carried": [list(pair) for pair in self.carried.values()],
        }

    @property
    def last(self) -> Mapping[str, tuple[Any, Metadata]]:
        return {**self.carried, **self.taken}


def _last_of(metadata: Metadata) -> dict[str, Metadata]:
    """Return the last metadata of each partition, by partition key."""
    return {key: copied_json(value) for key, (_, value) in _Shares.decode(metadata).last.items()}


class _ForgettingCollector(BatchOutputCollector):
    """Discards everything that an emitter emits while it decides on a share."""

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        del values, stream

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        del task, values, stream

    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        del batch, stream


def _encode(value: Any, what: str, txid: int | None = None) -> str:
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserCodeError(
            f"{what} must be JSON (numbers, strings, lists, dicts with string keys), not {value!r}",
            txid=txid,
            cause=str(error),
        ) from error
