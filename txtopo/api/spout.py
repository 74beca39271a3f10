"""Spouts: where transactions come from. A coordinator decides what a transaction holds, emitters emit it.

Metadata is JSON: what a coordinator or emitter returns is encoded, made durable and decoded before it is
used, so the first attempt sees just what every later one will.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from txtopo.api.bolt import BatchBolt, Component
from txtopo.api.collector import BatchOutputCollector
from txtopo.api.context import TopologyContext
from txtopo.api.state import State
from txtopo.api.store import Lead, Store
from txtopo.attempts import TransactionAttempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Metadata = Any
"""What is needed to emit a batch again, as JSON: offsets, not data."""


class Coordinator(ABC):
    """Decides, one after another, what each transaction holds. One for a topology, in the driver."""

    @abstractmethod
    def initialize_transaction(self, txid: int, previous_metadata: Metadata) -> Metadata:
        """Return the metadata of a new transaction.

        *You* let the batch begin where ``previous_metadata`` ends. *txtopo* guarantees to ask once for each
        txid, in order, and to make the answer durable before a tuple of it is emitted.

        Args:
            txid: the new transaction.
            previous_metadata: what was returned for ``txid - 1``; None for the first.

        Raises:
            FailedException: nothing was begun; txtopo asks again later.
        """

    def open_store(self, store: Store, lead: Lead, root: str) -> None:
        """Learn where to keep what must outlive a run and is too much for metadata; nothing is done by default.

        *You* write below ``root`` only, by ``lead.write``, and never more than the lead's owner would: a write of a
        coordinator that has lost the lead raises LostLead, which you let through. ``state.TransactionalState(store,
        lead, root)`` keeps JSON there. What you write in ``initialize_transaction`` is durable before the metadata
        is, so a crash may leave it without its transaction: tell that in :meth:`resume`. *txtopo* guarantees to call
        it once in each run, before ``resume``, when the lead is held.

        Args:
            store: what the coordinator state is kept in, for reading.
            lead: the right to write it.
            root: a path that nobody else writes below.
        """

    def resume(self, txid: int, metadata: Metadata) -> None:
        """Learn how far the transactions have been begun; nothing is done by default.

        *You* answer ``is_ready`` and ``is_exhausted`` from here on, and refuse a source that no longer is
        what the metadata was taken from. *txtopo* guarantees to call it once at the start of each run,
        before any other method.

        Args:
            txid: the last transaction begun in an earlier run; 0 where there is none.
            metadata: what was returned for it; None where there is none.

        Raises:
            InputError: the source has changed in a way that would lose or double something.
        """

    def cleanup_before(self, txid: int) -> None:
        """Learn that the transactions below ``txid`` are committed; nothing is done by default.

        *txtopo* calls it before it asks for more, after ``resume`` at the start of a run; not for each txid.
        """

    def is_ready(self) -> bool:
        """Whether there is something to begin a transaction with now."""
        return True

    def is_exhausted(self) -> bool:
        """Whether there will never be another transaction after those begun; False for an endless source."""
        return False

    def remaining(self, metadata: Metadata) -> int | None:
        """Tell about how many transactions follow one, for displays; None (the default): not known.

        Args:
            metadata: of the last transaction begun; None where there is none.
        """
        return None

    def close(self) -> None:
        """Let go of what is held."""


class Emitter(ABC):
    """Emits the batches that a coordinator has decided on. One for each spout task, on the executors.

    Objects live as long as their process and serve many attempts, one at a time.
    """

    @abstractmethod
    def emit_batch(self, attempt: TransactionAttempt, metadata: Metadata, collector: BatchOutputCollector) -> None:
        """Emit this task's share of a batch.

        *You* emit the same tuples for the same metadata, whatever the attempt. *txtopo* calls it in every task of
        the spout for every attempt; ``context.this_task_index`` tells the shares apart.

        Raises:
            FailedException: the transaction is replayed.
        """

    def cleanup_before(self, txid: int) -> None:
        """Forget transactions below ``txid``: they are committed and never asked for again."""

    def close(self) -> None:
        """Let go of what is held."""


@attrs.frozen
class SpoutTable:
    """A table that a spout fills itself, whatever bolts stand below it: of what it could not read, for example.

    Args:
        stream: the stream that the spout declares for it, and emits on.
        make_committer: makes the committer that takes that stream, given the name of the state. A task of it that no
            tuple reaches in a transaction is not made: it must have nothing to do then.
        state: the table.
    """

    stream: str
    make_committer: Callable[[str], BatchBolt]
    state: State


class _WithTables(Component):
    """A spout that may have tables of its own."""

    def own_tables(self) -> Mapping[str, SpoutTable]:
        """Return the tables that this spout fills itself, by name; none by default.

        *You* declare the stream of each, and emit on it as on any other. *txtopo* adds, to every topology with the
        spout, the committer and the state: what is emitted is in the table once, with the transaction that it
        belongs to. Both are called ``spout.<name>``.
        """
        return {}


class _ToldInput(Component):
    """A spout whose coordinator decides on whole transactions, and that may report what input each one took."""

    def input_ranges(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, tuple[Any, Any]] | None:
        """Tell what input a transaction took, for ``txtopo audit``, which proves that none was left out or taken twice.

        *You* return where each partition that the transaction took from begins and ends, as JSON values, so that
        it begins where it ended in the last transaction before that took from it. *txtopo* calls it in the driver
        for each transaction that it commits, writes the answer down, and does nothing else with it.

        Args:
            metadata: the transaction's metadata.
            previous_metadata: that of the transaction before; None for the first.

        Returns:
            Start and end by the partition's name; None (the default): unknown.
        """
        return None


class TransactionalSpout(_WithTables, _ToldInput):
    """A source that can emit the same batch again. Must pickle; ``output_fields`` has the attempt first.

    With a parallelism above 1 every task's emitter is asked to emit every batch: each emits its own share,
    by ``context.this_task_index``. One that pays no heed to it emits everything as often as there are tasks.
    """

    @abstractmethod
    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """Return the coordinator; called once in the driver for each run."""

    @abstractmethod
    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        """Return an emitter for the task ``context.this_task_index``; called on the executors."""


class PartitionedCoordinator(ABC):
    """Knows the partitions of a source."""

    @abstractmethod
    def partitions(self) -> int | Sequence[Any]:
        """Return the partitions there are now: their number (0 to n - 1), or a list of JSON values."""

    def open_store(self, store: Store, lead: Lead, root: str) -> None:
        """Learn where to keep what must outlive a run; see :meth:`Coordinator.open_store`."""

    def resume(self, txid: int, metadata: Mapping[str, Metadata]) -> None:
        """Learn how far each partition has been taken; nothing is done by default.

        *You* answer ``is_ready`` and ``is_exhausted`` from it: a coordinator sees nothing else of what
        emitters return. *txtopo* guarantees to call it at the start of each run, before any other method, and
        again whenever it changes: for a repeatable spout when a transaction is begun, for an opaque one when
        transactions are processed or rolled back.

        Args:
            txid: the last transaction that the metadata reaches to; 0 where there is none.
            metadata: the last metadata of each partition that has any, by
                :func:`txtopo.api.partitioned.partition_key` of the partition (its compact JSON).

        Raises:
            InputError: the source has changed in a way that would lose or double something.
        """

    def cleanup_before(self, txid: int) -> None:
        """Learn that the transactions below ``txid`` are committed; see :meth:`Coordinator.cleanup_before`."""

    def is_ready(self) -> bool:
        """Whether there is something to begin a transaction with now."""
        return True

    def is_exhausted(self) -> bool:
        """Whether there will never be another transaction after those begun; False for an endless source."""
        return False

    def close(self) -> None:
        """Let go of what is held."""


class PartitionedEmitter(ABC):
    """Emits one partition's share of a batch."""

    @abstractmethod
    def emit_new_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: Any,
        previous_metadata: Metadata,
    ) -> Metadata:
        """Decide on a partition's share of a new transaction, and return its metadata.

        txtopo calls it once for a txid and partition, in txid order, in the driver, and lets what it emits go: the
        tuples come from :meth:`emit_batch`, on the executors, after the metadata is durable.

        Args:
            attempt: the transaction; its attempt number is that of no live attempt.
            collector: takes and forgets what is emitted.
            partition: one of the coordinator's partitions.
            previous_metadata: what was returned for this partition last; None for the first time.
        """

    @abstractmethod
    def emit_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: Any,
        metadata: Metadata,
    ) -> None:
        """Emit a partition's share; the same tuples for the same metadata."""

    def cleanup_before(self, txid: int) -> None:
        """Forget transactions below ``txid``."""

    def close(self) -> None:
        """Let go of what is held."""


