"""Chains of totals and a left join beside them: replayed, audited, rewound, forked, and with a level that is new."""

import contextlib
import pathlib
import random
from collections import Counter

import pytest

from state import read_table, read_tables
from tests.cli.conftest import CommandLine
from tests.crashes import Crash, survives
from tests.variants import variants
from txtopo.errors import PoisonTransaction
from txtopo.files.places import folder_at
from txtopo.fork.forking import moved
from txtopo.testing.inline import run_inline
from txtopo.topology.topology import TransactionalTopology
from txtopo.topology.user_code.loading import load_target

MODULE = """
import datetime as dt
import pathlib
from committers import *
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaRows, StateKind
from txtopo import BasicBolt, Config, FailedException, Fields, TransactionalTopologyBuilder

REFUSED = {}
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
ROWS = [[f"i{n * 7 % 5}", n % 3 or None, n * 11 % 6, NOON + dt.timedelta(minutes=n)] for n in range(36)]
ROW = Fields("item: string", "shelf: int", "price: long", "at: timestamp")
SHELVES = [[shelf % 4, f"s{shelf}"] for shelf in range(12)]
SHELF = Fields("number: int", "name: string")

def topology(output: str = "out", opaque: str = "", vectors: str = "", more: str = "more"):
    output = pathlib.Path(output)
    spout = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    kind = StateKind.OPAQUE if opaque else StateKind.TRANSACTIONAL
    options = {"kind": kind, "deletion_vectors": bool(vectors)}
    builder = TransactionalTopologyBuilder("totals", "rows", spout(ROWS, ROW, 3))
    builder.add_spout("shelves", spout(SHELVES, SHELF, 1))
    clock = EventClock("clock", time="at", delay=dt.timedelta(0))
    builder.set_committer_bolt("clock", clock).global_grouping("rows")
    builder.set_state("clock", clock.state(output / "clock"))
    items = Totals("items", Fields("item: string"), values={
        "shelf": Max("shelf: int"), "price": Min("price: long"), "at": Max("at: timestamp")})
    builder.set_committer_bolt("items", items, 2).fields_grouping("rows", Fields("item"))
    ttl = {"deletion_vectors": bool(vectors)} if opaque else {"ttl": dt.timedelta(minutes=4), "clock": "clock"}
    builder.set_state("items", items.state(output / "items", **ttl))
    totals = Totals("totals", Fields("shelf: int"), diff="diff", values={
        "n": Count(), "sum": Sum("price: long"), "top": TopN(Fields("item: string"), n=2, by="price: long")})
    known = Known()
    builder.set_bolt("known", known, 2).fields_grouping("items", Fields("shelf"), "changes")
    builder.set_committer_bolt("totals", totals, 2).fields_grouping("known", Fields("shelf"))
    builder.set_state("totals", totals.state(output / "totals", **options))
    join = Join("left", "right", how="left",
        left=JoinStream("rows", key="shelf", fields=ROW),
        right=JoinStream("shelves", key="number", fields=SHELF, rename={"number": "shelf"}))
    joining = builder.set_committer_bolt("join", join, 2)
    joining.fields_grouping("rows", Fields("shelf")).fields_grouping("shelves", Fields("number"))
    builder.set_state("left", join.left_table(output / "left"))
    builder.set_state("right", join.right_table(output / "right"))
    names = Totals("names", Fields("item: string"), diff="diff", values={
        "n": Count(), "named": Count("name: string"), "last": Max("name: string")})
    builder.set_committer_bolt("names", names, 2).fields_grouping("join", Fields("item"))
    builder.set_state("names", names.state(output / "names", **options))
    builder.set_bolt("log", Append("log"), 2).shuffle_grouping("totals", "changes")
    builder.set_state("log", DeltaRows(output / "log", totals.changes()))
    if more:
        sizes = ReduceCommitter("sizes", Fields("n: long"), diff="diff", values={"shelves": Count(), "sum": Max("sum: long")})
        builder.set_committer_bolt("sizes", sizes, 2).fields_grouping("totals", Fields("n"), "changes")
        builder.set_state("sizes", sizes.state(output / "sizes", **options))
    return builder.build()

def refuse(component, txid):
    if REFUSED.get(txid) == component and not pathlib.Path("mended").exists():
        raise FailedException("this transaction is refused")

class Refuses:
    def prepare(self, config, context, collector, attempt):
        super().prepare(config, context, collector, attempt)
        self.here = context.this_component_id, attempt.txid

    def finish_batch(self):
        super().finish_batch()
        refuse(*self.here)

class Totals(Refuses, ReduceCommitter): pass

class Join(Refuses, StreamJoin): pass

class Append(Refuses, AppendCommitter): pass

class Known(BasicBolt):
    output_fields = Fields("shelf: int", "price: long", "item: string", "diff: long").with_attempt()

    def execute(self, tuple, collector):
        refuse("known", tuple.attempt.txid)
        if tuple["shelf"] is not None:
            collector.emit([tuple[0], *(tuple[name] for name in ("shelf", "price", "item", "diff"))])

def config():
    return Config(max_spout_pending=8, group_transactions_max=3, transaction_max_attempts=2)
"""


