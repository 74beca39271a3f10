"""Storm's transactional_test.clj: test-transactional-topology, test-transactional-topology-restart and
test-opaque-transactional-topology.

The expected emissions are Storm's. Where Storm replays a failed transaction and all later ones, a
repeatable spout here replays the failed one alone (promise 5). Where Storm's memory spout goes on with empty
transactions for ever, ours is exhausted.
"""

from collections import Counter
from typing import Any

from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import MemoryState
from tests.bolts import Take
from txtopo import (
    BasicBolt,
    BatchBolt,
    Config,
    FailedException,
    Fields,
    ICommitter,
    Topology,
    TransactionalTopologyBuilder,
)
from txtopo.testing.inline import run_inline

FIRST_DATA: dict[int, list[list[Any]]] = {
    0: [["dog", 3], ["cat", 4], ["apple", 1], ["dog", 3]],
    1: [["cat", 1], ["mango", 4]],
    2: [["happy", 11], ["mango", 2], ["zebra", 1]],
}


class IdentityBolt(BasicBolt):
    output_fields = Fields("tx", "word", "amt")

    def execute(self, tuple, collector):
        collector.emit(tuple.values)


class CountingBatchBolt(BatchBolt):
    output_fields = Fields("tx", "count")

    def prepare(self, config, context, collector, attempt):
        self.count = 0

    def execute(self, tuple):
        self.count += 1

    def finish_batch(self):
        self.collector.emit((self.attempt, self.count))


class CountingCommitBolt(CountingBatchBolt, ICommitter):
    pass


class KeyedCountingBatchBolt(BatchBolt):
    output_fields = Fields("tx", "key", "count")

    def prepare(self, config, context, collector, attempt):
        self.counts = Counter()

    def execute(self, tuple):
        self.counts[tuple[1]] += 1

    def finish_batch(self):
        for key, count in self.counts.items():
            self.collector.emit((self.attempt, key, count))


class KeyedSummingBatchBolt(KeyedCountingBatchBolt):
    output_fields = Fields("tx", "key", "sum")

    def execute(self, tuple):
        self.counts[tuple[1]] += tuple[2]


class KeyedCountingCommitterBolt(KeyedCountingBatchBolt, ICommitter):
    pass


class Capture(BatchBolt, ICommitter):
    """Puts down what another bolt has emitted for each transaction."""

    def __init__(self, component: str) -> None:
        self.component = component

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("captured")
        self.seen = []

    def execute(self, tuple):
        self.seen.append([tuple[0].txid, *tuple.values[1:]])

    def finish_batch(self):
        self.state.put((self.component, self.attempt.txid), self.seen)


class FailOnce(Take, ICommitter):
    """Fails the first attempt of one transaction in the commit phase."""

    def __init__(self, txid: int) -> None:
        self.txid = txid

    def finish_batch(self):
        if self.attempt.txid == self.txid and self.attempt.attempt == 1:
            raise FailedException("once")


def captured_state() -> MemoryState:
    return MemoryState(Fields("component", "tx"), Fields("tuples"))


def seen(state: MemoryState, component: str) -> dict[int, list[list[Any]]]:
    """Return what a component emitted, by txid, sorted."""
    return {txid: tuples for (name, txid), tuples in read(state).items() if name == component}


def read(state: MemoryState) -> dict[Any, Any]:
    return {key: sorted(kept.value) for key, kept in state.items().items()}


def transactional_topology(data: dict[int, list[list[Any]]], captured: MemoryState, fail_txid: int = 0) -> Topology:
    """Return Storm's topology of every grouping, with what it emits captured."""
    spout = MemoryTransactionalSpout(data, Fields("word", "amt"), 2)
    builder = TransactionalTopologyBuilder("id", "spout", spout, 2)
    builder.set_bolt("id1", IdentityBolt(), 3).shuffle_grouping("spout")
    builder.set_bolt("id2", IdentityBolt(), 3).shuffle_grouping("spout")
    builder.set_bolt("global", CountingBatchBolt(), 1).global_grouping("spout")
    builder.set_bolt("gcommit", CountingCommitBolt(), 1).global_grouping("spout")
    builder.set_bolt("sum", KeyedSummingBatchBolt(), 2).fields_grouping("id1", Fields("word"))
    builder.set_committer_bolt("count", KeyedCountingBatchBolt(), 2).fields_grouping("id2", Fields("word"))
    declarer = builder.set_bolt("count2", KeyedCountingCommitterBolt(), 3)
    declarer.fields_grouping("sum", Fields("key")).fields_grouping("count", Fields("key"))
    for component in ("sum", "count", "count2", "global", "gcommit"):
        builder.set_bolt(f"capture {component}", Capture(component)).global_grouping(component)
    builder.set_bolt("fail", FailOnce(fail_txid)).global_grouping("spout")
    builder.set_state("captured", captured)
    return builder.build()


