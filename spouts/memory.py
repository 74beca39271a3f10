"""Spouts over rows in memory, for tests, examples and small inputs, as in Storm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from txtopo.api.arguments import check_positive, checked_arguments
from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.spout import Coordinator, Emitter, Metadata, TransactionalSpout
from txtopo.api.data.copying import copied
from txtopo.api.data.fields import Fields
from txtopo.api.data.types import ddl_name
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.conversion import fit_array, misfit_of
from txtopo.errors import FieldsError, InputError

Partition = int | str
"""The name of a partition of rows in memory."""

Data = Mapping[Any, Sequence[Any]] | Sequence[Any]
"""Rows by partition, or the rows of partition 0. With a single field a row may be the bare value."""


class MemoryTransactionalSpout(TransactionalSpout):
    """Emits rows in memory; each transaction takes some rows of each partition.

    The rows are read when a run starts. If you add rows later, the next run sees them and continues where this one
    ended. *You* may add rows at the end of a partition, but must never remove any.

    Args:
        data: rows by partition, ``{0: [["cat"], ["dog"]], 1: …}``, or a plain sequence of rows, which is
            one partition. Partition names are numbers or strings. With a single field, a row may be the
            bare value, unless the value is itself a list or tuple.
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

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """Read the rows again, and return a coordinator of them."""
        del config, context
        self.rows.read()
        return _MemoryCoordinator(self.rows.lengths(), self.take_per_batch)

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        """Return the emitter of every n-th partition from ``this_task_index`` on, where n is the number of tasks."""
        del config
        tasks = len(context.component_tasks(context.this_component_id))
        return _MemoryEmitter(self.rows, context.this_task_index, tasks)

    def input_ranges(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, tuple[Any, Any]] | None:
        """Return, by partition, the index of the first row and the index after the last row."""
        del previous_metadata
        return {partition: (start, end) for partition, (start, end) in metadata.items()}


