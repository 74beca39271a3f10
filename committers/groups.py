"""``GroupsBolt``: aggregates of the groups of each transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from committers.aggregates.aggregation import Aggregation
from committers.aggregates.fields import fields_of
from txtopo import ArrowBatchBolt, BatchOutputCollector, TopologyContext, TransactionAttempt


class GroupsBolt(ArrowBatchBolt):
    """Emits aggregates of each transaction's groups, when all rows of the transaction are there."""

    def __init__(self, aggregation: Aggregation) -> None:
        self._aggregation = aggregation
        self.output_fields = fields_of(aggregation.result_schema).with_attempt()

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Start with no groups."""
        super().prepare(config, context, collector, attempt)
        self._partials: list[pa.Table] = []

    def execute(self, batch: pa.RecordBatch) -> None:
        """Aggregate some rows."""
        self._partials.append(self._aggregation.partials(batch))

    def finish_batch(self) -> None:
        """Emit the groups."""
        if self._partials:
            merged = self._aggregation.merged(pa.concat_tables(self._partials))
            for batch in self._aggregation.results(merged).combine_chunks().to_batches():
                self.collector.emit_batch(batch)
