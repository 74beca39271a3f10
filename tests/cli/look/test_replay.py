"""``txtopo replay``: the same for what is deterministic, and the first component that is not is named."""

import os
import pathlib
from typing import ClassVar

import pytest
from deltalake import DeltaTable

from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaState, MemoryState, SqliteStore, StateKind
from tests.acceptance.test_frames import CountByKey, Numbers
from tests.acceptance.topologies import CountWords, Identity, Partial, SumDeltas, make_data
from tests.bolts import Collecting
from tests.topologies import committing
from txtopo import (
    BasicBolt,
    BatchBolt,
    Config,
    FailedException,
    Fields,
    ICommitter,
    TransactionalTopologyBuilder,
    run,
)
from txtopo.api.values import KEYED_KINDS
from txtopo.testing.inline import run_inline

DATA = make_data(2, 7)

MODULE = """
import pathlib
from typing import ClassVar
from tests.cli.look.test_replay import Settings, make
def topology():
    return make(pathlib.Path({output!r}), Settings.now)
"""


class Settings:
    """What the topology is made with: tests change it between a run and a replay."""

    now: ClassVar[dict] = {}
    counter = 0


class Odd(BasicBolt):
    """Passes words on, some of them changed in a way that a replay does not repeat."""

    output_fields = Fields("attempt", "word")

    def __init__(self, how):
        self.how = how

    def execute(self, tuple, collector):
        word = tuple["word"]
        if self.how == "random":
            word += os.urandom(4).hex()
        elif self.how == "counter":
            Settings.counter += 1
            word += str(Settings.counter)
        elif self.how == "environment":
            word += os.environ.get("ODD", "")
        collector.emit((self.attempt_of(tuple), word))

    def attempt_of(self, tuple):
        return tuple[0]


class OddCommitter(Collecting):
    """Keeps a number for each word, which is another one each time."""

    def finish_batch(self):
        for word in self.words:
            Settings.counter += 1
            self.state.put(word, Settings.counter)


def make(output, settings):
    """Return spout → identity → odd → partial → count (committer) → sum (committer), as ``settings`` ask for."""
    spouts = OpaqueMemoryTransactionalSpout if settings.get("opaque") else MemoryTransactionalSpout
    kind = settings.get("kind", StateKind.TRANSACTIONAL)
    spout = spouts(settings.get("data", DATA), Fields("word"), 3)
    builder = TransactionalTopologyBuilder("replayed", "spout", spout, 2)
    builder.set_bolt("identity", Identity(), 2).shuffle_grouping("spout")
    source = "identity"
    if not settings.get("without odd"):
        source = "odd"
        builder.set_bolt("odd", Odd(settings.get("odd")), 2).shuffle_grouping("identity")
    builder.set_bolt("partial", Partial(), 2).fields_grouping(source, Fields("word"))
    builder.set_committer_bolt("count", CountWords(), 2).fields_grouping("partial", Fields("word"))
    builder.set_bolt("sum", SumDeltas(), 1).global_grouping("count")
    if settings.get("odd committer"):
        builder.set_committer_bolt("strange", OddCommitter("odd"), 1).global_grouping("partial")
        builder.set_state("odd", DeltaState(output / "odd", Fields("word: string"), Fields("n: long")))
    memory = settings.get("memory")
    for name, key in (("words", "word"), ("total", "name")):
        delta = DeltaState(output / name, Fields(f"{key}: string"), Fields("n: long"), kind)
        builder.set_state(name, MemoryState() if memory and name == "words" else delta)
    return builder.build()


@pytest.fixture
def replayed(command_line, tmp_path):
    """Runs the topology as settings ask for, and returns what replays a transaction of it."""
    Settings.now, Settings.counter = {}, 0
    output = tmp_path / "out"
    command_line.write_module("replayed", MODULE.format(output=str(output)))

    def run(group=2, layout="together", slots=2, **settings):
        Settings.now = settings
        config = Config(max_spout_pending=6, group_transactions_max=group, layout=layout)
        run_inline(make(output, settings), config, slots=slots)
        return lambda txid: command_line("replay", "replayed", str(txid))

    return run


