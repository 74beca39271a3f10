"""The combiner of the committers of event time: their own first step, taken where rows are emitted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence

import attrs
import pyarrow as pa

from txtopo.api.reduction import Combiner


@attrs.frozen
class FirstStep(Combiner):
    """Combines a batch by a function of its rows and of the time at which the transaction was planned."""

    key: Sequence[str]
    fields: Sequence[str]
    step: Callable[[pa.Table, dt.datetime], pa.Table]

    def combine(self, batch: pa.RecordBatch, planned_at: dt.datetime) -> pa.RecordBatch | None:
        """Return the combined rows of a batch; None if there is none left, which cannot be sent."""
        combined = self.step(pa.Table.from_batches([batch]), planned_at).combine_chunks().to_batches()
        return combined[0] if combined else None
