"""Bolts: what users write to process batches. Four kinds, and the marker that makes a committer of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from txtopo.api.collector import BasicOutputCollector, BatchOutputCollector
from txtopo.api.context import TopologyContext
from txtopo.api.fields import Fields
from txtopo.api.reduction import Combiner
from txtopo.api.tuples import DEFAULT_STREAM, Tuple
from txtopo.attempts import TransactionAttempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class OutputFieldsDeclarer:
    """Collects the output streams that a component declares."""

    def __init__(self) -> None:
        self.streams: dict[str, Fields] = {}
        self.direct_streams: set[str] = set()

    def declare(self, fields: Fields, *, direct: bool = False) -> None:
        """Declare the default stream's fields, the attempt first."""
        self.declare_stream(DEFAULT_STREAM, fields, direct=direct)

    def declare_stream(self, stream: str, fields: Fields, *, direct: bool = False) -> None:
        """Declare a stream's fields, the attempt first.

        Args:
            stream: the name to give to ``emit``.
            fields: its fields.
            direct: whether it is emitted on by ``emit_direct``.
        """
        self.streams[stream] = fields
        if direct:
            self.direct_streams.add(stream)


class Component(ABC):  # noqa: B024 - its kinds have the abstract methods
    """What spouts and bolts have in common: declared output streams."""

    output_fields: Fields | None = None
    """The fields of the default stream, the attempt first; None for a component that emits nothing there."""

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the output streams; override it for several of them."""
        if self.output_fields is not None:
            declarer.declare(self.output_fields)


class Bolt(Component):
    """The root of the bolt kinds; subclass one of those."""


class BasicBolt(Bolt):
    """A bolt that works tuple by tuple and keeps nothing between two of them.

    *txtopo* guarantees a fresh, prepared object for each attempt in each task.
    """

    def prepare(self, config: Mapping[str, Any], context: TopologyContext) -> None:
        """Get ready; called once, before the first ``execute``."""

    @abstractmethod
    def execute(self, tuple: Tuple, collector: BasicOutputCollector) -> None:
        """Process one tuple and emit what follows from it, the attempt first.

        Raises:
            FailedException: the whole transaction is replayed.
        """

    def cleanup(self) -> None:
        """Let go of what ``prepare`` took; called after the last tuple."""


class BatchBolt(Bolt):
    """A bolt that works through one batch: all tuples of one attempt that reach one task.

    *You* keep what you learn from the batch in attributes. The object of a committer moves from an executor
    to the commit phase between ``execute`` and ``finish_batch``, so its attributes must pickle.
    *txtopo* guarantees a fresh object for each attempt in each task, ``prepare`` first, then ``execute`` for
    each tuple, then ``finish_batch`` once, and that only after every tuple of the batch has come. Tasks that
    no tuple reaches get ``prepare`` and ``finish_batch`` too. ``self.attempt``, ``self.collector``,
    ``self.context`` and ``self.config`` are set before ``prepare`` is called. Tuples of a columnar stream reach
    ``execute_batch`` instead of ``execute``, where a bolt has both; others may where it has a ``combiner``, too.
    """

    attempt: TransactionAttempt
    collector: BatchOutputCollector
    context: TopologyContext
    config: Mapping[str, Any]

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one batch.

        Args:
            config: the topology's configuration, with what the component adds to it.
            context: where this task stands; ``context.state(name)`` for a committer.
            collector: emits, also in later calls.
            attempt: the transaction and the try at it.
        """

    def combiner(self) -> Combiner | None:
        """Return how equal keys may be made one row before they reach this bolt; None, the default: not at all.

        It is used where a DataFrameSpout's rows would be shuffled: then asked of the bolt as it was declared, before
        any batch. And it is used where tuples of a stream without types come to a bolt with ``execute_batch``: if
        their keys are texts or whole numbers and their values whole numbers, it gets the key fields and the value as
        columns. It may be left alone: the bolt must come to the same with the rows, or tuples, as they are.
        """
        return None

    @abstractmethod
    def execute(self, tuple: Tuple) -> None:
        """Take one tuple of the batch.

        Raises:
            FailedException: the whole transaction is replayed.
        """

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        """Take many tuples at once; override it to be faster on columnar streams than tuple by tuple.

        *You* define ``execute`` too, for streams whose fields have no types, and do the same in both.
        *txtopo* calls one of them for a tuple, never both: this one for every tuple of a columnar stream, and for
        others where a :meth:`combiner` says which fields are asked for. A subclass that overrides ``execute`` alone
        is called tuple by tuple.

        Args:
            batch: some rows of the batch, as for :class:`ArrowBatchBolt`: the attempt column, a struct of ``txid``
                and ``attempt``, then the stream's other fields, or of a stream without types the combiner's.

        Raises:
            FailedException: the whole transaction is replayed.
        """
        raise NotImplementedError

    def finish_batch(self) -> None:
        """Emit or write what follows from the whole batch; a committer's runs in the commit phase.

        Raises:
            FailedException: the whole transaction is replayed.
        """


class ArrowBatchBolt(Bolt):
    """A batch bolt that takes its tuples as Arrow record batches; its input streams are columnar.

    The promises are those of :class:`BatchBolt`. The first column of a batch is the attempt, a struct of
    ``txid`` and ``attempt`` (both int64), the same in every row.
    """

    attempt: TransactionAttempt
    collector: BatchOutputCollector
    context: TopologyContext
    config: Mapping[str, Any]

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one batch; see :meth:`BatchBolt.prepare`."""

    @abstractmethod
    def execute(self, batch: pa.RecordBatch) -> None:
        """Take some rows of the batch: the attempt column, then the stream's other fields.

        Raises:
            FailedException: the whole transaction is replayed.
        """

    def finish_batch(self) -> None:
        """Emit or write what follows from the whole batch; see :meth:`BatchBolt.finish_batch`."""


class DataFrameBolt(Bolt):
    """A bolt on Spark DataFrames, for the processing phase: the whole way stays in Spark SQL.

    *You* return a DataFrame whose columns are ``output_fields``, each with a type, and keep the attempt
    column: group by it, join on it. A frame may hold several transactions at once.
    *txtopo* guarantees that the frame holds every tuple of each transaction in it exactly once.
    """

    uses_delta: ClassVar[bool] = False
    """Whether it reads Delta tables through Spark (``frame.sparkSession.read.format("delta")``)."""

    @abstractmethod
    def transform(self, frame: DataFrame) -> DataFrame:
        """Return the output of the transactions in ``frame``.

        Args:
            frame: first the attempt, a struct of ``txid`` and ``attempt`` (both bigint), then the other
                fields of the source's stream. With several inputs their streams must have equal fields;
                the frame holds them all.
        """


class ICommitter:
    """Marks a batch bolt as a committer: its ``finish_batch`` runs in the commit phase, in txid order."""
