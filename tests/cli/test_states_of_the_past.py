"""States with versions, without, and begun later: what each command that goes to the past says and does with each."""

import pytest

from state import read_table
from tests.variants import variants
from txtopo import Config
from txtopo.files.places import folder_at
from txtopo.fork.forking import moved
from txtopo.testing.inline import run_inline
from txtopo.topology.topology import TransactionalTopology
from txtopo.topology.user_code.loading import load_target

BESIDE = """
import pickle, uuid
from pathlib import Path

import pyarrow as pa

from committers import ReduceCommitter
from spouts import MemoryTransactionalSpout
from state import DeltaState, MemoryState
from txtopo import BatchBolt, Fields, ICommitter, State, StateKind, TransactionalTopologyBuilder
from txtopo.api.state import OpenedState

WORD, N = Fields("word: string"), Fields("n: long")
ROWS = [(f"w{n % 3}", 1) for n in range(8)]
MEMORY = MemoryState(WORD, N)


class Kept(State):
    '''A durable state without versions.'''

    key, value, kind = WORD, N, StateKind.TRANSACTIONAL

    def __init__(self, place="kept.pickle"):
        self.place = Path(place)

    def open(self, topology_id, name, incarnation, epoch):
        return OpenedKept(self)

    def snapshot(self, txid=None):
        return OpenedKept(self).snapshot()


class Forked(Kept):
    '''One that a fork has elsewhere.'''

    def forked(self, topology_id):
        return Kept(f"{topology_id}.pickle")

    def moved(self):
        '''Tell something of its own: it is no CanBeForked.'''


class OpenedKept(OpenedState):
    def __init__(self, declared):
        self.declared, self.place = declared, declared.place
        if not self.place.exists():
            self.place.write_bytes(pickle.dumps((uuid.uuid4().hex, None, {})))

    def _all(self):
        return pickle.loads(self.place.read_bytes())

    @property
    def identity(self):
        return self._all()[0]

    @property
    def last_txid(self):
        return self._all()[1]

    def multi_get(self, keys):
        return [self._all()[2].get(key) for key in keys]

    def write(self, txid, values):
        identity, last, rows = self._all()
        if (last or 0) < txid:
            self.place.write_bytes(pickle.dumps((identity, txid, {**rows, **values})))

    def snapshot(self, txid=None):
        rows = self._all()[2]
        return pa.table({"word": list(rows), "n": [each.value for each in rows.values()]})


class Both(BatchBolt, ICommitter):
    '''Copies rows into a new state, and looks into the other one.'''

    def prepare(self, config, context, collector, attempt):
        self.other, self.new, self.rows = context.state("other"), context.state("new"), []

    def execute(self, tuple):
        self.rows.append((tuple["word"], tuple["n"]))

    def finish_batch(self):
        for word, n in self.rows:
            self.other.get(word)
            self.new.put(word, n)


def topology(beside: str = "kept", new: str = "no"):
    spout = MemoryTransactionalSpout(ROWS, Fields("word: string", "n: long"), 1)
    builder = TransactionalTopologyBuilder("beside", "rows", spout)
    others = {"kept": Kept(), "forked": Forked(), "memory": MEMORY, "table": DeltaState("later", WORD, N)}
    states = {"table": DeltaState("table", WORD, N), **({"other": others[beside]} if beside else {})}
    for name, state in states.items():
        builder.set_committer_bolt(f"into-{name}", ReduceCommitter(name, "word", "n"), 1).fields_grouping("rows", WORD)
        builder.set_state(name, state)
    if new == "yes":
        builder.set_committer_bolt("both", Both(), 1).fields_grouping("rows", WORD)
        builder.set_state("new", DeltaState("new", WORD, N))
    return builder.build()
"""


KEEPS_NONE = "state 'other' keeps no versions"
LEFT_OUT = f"{KEEPS_NONE}\nso it can't be judged, and is left out: into-other, state other\n"
CANT_BE_FORKED = "state 'other' is a Kept, which can't be forked: the fork would write to the place of the topology"
NOT_ANEW = "which the components of the backfill use too, is a {}, which can't be written anew beside the topology"
BEGUN = "was begun empty after transaction 3"

