"""Repeatable and opaque spouts in one topology: what is planned is kept, and opaque parts are cut anew."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout, OpaquePartitionedEmitter
from state import DeltaState, MemoryState, MemoryStore
from tests.acceptance.test_several_spouts import (
    WORDS,
    Count,
    Numbers,
    command_line,
    counts,
    opaque_rows,
    rows,
    topology,
    transactions,
)
from tests.topologies import values_in
from tests.transactional.recovery.crashes import CrashError, CrashingState, CrashingStore, Fuse
from txtopo import Config, DataFrameBolt, FailedException, Fields, Topology, TransactionalTopologyBuilder, run
from txtopo.api.components.planned import BeginReason
from txtopo.attempts import epoch_and_try
from txtopo.engine.runner import run_with
from txtopo.errors import InternalError, PoisonTransaction
from txtopo.files.places import folder_at
from txtopo.fork.forking import moved
from txtopo.testing.inline import inline_environment, run_inline
from txtopo.testing.simulation.schedules import make_subject, run_schedules
from txtopo.topology.topology import TransactionalTopology
from txtopo.topology.user_code.loading import load_target

__all__ = ["command_line"]


class Fickle(OpaqueMemoryTransactionalSpout):
    """Emits none, one or two rows of a partition, depending on the attempt."""

    def emitter(self, config: Any, context: Any) -> OpaquePartitionedEmitter:
        return _FickleEmitter(lambda take: OpaqueMemoryTransactionalSpout.emitter(self._taking(take), config, context))

    def _taking(self, take: int) -> OpaqueMemoryTransactionalSpout:
        taking = OpaqueMemoryTransactionalSpout(WORDS_OF_PARTITIONS, WORDS, take)
        taking.rows = self.rows
        return taking


WORDS_OF_PARTITIONS = {0: [["x"], ["y"], ["x"], ["z"]], 1: [["p"], ["q"], ["p"]]}


class _FickleEmitter(OpaquePartitionedEmitter):
    def __init__(self, taking: Any) -> None:
        self._taking = taking

    def emit_batch(self, attempt: Any, collector: Any, partition: Any, previous_metadata: Any) -> Any:
        take = (attempt.txid + epoch_and_try(attempt.attempt)[1] + partition) % 3
        return self._taking(take).emit_batch(attempt, collector, partition, previous_metadata) if take else None


def fickle() -> Fickle:
    """Return a spout that emits other rows at each attempt."""
    return Fickle(WORDS_OF_PARTITIONS, WORDS, 1)


class Failing(Count):
    """Fails once in the commit phase of the transaction 2, and always from a word on."""

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        super().prepare(config, context, collector, attempt)
        self.attempt = attempt

    def finish_batch(self) -> None:
        if any("poison" in key for key in self.counts):
            raise FailedException("poison")
        if self.attempt.txid == 2 and epoch_and_try(self.attempt.attempt)[1] == 1:
            raise FailedException("once")
        super().finish_batch()


TAKEN = {
    "orders a": 2, "orders b": 1, "orders c": 1,
    "clicks x": 2, "clicks y": 1, "clicks z": 1, "clicks p": 2, "clicks q": 1,
}  # fmt: skip


def test_what_is_rolled_back_keeps_what_was_planned(tmp_path: Path) -> None:
    """The transaction 2 and those behind it take the same orders again, and other clicks; nothing is lost or doubled."""
    made = topology(tmp_path, committer=Failing(), orders=rows("a b c a"), clicks=fickle())
    assert run_inline(made).replays
    assert counts(tmp_path) == TAKEN
    taken = [transaction.ranges["orders"] for transaction in transactions(tmp_path)]
    assert taken[:4] == [{"0": (at, at + 1)} for at in range(4)]


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_on_spark(tmp_path: Path, spark: Any, mode: str) -> None:
    """Emitters of both kinds share the executors, in jobs and in real-time workers."""
    made = topology(tmp_path, tasks=2, committer=Failing(), orders=rows("a b c a"), clicks=fickle())
    run(made, Config({"topology.processing.mode": mode}))
    assert counts(tmp_path) == TAKEN


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("is_real_time", [False, True], ids=["micro-batch", "real-time"])
@pytest.mark.parametrize("first", [rows, opaque_rows])
def test_under_seeded_disasters(tmp_path: Path, first: Any, *, is_real_time: bool) -> None:
    """The tables equal those of an undisturbed run, whatever dies and whenever, and whatever a replay carries."""
    made = topology(tmp_path, tasks=2, orders=first("a b c a b"), payments=rows("x y"), clicks=fickle())
    assert not run_schedules(make_subject(made, is_real_time=is_real_time), range(12)).failures


class AtEnd(Count):
    """Counts a transaction without input that ends the sources."""

    at_end = True

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        super().prepare(config, context, collector, attempt)
        self.counts = {"end ": 1} if context.is_at_end else {}


@pytest.mark.slow
def test_the_end_comes_once_and_last(tmp_path: Path) -> None:
    """It begins when all before it is committed: what an opaque spout had would be there again after a roll-back."""
    made = topology(tmp_path, committer=AtEnd(), orders=rows("a b"), clicks=opaque_rows("x y z"))
    assert not run_schedules(make_subject(made), range(12)).failures
    run_inline(made)
    *others, last = [transaction.planned.turn for transaction in transactions(tmp_path)]
    assert (set(others), last) == ({BeginReason.INPUT}, BeginReason.END)


def test_what_fails_is_skipped_with_its_orders_and_clicks(tmp_path: Path) -> None:
    """The dead letter has the input of both, and those behind it begin after it."""
    config = Config({"topology.transaction.max.attempts": 2, "topology.transaction.max.attempts.policy": "SKIP"})
    spouts = {"orders": rows("a poison c"), "clicks": opaque_rows("x y z")}
    run_inline(topology(tmp_path, committer=Failing(), **spouts), config)
    assert counts(tmp_path) == {"orders a": 1, "orders c": 1, "clicks x": 1, "clicks z": 1}
    assert [transaction.ranges for transaction in transactions(tmp_path) if transaction.is_dead_letter] == [
        {"orders": {"0": (1, 2)}, "clicks": {"0": (1, 2)}}
    ]


class Broken(MemoryTransactionalSpout):
    """A repeatable spout whose second transaction can't be emitted."""

    def emitter(self, config: Any, context: Any) -> Any:
        inner = super().emitter(config, context)
        emit = inner.emit_batch

        def emit_batch(attempt: Any, *rest: Any) -> Any:
            if attempt.txid == 2:
                raise FailedException("no such page")
            return emit(attempt, *rest)

        inner.emit_batch = emit_batch
        return inner


