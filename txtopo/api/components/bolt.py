"""Bolts: what users write to process tuples.

Transactional topologies have four kinds, and a marker that makes a committer of one. Plain topologies have rich bolts
and basic bolts.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from txtopo.api.components.collector import BasicOutputCollector, BatchOutputCollector, OutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import DEFAULT_STREAM, Tuple, Tuples
from txtopo.api.reduction import Combiner
from txtopo.attempts import TransactionAttempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class OutputFieldsDeclarer:
    """Collects the output streams that a component declares."""

    def __init__(self) -> None:
        self.streams: dict[str, Fields] = {}
        self.direct_streams: set[str] = set()

    def declare(self, fields: Fields, *, direct: bool = False) -> None:
        """Declare the fields of the default stream, the attempt first."""
        self.declare_stream(DEFAULT_STREAM, fields, direct=direct)

    def declare_stream(self, stream: str, fields: Fields, *, direct: bool = False) -> None:
        """Declare the fields of a named stream, the attempt first.

        Args:
            stream: the name that the component passes to ``emit``.
            fields: the stream's fields.
            direct: whether the component emits on it with ``emit_direct``.
        """
        self.streams[stream] = fields
        if direct:
            self.direct_streams.add(stream)


class Component(ABC):  # noqa: B024 - its subclasses have the abstract methods
    """The common part of spouts and bolts: declared output streams."""

    output_fields: Fields | None = None
    """The fields of the default stream, the attempt first; None if the component emits nothing on it."""

    def component_configuration(self) -> Mapping[str, Any]:
        """Return settings for this component of a plain topology; those of ``add_configuration`` override them."""
        return {}

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the output streams; override this to declare more than the default stream."""
        if self.output_fields is not None:
            declarer.declare(self.output_fields)


class Bolt(Component):
    """The base class of all bolts; subclass one of its subclasses, not this one."""

    def input_mistakes(self, inputs: Mapping[tuple[str, str], Fields]) -> Iterable[str]:
        """Return what is wrong with its subscriptions; ``build()`` raises it, with all other mistakes.

        Args:
            inputs: the fields of each stream that it subscribes to, by component id and stream.

        Returns:
            a sentence with the remedy for each mistake, whose subject is the bolt: ``"reads a field that …"``.
        """
        return ()


class BasicBolt(Bolt):
    """A bolt that processes one tuple at a time, in a transactional topology or in a plain one.

    In a transactional topology it keeps nothing between two tuples: *txtopo* guarantees a fresh, prepared object for
    each attempt in each task, and *you* emit the attempt as the first value of each tuple.

    In a plain topology there is no attempt, and one object for each task, which lives as long as its worker. *txtopo*
    anchors what ``execute`` emits to the tuple it was called with, and acks that tuple when ``execute`` returns. So a
    basic bolt cannot hold tuples back or join them; a :class:`RichBolt` can.
    """

    def prepare(self, config: Mapping[str, Any], context: TopologyContext) -> None:
        """Acquire resources; called once, before the first ``execute``."""

    @abstractmethod
    def execute(self, tuple: Tuple, collector: BasicOutputCollector) -> None:
        """Process one tuple and emit what follows from it; in a transactional topology, the attempt first.

        Raises:
            FailedException: the whole transaction is replayed; in a plain topology, the tuple fails.
            ReportedFailedException: the same, and the error is reported.
        """

    def cleanup(self) -> None:
        """Release resources; called after the last tuple."""


class RichBolt(Bolt):
    """A bolt of a plain topology: it decides itself when a tuple is acked, and what an emitted tuple descends from.

    *You* ack or fail every tuple, in ``execute`` or later: an aggregation holds tuples and acks them together, a join
    anchors one tuple to several. *txtopo* guarantees one object for each task, which lives as long as its worker, and
    calls all its methods in one thread. If the worker dies, a fresh object replaces this one, and the roots of the
    tuples that this one held fail at once.

    *You* write ``execute`` or ``execute_batch``, not both: of a class that has both, *txtopo* calls ``execute_batch``
    alone. A subclass that overrides ``execute`` is called tuple by tuple again.
    """

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        """Acquire resources; called once, before the first ``execute``, when the topology is first active.

        Args:
            config: the topology's configuration, merged with the component's settings.
            context: this task's place in the topology.
            collector: emits, acks and fails; stays valid in later calls.
        """

    def execute(self, tuple: Tuple) -> None:
        """Process one tuple.

        Raises:
            FailedException: the tuple fails, as by ``collector.fail``. Any other exception ends the worker.
        """
        self.execute_batch(Tuples([tuple]))

    def execute_batch(self, tuples: Tuples) -> None:
        """Process what waits for this task at once; override this instead of ``execute``.

        *You* emit and ack many tuples in one call: ``collector.emit_batch`` and ``collector.ack_batch``.

        *txtopo* guarantees that all tuples of a call are of one stream of one component, so ``tuples.column(field)``
        has a value for each; that those of one task on that stream come in the order of their emission; and that it
        does not wait for more: a lone tuple comes alone. A tick comes in a separate call.

        Args:
            tuples: at least one, and at most 2,000.

        Raises:
            FailedException: those of the tuples that were neither acked nor failed before fail. Any other exception
                ends the worker.
        """
        for each in tuples:
            self.execute(each)

    def cleanup(self) -> None:
        """Release resources; called at the end of a run, but not if the worker is killed."""


