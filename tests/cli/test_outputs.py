"""A topology that writes a topic and tables of PostgreSQL with the rest of the product: limits, commands, the page."""

import itertools
import random

import attrs
import pytest

from tests.cli.conftest import CommandLine
from tests.crashes import Crash, survives
from tests.postgres import postgres, schema
from tests.state.kafka.test_state import values
from tests.variants import variants
from txtopo import Config
from txtopo.cli.target import load_target
from txtopo.engine.runner import run_with
from txtopo.engine.timeline.ends import place_of
from txtopo.engine.timeline.observer import Timeline
from txtopo.errors import PoisonTransaction
from txtopo.files.places import folder_at
from txtopo.fork.forking import moved
from txtopo.inspect.backend import FolderBackend
from txtopo.testing.inline import inline_environment, run_inline
from txtopo.topology.topology import TransactionalTopology

__all__ = ["postgres", "schema"]

MODULE = """
from committers import AppendCommitter, ReduceCommitter
from spouts import MemoryTransactionalSpout
from spouts.opaque_memory import OpaqueMemoryTransactionalSpout
from state import DeltaState, KafkaState, SqlRows, SqlState
from txtopo import BasicBolt, FailedException, Fields, TransactionalTopologyBuilder

FIELDS, KEY, VALUE = Fields("key: string", "value: string"), Fields("key: string"), Fields("value: string")
ROWS = [[f"k{number % 3}", str(number)] for number in range(12)]


class Check(BasicBolt):
    output_fields = FIELDS.with_attempt()

    def __init__(self, bad):
        self.bad = bad

    def execute(self, tuple, collector):
        if tuple["value"] == self.bad:
            raise FailedException("a bad record")
        collector.emit(tuple.values)


def topology(servers: str, topic: str, url: str, schema: str, outputs: str = "topic log last", spout: str = "repeatable",
             bad: str = "", again: str = "no", id: str = "out"):
    kind = OpaqueMemoryTransactionalSpout if spout == "opaque" else MemoryTransactionalSpout
    builder = TransactionalTopologyBuilder(id, "rows", kind(ROWS, FIELDS, 2))
    builder.set_bolt("check", Check(bad)).shuffle_grouping("rows")
    states = {
        "topic": KafkaState(servers, topic, FIELDS, publishes_again=again == "yes"),
        "log": SqlRows(url, "log", FIELDS, schema=schema),
        "last": SqlState(url, "last", KEY, VALUE, schema=schema),
        "table": DeltaState("table", KEY, VALUE),
    }
    for name in [*outputs.split(), "table"]:
        is_keyed = name in {"last", "table"}
        committer = ReduceCommitter(name, "key", "value", max) if is_keyed else AppendCommitter(name)
        declared = builder.set_committer_bolt(f"into-{name}", committer)
        declared.fields_grouping("check", KEY) if is_keyed else declared.global_grouping("check")
        builder.set_state(name, states[name])
    return builder.build()
"""
CONFIG = Config(group_transactions_max=2, max_spout_pending=6)
_TOPICS = itertools.count(1)


@attrs.frozen
class Outputs:
    """The topology of the module, its commands, and what its readers see."""

    command_line: CommandLine
    options: dict[str, str]

    def run(self, until=None, config=CONFIG, **options):
        run_inline(load_target("out", {**self.options, **options}).topology, config, until=until)

    def told(self, *words, **options):
        return self.command_line.told(*words, *self.sets(**options))

    def sets(self, **options):
        return [word for pair in {**self.options, **options}.items() for word in ("--set", "=".join(pair))]

    def state(self, name):
        return load_target("out", self.options).topology.plan.states[name]

    def published(self):
        """The numbers in the topic, as a reader of committed records gets them."""
        return [int(value) for value in values(self.options["servers"], self.options["topic"], 1)[0]]

    def logged(self):
        return [int(value) for value in self.state("log").snapshot()["value"].to_pylist()]

    def check(self, numbers):
        """Each of the numbers is in the topic and the log, in order, and the newest of each key in the keyed table."""
        assert self.published() == self.logged() == numbers
        newest = {f"k{number % 3}": str(number) for number in sorted(numbers, key=str)}
        last = self.state("last").snapshot()
        assert dict(zip(last["key"].to_pylist(), last["value"].to_pylist(), strict=True)) == newest


@pytest.fixture
def outputs(command_line, kafka, postgres, schema):
    topic = f"outputs-{next(_TOPICS)}"
    kafka.create_topic(topic, 1)
    command_line.write_module("out", MODULE)
    options = {"servers": kafka.servers, "topic": topic, "url": postgres.url, "schema": schema}
    return Outputs(command_line, options)


@pytest.mark.parametrize("spout", ["repeatable", "opaque"])
@pytest.mark.parametrize("policy", ["SKIP", "WAIT"])
def test_a_transaction_that_fails_for_good(outputs, policy, spout):
    """A skipped transaction leaves nothing in any output, and those after it come once; WAIT leaves none of them."""
    limited = {"transaction_max_attempts": 2, "transaction_max_attempts_policy": policy}
    config = CONFIG.with_settings({f"topology.{name.replace('_', '.')}": value for name, value in limited.items()})
    kind = {"spout": spout}
    if policy == "SKIP":
        outputs.run(config=config, bad="5", **kind)
        outputs.check([0, 1, 2, 3, *range(6, 12)])
    else:
        with pytest.raises(PoisonTransaction):
            outputs.run(config=config, bad="5", **kind)
        outputs.check([0, 1, 2, 3])
        outputs.run(**kind)
        outputs.check(list(range(12)))
    audit = outputs.told("audit", "out", **kind)
    assert "not proved, because they are not in Delta: last, log, topic" in audit
    assert "each once" in audit
    replayed = outputs.told("replay", "out", "--from", "4", "--to", "6", **kind)
    assert "left out: into-topic, into-log, into-last, state topic, state log, state last" in replayed
    assert "the same" in replayed
    assert "table: 3 rows equal" in outputs.command_line.told("diff", ".", ".")


