"""Conformance classes for spouts: subclass one, return your spout from the fixture, and pytest tests its promises.

::

    class TestMySpout(TransactionalSpoutConformance):
        @pytest.fixture
        def spout(self, tmp_path):
            return MySpout(tmp_path)

The source must hold several transactions and must not change during a test. If it never ends, set
``is_endless = True``: the tests then use the first transactions that it has ready, up to 20.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import cloudpickle

from spouts.memory import MemoryTransactionalSpout
from spouts.opaque_memory import OpaqueMemoryTransactionalSpout
from state.delta.read.history import read_table
from state.delta.rows.state import DeltaRows
from state.stores.memory import MemoryStore
from txtopo.api.components.bolt import BatchBolt, ICommitter
from txtopo.api.components.optional import call_if_there
from txtopo.api.components.partitioned import as_transactional, partition_key, partition_list
from txtopo.api.components.spout import (
    Coordinator,
    DataFrameSpout,
    Metadata,
    OpaquePartitionedTransactionalSpout,
    PartitionedTransactionalSpout,
    TransactionalSpout,
)
from txtopo.api.data.fields import ATTEMPT_FIELD_NAMES, Fields
from txtopo.api.data.tuples import Tuple
from txtopo.api.store import Lead, Store
from txtopo.attempts import FIRST_EPOCH, FIRST_TXID, TransactionAttempt, attempt_number, epoch_and_try
from txtopo.config import Config
from txtopo.errors import FailedException, SourceFailure
from txtopo.testing.collector import RecordingCollector
from txtopo.testing.context import PlainContext
from txtopo.testing.inline import run_inline
from txtopo.topology.builders.builder import TransactionalTopologyBuilder
from txtopo.topology.topology import TransactionalTopology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

TASK_COUNTS = (1, 2, 3, 7)
"""The numbers of tasks for which a batch must be the same."""

ENDLESS_TRANSACTIONS = 20
"""The number of transactions to test of a source that never ends."""

ENDING_TRANSACTIONS_MAX = 1_000
"""The maximum number of transactions of a source that ends."""

RESUMPTIONS_MAX = 8
"""The maximum number of places at which a run is interrupted and resumed."""

_TOPOLOGY_ID = "topology"

Rows = Counter[str]
"""Tuples without their attempts, as a multiset."""


@attrs.frozen
class OpaqueStep:
    """One processed transaction of an opaque spout: each partition's metadata after it, and its tuples."""

    metadata: Mapping[str, Metadata]
    tuples: Sequence[tuple[Any, ...]]


def rows_of(tuples: Sequence[tuple[Any, ...]]) -> Rows:
    """Return tuples without their attempts, as a multiset."""
    return Counter(repr(values[1:]) for values in tuples)


def all_rows(steps: Sequence[OpaqueStep]) -> Rows:
    """Return the tuples of several transactions without their attempts, as a multiset."""
    return rows_of([values for step in steps for values in step.tuples])