POLICY = "topology.transaction.max.attempts.policy"
REFUSING = ("items", "known", "totals", "join", "names", "log")


@pytest.fixture
def module(command_line):
    command_line.write_module("totals", MODULE)
    return command_line


def run(folder: str = "out", until: int | None = None, fork: str = "", policy: str = "WAIT", **options: str) -> None:
    target = load_target("totals", {"output": folder, **options}, pathlib.Path.cwd())
    topology, config = target.topology, target.config
    if fork:
        plan, config = moved(topology.plan, config, folder_at(fork))
        topology = TransactionalTopology(plan)
    run_inline(topology, config.with_settings({POLICY: policy}), until=until)


def tables(folder: str) -> dict[str, list[str]]:
    return {
        name: sorted(str({**row, "txid": 0}) for row in table.to_pylist())
        for name, table in read_tables(folder).tables.items()
        if name not in {"clock", "dead-letters"}  # which say when they saw a source, and which attempt failed
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", variants({"vectors": "yes", "opaque": "yes"}, long=[{}, {"vectors": "yes"}, {"opaque": "yes"}]), ids=str
)
def test_back_and_on_again(module, options) -> None:
    """Replays find what was there, the audit proves it, and a rewind and a fork end where the first run did.

    It takes 4 s of CPU, because it goes through five runs of eight states.
    """
    settings = [f"--set={name}={value}" for name, value in options.items()]
    run("plain", **options)
    run(until=4, **options)
    run(until=9, **options)
    run(**options)
    assert tables("out") == tables("plain")
    for txid in (3, 8, 12):
        assert "✘" not in module.told("replay", "totals", str(txid), *settings), txid
    assert "every transaction was committed once" in module.told("audit", "out")
    module.told("fork", "totals", "6", "side", *settings)
    run(fork="side", **options)
    assert tables("side") == tables("plain")
    module.told("rewind", "totals", "6", "--yes", *settings)
    run(**options)
    assert tables("out") == tables("plain")
    assert "every transaction was committed once" in module.told("audit", "out")


@pytest.mark.slow
def test_a_level_that_is_new(module) -> None:
    """Totals that are added above others later get their history, and are those of a run that had them from the start."""
    run("plain")
    run(more="")
    module.told("backfill", "totals", "sizes")
    run()
    assert tables("out") == tables("plain")
    assert read_table("out/sizes").num_rows


MENDED = pathlib.Path("mended")
"""While it is there, no transaction is refused."""


