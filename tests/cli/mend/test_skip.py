"""``txtopo skip``: one transaction is set aside, as the policy SKIP does, and those behind it go on."""

from collections.abc import Callable

import pytest

from state import read_table
from tests.variants import variants
from txtopo import Config, Topology
from txtopo.errors import PoisonTransaction, UserCodeError
from txtopo.testing.inline import run_inline
from txtopo.text.secrecy import secrets_kept
from txtopo.topology.user_code.loading import load_target

MODULE = """
from spouts import MemoryTransactionalSpout
from state import DeltaState
from tests.bolts import Count
from txtopo.attempts import epoch_and_try
from txtopo import BasicBolt, FailedException, Fields, TransactionalTopologyBuilder

class Check(BasicBolt):
    output_fields = Fields("attempt", "word: string")

    def execute(self, tuple, collector):
        if tuple["word"] == "bug":
            raise ValueError("no such word")
        if tuple["word"] == "poison":
            raise FailedException("not now")
        if tuple["word"] == "hunter2" and epoch_and_try(tuple[0].attempt)[1] == 1:
            raise FailedException("not yet")
        collector.emit(tuple.values)

def topology(words: str = "a,b,bug,d,poison,f", kind: str = "repeatable"):
    spout = MemoryTransactionalSpout([[word] for word in words.split(",")], Fields("word: string"), 1)
    builder = TransactionalTopologyBuilder("t", "spout", spout)
    builder.set_bolt("check", Check()).shuffle_grouping("spout")
    builder.set_bolt("count", Count("words")).shuffle_grouping("check")
    builder.set_state("words", DeltaState("out/words", Fields("word: string"), Fields("n: long")))
    return builder.build()
"""
CONFIG = Config({"topology.transaction.max.attempts": 2})


@pytest.fixture
def topology(command_line) -> Callable[[], Topology]:
    command_line.write_module("job", MODULE)
    return lambda **given: load_target("job", given).topology


def words(**options):
    return {row["word"]: row["txid"] for row in read_table("out/words", **options).to_pylist()}


def letters(folder="out"):
    return {row["transaction"]: row["error"] for row in read_table(f"{folder}/dead_letters").to_pylist()}


@pytest.mark.slow
def test_transactions_are_set_aside(command_line, topology):
    """A bug and a failure that comes again: each stops the run, is set aside, and counts nowhere."""
    with pytest.raises(UserCodeError, match=r"no such word, at the tuple \(word='bug'\)") as error:
        run_inline(topology(), CONFIG)
    assert "its input: 0: 2 to 3" in str(error.value)
    assert "input     0: 2 to 3" in command_line.told("explain", "out", "3")
    run_inline(topology(), CONFIG, until=2)
    told = command_line.told("skip", "job", "3", "--yes")
    assert "its input: 0: 2 to 3" in told
    assert "txtopo run job" in told
    assert words() == {"a": 1, "b": 2}
    assert "given up, its dead letter is written" in command_line.told("explain", "out", "3")
    with pytest.raises(PoisonTransaction, match=r"set it aside with 'txtopo skip MODULE 5'") as error:
        run_inline(topology(), CONFIG)
    assert "not now\nat the tuple (word='poison')" in str(error.value)
    run_inline(topology(), CONFIG, until=4)
    command_line.told("skip", "job", "5", "--yes", "--reason", "the supplier knows")
    run_inline(topology(), CONFIG)
    assert words() == {"a": 1, "b": 2, "d": 4, "f": 6}
    assert letters() == {3: "set aside by 'txtopo skip'", 5: "the supplier knows"}
    assert "✔" in command_line.told("audit", "out")


def test_a_committed_transaction_says_why_an_earlier_attempt_failed(command_line, topology):
    """Without the secrets of the settings, although anybody may read the journal."""
    run_inline(topology(words="a,hunter2,c"), Config({"shop.password": "hunter2"}))
    told = command_line.told("explain", "out", "2")
    assert (
        "failed    before, at last by: [component 'check', txid 2, attempt 1, epoch 1] not yet at the tuple (word="
        in told
    )
    assert "hunter2" not in told
    assert "failed" not in command_line.told("explain", "out", "1")


def test_a_dead_letter_holds_no_secret(command_line, topology):
    """Anybody may read that table, too."""
    settings = {"shop.password": "poison", "topology.transaction.max.attempts.policy": "SKIP"}
    run_inline(topology(words="a,poison,c"), Config({**settings, "topology.transaction.max.attempts": 1}))
    assert "at the tuple (word='…')" in letters()[2]
    assert "poison" not in letters()[2]


