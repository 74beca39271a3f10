"""Spouts: the sources of tuples.

:class:`Spout` is for plain topologies. All others are for transactional ones: a coordinator decides what a transaction
holds; emitters emit it.

Metadata is JSON: txtopo encodes what a coordinator or emitter returns, makes it durable and decodes it before use, so
the first attempt sees exactly what every later one will.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import attrs

from txtopo.api.components.bolt import BatchBolt, Component
from txtopo.api.components.collector import BatchOutputCollector, SpoutOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.dataset import Dataset
from txtopo.api.state import State
from txtopo.api.store import Lead, Store
from txtopo.attempts import TransactionAttempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Metadata = Any
"""What an emitter needs to emit a batch again, as a JSON value: offsets, not data."""


@attrs.frozen
class Lag:
    """How much of a source no transaction has taken: records, or what the source knows instead; None for unknown.

    Args:
        records: how many.
        files: how many, one that is taken in part among them.
        bytes: about how many of those files.
    """

    records: int | None = None
    files: int | None = None
    bytes: int | None = None


class Spout(Component):
    """The source of a plain topology: emits tuples one by one, and learns of each whether it was fully processed.

    *You* emit with a message id to have a tuple tracked, keep what you need to emit it again until ``ack``, and
    decide in ``fail`` whether you do. txtopo keeps no values: what a spout does not emit again is lost. *txtopo*
    guarantees one object for each task and calls all its methods in one thread; for each tracked tuple it calls
    ``ack`` or ``fail`` at most once. If the worker dies, the fresh object that replaces this one learns nothing of its
    tuples: the source must offer again what was not acked.
    """

    def open(self, config: Mapping[str, Any], context: TopologyContext, collector: SpoutOutputCollector) -> None:
        """Acquire resources; called once, before all else, when the topology is first active.

        Args:
            config: the topology's configuration, merged with the component's settings.
            context: this task's place in the topology.
            collector: emits; stays valid in later calls.
        """

    @abstractmethod
    def next_tuple(self) -> None:
        """Emit some tuples if there are any, and return soon: while it waits, nothing else in its worker runs.

        It is called only while the topology is active and fewer than ``topology.max.spout.pending`` roots of this task
        are pending.
        """

    def ack(self, message_id: Any) -> None:
        """Learn that a tuple and all that descended from it were processed."""

    def fail(self, message_id: Any) -> None:
        """Learn that a tuple failed, timed out, or touched a worker that died. It may be emitted again here."""

    def activate(self) -> None:
        """Learn that ``next_tuple`` is called from now on; called after ``open``, too."""

    def deactivate(self) -> None:
        """Learn that ``next_tuple`` is not called until ``activate``. Acks and failures still come."""

    def is_exhausted(self) -> bool:
        """Whether this task will never emit a new tuple; False for an endless source.

        A run ends when every spout task says so and nothing is pending. ``fail`` may still emit until then.
        """
        return False

    def lag(self) -> int | None:
        """Return how many records this task is behind the end of its source, for metrics; None if it does not know.

        *You* answer at once, from what you know: it is called several times a second.
        """
        return None

    def close(self) -> None:
        """Release resources; called at the end of a run, but not if the worker is killed."""


class SpoutWaitStrategy(ABC):
    """Says how long a spout of a plain topology waits when it emits nothing. Must pickle.

    The worker waits, not the strategy: it handles tuples and acks that arrive meanwhile at once.
    """

    @abstractmethod
    def empty_emit(self, streak: int) -> float:
        """Return how many seconds to wait before the spout is called again.

        Args:
            streak: how many times in a row, from 1, the spout has emitted nothing or already had the maximum number of
                roots pending.
        """


class _SourceCoordinator(ABC):  # noqa: B024 - its subclasses have the abstract methods
    """What the coordinators of all sources have: a store, and answers to whether there is input."""

    def open_store(self, store: Store, lead: Lead, root: str) -> None:
        """Receive a place for data that must outlive a run and is too large for metadata; does nothing by default.

        *You* write only below ``root``, only with ``lead.write``, and let its LostLead pass: it means that this
        coordinator has lost the lead. ``state.TransactionalState(store, lead, root)`` keeps JSON there. What you
        write while a transaction begins is durable before its metadata is, so a crash may leave it without its
        transaction; detect that in ``resume``.

        *txtopo* guarantees to call this once in each run, before ``resume``, while it holds the lead.

        Args:
            store: the store of the coordinator state, for reading.
            lead: the right to write to the store.
            root: a path below which only this coordinator writes.
        """

    def cleanup_before(self, txid: int) -> None:
        """Release what belongs to transactions below ``txid``, which are committed; does nothing by default.

        *txtopo* calls this before it asks for more transactions, after ``resume`` at the start of a run, and at the end
        of a run without an error; not for each txid.
        """

    def is_ready(self) -> bool:
        """Return whether there is input for a transaction now."""
        return True

    def wait_ready(self, secs: float) -> bool:
        """Wait up to ``secs`` for input, if that can be done without asking again and again.

        Returns:
            Whether there may be input now. By default it returns False at once, and ``is_ready`` is asked again, every
            two milliseconds or for 1 % of a core at most. While it waits, nothing else is asked of it. In a topology of
            several spouts it waits in another thread than the one that asks the rest.
        """
        del secs
        return False

    def is_exhausted(self) -> bool:
        """Return whether no transaction will ever follow those begun; False for an endless source."""
        return False

    def close(self) -> None:
        """Release resources."""


class Coordinator(_SourceCoordinator):
    """Decides what each transaction holds, in txid order. Each topology has one, in the driver."""

    @abstractmethod
    def initialize_transaction(self, txid: int, previous_metadata: Metadata) -> Metadata:
        """Return the metadata of a new transaction.

        *You* start the batch where ``previous_metadata`` ends. *txtopo* guarantees to call this once for each txid, in
        order, and to make the result durable before it emits a tuple of the transaction.

        Args:
            txid: the new transaction.
            previous_metadata: the result for ``txid - 1``; None for the first transaction.

        Raises:
            FailedException: to begin no transaction now; txtopo asks again later.
        """

    def resume(self, txid: int, metadata: Metadata) -> None:
        """Receive the last transaction that an earlier run began; does nothing by default.

        *You* base ``is_ready`` and ``is_exhausted`` on it, and refuse a source that no longer matches the metadata.
        *txtopo* guarantees to call this once at the start of each run, before all methods but ``open_store``.

        Args:
            txid: the last transaction begun in an earlier run; 0 if there is none.
            metadata: its metadata; None if there is none.

        Raises:
            InputError: the source has changed, and continuing would lose or duplicate input.
        """

    def rewind(self, txid: int, metadata: Metadata, undone: Sequence[Metadata]) -> bool:
        """Bring what this coordinator keeps in its store back to a committed transaction, for ``txtopo rewind``.

        *You* check that the source still has what is to be read again, and write what ``resume`` needs to go on after
        ``txid`` as if no later transaction had ever begun. A coordinator that keeps nothing in its store, or nothing
        that later transactions change, has only the check to make.

        *txtopo* guarantees to call it on a fresh coordinator, after ``open_store`` and before ``resume``, and to apply
        its writes in the step in which the coordinator state goes back; until then reads do not show them. If that
        step is interrupted, it is called again. The former values are kept aside.

        Args:
            txid: the transaction that the topology goes back to; 0 for the time before all of them.
            metadata: its metadata; None for 0.
            undone: the metadata of the later transactions, in order, as far as known; they begin anew.

        Returns:
            Whether the values belong to ``txid`` now. With False, the default, a rewind is refused if there are any.

        Raises:
            InputError: the source no longer has what is to be read again.
        """
        del txid, metadata, undone
        return False

    def remaining(self, metadata: Metadata) -> int | None:
        """Return about how many transactions are left, for displays; None, the default, if unknown.

        Args:
            metadata: that of the last transaction begun; None if there is none.
        """
        return None

    def lag(self) -> int | Lag | None:
        """Return how many records of the source no transaction has taken, for metrics; None if it does not know.

        A source that knows no number of records says what it knows in a :class:`Lag`.

        *You* answer at once, from what you know: it is called whenever transactions have begun.
        """
        return None


class Emitter(ABC):
    """Emits the batches that a coordinator has decided on. Each spout task has one, on an executor.

    An emitter lives as long as its process and serves many attempts, one at a time.
    """

    @abstractmethod
    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Metadata, collector: BatchOutputCollector
    ) -> Mapping[str, Sequence[tuple[Any, Any]]] | None:
        """Emit this task's share of a batch.

        *You* emit the same tuples for the same metadata, whatever the attempt, and choose the share by
        ``context.this_task_index``. *txtopo* calls this in every task of the spout for every attempt.

        Returns:
            None; or, if some of the input is gone and you go on without it, what you have skipped: (start, end) of
            each gap by partition name, as in ``input_ranges``. ``txtopo audit`` shows it.

        Raises:
            FailedException: to have the transaction replayed.
        """

    def cleanup_before(self, txid: int) -> None:
        """Release what belongs to transactions below ``txid``: they are committed and never emitted again."""

    def close(self) -> None:
        """Release resources."""


@attrs.frozen
class SpoutTable:
    """A table that a spout fills itself, independent of the bolts: for example, of unreadable input.

    Args:
        stream: the stream that the spout declares for the table and emits on.
        make_committer: takes the name of the state and returns the committer that receives the stream. txtopo does
            not create a task of it for transactions that send it no tuple, so it must have nothing to do then.
        state: the table.
    """

    stream: str
    make_committer: Callable[[str], BatchBolt]
    state: State


class _WithTables(Component):
    """A spout that may have its own tables."""

    def own_tables(self) -> Mapping[str, SpoutTable]:
        """Return the tables that this spout fills itself, by name; none by default.

        *You* declare the stream of each and emit on it as on any other. *txtopo* adds the committer and the state,
        both called ``spout.<name>``, to every topology with this spout, and guarantees that the table holds each
        emitted tuple once, with its transaction.
        """
        return {}

    def forked(self) -> Self:
        """Return this spout as a fork of its topology has it; by default as it is.

        *You* leave out what must not be done twice outside the topology, such as publishing offsets under a name that
        the original has, and nothing that changes a batch. *txtopo* guarantees that only forks have the result.
        """
        return self


class _ReportsInput(Component):
    """A spout that may report which input each transaction took, and where it is."""

    def datasets(self, partitions: Collection[str]) -> Mapping[str, Dataset]:
        """Return what it reads, as catalogs of lineage name it; called in the driver.

        Args:
            partitions: those that :meth:`input_ranges` has named so far in this run; none when it begins.

        Returns:
            datasets by how the names of their partitions begin: ``{"": Dataset(…)}`` for a spout of one; none, the
            default: its dataset has the name of the topology and the spout.
        """
        del partitions
        return {}

    def input_ranges(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, tuple[Any, Any]] | None:
        """Return the input that a transaction took, so that ``txtopo audit`` can prove that none was lost or repeated.

        *You* return the start and end of the input from each partition, as JSON values; a partition's start must equal
        its end in the last earlier transaction that took input from it. *txtopo* calls this in the driver for each
        transaction that it commits, records the result, and uses it for nothing else.

        Args:
            metadata: the transaction's metadata.
            previous_metadata: that of the transaction before; None for the first.

        Returns:
            (start, end) by partition name; None, the default, if unknown.
        """
        return None

    def input_skipped(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, Sequence[tuple[Any, Any]]]:
        """Return the gaps in the input of a transaction that its metadata records as skipped, for ``txtopo audit``.

        The arguments are those of :meth:`input_ranges`.

        Returns:
            (start, end) of each gap by partition name; none by default.
        """
        del metadata, previous_metadata
        return {}


class TransactionalSpout(_WithTables, _ReportsInput):
    """A source that can emit the same batch again. Must pickle; ``output_fields`` has the attempt first.

    With a parallelism above 1, txtopo asks every task's emitter to emit every batch, and each must emit its own share,
    chosen by ``context.this_task_index``. An emitter that ignores the index emits each tuple once per task.
    """

    @abstractmethod
    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """Return the coordinator; called once in the driver for each run."""

    @abstractmethod
    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        """Return an emitter for the task ``context.this_task_index``; called on the executors."""


class PartitionedCoordinator(_SourceCoordinator):
    """Lists the partitions of a source."""

    @abstractmethod
    def partitions(self) -> int | Sequence[Any]:
        """Return the current partitions: their number n (for 0 to n - 1), or a list of JSON values."""

    def resume(self, txid: int, metadata: Mapping[str, Metadata]) -> None:
        """Receive the last metadata of each partition; does nothing by default.

        *You* base ``is_ready`` and ``is_exhausted`` on it: a coordinator sees nothing else of what emitters return.

        *txtopo* guarantees to call this at the start of each run, before all methods but ``open_store``, and again
        whenever the metadata changes: for a repeatable spout when a transaction is begun, for an opaque one when
        transactions are processed or rolled back.

        Args:
            txid: the last transaction that the metadata covers; 0 if there is none.
            metadata: the last metadata of each partition that has any, by
                :func:`txtopo.api.components.partitioned.partition_key` of the partition (its compact JSON).

        Raises:
            InputError: the source has changed, and continuing would lose or duplicate input.
        """

    def rewind(self, txid: int, metadata: Mapping[str, Metadata], undone: Sequence[Mapping[str, Metadata]]) -> bool:
        """Bring the stored values back to a committed transaction; see :meth:`Coordinator.rewind`.

        Each metadata is by partition key, as in :meth:`resume`.
        """
        del txid, metadata, undone
        return False


class PartitionedEmitter(ABC):
    """Emits one partition's share of a batch."""

    @abstractmethod
    def emit_new_batch(
        self, attempt: TransactionAttempt, collector: BatchOutputCollector, partition: Any, previous_metadata: Metadata
    ) -> Metadata:
        """Decide on a partition's share of a new transaction; return the share's metadata, or None for no share.

        txtopo calls this once for a txid and partition, in txid order, in the driver, and discards what it emits: the
        tuples come from :meth:`emit_batch`, on the executors, after the metadata is durable.

        Args:
            attempt: the transaction; the attempt number is one that no live attempt has.
            collector: discards what is emitted.
            partition: one of the coordinator's partitions.
            previous_metadata: the last metadata returned for this partition; None the first time.
        """

    @abstractmethod
    def emit_batch(
        self, attempt: TransactionAttempt, collector: BatchOutputCollector, partition: Any, metadata: Metadata
    ) -> None:
        """Emit a partition's share; the same tuples for the same metadata."""

    def cleanup_before(self, txid: int) -> None:
        """Release what belongs to transactions below ``txid``."""

    def close(self) -> None:
        """Release resources."""