def everything_in(folder):
    """Return each file below a folder with its content."""
    return {str(path): path.read_bytes() for path in sorted(pathlib.Path(folder).rglob("*")) if path.is_file()}


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("opaque", "layout"),
    [
        pytest.param(False, "together", id="repeatable-together", marks=pytest.mark.slow),
        pytest.param(False, "spread", id="repeatable-spread"),
        pytest.param(True, "together", id="opaque-together"),
        pytest.param(True, "spread", id="opaque-spread", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("kind", KEYED_KINDS, ids=lambda kind: kind.value)
def test_what_is_deterministic_is_the_same(replayed, tmp_path, layout, opaque, kind):
    """Every transaction comes out the same, in groups of three, whatever the layout, the spout and the state."""
    replay = replayed(group=3, layout=layout, opaque=opaque, kind=kind)
    before = everything_in(tmp_path / "out")
    for txid in (1, 2, 3, 4):
        result = replay(txid)
        assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "✔ the same"), result.output
    assert everything_in(tmp_path / "out") == before


@pytest.mark.slow
def test_what_is_compared_is_said(replayed):
    """Each component and state is told with what it was compared by."""
    lines = replayed()(4).stdout.splitlines()
    assert lines[0] == "transaction 4: attempt 1, epoch 1, committed together with 3 to 4"
    assert lines[1] == "  spout: 1 tuple, the same, by the checksum in the journal"
    assert lines[5] == "  count: 1 tuple, the same, by the checksum in the journal"
    assert "  state total: 1 row, the same" in lines
    spread = replayed(layout="spread", data={0: [*DATA[0], ["new"]], 1: DATA[1]})(5).stdout
    assert "  spout: 1 tuple, the same, by the checksum in the journal" in spread
    assert "  partial: 1 tuple, the same, by their number in the journal, and the checksums of two replays" in spread


def test_it_works_while_the_topology_runs(replayed, tmp_path):
    """A replay takes no lead and fences nobody: another process may hold the topology."""
    replay = replayed()
    version = DeltaTable(str(tmp_path / "out" / "words")).version()
    store = SqliteStore(tmp_path / "out" / "_txtopo" / "coordinator.sqlite")
    lead = store.take_lead("replayed", "another")
    try:
        assert replay(2).exit_code == 0
        assert lead.is_held()
    finally:
        lead.release()
        store.close()
    assert DeltaTable(str(tmp_path / "out" / "words")).version() == version


@pytest.mark.slow
def test_a_source_that_changed_is_named(replayed):
    """One row that was altered: the spout is to blame, for its transaction alone."""
    replay = replayed()
    Settings.now = {"data": {0: [*DATA[0][:4], ["other"], *DATA[0][5:]], 1: DATA[1]}}
    assert replay(1).exit_code == 0
    result = replay(2)
    assert (result.exit_code, "✘ 'spout': the source is not repeatable" in result.stdout) == (1, True)
    assert "6 tuples at the commit and now, but with different values" in result.stdout


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["random", "counter", "environment"])
def test_a_bolt_that_is_not_deterministic_is_named(replayed, monkeypatch, how):
    """Randomness, a counter outside, the environment: the bolt that looks at it is named, not one below it."""
    replay = replayed(odd=how)
    monkeypatch.setenv("ODD", "something else")
    result = replay(2)
    assert (result.exit_code, "✘ 'odd': it is not deterministic" in result.stdout) == (1, True), result.stdout
    assert "identity: 6 tuples, the same" in result.stdout


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["random", "counter"])
def test_a_bolt_is_named_where_the_journal_has_no_checksum(replayed, how):
    """Where tasks were spread, two replays are compared."""
    result = replayed(odd=how, layout="spread")(2)
    assert result.exit_code == 1
    assert "✘ 'odd': it is not deterministic: two replays emit different tuples" in result.stdout


def test_nobody_is_named_alone_where_the_journal_has_no_checksum(replayed, monkeypatch):
    """A bolt that emits as many tuples, but others, shows in a state only: not its writer alone is suspect."""
    replay = replayed(odd="environment", layout="spread")
    monkeypatch.setenv("ODD", "something else")
    result = replay(2)
    assert result.exit_code == 1
    assert "✘ each component emits as many tuples, but state 'words' gets different values" in result.stdout
    assert "Either 'count' writes others, or 'identity' or 'odd' or 'partial' emits others" in result.stdout