class PartitionedTransactionalSpout(_WithTables):
    """A source of partitions, each of which can emit the same share again."""

    @abstractmethod
    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> PartitionedCoordinator:
        """Return the coordinator; called once in the driver for each run."""

    @abstractmethod
    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> PartitionedEmitter:
        """Return an emitter; called in the driver and on the executors."""

    def input_range(self, metadata: Metadata, previous_metadata: Metadata) -> tuple[Any, Any] | None:
        """Tell what input a transaction took from one partition, for ``txtopo audit``.

        *You* return where it begins and ends, as JSON values, so that it begins where the last transaction before
        that took from this partition ended. *txtopo* calls it in the driver for each partition that a transaction
        has a share of, when it is committed.

        Args:
            metadata: the partition's, as ``emit_new_batch`` returned it.
            previous_metadata: what was returned for this partition before; None for the first time.

        Returns:
            Start and end; None (the default): unknown.
        """
        return None


class OpaquePartitionedEmitter(ABC):
    """Emits one partition's share, perhaps other tuples at each attempt."""

    @abstractmethod
    def emit_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: Any,
        previous_metadata: Metadata,
    ) -> Metadata:
        """Emit what follows ``previous_metadata`` in a partition; return the metadata of what was emitted.

        *You* emit each tuple in one committed transaction only: begin where ``previous_metadata`` ends.
        *txtopo* guarantees that it is the metadata of the transaction just before; after a failure that
        transaction and all later ones are emitted anew from the last committed one on.

        Args:
            attempt: the transaction and the try at it.
            collector: takes the tuples.
            partition: one of the coordinator's partitions.
            previous_metadata: the partition's metadata in the transaction before; None at first.

        Returns:
            The metadata, or None for a partition that emitted nothing and stays where it was.
        """

    def close(self) -> None:
        """Let go of what is held."""