def test_nor_one_that_the_command_was_told(command_line, topology):
    """The topology's function takes it, and no setting of the run has it."""
    config = Config({"topology.transaction.max.attempts.policy": "SKIP", "topology.transaction.max.attempts": 1})
    with secrets_kept({"password": "poison"}):
        run_inline(topology(words="a,poison,c"), config)
    assert "at the tuple (word='…')" in letters()[2]
    files = [path for path in command_line.folder.joinpath("out/_txtopo").rglob("*") if path.is_file()]
    assert not [path for path in files if b"poison" in path.read_bytes()]


def test_what_cannot_be_set_aside(command_line, topology):
    """No dead letter is written."""
    with pytest.raises(UserCodeError):
        run_inline(topology(), CONFIG)
    run_inline(topology(), CONFIG, until=2)
    assert "transaction 2 is committed" in command_line.refusal("skip", "job", "2", "--yes").replace("[txid 2] ", "")
    assert "commit transaction 3 with 'txtopo run MODULE --until 3'" in command_line.refusal(
        "skip", "job", "4", "--yes"
    )
    assert "agree with --yes" in command_line.refusal("skip", "job", "3")
    assert words() == {"a": 1, "b": 2}
    assert letters() == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", variants("group.decide.after", slow=["table.prepare.after", "group.journal.after", "table.write.after"])
)
def test_killed_while_it_sets_aside(command_line, topology, point):
    """Before the decision the transaction is not given up; after it the next start finishes that."""
    with pytest.raises(UserCodeError):
        run_inline(topology(), CONFIG)
    run_inline(topology(), CONFIG, until=2)
    command_line.killed_at(point, "skip", "job", "3", "--yes")
    if "decide" in point or "write" in point:
        with pytest.raises(PoisonTransaction):
            run_inline(topology(), CONFIG)
    else:
        with pytest.raises(UserCodeError):
            run_inline(topology(), CONFIG)
        command_line.told("skip", "job", "3", "--yes")
    assert letters() == {3: "set aside by 'txtopo skip'"}
    assert "✔" in command_line.told("audit", "out")


@pytest.mark.slow
def test_two_in_a_row(command_line, topology):
    """One after the other without a run in between; what is set aside already is refused, and says so."""
    given = {"words": "a,bug,bug,d,bug"}
    with pytest.raises(UserCodeError):
        run_inline(topology(**given), CONFIG)
    run_inline(topology(**given), CONFIG, until=1)
    for txid in ("2", "3"):
        assert "done" in command_line.told("skip", "job", txid, "--yes", "--set", "words=a,bug,bug,d,bug")
        told = command_line.refusal("skip", "job", txid, "--yes", "--set", "words=a,bug,bug,d,bug")
        assert f"transaction {txid} is committed or set aside already; nothing was written" in told
    run_inline(topology(**given), CONFIG, until=4)
    command_line.told("skip", "job", "5", "--yes", "--set", "words=a,bug,bug,d,bug")
    run_inline(topology(**given), CONFIG)
    assert words() == {"a": 1, "d": 4}
    assert sorted(letters()) == [2, 3, 5]
    assert "✔" in command_line.told("audit", "out")


@pytest.mark.slow
def test_what_was_set_aside_goes_back_and_along(command_line, topology):
    """A fork has the dead letters up to its transaction, and a rewind undoes those after, though the policy is WAIT."""
    given = {"words": "a,bug,c,bug,e"}
    setting = ("--set", "words=a,bug,c,bug,e")
    run_inline(topology(**given), CONFIG, until=1)
    for txid in (2, 4):
        with pytest.raises(UserCodeError):
            run_inline(topology(**given), CONFIG)
        run_inline(topology(**given), CONFIG, until=txid - 1)
        command_line.told("skip", "job", str(txid), "--yes", *setting)
    run_inline(topology(**given), CONFIG)
    assert list(letters()) == [2, 4]
    assert "nothing to repair" in command_line.told("repair", "job", *setting)
    command_line.told("fork", "job", "3", "side", *setting)
    assert list(letters("side")) == [2]
    command_line.told("rewind", "job", "3", "--yes", *setting)
    assert list(letters()) == [2]
    run_inline(topology(words="a,bug,c,d,e"), CONFIG)
    assert list(letters()) == [2]
    assert words() == {"a": 1, "c": 3, "d": 4, "e": 5}
    assert "✔" in command_line.told("audit", "out")
    command_line.told("repair", "job", "--start-anew", "--yes", *setting)
    run_inline(topology(words="a,b"), CONFIG)
    assert words() == {"a": 1, "b": 2}