TABLE = {
    # kind: what each command says; None: it does all
    ("kept", "rewind"): "not undone: what transactions 3 to 6 have written to state 'other', which keeps no versions",
    ("kept", "state"): None,
    ("kept", "fork"): CANT_BE_FORKED,
    ("kept", "replay"): LEFT_OUT,
    ("kept", "backfill"): NOT_ANEW.format("Kept"),
    ("kept", "blame"): None,
    ("forked", "rewind"): "not undone: what transactions 3 to 6 have written to state 'other', which keeps no versions",
    ("forked", "state"): None,
    ("forked", "fork"): "state 'other': begins empty, because it keeps no versions",
    ("forked", "replay"): LEFT_OUT,
    ("forked", "backfill"): NOT_ANEW.format("Forked"),
    ("forked", "blame"): None,
    ("memory", "rewind"): "not undone: state 'other', which is in memory",
    ("memory", "state"): None,
    ("memory", "fork"): "state 'other': begins empty, because it keeps no versions",
    ("memory", "replay"): LEFT_OUT,
    ("memory", "backfill"): NOT_ANEW.format("MemoryState"),
    ("memory", "blame"): None,
    ("table", "rewind"): None,
    ("table", "state"): None,
    ("table", "fork"): f"state 'other': begins empty, because it {BEGUN}",
    ("table", "replay"): f"state 'other' {BEGUN}\nso it can't be judged, and is left out: into-other, state other\n",
    ("table", "backfill"): None,
    ("table", "blame"): None,
}
WORDS = {
    "rewind": ("rewind", "beside", "2", "--yes"),
    "state": ("state", "table", "--txid", "2"),
    "fork": ("fork", "beside", "2", "side"),
    "replay": ("replay", "beside", "2"),
    "backfill": ("backfill", "beside", "new", "--set", "new=yes"),
    "blame": ("blame", ".", "w1", "--state", "table"),
}
REFUSED = {("kept", "fork"), *((kind, "backfill") for kind in ("kept", "forked", "memory"))}


@pytest.fixture
def run(command_line):
    """Return what runs a topology of a kind, in place or as a fork, up to a transaction."""
    command_line.write_module("beside", BESIDE)

    def run(kind, until=None, fork=None, **settings):
        target = load_target("beside", {"beside": kind})
        topology, config = target.topology, Config(group_transactions_max=1, **settings)
        if fork is not None:
            plan, config = moved(topology.plan, config, folder_at(fork))
            topology = TransactionalTopology(plan)
        run_inline(topology, config, until=until)
        return topology

    return run


def begin(run, kind):
    """Run six transactions; a table is begun after the third."""
    if kind == "table":
        run("", 3)
        run(kind, 6, state_start_empty="other=3")
    else:
        run(kind, 6)


def counts(rows):
    return dict(zip(rows["word"].to_pylist(), rows["n"].to_pylist(), strict=True))


@pytest.mark.few(3)
@pytest.mark.parametrize(("kind", "command"), list(TABLE))
def test_what_it_says(command_line, run, kind, command):
    """It does what can be right, says what is left as it is, empty or out, and refuses only the rest, by name."""
    begin(run, kind)
    told = command_line(*WORDS[command], *(("--set", f"beside={kind}") if "beside" in WORDS[command] else ()))
    assert told.exit_code == ((kind, command) in REFUSED), told.output
    says = TABLE[kind, command]
    if says is not None:
        assert says in told.output


@pytest.mark.slow
@pytest.mark.parametrize("kind", variants("memory", slow=["forked", "table"]))
def test_a_fork_whose_state_begins_empty(command_line, run, kind):
    """It has only what came after; all others are as in the topology, which is left alone."""
    begin(run, kind)
    listed = command_line.told("fork", "beside", "--set", f"beside={kind}")
    assert ("state 'other' keeps no versions: it begins empty in a fork" in listed) == (kind != "table")
    command_line.told("fork", "beside", "2", "side", "--set", f"beside={kind}")
    side = run(kind, fork="side")
    own = run(kind)
    assert counts(read_table("side/table")) == counts(read_table("table")) == {"w0": 3, "w1": 3, "w2": 2}
    assert counts(side.plan.states["other"].snapshot()) == {"w0": 2, "w1": 2, "w2": 2}
    whole = {"w0": 2, "w1": 2, "w2": 1} if kind == "table" else {"w0": 3, "w1": 3, "w2": 2}
    assert counts(own.plan.states["other"].snapshot()) == whole
    assert "6 transactions, 3 to 8, each once" in command_line.told("audit", "side")
    assert "table: 3 rows equal" in command_line("diff", ".", "side").output


@pytest.mark.slow
def test_a_replay_of_a_range_leaves_out_what_has_no_past(command_line, run):
    """What is upstream of it, and beside it, is compared as ever."""
    begin(run, "table")
    sets = ("--set", "beside=table")
    assert "state other" in command_line.told("replay", "beside", "--from", "2", "--to", "5", *sets)
    told = command_line.told("replay", "beside", "--from", "4", "--to", "5", *sets)
    assert ("left out" in told, "state other: 2 transactions, the same" in told) == (False, True)