def spread(count: int, at_most: int = RESUMPTIONS_MAX) -> list[int]:
    """Return up to ``at_most`` numbers from 0 to ``count - 1``, including the first and the last."""
    if count <= at_most:
        return list(range(count))
    return sorted({(count - 1) * step // (at_most - 1) for step in range(at_most)})


ASKED_MAX = 20
"""How often a coordinator is asked whose source does not answer; Kafka's waits for half a second each time."""


def answered(question: Callable[[], T]) -> T:
    """Return what a coordinator answers; one whose source does not answer at the moment is asked again, as by a run."""
    for _ in range(ASKED_MAX - 1):
        with contextlib.suppress(SourceFailure):
            return question()
    return question()


def plan_transactions(
    coordinator: Coordinator, begun: Sequence[Metadata], transactions_max: int, *, is_endless: bool
) -> list[Metadata]:
    """Return the metadata of the transactions after those begun, requested as txtopo requests it.

    Up to transaction ``transactions_max``; an endless source may have more, or stop being ready before.
    """
    previous = begun[-1] if begun else None
    answered(lambda: coordinator.resume(len(begun), previous))
    plan: list[Metadata] = []
    while not answered(coordinator.is_exhausted) and len(begun) + len(plan) < transactions_max:
        if is_endless and not answered(coordinator.is_ready):
            return plan
        assert answered(coordinator.is_ready), (
            f"after {len(begun) + len(plan)} transactions the source is neither ready nor exhausted: fill it before "
            f"the test, return True from is_exhausted() at its end, or {IF_ENDLESS}"
        )
        txid = FIRST_TXID + len(begun) + len(plan)
        metadata = answered(functools.partial(coordinator.initialize_transaction, txid, previous))
        # The spout sees what a restart would give it: metadata that has been through the store.
        previous = json.loads(json.dumps(metadata, allow_nan=False))
        plan.append(previous)
    assert is_endless or answered(coordinator.is_exhausted), does_not_end(transactions_max)
    return plan


IF_ENDLESS = "set is_endless = True in the test class if it never ends"


def does_not_end(transactions: int) -> str:
    """Return the error for a source that does not end."""
    return (
        f"the source does not end in {transactions:,} transactions: {IF_ENDLESS}, return True from is_exhausted() "
        "at its end, or give the test a smaller source, or a larger transactions_max"
    )


def wrong_class(spout: object) -> str:
    """Return the error for a spout that is tested against another kind's contract."""
    kinds = (OpaquePartitionedTransactionalSpout, PartitionedTransactionalSpout, DataFrameSpout, TransactionalSpout)
    name = type(spout).__name__
    kind = next((kind.__name__ for kind in kinds if isinstance(spout, kind)), None)
    if kind is None:
        return f"{name} is not a spout: derive it from TransactionalSpout, or from another of txtopo's spouts"
    return f"{name} is a {kind}: derive the test class from {kind}Conformance"


class SpoutConformance:
    """The base of all conformance classes for spouts."""

    config: Mapping[str, Any] = {}
    """The configuration for coordinators and emitters."""
    is_endless: bool = False
    """Whether the source never ends."""
    transactions_max: int | None = None
    """The maximum number of transactions to test; a source that is not endless must end within them. None (the
    default): 20 for an endless source, and 1,000 for any other."""
    _store: Store | None = None
    _lead: Lead | None = None

    def looked_at(self) -> int:
        """Return the maximum number of transactions to test."""
        if self.transactions_max is not None:
            return self.transactions_max
        return ENDLESS_TRANSACTIONS if self.is_endless else ENDING_TRANSACTIONS_MAX

    def rest_within(self, whole: Sequence[Any]) -> int | None:
        """Return the last transaction when the source is resumed from somewhere in ``whole``; None: until it ends.

        A source that never ends has a limit, because it may have more transactions by then.
        """
        return len(whole) if self.is_endless else None

    def opened(self, coordinator: Any) -> Any:
        """Open the test's shared store for a coordinator, under a new lead; earlier coordinators lose the lead."""
        if self._store is None:
            self._store = MemoryStore()
        if self._lead is not None:
            self._lead.release()
        self._lead = self._store.take_lead(_TOPOLOGY_ID, "conformance")
        call_if_there(coordinator, "open_store", self._store, self._lead, f"{_TOPOLOGY_ID}/source")
        return coordinator

    def first_attempt(self, txid: int) -> TransactionAttempt:
        """Return the first attempt of a transaction."""
        return TransactionAttempt(txid, attempt_number(FIRST_EPOCH, 0))

    def beside_others(self, spout: Any, folder: Path) -> Rows:
        """Return the tuples of the spout in a topology that gets it later, beside a repeatable and an opaque spout.

        Each of its transactions fails once, and the run is stopped and goes on.
        """

        def topology(*, has_spout: bool) -> TransactionalTopology:
            rows = MemoryTransactionalSpout([[number] for number in range(6)], Fields("n"), 1)
            opaque = OpaqueMemoryTransactionalSpout([[number] for number in range(6)], Fields("n"), 2)
            builder = TransactionalTopologyBuilder("conformance", "rows", rows)
            builder.add_spout("opaque", opaque)
            kept = builder.set_committer_bolt("kept", _KeptTuples())
            kept.global_grouping("rows").global_grouping("opaque")
            if has_spout:
                builder.add_spout("spout", spout, 2)
                kept.global_grouping("spout")
            builder.set_state("kept", DeltaRows(folder / "kept", Fields("row: string")))
            return builder.build()

        config = Config({**self.config, "topology.max.spout.pending": 3})
        run_inline(topology(has_spout=False), config, until=2)
        run_inline(topology(has_spout=True), config, until=4)
        run_inline(topology(has_spout=True), config)
        return Counter(read_table(folder / "kept")["row"].to_pylist())


class _KeptTuples(BatchBolt, ICommitter):
    """Keeps the tuples of the spout under test; its transactions fail once."""

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        del config, context, collector, attempt  # they are attributes, too
        self.rows: list[tuple[str]] = []

    def execute(self, tuple: Tuple) -> None:
        if tuple.source_component == "spout":
            self.rows.append((repr(tuple.values[1:]),))

    def finish_batch(self) -> None:
        if self.rows and epoch_and_try(self.attempt.attempt)[1] == 1:
            raise FailedException("each transaction fails once")
        self.context.state("kept").append(self.rows)


class TransactionalSpoutConformance(SpoutConformance):
    """The promises of a :class:`TransactionalSpout`. Define the fixture ``spout``."""

    def test_metadata_is_json(self, spout: Any) -> None:
        """Metadata is the same after it has been encoded, stored and decoded."""
        plan = self._plan(spout)
        coordinator = self._coordinator(spout)
        answered(lambda: coordinator.resume(0, None))
        previous = None
        for txid, expected in enumerate(plan, start=FIRST_TXID):
            metadata = answered(functools.partial(coordinator.initialize_transaction, txid, previous))
            assert json.loads(json.dumps(metadata, allow_nan=False)) == expected, "it plans the same from the same"
            previous = expected

    def test_several_transactions_with_tuples(self, spout: Any) -> None:
        """The test's source has at least two transactions, and tuples."""
        plan = self._plan(spout)
        assert len(plan) > 1, "give the spout a source of several transactions"
        assert self._emit_all(spout, plan), "give the spout a source with tuples"

    def test_same_tuples_at_any_attempt_and_in_any_order(self, spout: Any) -> None:
        """A batch depends on its metadata alone, not on the attempt or on what was emitted before."""
        plan = self._plan(spout)
        forth = [self._emit(spout, txid, metadata) for txid, metadata in enumerate(plan, start=FIRST_TXID)]
        emitter = self._transactional(spout).emitter(self.config, PlainContext())
        back = []
        for txid, metadata in reversed(list(enumerate(plan, start=FIRST_TXID))):
            attempt = TransactionAttempt(txid, attempt_number(FIRST_EPOCH + 5, txid))
            collector = RecordingCollector(attempt, self._fields(spout))
            emitter.emit_batch(attempt, metadata, collector)
            back.append(rows_of(collector.tuples))
        emitter.close()
        assert list(reversed(back)) == forth

    def test_the_shares_of_all_tasks_are_the_batch(self, spout: Any) -> None:
        """For any number of tasks, exactly one task emits each tuple of a batch."""
        for txid, metadata in enumerate(self._plan(spout), start=FIRST_TXID):
            batches = {tasks: self._emit(spout, txid, metadata, tasks) for tasks in TASK_COUNTS}
            assert batches == dict.fromkeys(TASK_COUNTS, batches[1])

    def test_resumption_loses_and_doubles_nothing(self, spout: Any) -> None:
        """A run that stops after any transaction, and one that resumes from there, emit each tuple once."""
        plan = self._plan(spout)
        everything = self._emit_all(spout, plan)
        for begun in spread(len(plan) + 1):
            rest = self._plan(spout, plan[:begun], self.rest_within(plan))
            assert self._emit_all(spout, [*plan[:begun], *rest]) == everything

    def test_beside_other_spouts(self, spout: Any, tmp_path: Path) -> None:
        """A spout that a topology gets beside others takes each tuple once: its first transaction is not the first."""
        if not self.is_endless:
            assert self.beside_others(spout, tmp_path) == self._emit_all(spout, self._plan(spout))

    def test_a_rewind_takes_the_same_input_again(self, spout: Any) -> None:
        """A coordinator that can go back to a transaction goes on from there as if no later one had begun."""
        plan = self._plan(spout)
        everything = self._emit_all(spout, plan)
        for kept in spread(len(plan) + 1):
            coordinator = self._coordinator(spout)
            last = plan[kept - 1] if kept else None
            can_go_back = call_if_there(coordinator, "rewind", kept, last, plan[kept:], default=False)
            coordinator.close()
            if not can_go_back:
                return
            rest = self._plan(spout, plan[:kept], self.rest_within(plan))
            assert self._emit_all(spout, [*plan[:kept], *rest]) == everything

    def test_it_ends(self, spout: Any) -> None:
        """A source that ends is exhausted at its end, and only there, also for a coordinator that resumes."""
        if self.is_endless:
            return
        plan = self._plan(spout)
        coordinator = self._coordinator(spout)
        answered(lambda: coordinator.resume(len(plan), plan[-1]))
        assert answered(coordinator.is_exhausted)
        coordinator.close()
        if len(plan) > 1:
            coordinator = self._coordinator(spout)
            answered(functools.partial(coordinator.resume, len(plan) - 1, plan[-2]))
            assert not answered(coordinator.is_exhausted)
            coordinator.close()

    def test_the_attempt_comes_first(self, spout: Any) -> None:
        """The first value of each tuple is its attempt, and the first field has the attempt's name."""
        fields = self._fields(spout)
        assert fields is not None
        assert fields.names[0] in ATTEMPT_FIELD_NAMES
        for txid, metadata in enumerate(self._plan(spout), start=FIRST_TXID):
            attempt = self.first_attempt(txid)
            collector = RecordingCollector(attempt, fields)
            self._transactional(spout).emitter(self.config, PlainContext()).emit_batch(attempt, metadata, collector)
            assert {emitted.values[0] for emitted in collector.emitted} <= {attempt}

    def test_it_pickles(self, spout: Any) -> None:
        """A spout that was pickled to another process emits the same tuples."""
        plan = self._plan(spout)
        copy = cloudpickle.loads(cloudpickle.dumps(spout))
        assert self._emit_all(copy, plan) == self._emit_all(spout, plan)

    def test_cleanup_leaves_later_transactions(self, spout: Any) -> None:
        """After ``cleanup_before(n)``, the transactions from ``n`` on are emitted as before."""
        plan = self._plan(spout)
        last = FIRST_TXID + len(plan) - 1
        emitter = self._transactional(spout).emitter(self.config, PlainContext())
        emitter.cleanup_before(last)
        attempt = self.first_attempt(last)
        collector = RecordingCollector(attempt, self._fields(spout))
        emitter.emit_batch(attempt, plan[-1], collector)
        assert rows_of(collector.tuples) == self._emit(spout, last, plan[-1])

    def _transactional(self, spout: Any) -> TransactionalSpout:
        assert isinstance(spout, TransactionalSpout), wrong_class(spout)
        return spout

    def _fields(self, spout: Any) -> Any:
        return self._transactional(spout).output_fields

    def _coordinator(self, spout: Any) -> Coordinator:
        coordinator: Coordinator = self.opened(self._transactional(spout).coordinator(self.config, PlainContext()))
        return coordinator

    def _plan(self, spout: Any, begun: Sequence[Metadata] = (), total: int | None = None) -> list[Metadata]:
        coordinator = self._coordinator(spout)
        try:
            total = self.looked_at() if total is None else total
            return plan_transactions(coordinator, begun, total, is_endless=self.is_endless)
        finally:
            coordinator.close()

    def _emit(self, spout: Any, txid: int, metadata: Metadata, tasks: int = 1) -> Rows:
        attempt = self.first_attempt(txid)
        rows: Rows = Counter()
        for task in range(tasks):
            context = PlainContext(this_task_index=task, tasks=tasks)
            emitter = self._transactional(spout).emitter(self.config, context)
            collector = RecordingCollector(attempt, self._fields(spout))
            emitter.emit_batch(attempt, metadata, collector)
            emitter.close()
            rows += rows_of(collector.tuples)
        return rows

    def _emit_all(self, spout: Any, plan: Sequence[Metadata]) -> Rows:
        rows: Rows = Counter()
        for txid, metadata in enumerate(plan, start=FIRST_TXID):
            rows += self._emit(spout, txid, metadata)
        return rows


class PartitionedTransactionalSpoutConformance(TransactionalSpoutConformance):
    """The promises of a :class:`PartitionedTransactionalSpout`. Define the fixture ``spout``."""

    def test_partitions_are_json_and_each_there_once(self, spout: Any) -> None:
        """Partitions are JSON values that are valid in every process, and each occurs once."""
        self._transactional(spout)
        partitions = partition_list(spout.coordinator(self.config, PlainContext()).partitions())
        assert partitions
        assert [json.loads(partition_key(partition)) for partition in partitions] == partitions

    def test_a_new_batch_is_emitted_again_by_its_metadata(self, spout: Any) -> None:
        """If ``emit_new_batch`` emits tuples, ``emit_batch`` emits the same tuples for its metadata."""
        self._transactional(spout)
        partitions = partition_list(spout.coordinator(self.config, PlainContext()).partitions())
        emitter = spout.emitter(self.config, PlainContext())
        attempt = self.first_attempt(FIRST_TXID)
        for partition in partitions:
            new = RecordingCollector(attempt, spout.output_fields)
            metadata = emitter.emit_new_batch(attempt, new, partition, None)
            if metadata is None:
                assert not new.emitted
                continue
            again = RecordingCollector(attempt, spout.output_fields)
            emitter.emit_batch(attempt, again, partition, json.loads(json.dumps(metadata, allow_nan=False)))
            assert new.tuples in ([], again.tuples)

    def _transactional(self, spout: Any) -> TransactionalSpout:
        assert isinstance(spout, PartitionedTransactionalSpout), wrong_class(spout)
        return as_transactional(spout)


class OpaquePartitionedTransactionalSpoutConformance(SpoutConformance):
    """The promises of an :class:`OpaquePartitionedTransactionalSpout`. Define the fixture ``spout``.

    The source must not change during these tests, so each tuple must be in exactly one committed transaction.
    """

    def test_several_transactions_with_tuples(self, spout: OpaquePartitionedTransactionalSpout) -> None:
        """The test's source has at least two transactions, and tuples."""
        run = self._run(spout)
        assert len(run) > 1, "give the spout a source of several transactions"
        assert all_rows(run), "give the spout a source with tuples"

    def test_replays_from_any_committed_transaction_lose_and_double_nothing(
        self, spout: OpaquePartitionedTransactionalSpout
    ) -> None:
        """After a failure, the transactions emitted again from the last committed metadata complete the input."""
        run = self._run(spout)
        everything = all_rows(run)
        for committed in spread(len(run) + 1):
            again = self._run(spout, run[:committed], self.rest_within(run))
            assert all_rows([*run[:committed], *again]) == everything

    def test_beside_other_spouts(self, spout: OpaquePartitionedTransactionalSpout, tmp_path: Path) -> None:
        """A spout that a topology gets beside others takes each tuple once: its first transaction is not the first."""
        if not self.is_endless:
            assert self.beside_others(spout, tmp_path) == all_rows(self._run(spout))

    def test_it_ends(self, spout: OpaquePartitionedTransactionalSpout) -> None:
        """A source that ends is exhausted once everything is processed, and no longer after a rollback."""
        if self.is_endless:
            return
        run = self._run(spout)
        coordinator = self.opened(spout.coordinator(self.config, PlainContext()))
        coordinator.resume(len(run), run[-1].metadata)
        assert coordinator.is_exhausted()
        coordinator.resume(0, {})
        assert not coordinator.is_exhausted()
        coordinator.resume(len(run), run[-1].metadata)
        assert coordinator.is_exhausted()

    def test_the_attempt_comes_first(self, spout: OpaquePartitionedTransactionalSpout) -> None:
        """The first value of each tuple is its attempt, and the first field has the attempt's name."""
        assert spout.output_fields is not None
        assert spout.output_fields.names[0] in ATTEMPT_FIELD_NAMES
        for txid, step in enumerate(self._run(spout), start=FIRST_TXID):
            assert {values[0] for values in step.tuples} <= {self.first_attempt(txid)}

    def test_it_pickles(self, spout: OpaquePartitionedTransactionalSpout) -> None:
        """A spout that was pickled to another process emits the same tuples."""
        copy = cloudpickle.loads(cloudpickle.dumps(spout))
        assert all_rows(self._run(copy)) == all_rows(self._run(spout))

    def test_a_partition_at_its_end_emits_nothing(self, spout: OpaquePartitionedTransactionalSpout) -> None:
        """At the end of a partition, ``emit_batch`` emits nothing and returns None."""
        if self.is_endless:
            return
        last = self._run(spout)[-1]
        attempt = self.first_attempt(FIRST_TXID)
        emitter = spout.emitter(self.config, PlainContext())
        for key, metadata in last.metadata.items():
            collector = RecordingCollector(attempt, spout.output_fields)
            assert emitter.emit_batch(attempt, collector, json.loads(key), metadata) is None
            assert not collector.emitted

    def _run(
        self, spout: OpaquePartitionedTransactionalSpout, committed: Sequence[OpaqueStep] = (), total: int | None = None
    ) -> list[OpaqueStep]:
        coordinator = self.opened(spout.coordinator(self.config, PlainContext()))
        emitter = spout.emitter(self.config, PlainContext())
        metadata = dict(committed[-1].metadata) if committed else {}
        coordinator.resume(len(committed), metadata)
        steps: list[OpaqueStep] = []
        total = self.looked_at() if total is None else total
        while not coordinator.is_exhausted() and len(committed) + len(steps) < total:
            if self.is_endless and not coordinator.is_ready():
                break
            txid = FIRST_TXID + len(committed) + len(steps)
            attempt = self.first_attempt(txid)
            collector = RecordingCollector(attempt, spout.output_fields)
            for partition in partition_list(coordinator.partitions()):
                key = partition_key(partition)
                after = emitter.emit_batch(attempt, collector, partition, metadata.get(key))
                if after is not None:
                    metadata[key] = json.loads(json.dumps(after, allow_nan=False))
            steps.append(OpaqueStep(dict(metadata), collector.tuples))
            coordinator.resume(txid, metadata)
        assert self.is_endless or coordinator.is_exhausted(), does_not_end(total)
        emitter.close()
        coordinator.close()
        return steps


class DataFrameSpoutConformance(SpoutConformance):
    """The promises of a :class:`DataFrameSpout`. Define the fixtures ``spout`` and ``spark``."""

    def test_fields_are_typed(self, spout: DataFrameSpout) -> None:
        """Every field except the attempt has a type."""
        assert spout.output_fields is not None
        assert spout.output_fields.names[0] in ATTEMPT_FIELD_NAMES
        assert spout.output_fields.columnar

    def test_frames_have_the_fields(self, spout: DataFrameSpout, spark: SparkSession) -> None:
        """A frame's columns are the fields after the attempt, in their order."""
        assert spout.output_fields is not None
        frame = spout.read(spark, self._plan(spout)[0])
        assert frame.columns == list(spout.output_fields.names[1:])

    def test_same_rows_for_the_same_metadata(self, spout: DataFrameSpout, spark: SparkSession) -> None:
        """A batch that is read again has the same rows, also if a copy of the spout reads it."""
        copy = cloudpickle.loads(cloudpickle.dumps(spout))
        for metadata in self._plan(spout):
            assert self._read(copy, spark, metadata) == self._read(spout, spark, metadata)

    def test_resumption_loses_and_doubles_nothing(self, spout: DataFrameSpout, spark: SparkSession) -> None:
        """A run that stops after any transaction, and one that resumes from there, read each row once."""
        plan = self._plan(spout)
        assert len(plan) > 1, "give the spout a source of several transactions"
        everything = self._read_all(spout, spark, plan)
        assert everything, "give the spout a source with rows"
        for begun in spread(len(plan) + 1, at_most=3):
            rest = self._plan(spout, plan[:begun], self.rest_within(plan))
            assert self._read_all(spout, spark, [*plan[:begun], *rest]) == everything

    def test_it_ends(self, spout: DataFrameSpout) -> None:
        """A source that ends is exhausted for a coordinator that resumes at its end."""
        if self.is_endless:
            return
        plan = self._plan(spout)
        coordinator = self.opened(spout.coordinator(self.config, PlainContext()))
        answered(lambda: coordinator.resume(len(plan), plan[-1]))
        assert answered(coordinator.is_exhausted)

    def _plan(self, spout: DataFrameSpout, begun: Sequence[Metadata] = (), total: int | None = None) -> list[Metadata]:
        coordinator = spout.coordinator(self.config, PlainContext())
        total = self.looked_at() if total is None else total
        return plan_transactions(coordinator, begun, total, is_endless=self.is_endless)

    def _read(self, spout: DataFrameSpout, spark: SparkSession, metadata: Metadata) -> Rows:
        return Counter(repr(tuple(row)) for row in spout.read(spark, metadata).collect())

    def _read_all(self, spout: DataFrameSpout, spark: SparkSession, plan: Sequence[Metadata]) -> Rows:
        rows: Rows = Counter()
        for metadata in plan:
            rows += self._read(spout, spark, metadata)
        return rows