def test_a_committer_that_writes_something_else_is_named(replayed):
    """All emit the same, and one state differs: the committer that writes it is named."""
    replay = replayed(**{"odd committer": True})
    result = replay(2)
    assert result.exit_code == 1
    assert (
        "✘ 'strange': all components emit the same tuples, but 'strange' writes different values to state 'odd'"
        in result.stdout
    )
    assert "state words: " in result.stdout
    assert "differs" not in result.stdout.split("state odd")[0]


def test_the_transaction_before_is_named_where_it_is_to_blame(replayed, monkeypatch):
    """A later transaction of a group builds on an earlier one: if that differs, nothing is said against this one."""
    replay = replayed(data={0: [["a"]] * 6}, odd="environment")
    Settings.now = {"data": {0: [["b"]] * 3 + [["a"]] * 3}, "odd": "environment"}
    result = replay(2)
    assert result.exit_code == 1
    assert "✘ transaction 1, an earlier one of the same commit group" in result.stdout


def test_an_opaque_source_that_emits_something_else_is_told(replayed):
    """An opaque source may emit something else: it is said, for then nothing can be judged."""
    replay = replayed(opaque=True)
    Settings.now = {"opaque": True, "data": {0: [["x"], *DATA[0][1:]], 1: DATA[1]}}
    result = replay(1)
    assert (
        result.exit_code,
        "✘ 'spout': the opaque source emits different tuples now, as it may" in result.stdout,
    ) == (1, True)


@pytest.mark.slow
def test_a_replay_before_what_a_crash_left(replayed, tmp_path):
    """A table that was changed by somebody else differs from what is put now."""
    replay = replayed(group=1)
    DeltaTable(str(tmp_path / "out" / "total")).update(updates={"n": "n + 1"})
    assert replay(3).exit_code == 0
    result = replay(4)
    assert result.exit_code == 1
    assert "'sum' writes different values to state 'total': key 'all' was 18, but is 17 now" in result.stdout


def test_a_transaction_that_is_not_there_is_told(replayed):
    """The refusal says which are."""
    result = replayed()(5)
    assert result.exit_code == 2
    assert "the journal has no committed transaction 5; it has 1 to 4" in result.stderr


def test_what_depends_on_a_state_without_versions_is_left_out(replayed):
    """With its writer goes what is downstream of that, and the state that this writes; the others are compared."""
    result = replayed(memory=True)(1)
    assert "state 'words' keeps no versions" in result.stdout
    assert "is left out: count, sum, state words, state total\n" in result.stdout
    assert ("partial: " in result.stdout, result.stdout.endswith("✔ the same\n")) == (True, True), result.output


def test_another_topology_is_refused(replayed):
    """A component that the journal knows and the topology has not: nothing is compared."""
    replay = replayed()
    Settings.now = {"without odd": True}
    result = replay(1)
    assert (result.exit_code, "was committed by a topology with 'odd'" in result.stderr) == (2, True), result.output


class Poisoned(BatchBolt, ICommitter):
    """Fails in transaction 2."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("words")

    def execute(self, tuple):
        if self.attempt.txid == 2:
            raise FailedException("never")

    def finish_batch(self):
        self.state.put("last", self.attempt.txid)


def poisoned():
    """Return a topology that gives its second transaction up."""
    spout = MemoryTransactionalSpout(["a", "b", "c"], Fields("word"), 1)
    return committing(spout, Poisoned(), words=DeltaState("out/words", Fields("word: string"), Fields("n: long")))


def test_a_transaction_that_was_given_up_is_told(command_line):
    """A dead letter was not run, so there is nothing to compare; those round it are replayed as ever."""
    run_inline(poisoned(), Config(transaction_max_attempts=2, transaction_max_attempts_policy="SKIP"))
    results = [command_line("replay", "tests.cli.look.test_replay:poisoned", str(txid)) for txid in (1, 2, 3)]
    assert [result.exit_code for result in results] == [0, 2, 0]
    assert "transaction 2 was given up" in results[1].stderr


class KeepNumbers(BatchBolt, ICommitter):
    """Keeps the numbers of the last transaction."""

    def prepare(self, config, context, collector, attempt):
        self.state = context.state("numbers")
        self.numbers = {}

    def execute(self, tuple):
        self.numbers[tuple["k"]] = tuple["n"]

    def finish_batch(self):
        for k, n in self.numbers.items():
            self.state.put(k, n + Settings.counter)


def framed():
    """Return a topology whose spout and first bolt Spark SQL runs."""
    builder = TransactionalTopologyBuilder("framed", "spout", Numbers(), 1)
    builder.set_bolt("by-key", CountByKey(), 1).fields_grouping("spout", Fields("k"))
    builder.set_committer_bolt("keep", KeepNumbers(), 1).global_grouping("by-key")
    builder.set_state("numbers", DeltaState("out/numbers", Fields("k: long"), Fields("n: long")))
    return builder.build()


def test_data_frames_are_replayed_by_spark(spark, command_line):
    """What Spark SQL runs is not compared by itself, but by what is written in the end."""
    Settings.counter = 0
    run(framed(), Config(max_spout_pending=2), until=2)
    same = command_line("replay", "tests.cli.look.test_replay:framed", "2")
    assert (same.exit_code, "state numbers: 7 rows, the same" in same.stdout) == (0, True), same.output
    Settings.counter = 1
    other = command_line("replay", "tests.cli.look.test_replay:framed", "2")
    assert (other.exit_code, "✘ 'keep': all components emit the same" in other.stdout) == (1, True), other.output


class Fixed(BasicBolt):
    """Passes words on, some of them corrected."""

    output_fields = Fields("attempt", "word")

    def __init__(self, corrected):
        self.corrected = corrected

    def execute(self, tuple, collector):
        collector.emit((tuple[0], self.corrected.get(tuple["word"], tuple["word"])))


RANGE = """
from tests.cli.look.test_replay import ranged
def topology(corrected: str = ""):
    return ranged({output!r}, corrected)