def test_a_repeatable_spout_that_fails_is_skipped(tmp_path: Path) -> None:
    """The opaque ones emit first: so it is known where they end."""
    config = Config({"topology.transaction.max.attempts": 2, "topology.transaction.max.attempts.policy": "SKIP"})
    broken = Broken([["a"], ["b"], ["c"]], WORDS, 1)
    run_inline(topology(tmp_path, orders=broken, clicks=opaque_rows("x y z")), config)
    assert counts(tmp_path) == {"orders a": 1, "orders c": 1, "clicks x": 1, "clicks z": 1}


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_what_fails_is_skipped_on_spark(tmp_path: Path, spark: Any, mode: str) -> None:
    """In both modes: by a commit phase, and by the emitter of the repeatable one; others of both go on."""
    settings = {"topology.transaction.max.attempts": 2, "topology.transaction.max.attempts.policy": "SKIP"}
    config = Config({**settings, "topology.processing.mode": mode})
    broken = Broken([["a"], ["b"], ["poison"], ["d"]], WORDS, 1)
    run(topology(tmp_path, committer=Failing(), orders=broken, clicks=opaque_rows("w x y z")), config)
    assert counts(tmp_path) == {"orders a": 1, "orders d": 1, "clicks w": 1, "clicks z": 1}
    assert [transaction.ranges for transaction in transactions(tmp_path) if transaction.is_dead_letter] == [
        {"orders": {"0": (at, at + 1)}, "clicks": {"0": (at, at + 1)}} for at in (1, 2)
    ]


MODULE = """
from pathlib import Path

from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from tests.acceptance.test_mixed_spouts import Failing
from tests.acceptance.test_several_spouts import opaque_rows, rows, topology as made

def topology(words: str = "a b c d", clicks: str = "x y z", output: str = "out"):
    spouts = {"orders": rows(words.replace("-", " "))}
    if clicks:
        spouts["clicks"] = opaque_rows(clicks.replace("-", " "))
    return made(Path(output), committer=Failing(), **spouts)
"""


def test_none_is_set_aside_by_hand_whose_end_is_unknown(command_line: Any) -> None:
    """It has begun, and what it began with says nothing of where the opaque spout would end."""
    command_line.write_module("job", MODULE)
    made = load_target("job", {"words": "a-poison-c"}).topology
    with pytest.raises(PoisonTransaction):
        run_inline(made, Config({"topology.transaction.max.attempts": 2}))
    run_inline(made, until=1)
    refused = command_line("skip", "job", "2", "--yes", "--set", "words=a-poison-c")
    assert "only a run learns where its batch ends, as it is one of an opaque spout" in refused.output


