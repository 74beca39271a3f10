"""A spout over rows in memory whose partitions can be switched off and on, to test opaque topologies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spouts.memory import Data, MemoryRows, Partition
from txtopo.api.arguments import check_positive, checked_arguments
from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.partitioned import partition_key
from txtopo.api.components.spout import (
    Metadata,
    OpaquePartitionedEmitter,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
)
from txtopo.api.data.fields import Fields
from txtopo.attempts import TransactionAttempt
from txtopo.errors import InputError


class OpaqueMemoryTransactionalSpout(OpaquePartitionedTransactionalSpout):
    """Emits rows in memory; if a partition is switched off or on meanwhile, another attempt emits other rows.

    The rows are read when a run starts, as for :class:`spouts.MemoryTransactionalSpout`.

    Args:
        data: rows by partition, or a plain sequence of rows, which is partition 0.
        fields: the fields of the values, without the attempt. If they have types, the rows travel as Arrow columns.
        take_per_batch: the maximum number of rows of each partition in a transaction, at least 1.

    Raises:
        FieldsError: a row does not fit the fields; the message names partition and row.
        ConfigError: ``take_per_batch`` is below 1.
    """

    @checked_arguments
    def __init__(self, data: Data, fields: Fields, take_per_batch: int) -> None:
        self.output_fields = fields.with_attempt()
        self.rows = MemoryRows(data, self.output_fields.without_attempt())
        check_positive("take_per_batch", take_per_batch)
        self.take_per_batch = take_per_batch
        self._disabled: set[Partition] = set()

    def set_disabled(self, partition: Partition, disabled: bool) -> None:  # noqa: FBT001 - Storm's signature
        """Switch a partition off (True) or on (False), with effect from the next transaction.

        Call it on the object from which the running topology was built.

        Raises:
            InputError: there is no such partition.
        """
        if partition not in self.rows.lengths():
            raise InputError(f"there is no partition {partition!r}; there are {list(self.rows.lengths())}")
        if disabled:
            self._disabled.add(partition)
        else:
            self._disabled.discard(partition)

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> PartitionedCoordinator:
        """Read the rows again, and return a coordinator of them."""
        del config, context
        self.rows.read()
        return _OpaqueMemoryCoordinator(self.rows.lengths(), self._disabled, self.take_per_batch)

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> OpaquePartitionedEmitter:
        """Return the emitter of a task."""
        del config, context
        return _OpaqueMemoryEmitter(self.rows, self.take_per_batch)

    def input_ranges(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, tuple[Any, Any]] | None:
        """Return the index of the first row and the index after the last row, for partitions that emitted rows."""
        previous = previous_metadata or {}
        moved = {key: part for key, part in (metadata or {}).items() if previous.get(key) != part}
        return {key: (start, end) for key, (start, end) in moved.items()}


class _OpaqueMemoryCoordinator(PartitionedCoordinator):
    def __init__(self, lengths: Mapping[Partition, int], disabled: set[Partition], take: int) -> None:
        self._lengths = lengths
        self._disabled = disabled
        self._take = take
        self._begun = 0
        """Transactions begun since the last metadata came; only the emitters know what they take."""
        self._ends: Mapping[str, int] = {}

    def partitions(self) -> list[Partition]:
        self._begun += 1
        return self._enabled()

    def _enabled(self) -> list[Partition]:
        return [partition for partition in self._lengths if partition not in self._disabled]

    def resume(self, txid: int, metadata: Mapping[str, Metadata]) -> None:
        del txid
        ends = {key: end for key, (_, end) in metadata.items()}
        lengths = {partition_key(partition): length for partition, length in self._lengths.items()}
        for key, end in ends.items():
            if end > lengths.get(key, 0):
                raise InputError(
                    f"{end} rows of partition {key} have been taken, but it has {lengths.get(key, 0)}; rows in "
                    "memory may be added, but not removed"
                )
        self._ends, self._begun = ends, 0

    def is_ready(self) -> bool:
        return any(self._rows_left(partition) > self._begun * self._take for partition in self._enabled())

    def is_exhausted(self) -> bool:
        return all(self._rows_left(partition) == 0 for partition in self._lengths)

    def _rows_left(self, partition: Partition) -> int:
        return self._lengths[partition] - self._ends.get(partition_key(partition), 0)


class _OpaqueMemoryEmitter(OpaquePartitionedEmitter):
    def __init__(self, rows: MemoryRows, take: int) -> None:
        self._rows = rows
        self._lengths = rows.lengths()
        self._take = take

    def emit_batch(
        self, attempt: TransactionAttempt, collector: BatchOutputCollector, partition: Any, previous_metadata: Metadata
    ) -> Metadata:
        start = previous_metadata[1] if previous_metadata is not None else 0
        end = min(self._lengths.get(partition, 0), start + self._take)
        if end <= start:
            return None
        self._rows.emit(attempt, partition, start, end, collector)
        return [start, end]