class Story:
    """A chain that runs and goes back at random, beside the same one undisturbed.

    Args:
        module: the command line, in whose folder both run.
        seed: says what happens, with which rows.
        refuses: whether two transactions are refused by a component.
        policy: what happens to them then, as in the settings.
        mends: whether what refuses them is mended once the run has stopped; else they are set aside.
    """

    def __init__(
        self, module: CommandLine, seed: int, *, refuses: bool = False, policy: str = "WAIT", mends: bool = False
    ) -> None:
        self._module, self._random = module, random.Random(seed)
        self._policy, self._mends = policy, mends
        drawn = self._random
        rows = [[f"i{drawn.randrange(5)}", drawn.choice([None, 0, 1, 2]), drawn.randrange(6), n] for n in range(36)]
        shown = "[" + ", ".join(f"[{i!r}, {s}, {p}, NOON + dt.timedelta(minutes={n})]" for i, s, p, n in rows) + "]"
        shelves = [[drawn.randrange(3), f"s{n}"] for n in range(12)]
        text = MODULE.replace(
            next(line for line in MODULE.splitlines() if line.startswith("ROWS = ")), f"ROWS = {shown}"
        ).replace('SHELVES = [[shelf % 4, f"s{shelf}"] for shelf in range(12)]', f"SHELVES = {shelves!r}")
        self._options = drawn.choice([{"more": ""}, {"more": "", "vectors": "yes"}, {"opaque": "yes"}])
        self._refused: dict[int, str] = {}
        if refuses:
            self._refused = {txid: drawn.choice(REFUSING) for txid in drawn.sample(range(1, 13), 2)}
            text = text.replace("REFUSED = {}", f"REFUSED = {self._refused}")
        module.write_module("totals", text)
        self._plain = {name: value for name, value in self._options.items() if name != "more"}
        if mends:
            MENDED.touch()
        run("plain", policy="SKIP", **self._plain)
        MENDED.unlink(missing_ok=True)
        self._committed = 0
        self.told: list[str] = [f"{self._options}", f"refused {self._refused}"]

    @property
    def _settings(self) -> list[str]:
        return [f"--set={name}={value}" for name, value in self._options.items()]

    def _run(self, until: int | None = None) -> None:
        """Run, and go on whenever a transaction has stopped that."""
        while True:
            try:
                run(until=until, policy=self._policy, **self._options)
            except PoisonTransaction as stopped:
                self._go_on_from(stopped)
            else:
                return

    def _go_on_from(self, stopped: PoisonTransaction) -> None:
        txid = stopped.txid
        assert txid in self._refused, self.told
        assert self._policy == "WAIT", self.told
        self.told.append(f"stopped at {txid}")
        assert (read_tables("out").txid or 0) == txid - 1, self.told
        if self._mends:
            MENDED.touch()
            run(until=txid, **self._options)
            MENDED.unlink()
        elif "opaque" in self._options:
            assert "policy = SKIP set it aside" in str(stopped)
            run(until=txid, policy="SKIP", **self._options)
        else:
            self._module.told("skip", "totals", str(txid), "--yes", *self._settings)

    def step(self, number: int) -> None:
        """Go on, or back if something is committed, or look at what was, or give the chain its last level."""
        kinds = ["on", "crash", *(["rewind", "replay", "fork", "simulate"] if self._committed > 1 else [])]
        if self._committed > 1 and "more" in self._options:
            kinds += ["backfill"] * 3
        kind, txid = self._random.choice(kinds), self._random.randint(1, max(1, self._committed))
        self.told.append(f"{kind} {txid} of {self._committed}")
        if kind == "on":
            self._run(min(12, self._committed + self._random.randint(1, 5)))
        elif kind == "crash":
            most = min(12, self._committed + 3)
            with contextlib.suppress(PoisonTransaction):  # which comes again, if it has not been set aside
                survives(
                    lambda: run(until=most, policy=self._policy, **self._options), Crash(self._random.randint(1, 60))
                )
            self._run(most)  # which recovers
        else:
            if self._mends or kind == "simulate":  # there no transaction may always fail
                MENDED.touch()
            self._look_or_mend(kind, txid, number)
            MENDED.unlink(missing_ok=True)
        self._committed = read_tables("out").txid or 0
        self.told.append(f"committed {self._committed}")
        self._check_dead_letters()

    def _check_dead_letters(self) -> None:
        """Check that just those that are set aside have a dead letter."""
        letters = pathlib.Path("out/dead_letters")
        found = sorted(read_table(letters)["transaction"].to_pylist()) if letters.exists() else []
        expected = [] if self._mends else sorted(txid for txid in self._refused if txid <= self._committed)
        assert found == expected, self.told

    def _look_or_mend(self, kind: str, txid: int, number: int) -> None:
        if kind == "rewind":
            ended = self._module("rewind", "totals", str(txid), "--yes", *self._settings)
            assert ended.exit_code == 0 or "together" in ended.output, (ended.output, self.told)
            self._options = self._known_in("out")
        elif kind == "replay":
            replayed = self._module("replay", "totals", str(txid), *self._settings)
            is_set_aside = txid in self._refused and not self._mends
            assert replayed.exit_code == (2 if is_set_aside else 0), (replayed.output, self.told)
            assert "✘" not in replayed.output, (replayed.output, self.told)
            assert ("given up" in replayed.output) == is_set_aside, (replayed.output, self.told)
        elif kind == "simulate":
            told = self._module.told("simulate", "totals", *self._settings, "--seeds", "2", "--processes", "1")
            assert "every promise held" in told, self.told
        elif kind == "backfill":
            del self._options["more"]
            self._module.told("backfill", "totals", "sizes", *self._settings)
        else:
            side = f"side{number}"
            ended = self._module("fork", "totals", str(txid), side, *self._settings)
            assert ended.exit_code == 0 or "together" in ended.output, (ended.output, self.told)
            if ended.exit_code == 0:
                known = self._known_in(side)
                run(fork=side, policy="SKIP", **known)
                levels = {"sizes"} if "more" in known else set()
                expected = {name: rows for name, rows in tables("plain").items() if name not in levels}
                assert tables(side) == expected, self.told

    def _known_in(self, folder: str) -> dict[str, str]:
        """Return the options of a chain that has gone back: to before a backfill, it does not know the last level."""
        is_whole = "opaque" in self._plain or "sizes" in read_tables(folder).tables
        return {**self._plain, **({} if is_whole else {"more": ""})}

    def end(self) -> None:
        """Run to the end, and compare all with the undisturbed run, and the changes at every transaction."""
        self._run()
        if self._options.pop("more", None) is not None:
            if self._mends:
                MENDED.touch()
            self._module.told("backfill", "totals", "sizes", *self._settings)
            self._run()
        assert tables("out") == tables("plain"), self.told
        for txid in range(1, 13):
            logs = [shown_at(folder, txid) for folder in ("out", "plain")]
            assert logs[0] == logs[1], (txid, self.told)
            assert not -logs[0], "nothing is taken back that is not there"
        assert "every transaction was committed once" in self._module.told("audit", "out"), self.told
        self._committed = 12
        self._check_dead_letters()