class OpaquePartitionedTransactionalSpout(_WithTables):
    """A source of partitions that may emit other tuples when a transaction is tried again.

    Each transaction's failure replays it and all later ones. Keep its state as ``StateKind.OPAQUE``.
    """

    @abstractmethod
    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> PartitionedCoordinator:
        """Return the coordinator; called once in the driver for each run."""

    @abstractmethod
    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> OpaquePartitionedEmitter:
        """Return an emitter; called on the executors."""

    def input_ranges(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, tuple[Any, Any]] | None:
        """Tell what input a transaction took, for ``txtopo audit``, which proves that none was left out or taken twice.

        *You* return where each partition that the transaction took from begins and ends, as JSON values, so that
        it begins where it ended in the last transaction before that took from it. *txtopo* calls it in the driver
        for each transaction that it commits, writes the answer down, and does nothing else with it.

        Args:
            metadata: the last of each partition after the transaction, by
                :func:`txtopo.api.partitioned.partition_key`; compare, to report only what moved.
            previous_metadata: that of the transaction before; empty or None for the first.

        Returns:
            Start and end by the partition's name; None (the default): unknown.
        """
        return None


class DataFrameSpout(_ToldInput):
    """A source that Spark reads itself; every field but the attempt has a type."""

    uses_delta: ClassVar[bool] = False
    """Whether it reads Delta tables through Spark (``spark.read.format("delta")``)."""

    @abstractmethod
    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """Return the coordinator; called once in the driver for each run."""

    @abstractmethod
    def read(self, spark: SparkSession, metadata: Metadata) -> DataFrame:
        """Return one transaction's rows: the fields after the attempt, the same rows for the same metadata."""


AnySpout = TransactionalSpout | PartitionedTransactionalSpout | OpaquePartitionedTransactionalSpout | DataFrameSpout