class PartitionedTransactionalSpout(_WithTables):
    """A source of partitions, each of which can emit the same share again."""

    @abstractmethod
    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> PartitionedCoordinator:
        """Return the coordinator; called once in the driver for each run."""

    @abstractmethod
    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> PartitionedEmitter:
        """Return an emitter; called in the driver and on the executors."""

    def input_range(self, metadata: Metadata, previous_metadata: Metadata) -> tuple[Any, Any] | None:
        """Return the input that a transaction took from one partition, for ``txtopo audit``.

        *You* return the start and end as JSON values; the start must equal the end in the last earlier transaction
        that took input from this partition. *txtopo* calls this in the driver when it commits a transaction, for each
        partition that has a share in it.

        Args:
            metadata: the share's metadata, as ``emit_new_batch`` returned it.
            previous_metadata: the metadata before that for this partition; None the first time.

        Returns:
            (start, end); None, the default, if unknown.
        """
        return None


class OpaquePartitionedEmitter(ABC):
    """Emits one partition's share, which may differ at each attempt."""

    @abstractmethod
    def emit_batch(
        self, attempt: TransactionAttempt, collector: BatchOutputCollector, partition: Any, previous_metadata: Metadata
    ) -> Metadata:
        """Emit the tuples that follow ``previous_metadata`` in a partition; return their metadata.

        *You* emit each tuple in only one committed transaction: begin where ``previous_metadata`` ends.

        *txtopo* guarantees that ``previous_metadata`` is that of the transaction before. After a failure it emits that
        transaction and all later ones again, from the last committed one on.

        Args:
            attempt: the transaction and the attempt at it.
            collector: collects the tuples.
            partition: one of the coordinator's partitions.
            previous_metadata: the partition's metadata after the transaction before; None at first.

        Returns:
            The partition's new metadata; None if it emitted nothing and keeps its metadata.
        """

    def close(self) -> None:
        """Release resources."""


