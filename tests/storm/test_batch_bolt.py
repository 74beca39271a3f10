"""Storm's transactional_test.clj: test-batch-bolt. Transactions, and attempts at one transaction, are independent."""

from spouts import MemoryTransactionalSpout
from state import MemoryState
from tests.storm.test_topology import Capture, CountingBatchBolt
from txtopo import Fields, TransactionalTopologyBuilder, TransactionAttempt
from txtopo.api.components.planned import NEVER
from txtopo.api.data.tuples import TupleSource
from txtopo.columnar.chunks import Chunk, decode
from txtopo.transactional.tasks.batch_run import BatchRun, ShuffleMessage
from txtopo.transactional.tasks.factory import TaskFactory, prototypes_of


class Executor:
    """One task of the counting bolt, fed tuple by tuple, as Storm's BatchBoltExecutor is."""

    def __init__(self) -> None:
        builder = TransactionalTopologyBuilder("id", "spout", MemoryTransactionalSpout({}, Fields("word"), 1))
        builder.set_bolt("count", CountingBatchBolt()).global_grouping("spout")
        builder.set_bolt("capture", Capture("count")).global_grouping("count")
        builder.set_state("captured", MemoryState(Fields("component", "tx"), Fields("tuples")))
        self.plan = builder.build().plan
        self.task_factory = TaskFactory(self.plan, {}, prototypes_of(self.plan))
        self.runs: dict[TransactionAttempt, BatchRun] = {}
        self.sent: list[ShuffleMessage] = []

    def execute(self, attempt: TransactionAttempt) -> None:
        source = TupleSource("spout", "default", 0, self.plan.spouts[0].streams["default"])
        encoded = Chunk(source, rows=[(attempt, "word")]).encode()
        run = self.runs.setdefault(
            attempt,
            BatchRun(
                self.task_factory, attempt, NEVER, is_local=lambda name, _: name == "count", send=self.sent.append
            ),
        )
        run.receive(ShuffleMessage(attempt, 0, 0, 0, 0, 1, encoded))

    def finish(self, attempt: TransactionAttempt) -> list[tuple[object, ...]]:
        """Finish a batch and return what was emitted since the last time."""
        self.runs.pop(attempt).finish(self.plan.by_id["count"])
        source = TupleSource("count", "default", 0, self.plan.by_id["count"].streams["default"])
        sent, self.sent[:] = list(self.sent), []
        return [tuple(row) for p in sent for row in decode(p.encoded, source, p.attempt).rows(p.attempt)]


def test_transactions_are_independent() -> None:
    """Tuples of several attempts come mixed; each attempt's batch counts its own, and only when it is finished."""
    bolt = Executor()
    first, again, second = TransactionAttempt(1, 1), TransactionAttempt(1, 2), TransactionAttempt(2, 1)
    for attempt in (first, first, again, second, first):
        bolt.execute(attempt)
    assert bolt.finish(first) == [(first, 3)]
    bolt.execute(again)
    assert bolt.finish(second) == [(second, 1)]
    assert bolt.finish(again) == [(again, 2)]