"""


def ranged(output, corrected=""):
    words = [["w1"], ["w1"], ["bad"], ["w2"], ["w2"], ["bad"], ["w3"], ["w3"]]
    spout = MemoryTransactionalSpout(words, Fields("word"), 1)
    builder = TransactionalTopologyBuilder("ranged", "spout", spout)
    builder.set_bolt("fix", Fixed({"bad": corrected} if corrected else {})).shuffle_grouping("spout")
    builder.set_bolt("partial", Partial()).fields_grouping("fix", Fields("word"))
    builder.set_committer_bolt("count", CountWords()).fields_grouping("partial", Fields("word"))
    builder.set_state("words", DeltaState(f"{output}/words", Fields("word: string"), Fields("n: long")))
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 3])
def test_a_range_with_the_code_that_is_here(command_line, tmp_path, group):
    """What new code makes of each transaction of a range is counted by component and state; nothing is written."""
    output = str(tmp_path / "out")
    command_line.write_module("ranged", RANGE.format(output=output))
    run_inline(ranged(output), Config(max_spout_pending=6, group_transactions_max=group))
    before = everything_in(output)
    told = command_line.told("replay", "ranged", "--from", "1", "--to", "8")
    assert told.splitlines()[0].startswith("transactions 1 to 8: 8 in ")
    assert told.splitlines()[-3:] == [
        "  count: 8 transactions, the same",
        "  state words: 8 transactions, the same",
        "✔ the same",
    ]
    result = command_line("replay", "ranged", "--set", "corrected=good", "--from", "2", "--to", "7")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[:2] == ["the first that differs:", lines[1]]
    assert lines[1].startswith("transaction 3: ")
    assert "✘ 'fix': it is not deterministic, or its code has changed: it emits different tuples" in result.stdout
    assert "  spout: 6 transactions, the same" in lines
    assert "  fix: 2 of 6 transactions differ, first 3" in lines
    assert "  state words: 2 of 6 transactions differ, first 3" in lines
    assert lines[-1] == "✘ 2 of 6 transactions differ, first 3"
    assert everything_in(output) == before


def test_ranges_that_are_refused(command_line, tmp_path):
    """A range needs both ends, in order, all of it committed."""
    output = str(tmp_path / "out")
    command_line.write_module("ranged", RANGE.format(output=output))
    run_inline(ranged(output), Config())
    for words in (("--from", "1"), ("3", "--from", "1", "--to", "2"), ()):
        assert "either a TXID, or both" in command_line.refusal("replay", "ranged", *words, status=2)
    assert "is after" in command_line.refusal("replay", "ranged", "--from", "3", "--to", "2", status=2)
    refused = command_line.refusal("replay", "ranged", "--from", "3", "--to", "9", status=2)
    assert "the journal does not have all of transactions 3 to 9; it has 1 to 8" in refused
