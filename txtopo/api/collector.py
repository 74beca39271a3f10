"""Collectors: how spouts and bolts emit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from txtopo.api.tuples import DEFAULT_STREAM


class BasicOutputCollector(ABC):
    """Collects the tuples that a basic bolt emits.

    *You* put the attempt first in every tuple, emit only tuples that fit the stream's declared fields, and emit
    before the method that txtopo called returns. Your own threads may emit too if that method waits for them; a tuple
    emitted later stops the run. If threads emit in a different order each time, ``txtopo replay`` may report a
    difference.

    *txtopo* guarantees that no tuple of a failed attempt reaches a later one, and that it copies what you emit: you
    may change a list, or the values in it, and emit it again. Arrow columns are shared, not copied: do not change a
    numpy array after you have emitted a column made from it.
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
        """Emit one tuple to task ``task`` (an index from 0) of each bolt that subscribes by ``direct_grouping``."""


class BatchOutputCollector(BasicOutputCollector):
    """Collects what a spout or batch bolt emits for one attempt in one task; see :class:`BasicOutputCollector`."""

    @abstractmethod
    def emit_batch(self, batch: pa.RecordBatch, stream: str = DEFAULT_STREAM) -> None:
        """Emit the rows of an Arrow record batch on a columnar stream.

        Args:
            batch: columns are the stream's fields in order; the attempt column may be left out.
            stream: a columnar stream that the component declares.
        """
