"""Collectors: how spouts and bolts emit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from txtopo.api.tuples import DEFAULT_STREAM


class BasicOutputCollector(ABC):
    """Takes what a basic bolt emits.

    *You* put the attempt first into every tuple, emit only what the stream declares, and emit before the method
    returns that was called for the batch. Threads of your own may emit too, if that method waits for them: what they
    emit later stops the run. Tuples that come in another order each time are what a replay may show as a difference.
    *txtopo* guarantees that nothing of an attempt that fails reaches a later one, and that what is emitted counts
    as it was then: a list may be changed and emitted again, the values in it too. Arrow's columns are shared: leave a
    numpy array alone once a column that was made of it is emitted.
    """

    @abstractmethod
    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple.

        Args:
            values: one value for each declared field, the attempt first.
            stream: a stream that the component declares.

        Raises:
            FieldsError: the tuple does not fit the stream's fields.
        """

    @abstractmethod
    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple to the task with index ``task`` of each bolt joined by ``direct_grouping``."""


class BatchOutputCollector(BasicOutputCollector):
    """Takes what a spout or batch bolt emits, for one attempt in one task; as :class:`BasicOutputCollector`."""

    @abstractmethod
    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        """Emit the rows of an Arrow record batch on a columnar stream.

        Args:
            batch: its columns are the stream's fields in their order; the attempt column may be left out.
            stream: a columnar stream that the component declares.
        """