STORM_FIRST = {
    "sum": {
        1: [[1, "cat", 5], [1, "dog", 3], [1, "happy", 11], [1, "mango", 6]],
        2: [[2, "apple", 1], [2, "dog", 3], [2, "zebra", 1]],
    },
    "global": {1: [[1, 6]], 2: [[2, 3]]},
    "gcommit": {1: [[1, 6]], 2: [[2, 3]]},
    "count": {
        1: [[1, "cat", 2], [1, "dog", 1], [1, "happy", 1], [1, "mango", 2]],
        2: [[2, "apple", 1], [2, "dog", 1], [2, "zebra", 1]],
    },
    "count2": {
        1: [[1, "cat", 2], [1, "dog", 2], [1, "happy", 2], [1, "mango", 2]],
        2: [[2, "apple", 2], [2, "dog", 2], [2, "zebra", 2]],
    },
}

SECOND_DATA: dict[int, list[list[Any]]] = {
    0: [["a", 1], ["b", 2], ["c", 3]],
    1: [["d", 4], ["c", 1]],
    2: [["a", 2], ["e", 7], ["c", 11]],
    3: [["a", 2]],
}

STORM_SECOND = {
    "sum": {3: [[3, "a", 5], [3, "b", 2], [3, "c", 1], [3, "d", 4], [3, "e", 7]], 4: [[4, "c", 14]]},
    "global": {3: [[3, 7]], 4: [[4, 2]]},
    "gcommit": {3: [[3, 7]], 4: [[4, 2]]},
    "count": {3: [[3, "a", 3], [3, "b", 1], [3, "c", 1], [3, "d", 1], [3, "e", 1]], 4: [[4, "c", 2]]},
    "count2": {3: [[3, "a", 2], [3, "b", 2], [3, "c", 2], [3, "d", 2], [3, "e", 2]], 4: [[4, "c", 2]]},
}


def check(captured: MemoryState, expected: dict[str, dict[int, list[list[Any]]]]) -> None:
    for component, by_txid in expected.items():
        found = seen(captured, component)
        assert {txid: found[txid] for txid in by_txid} == by_txid, component


def test_emissions_of_each_transaction() -> None:
    """Every bolt emits for each transaction what it emits in Storm, also for data added later."""
    data = {partition: list(rows) for partition, rows in FIRST_DATA.items()}
    captured = captured_state()
    run_inline(transactional_topology(data, captured), Config(max_spout_pending=2))
    check(captured, STORM_FIRST)
    for partition, rows in SECOND_DATA.items():
        data.setdefault(partition, []).extend(rows)
    report = run_inline(transactional_topology(data, captured), Config(max_spout_pending=2))
    check(
        captured,
        {component: {**STORM_FIRST[component], **STORM_SECOND[component]} for component in STORM_FIRST},
    )
    assert report.committed_txid == 4


def test_failed_transaction_is_replayed_alone() -> None:
    """Promise 5: the failure of 2 replays 2 alone, where Storm replays 3 as well; emissions are the same."""
    data = {p: FIRST_DATA.get(p, []) + SECOND_DATA.get(p, []) for p in range(4)}
    captured = captured_state()
    report = run_inline(transactional_topology(data, captured, fail_txid=2), Config(max_spout_pending=4))
    assert report.attempts == report.transactions + 1
    assert report.failures == 1
    assert seen(captured, "gcommit")[1] == [[1, 7]]
    once = captured_state()
    run_inline(transactional_topology(data, once), Config(max_spout_pending=4))
    assert read(captured) == read(once)


def test_restart() -> None:
    """What was added between two runs is taken by the second; the totals go on."""
    data: dict[int, list[list[str]]] = {0: [["a"], ["b"], ["c"], ["d"]], 1: [["d"], ["c"]]}
    captured = captured_state()

    def topology() -> Topology:
        builder = TransactionalTopologyBuilder("id", "spout", MemoryTransactionalSpout(data, Fields("word"), 3), 2)
        builder.set_bolt("count", CountingCommitBolt(), 2).global_grouping("spout")
        builder.set_bolt("capture", Capture("count")).global_grouping("count")
        builder.set_state("captured", captured)
        return builder.build()

    run_inline(topology())
    assert seen(captured, "count") == {1: [[1, 0], [1, 5]], 2: [[2, 0], [2, 1]]}
    data[0] += [["a"], ["b"]]
    run_inline(topology())
    assert seen(captured, "count")[3] == [[3, 0], [3, 2]]


def test_opaque() -> None:
    """An opaque spout's transactions are counted as in Storm."""
    captured = captured_state()
    spout = OpaqueMemoryTransactionalSpout({0: [["dog"], ["cat"], ["apple"], ["dog"]]}, Fields("word"), 2)
    builder = TransactionalTopologyBuilder("id", "spout", spout, 2)
    builder.set_committer_bolt("count", KeyedCountingBatchBolt(), 2).fields_grouping("spout", Fields("word"))
    builder.set_bolt("capture", Capture("count")).global_grouping("count")
    builder.set_state("captured", captured)
    run_inline(builder.build(), Config(max_spout_pending=2))
    found = seen(captured, "count")
    assert found[1] == [[1, "cat", 1], [1, "dog", 1]]
    assert found[2] == [[2, "apple", 1], [2, "dog", 1]]
