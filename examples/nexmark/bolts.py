"""Bolts on columns that several queries use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txtopo import ArrowBatchBolt, BatchOutputCollector, Fields, TopologyContext, TransactionAttempt


class Rows(ArrowBatchBolt):
    """Emits what a function makes of some rows, whichever rows it is given together."""

    def __init__(self, function: Callable[[pa.Table], pa.Table], fields: Fields) -> None:
        self.function, self.schema = function, fields.arrow_schema()
        self.output_fields = fields.with_attempt()

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Begin a batch."""
        self.collector = collector

    def execute(self, batch: pa.RecordBatch) -> None:
        """Emit rows for some rows."""
        self.emit(self.function(pa.Table.from_batches([batch])))

    def emit(self, rows: pa.Table) -> None:
        """Emit rows, by the names of their columns."""
        for batch in rows.select(self.schema.names).cast(self.schema).combine_chunks().to_batches():
            self.collector.emit_batch(batch)

    def finish_batch(self) -> None:
        """Do no more."""


class Largest(Rows):
    """Emits the rows with the largest value of each key, ties included; a key's rows are all in one transaction."""

    def __init__(self, value: str, *, key: str, fields: Fields) -> None:
        super().__init__(self.largest, fields)
        self.value, self.key = value, key
        self.batches: list[pa.RecordBatch] = []

    def execute(self, batch: pa.RecordBatch) -> None:
        """Keep the rows."""
        self.batches.append(batch)

    def finish_batch(self) -> None:
        """Emit the largest ones."""
        if self.batches:
            self.emit(self.largest(pa.Table.from_batches(self.batches)))

    def largest(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the largest values."""
        largest = rows.group_by(self.key).aggregate([(self.value, "max")])
        of_key = largest[f"{self.value}_max"].take(pc.index_in(rows[self.key], largest[self.key]))
        return rows.filter(pc.equal(rows[self.value], of_key))
