"""Every grouping, several streams, typed and untyped fields, in both layouts: the same tuples arrive."""

from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spouts import MemoryTransactionalSpout
from state import MemoryState
from txtopo import (
    ArrowBatchBolt,
    BasicBolt,
    BatchBolt,
    Config,
    CustomStreamGrouping,
    Fields,
    ICommitter,
    TransactionalTopologyBuilder,
    run,
)
from txtopo.testing.inline import run_inline

WORDS = ["cat", "dog", "apple", "a", "banana", "zebra"]
DATA = {p: [[WORDS[(i * i + p) % 6], i] for i in range(40 + p)] for p in range(3)}
ROWS = Counter((word, i) for rows in DATA.values() for word, i in rows)


class ByLength(CustomStreamGrouping):
    def prepare(self, context, stream, target_tasks):
        self.tasks = list(target_tasks)

    def choose_tasks(self, source_task, values):
        return [self.tasks[len(values[1]) % len(self.tasks)]]


class Split(BasicBolt):
    """Sends short words on one stream and, tuple by tuple, to a task it names; long ones on the default."""

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("attempt", "word", "i"))
        declarer.declare_stream("short", Fields("attempt", "word", "i"), direct=True)

    def prepare(self, config, context):
        self.tasks = context.component_tasks("direct")

    def execute(self, tuple, collector):
        if len(tuple["word"]) < 4:
            collector.emit_direct(self.tasks[tuple["i"] % len(self.tasks)], tuple.values, "short")
        else:
            collector.emit(tuple.values)


class Collect(BatchBolt, ICommitter):
    """Keeps what its task has received: (component, task, txid) → rows."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("received")
        self.rows = []

    def execute(self, tuple):
        assert tuple.attempt == self.attempt
        self.rows.append((tuple["word"], tuple["i"], tuple.source_component, tuple.source_stream))

    def finish_batch(self):
        key = (self.context.this_component_id, self.context.this_task_index, self.attempt.txid)
        self.state.put(key, self.rows)


class Columns(ArrowBatchBolt):
    """Passes columns through, and one of them doubled."""

    output_fields = Fields("attempt", "word: string", "i: long")

    def execute(self, batch: pa.RecordBatch):
        assert batch.schema.names == ["attempt", "word", "i"]
        assert set(batch.column("attempt").field("txid").to_pylist()) == {self.attempt.txid}
        self.collector.emit_batch(batch)


def topology(received: MemoryState, typed: bool):
    fields = Fields("word: string", "i: long") if typed else Fields("word", "i")
    builder = TransactionalTopologyBuilder("groupings", "spout", MemoryTransactionalSpout(DATA, fields, 7), 2)
    source = "spout"
    if typed:
        builder.set_bolt("columns", Columns(), 3).shuffle_grouping("spout")
        source = "columns"
    key = Fields("word")
    builder.set_bolt("shuffle", Collect(), 3).shuffle_grouping(source)
    builder.set_bolt("none", Collect(), 2).none_grouping(source)
    builder.set_bolt("local", Collect(), 4).local_or_shuffle_grouping(source)
    builder.set_bolt("fields", Collect(), 3).fields_grouping(source, key)
    builder.set_bolt("pair", Collect(), 3).fields_grouping(source, Fields("word", "i"))
    builder.set_bolt("partial", Collect(), 3).partial_key_grouping(source, key)
    builder.set_bolt("global", Collect(), 3).global_grouping(source)
    builder.set_bolt("all", Collect(), 3).all_grouping(source)
    builder.set_bolt("custom", Collect(), 3).custom_grouping(source, ByLength())
    builder.set_bolt("split", Split(), 2).shuffle_grouping(source)
    builder.set_bolt("direct", Collect(), 3).direct_grouping("split", "short")
    builder.set_bolt("long", Collect(), 2).shuffle_grouping("split")
    builder.set_state("received", received)
    return builder.build()


def check(received: MemoryState) -> None:
    rows: dict[str, Counter] = {}
    by_task: dict[str, dict[int, set[str]]] = {}
    for (component, task, _), kept in received.items().items():
        pairs = [(word, i) for word, i, _, _ in kept.value]
        rows.setdefault(component, Counter()).update(pairs)
        by_task.setdefault(component, {}).setdefault(task, set()).update(word for word, _ in pairs)
    for component in ("shuffle", "none", "local", "fields", "pair", "partial", "global", "custom"):
        assert rows[component] == ROWS, component
    assert rows["all"] == Counter({row: 3 * n for row, n in ROWS.items()})
    short = Counter({row: n for row, n in ROWS.items() if len(row[0]) < 4})
    assert rows["direct"] == short
    assert rows["long"] == ROWS - short
    tasks_of = {w: sum(w in words for words in by_task["fields"].values()) for w in WORDS}
    assert set(tasks_of.values()) == {1}, "a key goes to one task"
    assert all(sum(w in words for words in by_task["partial"].values()) <= 2 for w in WORDS)
    assert not by_task["global"][1]
    assert all(len(word) % 3 == task for task, words in by_task["custom"].items() for word in words)
    assert all(words for words in by_task["shuffle"].values()), "shuffle uses every task"


@pytest.mark.parametrize("typed", [False, True], ids=["untyped", "typed"])
@pytest.mark.parametrize("layout", ["together", "spread"])
def test_groupings(spark: SparkSession, typed: bool, layout: str) -> None:
    """Each grouping sends each tuple where it should, on Spark, in either layout."""
    received = MemoryState(Fields("component", "task", "tx"), Fields("rows"))
    run(topology(received, typed), Config(layout=layout))
    check(received)


@pytest.mark.few(2)
@pytest.mark.parametrize("typed", [False, True], ids=["untyped", "typed"])
@pytest.mark.parametrize("slots", [1, 3])
def test_groupings_inline(typed: bool, slots: int) -> None:
    """The same without Spark, in one place and in three."""
    received = MemoryState(Fields("component", "task", "tx"), Fields("rows"))
    run_inline(topology(received, typed), Config(layout="spread"), slots=slots)
    check(received)