def test_a_transaction_that_is_set_aside(outputs):
    """``txtopo skip`` gives it up, and what follows is there once."""
    config = CONFIG.with_settings({"topology.transaction.max.attempts": 2})
    with pytest.raises(PoisonTransaction):
        outputs.run(config=config, bad="5")
    outputs.told("skip", "out", "3", "--yes")
    outputs.run()
    outputs.check([0, 1, 2, 3, *range(6, 12)])


def test_outputs_that_are_new(outputs):
    """A backfill gives each the history that it would have, once, and the next run goes on in all of them."""
    outputs.run(until=4, outputs="")
    for name in ("topic", "log", "last"):
        outputs.told("backfill", "out", name)
        assert "each once" in outputs.told("audit", "out")
    outputs.check(list(range(8)))
    outputs.run()
    outputs.check(list(range(12)))
    assert "each once" in outputs.told("audit", "out")
    refused = outputs.command_line.refusal("rewind", "out", "2", "--yes", *outputs.sets(again="yes"))
    assert "state 'topic' can't be at transaction 2: the topology had no such state yet" in refused


def test_a_rewind_to_before_a_backfill(outputs):
    """A table of a database is kept under another name, as one in Delta is; a backfill gives its history anew."""
    outputs.run(until=4, outputs="")
    outputs.told("backfill", "out", "last", outputs="last")
    outputs.told("rewind", "out", "2", "--yes", outputs="last")
    assert (outputs.state("last").table().describe(), outputs.state("last").table().asides()) == (None, [1])
    outputs.run(until=4, outputs="")
    outputs.told("backfill", "out", "last", outputs="last")
    outputs.run(outputs="last")
    assert outputs.state("last").snapshot().num_rows == 3
    assert "each once" in outputs.told("audit", "out", outputs="last")


def test_what_is_published_stays(outputs):
    """A rewind is refused, and where the user asks for it publishes again; a fork writes to a topic of its own."""
    kind = {"outputs": "topic"}
    outputs.run(until=4, **kind)
    sets = outputs.sets(**kind)
    for txid in ("2", "0"):
        assert "'topic' can't go back to" in outputs.command_line.refusal("rewind", "out", txid, "--yes", *sets)
    assert "can't be moved" in outputs.command_line.refusal("repair", "out", "--start-anew", "--yes", *sets)
    assert "begins empty" in outputs.told("fork", "out", "4", "side", **kind)
    plan, forked = moved(load_target("out", {**outputs.options, **kind}).topology.plan, CONFIG, folder_at("side"))
    run_inline(TransactionalTopology(plan), forked)
    assert values(outputs.options["servers"], plan.states["topic"].topic, 1)[0] == ["8", "9", "10", "11"]
    assert outputs.published() == list(range(8))
    outputs.told("rewind", "out", "2", "--yes", again="yes", **kind)
    outputs.run(again="yes", **kind)
    assert outputs.published() == [*range(8), *range(4, 12)]
    assert "each once" in outputs.told("audit", "out", again="yes", **kind)


def test_a_rename(outputs):
    """The outputs stay where they are, and go on under the topology's other id."""
    outputs.run(until=4)
    outputs.told("rename", "out", "--yes", id="other")
    outputs.run(id="other")
    outputs.check(list(range(12)))
    assert "each once" in outputs.told("audit", "out", id="other")


def test_the_page(outputs):
    """It has the outputs in the graph and in each transaction's writes, and says that their rows are not in Delta."""
    topology = load_target("out", outputs.options).topology
    with Timeline(topology, CONFIG, place_of(topology, CONFIG), 0.01) as timeline:
        environment = attrs.evolve(inline_environment(), observer=timeline)
        run_with(topology, CONFIG, environment, on_progress=timeline.progressed)
    backend = FolderBackend(folder_at("."))
    assert {"topic", "log", "last", "table"} <= set(backend.graph("out").states)
    shown = {state.name: state for state in backend.states("out").states}
    assert [
        (shown[name].class_, shown[name].path, shown[name].rows, shown[name].error) for name in ("topic", "last")
    ] == [
        ("KafkaState", "", None, None),
        ("SqlState", "", None, None),
    ]
    assert {write.state for write in backend.transaction("out", 6).writes} == {"topic", "log", "last", "table"}
    backend.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", variants(1, long=range(2, 9)))
def test_any_story(outputs, seed):
    """Runs, crashes and rewinds in any order: the topic has what each has published, once; the log what counts now."""
    drawing, last, published = random.Random(seed), 0, []
    config = CONFIG.with_settings({"topology.group.transactions.max": 1})  # so that one can go back to each transaction
    kind = {"outputs": "topic log", "again": "yes", "spout": drawing.choice(["repeatable", "opaque"])}
    for step in range(6):
        if last and drawing.random() < 0.3:
            last = drawing.randrange(last)
            outputs.told("rewind", "out", str(last), "--yes", **kind)
        else:
            until = drawing.randint(last, 6) if step < 5 else 6
            while drawing.random() < 0.5:
                survives(lambda until=until: outputs.run(until, config, **kind), Crash(at=drawing.randint(1, 150)))
            outputs.run(until, config, **kind)
            published += range(2 * last, 2 * until)
            last = until
        assert outputs.published() == published
        assert outputs.logged() == list(range(2 * last))
    assert "each once" in outputs.told("audit", "out", **kind)