@pytest.mark.slow
@pytest.mark.parametrize("txid", [0, 1, 3])
def test_a_fork_begins_with_what_was_planned(command_line: Any, txid: int) -> None:
    """It comes to the same totals from any point, with the same orders in the same transactions."""
    command_line.write_module("job", MODULE)
    run_inline(load_target("job", {}).topology, Config(group_transactions_max=1))
    command_line.told("fork", "job", str(txid), "side")
    plan, config = moved(load_target("job", {}).topology.plan, Config(group_transactions_max=1), folder_at("side"))
    run_inline(TransactionalTopology(plan), config)
    assert counts(Path("side")) == counts(Path("out"))
    orders = [transaction.ranges["orders"] for transaction in transactions(Path("out"))]
    assert [transaction.ranges["orders"] for transaction in transactions(Path("side"))] == orders[txid:]


@pytest.mark.slow
def test_going_back_into_the_middle(command_line: Any) -> None:
    """Both spouts read again from there."""
    command_line.write_module("job", MODULE)
    run_inline(load_target("job", {}).topology, Config(group_transactions_max=1), until=3)
    command_line.told("rewind", "job", "1", "--yes")
    run_inline(load_target("job", {}).topology)
    assert counts(Path("out")) == {
        "orders a": 1, "orders b": 1, "orders c": 1, "orders d": 1, "clicks x": 1, "clicks y": 1, "clicks z": 1,
    }  # fmt: skip
    assert "✔" in command_line.told("audit", "out")


def test_an_opaque_spout_that_is_added(command_line: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It begins with the next transaction that is planned; the log says once what changes."""
    command_line.write_module("job", MODULE)
    run_inline(load_target("job", {"clicks": ""}).topology, Config(group_transactions_max=1), until=2)
    for _ in range(2):
        run_inline(load_target("job", {}).topology)
    assert [message for message in caplog.messages if "the new spout 'clicks' is opaque" in message] == caplog.messages
    assert counts(Path("out"))["clicks z"] == 1
    assert "✔" in command_line.told("audit", "out")


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_an_opaque_spout_that_is_added_under_crashes(*, before: bool) -> None:
    """No state has to change for it: a crash at each durable step of the runs with it leaves exact totals."""
    for steps in range(1, 200):
        store, table = MemoryStore(), MemoryState(Fields("key"), Fields("n"))

        def run_once(fuse: Fuse, until: int | None = None, store: Any = store, table: Any = table, **more: Any) -> None:
            environment = attrs.evolve(inline_environment(), make_store=lambda: CrashingStore(store, fuse))
            state = CrashingState(table, fuse)
            made = topology(Path("unused"), state=state, committer=Failing(), orders=rows("a b c a"), **more)
            run_with(made, Config(max_spout_pending=3, group_transactions_max=2), environment, until=until)

        run_once(Fuse(), until=1)
        try:
            run_once(Fuse(steps, before), clicks=fickle())
        except (InternalError, CrashError):
            run_once(Fuse(), clicks=fickle())
            assert values_in(table) == TAKEN
        else:
            assert values_in(table) == TAKEN
            assert steps > 15, "the fuse is longer than the run: there were too few durable steps"
            return
    pytest.fail("the run never got through")


class LastLetters(DataFrameBolt):
    """The last letter of each word, of all spouts together."""

    output_fields = Fields("attempt", "letter: string")

    def transform(self, frame: Any) -> Any:
        return frame.selectExpr("attempt", "right(word, 1) AS letter")


@pytest.mark.parametrize("is_opaque", [False, True], ids=["repeatable", "opaque"])
def test_a_dataframe_spout_beside_others(tmp_path: Path, spark: Any, *, is_opaque: bool) -> None:
    """Bolts of Python and of Spark SQL take the rows of both, over two runs, also if transactions are rolled back."""
    typed = Fields("word: string")

    def made() -> Topology:
        words = [["a"], ["b"], ["c"], ["a"]]
        other = (
            OpaqueMemoryTransactionalSpout(words, typed, 1) if is_opaque else MemoryTransactionalSpout(words, typed, 1)
        )
        builder = TransactionalTopologyBuilder("both", "numbers", Numbers(6))
        builder.add_spout("rows", other, 2)
        count = builder.set_committer_bolt("count", Failing(), 2)
        builder.set_bolt("letters", LastLetters()).shuffle_grouping("numbers").shuffle_grouping("rows")
        for source, field in (("numbers", "word"), ("rows", "word"), ("letters", "letter")):
            count.fields_grouping(source, Fields(field))
        builder.set_state("counts", DeltaState(tmp_path / "counts", Fields("key: string"), Fields("n: long")))
        return builder.build()

    for until in (1, None):
        run(made(), Config({"topology.message.timeout.secs": 300}), until=until)
    own = {"numbers 0": 2, "numbers 1": 2, "numbers 2": 2, "rows a": 2, "rows b": 1, "rows c": 1}
    assert counts(tmp_path) == {**own, **{f"letters {key.split()[1]}": n for key, n in own.items()}}