class OpaquePartitionedTransactionalSpout(_WithTables, _ReportsInput):
    """A source of partitions that may emit different tuples when a transaction is replayed.

    If a transaction fails, txtopo replays it and all later ones. States of every kind are exact with it.

    The metadata that ``input_ranges`` and ``input_skipped`` get is the last one of each partition after a transaction,
    by :func:`txtopo.api.components.partitioned.partition_key`; before the first transaction it is empty or None.
    Compare the two to report only partitions that moved.
    """

    @abstractmethod
    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> PartitionedCoordinator:
        """Return the coordinator; called once in the driver for each run."""

    @abstractmethod
    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> OpaquePartitionedEmitter:
        """Return an emitter; called on the executors."""


class DataFrameSpout(_ReportsInput):
    """A source that Spark reads itself; every field but the attempt has a type."""

    uses_delta: ClassVar[bool] = False
    """Whether the spout reads Delta tables through Spark (``spark.read.format("delta")``)."""

    @abstractmethod
    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """Return the coordinator; called once in the driver for each run."""

    @abstractmethod
    def read(self, spark: SparkSession, metadata: Metadata) -> DataFrame:
        """Return one transaction's rows: columns are the fields after the attempt.

        *You* return the same rows for the same metadata.
        """


AnySpout = TransactionalSpout | PartitionedTransactionalSpout | OpaquePartitionedTransactionalSpout | DataFrameSpout
