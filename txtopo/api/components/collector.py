"""Collectors: how spouts and bolts emit, and how bolts of plain topologies ack and fail what they received."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from txtopo.api.data.tuples import DEFAULT_STREAM, Tuple
from txtopo.errors import AnchorError

Anchor = Tuple | Sequence[Tuple] | None
"""What an emitted tuple descends from: a tuple, several, or none."""


def anchor_of_each(rows: Sequence[Any], anchors: Tuple | Sequence[Anchor] | None) -> Sequence[Anchor]:
    """Return the anchor of each row, given what ``emit_batch`` was given; AnchorError if their numbers differ."""
    if anchors is None or isinstance(anchors, Tuple):
        return [anchors] * len(rows)
    if len(anchors) != len(rows):
        raise AnchorError(
            f"emit_batch got {len(rows)} rows and {len(anchors)} anchors; give one for each row, one tuple for all, or "
            "None"
        )
    return anchors


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


class OutputCollector(ABC):
    """Emits, acks and fails for one task of a rich bolt.

    *You* ack or fail every tuple that you receive, now or later; otherwise its root times out. *You* call it in the
    thread that calls the bolt, and leave values alone once they are emitted: tasks of the same worker share them.
    *txtopo* guarantees that a root is acked only after every tuple that is anchored to it, directly or not, was acked.
    """

    __slots__ = ()

    @abstractmethod
    def emit(
        self, values: Sequence[Any], anchors: Tuple | Sequence[Tuple] | None = None, stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """Emit one tuple and return the ids of the tasks that get it.

        Args:
            values: one value for each declared field.
            anchors: the tuples that it descends from, or one: if it fails, their roots fail. None: it belongs to no
                tree, and its failure has no effect.
            stream: a stream that the bolt declares.

        Raises:
            FieldsError: the values do not fit the stream's fields.
            AnchorError: an anchor was acked or failed before.
        """

    @abstractmethod
    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Tuple | Sequence[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit one tuple to one task, by its id, on a stream that is declared as direct.

        Raises:
            TopologyError: no bolt with that task subscribes to the stream by ``direct_grouping``.
        """

    def emit_batch(
        self,
        rows: Sequence[Sequence[Any]],
        anchors: Tuple | Sequence[Anchor] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit many tuples in one call: the same as ``emit`` for each.

        Args:
            rows: the values of each tuple.
            anchors: for each tuple what it is anchored to, as for ``emit``: as many as there are rows. One tuple is
                the anchor of all. None: they belong to no tree.
            stream: a stream that the bolt declares.

        Raises:
            FieldsError: a row does not fit the stream's fields.
            AnchorError: an anchor was acked or failed before, or there is not one for each row.
        """
        for row, anchor in zip(rows, anchor_of_each(rows, anchors), strict=True):
            self.emit(row, anchor, stream)

    @abstractmethod
    def ack(self, tuple: Tuple) -> None:
        """Ack a tuple: it is processed. The tuples anchored to it remain pending; a second ack is ignored."""

    def ack_batch(self, tuples: Sequence[Tuple]) -> None:
        """Ack many tuples in one call, the same as ``ack`` for each; fastest with all that ``execute_batch`` got."""
        for each in tuples:
            self.ack(each)

    @abstractmethod
    def fail(self, tuple: Tuple) -> None:
        """Fail a tuple: every root that it descends from fails now, not at its timeout."""

    @abstractmethod
    def reset_timeout(self, tuple: Tuple) -> None:
        """Restart the timeout of every root that a tuple descends from."""

    @abstractmethod
    def report_error(self, error: BaseException) -> None:
        """Report an error that the bolt survives; the log and the run's report show it."""


class SpoutOutputCollector(ABC):
    """Emits for one task of a plain spout.

    *You* call it in the thread that calls the spout, and leave values alone once they are emitted.
    *txtopo* guarantees to call ``ack`` or ``fail`` of this spout task at most once for each tuple that was emitted
    with a message id, and never for one without.
    """

    __slots__ = ()

    @abstractmethod
    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM, message_id: Any = None) -> list[int]:
        """Emit one tuple and return the ids of the tasks that get it.

        Args:
            values: one value for each declared field.
            stream: a stream that the spout declares.
            message_id: the argument for ``ack`` or ``fail``, of any type; None: the tuple is not tracked.

        Raises:
            FieldsError: the values do not fit the stream's fields.
        """

    @abstractmethod
    def emit_direct(
        self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM, message_id: Any = None
    ) -> None:
        """Emit one tuple to one task, by its id, on a stream that is declared as direct.

        Raises:
            TopologyError: no bolt with that task subscribes to the stream by ``direct_grouping``.
        """

    @abstractmethod
    def pending_count(self) -> int:
        """Return how many roots of this task are neither acked nor failed."""

    @abstractmethod
    def report_error(self, error: BaseException) -> None:
        """Report an error that the spout survives; the log and the run's report show it."""