class TakesBatches(Bolt):
    """What batch bolts have, whatever their tuples come as."""

    quiet_after: dt.timedelta | None = None
    """Begin a transaction without input whenever the source has had none for so long; None, the default: begin none.

    For a bolt that has something to do when time passes, such as closing a window: a transaction without input calls
    ``finish_batch`` as every other does, and ``context.planned_at`` says how late it is. If several bolts ask, the
    shortest time counts. A run that begins, or whose source has failed, listens for so long first. None begins before
    the first input, while the source fails, while earlier transactions are uncommitted, or after the one of
    :attr:`at_end`. The spout's emitters are not called, and the spout's coordinator is not asked for metadata.
    """
    at_end: bool = False
    """Whether to begin one more transaction once a bounded source is exhausted; in it, ``context.is_at_end`` is True.

    For a bolt that holds something back until more comes. *txtopo* guarantees exactly one such transaction, also if
    the topology is started again; and another one at the end of the input that came in between, if any did. It has no
    input, as those of :attr:`quiet_after`. A source that was empty from the start has none.
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
        """Prepare for one batch.

        Args:
            config: the topology's configuration, merged with the component's settings.
            context: this task's place in the topology; a committer gets its states from ``context.state(name)``.
            collector: emits tuples; stays valid in later calls.
            attempt: the transaction and the attempt at it.
        """

    def finish_batch(self) -> None:
        """Emit or write the results of the whole batch; for a committer this runs in the commit phase.

        Raises:
            FailedException: to have the whole transaction replayed.
        """


class BatchBolt(TakesBatches):
    """A bolt that processes one batch: all tuples of one attempt that reach one task.

    *You* keep intermediate results in attributes. Between ``execute`` and ``finish_batch`` a committer object
    moves from an executor to the commit phase in the driver, so its attributes must pickle.

    *txtopo* guarantees a fresh object for each attempt in each task. It calls ``prepare`` first, then ``execute``
    for each tuple, then ``finish_batch`` once, after every tuple of the batch has arrived. Tasks that receive no
    tuple get ``prepare`` and ``finish_batch`` too. ``self.attempt``, ``self.collector``, ``self.context`` and
    ``self.config`` are set before ``prepare``. If the bolt defines both ``execute`` and ``execute_batch``, tuples
    of a columnar stream go to ``execute_batch``; with a ``combiner``, tuples of other streams may go there too.
    """

    def combiner(self) -> Combiner | None:
        """Return how rows with equal keys may be combined before they reach this bolt; None, the default, for never.

        txtopo asks the bolt object passed to ``set_bolt``, before any batch, and passes combined rows to
        :meth:`execute_combined`. Only a bolt with ``execute_batch`` is asked.

        *You* produce the same result from combined and from uncombined input: txtopo may ignore the combiner.
        """
        return None

    def combiner_of(self, source: str) -> Combiner | None:
        """Return how rows of one component may be combined; by default as those of all, by :meth:`combiner`.

        Args:
            source: the id of a component that this bolt subscribes to.
        """
        del source
        return self.combiner()

    @abstractmethod
    def execute(self, tuple: Tuple) -> None:
        """Process one tuple of the batch.

        Raises:
            FailedException: to have the whole transaction replayed.
        """

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        """Process many tuples at once; override this to process columnar streams faster than tuple by tuple.

        *You* define ``execute`` too, for untyped streams, and make both methods do the same.

        *txtopo* guarantees that each tuple goes to exactly one of the two: to this one for every tuple of a columnar
        stream, and for tuples of other streams if a :meth:`combiner` names the fields. A subclass that overrides
        ``execute`` alone is called tuple by tuple.

        Args:
            batch: some rows of the batch, as for :class:`ArrowBatchBolt`: the attempt column (a struct of ``txid``
                and ``attempt``), then the stream's other fields; for an untyped stream, the combiner's fields.

        Raises:
            FailedException: to have the whole transaction replayed.
        """
        raise NotImplementedError

    def execute_combined(self, batch: pa.RecordBatch) -> None:
        """Process rows that this bolt's :meth:`combiner` has combined; by default, like all others.

        Args:
            batch: the attempt column, then the columns that the combiner returned.

        Raises:
            FailedException: to have the whole transaction replayed.
        """
        self.execute_batch(batch)


class ArrowBatchBolt(TakesBatches):
    """A batch bolt that receives its tuples as Arrow record batches; its input streams must be columnar.

    It has the same contract as :class:`BatchBolt`. The first column of a batch is the attempt, a struct of
    ``txid`` and ``attempt`` (both int64), equal in every row.
    """

    @abstractmethod
    def execute(self, batch: pa.RecordBatch) -> None:
        """Process some rows of the batch: the attempt column, then the stream's other fields.

        Raises:
            FailedException: to have the whole transaction replayed.
        """


class DataFrameBolt(Bolt):
    """A bolt of the processing phase that transforms Spark DataFrames; its data never leaves Spark SQL.

    *You* return a DataFrame whose columns are ``output_fields``, each typed, and keep the attempt column:
    group by it, join on it. A DataFrame may hold several transactions.

    *txtopo* guarantees that the DataFrame holds every tuple of each of its transactions exactly once.
    """

    uses_delta: ClassVar[bool] = False
    """Whether the bolt reads Delta tables through Spark (``frame.sparkSession.read.format("delta")``)."""

    @abstractmethod
    def transform(self, frame: DataFrame) -> DataFrame:
        """Return the output of the transactions in ``frame``.

        Args:
            frame: the attempt column, a struct of ``txid`` and ``attempt`` (both bigint), then the other fields of
                the input stream. A bolt with several inputs gets the union of their streams, which must have equal
                fields.
        """


class ICommitter:
    """Marks a batch bolt as a committer: its ``finish_batch`` runs in the commit phase, in txid order."""