def shown_at(folder: str, txid: int) -> Counter[str]:
    """What the changes of the totals up to a transaction add up to."""
    shown: Counter[str] = Counter()
    for row in read_table(f"{folder}/log").to_pylist():
        diff = row.pop("diff")
        if row.pop("txid") <= txid:
            shown[str(row)] += diff
    return Counter({row: count for row, count in shown.items() if count})


@pytest.mark.slow
@pytest.mark.parametrize("seed", variants(long=range(10)))
def test_any_story(module, seed: int) -> None:
    """However a chain with a left join, ranks and levels runs, dies, goes back and grows, it is an undisturbed run's."""
    story = Story(module, seed)
    for number in range(6):
        story.step(number)
    story.end()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "mends", "seed"),
    variants(
        ("WAIT", False, 0),
        long=[
            (policy, mends, seed)
            for policy, mends in (("WAIT", False), ("WAIT", True), ("SKIP", False))
            for seed in range(10)
            if (policy, mends, seed) != ("WAIT", False, 0)
        ],
    ),
)
def test_any_story_with_refused_transactions(module, policy: str, mends: bool, seed: int) -> None:
    """A transaction that a level refuses, though the ones above have told it, is there whole or not at all.

    It stops the run (WAIT), and is set aside by hand or comes again once that is mended; or it is set aside (SKIP).
    """
    story = Story(module, seed, refuses=True, policy=policy, mends=mends)
    for number in range(6):
        story.step(number)
    story.end()