class MemoryRows:
    """Rows by partition, copied and checked at the last :meth:`read`, here and in every pickled copy."""

    def __init__(self, data: Data, fields: Fields) -> None:
        self.fields = fields
        self._data: Mapping[Any, Sequence[Any]] = data if isinstance(data, Mapping) else {0: data}
        self._checked: dict[Partition, _CheckedRows] = {}
        self.read()

    def read(self) -> None:
        """Read and check the current rows.

        Raises:
            FieldsError: a row does not fit the fields.
            InputError: rows were removed, or partition names are neither distinct numbers nor strings.
        """
        names: dict[str, Partition] = {}
        for partition in self._data:
            if not isinstance(partition, int | str) or names.setdefault(str(partition), partition) != partition:
                raise InputError(f"partition {partition!r}: name each partition by its own number or string")
        checked = {partition: self._check(partition) for partition in sorted(self._data, key=_number_before_string)}
        self._checked = checked

    def lengths(self) -> dict[Partition, int]:
        """Return the number of rows of each partition at the last :meth:`read`, sorted by partition."""
        return {partition: len(checked.rows) for partition, checked in self._checked.items()}

    def emit(
        self, attempt: TransactionAttempt, partition: Partition, start: int, end: int, collector: BatchOutputCollector
    ) -> None:
        """Emit the rows ``start`` to ``end - 1`` of a partition; raise InputError if they are missing."""
        checked = self._checked.get(partition)
        if checked is None or end > len(checked.rows):
            have = 0 if checked is None else len(checked.rows)
            raise InputError(
                f"the transaction holds rows {start} to {end - 1} of partition {partition!r}, which has only "
                f"{have}; rows in memory may be added, but not removed",
                txid=attempt.txid,
            )
        if isinstance(checked.rows, pa.RecordBatch):
            collector.emit_batch(checked.rows.slice(start, end - start))
            return
        emit, first = collector.emit, (attempt,)
        for row in checked.rows[start:end]:
            emit(first + row)

    def _check(self, partition: Partition) -> _CheckedRows:
        """Return a partition's rows as they are emitted; check only those that are new since the last reading."""
        data = self._data[partition]
        before = self._checked.get(partition)
        count = 0 if before is None else len(before.rows)
        if before is not None and count == len(data):
            return before
        if len(data) < count:
            raise InputError(f"partition {partition!r} has {len(data)} rows and had {count}; rows may only be added")
        added = [self._row(partition, count + index, row) for index, row in enumerate(data[count:])]
        if not self.fields.columnar:
            return _CheckedRows(added if before is None else [*before.rows, *added])
        batch = self._batch(partition, count, added)
        return _CheckedRows(batch if before is None else pa.concat_batches([before.rows, batch]))

    def _row(self, partition: Partition, index: int, row: Any) -> tuple[Any, ...]:
        if isinstance(row, list | tuple):
            values = tuple(row)
        elif len(self.fields) == 1:
            values = (row,)
        else:
            raise FieldsError(
                f"row {index} of partition {partition!r} is {row!r}; give a list with one value for each of "
                f"the fields {', '.join(self.fields)}"
            )
        if len(values) != len(self.fields):
            raise FieldsError(
                f"row {index} of partition {partition!r} has {len(values)} values: {row!r}; the fields "
                f"after the attempt are {', '.join(self.fields)}"
            )
        return values if self.fields.columnar else tuple(map(copied, values))

    def _batch(self, partition: Partition, first: int, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.fields)
        schema = self.fields.arrow_schema()
        arrays = [self._array(partition, first, field, values) for field, values in zip(schema, columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, partition: Partition, first: int, field: Any, values: Sequence[Any]) -> pa.Array:
        array = fit_array(values, field.type)
        if array is None:
            misfit = misfit_of(values, field.type)
            raise FieldsError(
                f"row {first + misfit.position} of partition {partition!r}, field '{field.name}: "
                f"{ddl_name(field.type)}': {misfit.why}"
            )
        return array

    def __getstate__(self) -> dict[str, Any]:
        return {"fields": self.fields, "_checked": self._checked}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.fields = state["fields"]
        self._checked = state["_checked"]
        self._data = {partition: _Frozen(len(checked.rows)) for partition, checked in self._checked.items()}


@attrs.frozen
class _CheckedRows:
    """The rows of a partition: a list of value tuples, or a record batch if the fields are columnar."""

    rows: Any


class _MemoryCoordinator(Coordinator):
    def __init__(self, lengths: Mapping[Partition, int], take: int) -> None:
        self._lengths = {str(partition): length for partition, length in lengths.items()}
        self._take = take
        self._ends: Mapping[str, int] = {}

    def resume(self, txid: int, metadata: Metadata) -> None:
        del txid
        self._ends = self._ends_of(metadata)

    def initialize_transaction(self, txid: int, previous_metadata: Metadata) -> Metadata:
        del txid
        ends = self._ends_of(previous_metadata)
        metadata = {}
        for partition, length in self._lengths.items():
            start = ends.get(partition, 0)
            end = min(length, start + self._take)
            # An exhausted partition stays in the metadata, as [end, end], because it may grow before the next run.
            if end > 0:
                metadata[partition] = [start, end]
        self._ends = self._ends_of(metadata)
        return metadata

    def is_ready(self) -> bool:
        return not self.is_exhausted()

    def is_exhausted(self) -> bool:
        return all(self._ends.get(partition, 0) == length for partition, length in self._lengths.items())

    def remaining(self, metadata: Metadata) -> int:
        ends = self._ends_of(metadata)
        rows_left = (length - ends.get(partition, 0) for partition, length in self._lengths.items())
        return -(-max(rows_left, default=0) // self._take)

    def _ends_of(self, metadata: Metadata) -> Mapping[str, int]:
        ends: dict[str, int] = {partition: end for partition, (_, end) in (metadata or {}).items()}
        for partition, end in ends.items():
            if end > self._lengths.get(partition, 0):
                raise InputError(
                    f"{end} rows of partition {partition!r} have been taken, but it has "
                    f"{self._lengths.get(partition, 0)}; rows in memory may be added, but not removed"
                )
        return ends


class _MemoryEmitter(Emitter):
    def __init__(self, rows: MemoryRows, task: int, tasks: int) -> None:
        self._rows = rows
        self._task = task
        self._tasks = tasks

    def emit_batch(self, attempt: TransactionAttempt, metadata: Metadata, collector: BatchOutputCollector) -> None:
        # The shares depend on the metadata alone: partitions added since must not shift them between two attempts.
        partitions = [partition for partition in self._rows.lengths() if str(partition) in metadata]
        if len(partitions) != len(metadata):
            lost = set(metadata) - {str(partition) for partition in partitions}
            raise InputError(f"partition {min(lost)!r} is missing; put its rows back", txid=attempt.txid)
        for partition in partitions[self._task :: self._tasks]:
            start, end = metadata[str(partition)]
            if start < end:
                self._rows.emit(attempt, partition, start, end, collector)


class _Frozen(Sequence[Any]):
    """A placeholder with the length of rows that were checked in another process."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        raise IndexError("these rows come from another process and were checked there")


def _number_before_string(partition: Partition) -> tuple[bool, Partition]:
    return isinstance(partition, str), partition
