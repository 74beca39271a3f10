"""A topology to which random changes happen, with a crash now and then; it is compared with an undisturbed one.

After each change, all tables must be those of the undisturbed topology as of the same transaction, but for fields that
came later: rows of before have nulls there. The audit must find nothing.
"""

import itertools
import random
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
from click.testing import CliRunner, Result

from state import read_table, read_tables
from tests.crashes import Crash
from tests.harness.soak.changes.topology import GROUP_MAX, LATER, TRANSACTIONS
from txtopo.assembly.storage import make_store, store_place, subject_of
from txtopo.errors import StateAccessError
from txtopo.failpoints import armed
from txtopo.files.places import folder_at
from txtopo.fork.fork import find_fork
from txtopo.fork.forking import moved
from txtopo.main.group import txtopo as command_line
from txtopo.testing.checkers import Violation
from txtopo.testing.inline import inline_environment, run_inline
from txtopo.topology.topology import TransactionalTopology
from txtopo.topology.user_code.loading import load_target
from txtopo.transactional.recovery.coordinator_state import CommittedMark, committed_in
from txtopo.transactional.recovery.operations.going_back import DryRun

MODULE = "tests.harness.soak.changes.topology"
TABLES = ("words", "total", "copies", "minutes", LATER)
CRASH_MAX = 60
"""A change dies at one of so many failpoints."""

LAST = TRANSACTIONS + 1


@attrs.define(eq=False)
class Undisturbed:
    """The tables after each transaction of a topology that has had all fields and states from the start."""

    folder: Path
    _seen: dict[tuple[str, int], pa.Table] = attrs.field(factory=dict)

    def run(self) -> None:
        target = load_target(MODULE, {"output": str(self.folder), "grown": "yes", "later": "yes"})
        run_inline(target.topology, target.config.with_settings({"topology.group.transactions.max": 1}))

    def rows(self, name: str, txid: int, grown_after: int) -> list[tuple[Any, ...]]:
        """Return a table's rows after a transaction, if its late fields came after another one."""
        if (name, txid) not in self._seen:
            as_of = None if txid > TRANSACTIONS else txid  # the last one writes few tables
            self._seen[name, txid] = read_table(self.folder / name, as_of, nearest=True) if txid else None
        table = self._seen[name, txid]
        return [] if table is None else rows_of(name, table, grown_after)

    def check(self, folder: Path) -> int:
        """Compare the tables in a folder with these; return the transaction that they are as of."""
        view = read_tables(folder)
        for name in TABLES:
            assert rows_of(name, view.tables[name]) == self.rows(name, view.txid, 0), (name, view.txid)
        return view.txid

    def check_points(self, folder: Path, points: Iterable[int]) -> None:
        """Compare the tables in a folder as of points with these."""
        for point in points:
            for name in TABLES:
                as_of = rows_of(name, read_table(folder / name, point, nearest=True))
                assert as_of == self.rows(name, point, 0), (name, point)


def points_of(values: Mapping[str, str]) -> list[int]:
    """Return the points that are listed of a topology, by the values of its function, newest first."""
    target = load_target(MODULE, values)
    past = DryRun.of(subject_of(target.plan, target.config), store_place(target.plan, target.config).open).past
    return [point.txid for point in past.standing if 0 < point.txid < past.committed.txid]


def rows_of(name: str, table: pa.Table, grown_after: int = 0) -> list[tuple[Any, ...]]:
    """Return rows as comparable values, in order; without numbers of rows up to a transaction."""
    rows = []
    for row in table.to_pylist():
        if name in {"words", "total", "copies"} and row["txid"] <= grown_after:
            row["number"] = None
        row.setdefault("number", None)
        rows.append(tuple(sorted((key, str(value)) for key, value in row.items())))
    return sorted(rows)


@attrs.define(eq=False)
class Story:
    """A topology, the changes that happen to it, and what each has done."""

    folder: Path
    undisturbed: Undisturbed
    seed: int
    steps: list[str] = attrs.field(factory=list)
    grown_after: int = LAST
    """The last transaction whose rows lack the late fields."""
    is_grown: bool = False
    has_later: bool = False
    """Whether the code has the state that comes later."""

    wall_secs: Callable[[], float] = time.time
    """The time of day of its runs."""

    _rng: random.Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    @property
    def output(self) -> Path:
        return self.folder / "out"

    def values(self) -> dict[str, str]:
        """Return what the code is like now."""
        yes = {True: "yes", False: "no"}
        return {"output": str(self.output), "grown": yes[self.is_grown], "later": yes[self.has_later]}

    def begin(self) -> None:
        """Run some transactions without a crash: what has never run can't change."""
        self._try("begin", lambda: self._run(3), crash=Crash())

    def step(self) -> None:
        """Let one change happen, and check all."""
        # Code with a state that the topology lacks can go back, or fill it, and nothing else.
        if self.has_later and self.mark().txid and LATER not in self.present():
            self._rng.choice([self.rewind, self.leave, self.join])()
            self.check()
            return
        changes: list[Callable[[], None]] = [self.run, self.run, self.rewind, self.fork]
        if not self.is_grown:
            changes.append(self.grow)
        changes.append(self.join if not self.has_later else self.leave)
        self._rng.choice(changes)()
        self.check()

    def run(self) -> None:
        """Run some transactions, or all; a crash may end it."""
        until = self._rng.choice([LAST, *[self.mark().txid + self._rng.randint(1, 9)] * 3])
        self._try(f"run until {until}", lambda: self._run(until))

    def rewind(self) -> None:
        """Go back; what dies is finished by a rewind or a repair."""
        mark = self.mark()
        txid = self._rng.randint(0, mark.txid)
        if LATER in mark.states:  # a rewind with code that lacks it is refused, since its table would stay behind
            self.has_later = True
        if self._try(f"rewind to {txid}", lambda: self._go_back(txid)):
            self._rng.choice([lambda: self._go_back(txid), lambda: self._call("repair", MODULE, "--yes")])()
        after = self.mark().txid
        self.steps.append(f"  is at {after}")
        if self.is_grown:
            self.grown_after = min(self.grown_after, after)

    def _go_back(self, txid: int) -> None:
        """Go back to a transaction; to 0, which is asked for by name, if no table keeps a point in between."""
        try:
            self._call("rewind", MODULE, str(txid), "--yes")
        except Violation as refusal:
            if "give TXID 0" not in str(refusal):
                raise
            self._call("rewind", MODULE, "0", "--yes")

    def grow(self) -> None:
        """Get the late fields."""
        self.is_grown = True
        if self._try("evolve", lambda: self._call("evolve", MODULE)):
            self._call("evolve", MODULE)
        self.grown_after = self.mark().txid

    def join(self) -> None:
        """Get the state that comes later, by a backfill; it may die, and the topology may go on meanwhile."""
        if not self.mark().txid:
            return
        self.has_later = True
        if LATER in self.mark().states:  # there already; or it was there, and the way back to it is a rewind
            return
        if self._try("backfill", lambda: self._call("backfill", MODULE, LATER)) and self._rng.random() < 0.5:
            self.has_later = LATER in self.present()
            self._try("run in between", lambda: self._run(self.mark().txid + 3), crash=Crash())
            self.has_later = True
        if LATER not in self.present():
            self._call("backfill", MODULE, LATER)

    def leave(self) -> None:
        """Go back to code without the state that comes later."""
        self.steps.append("the code loses the later state")
        self.has_later = False

    def fork(self) -> None:
        """Make a fork, run it, and compare it with the topology, which goes on."""
        before = self.mark().txid
        folder = self.folder / f"fork-{len(self.steps)}"
        txid = self._rng.choice([0, before, self._rng.randint(0, before)])
        txid = txid if txid > GROUP_MAX else 0  # a fork at 2 of a group of 3 would have to be one at 0
        made = ("fork", MODULE, str(txid), str(folder))
        self._try(f"fork at {txid}", lambda: self._call(*made))
        found = find_fork(folder_at(folder))
        if found is None or not found.is_made:
            self._call(*made)
        self._run_fork(folder, txid)

    def finish(self) -> None:
        """Run all that is left: with the later state if it is there."""
        self.has_later = LATER in self.present()
        self._try("run to the end", lambda: self._run(LAST), crash=Crash())
        self.check()
        if read_tables(self.output).txid != LAST:
            raise Violation(f"it does not come to its end\n{self}")

    def _run_fork(self, folder: Path, txid: int) -> None:
        has_later = (folder / LATER).exists()
        target = load_target(MODULE, {**self.values(), "later": "yes" if has_later else "no"})
        plan, config = moved(target.topology.plan, target.config, folder_at(folder))
        until = max(txid + self._rng.randint(1, 9), 1)
        grown_after = self._grown_after_in(folder)
        run_inline(TransactionalTopology(plan), config, until=until, wall_secs=self.wall_secs)
        self._compare(folder, grown_after if self.is_grown else LAST)
        told = CliRunner().invoke(command_line, ["diff", str(self.output), str(folder)])
        is_gone = self.wall_secs is not time.time and "no transaction that both" in told.output  # which is said
        if told.exit_code and not self.is_grown and not is_gone:
            raise Violation(f"a fork differs: {told.output}\n{self}")
        self._audit(folder)

    def _grown_after_in(self, folder: Path) -> int:
        return min(self.grown_after, read_tables(folder).txid)

    def mark(self) -> CommittedMark:
        target = load_target(MODULE, self.values())
        store = make_store(target.topology.plan, target.config)
        try:
            return committed_in(store, "changing") or CommittedMark()
        finally:
            store.close()

    def present(self) -> set[str]:
        """Return the states that the topology has by now."""
        return {name for name, each in self.mark().states.items() if each.left_after is None}

    def check(self) -> None:
        """Compare all tables, and audit them."""
        if not (self.output / "_txtopo").exists():
            return
        self._compare(self.output, self.grown_after)
        self._audit(self.output)

    def _compare(self, folder: Path, grown_after: int) -> None:
        try:
            view = read_tables(folder)
        except StateAccessError as refusal:
            self.steps.append(f"  a reader is refused: {refusal}")
            return
        for name in TABLES:
            if name in view.tables:
                found = rows_of(name, view.tables[name])
                wanted = self.undisturbed.rows(name, view.txid, grown_after)
                if found != wanted:
                    lacks = [row for row in wanted if row not in found][:5]
                    more = [row for row in found if row not in wanted][:5]
                    raise Violation(f"{folder.name}/{name} as of {view.txid} lacks {lacks}, has {more}\n{self}")

    def _audit(self, folder: Path) -> None:
        told = CliRunner().invoke(command_line, ["audit", str(folder)])
        if told.exit_code:
            raise Violation(f"the audit of {folder.name} fails: {told.output}\n{self}")

    def _run(self, until: int) -> None:
        target = load_target(MODULE, self.values())
        run_inline(target.topology, target.config, until=until, wall_secs=self.wall_secs)

    def _call(self, *words: str) -> Result:
        sets = [each for name, value in self.values().items() for each in ("--set", f"{name}={value}")]
        environment = inline_environment(wall_secs=self.wall_secs)
        told = CliRunner().invoke(command_line, [*words, *sets], obj=environment)
        self.steps.append(f"  {' '.join(words)}: {told.exit_code} {told.output.strip()[-300:]}")
        if told.exit_code:
            raise told.exception if not isinstance(told.exception, SystemExit) else Violation(f"{told.output}\n{self}")
        return told

    def _try(self, what: str, act: Callable[[], Any], crash: Crash | None = None) -> bool:
        """Do something that may die; return whether it has."""
        if crash is None:
            crash = Crash(self._rng.choice([0, self._rng.randint(1, CRASH_MAX)]))
        self.steps.append(f"{what}, dies at {crash.at}")
        try:
            with armed(crash):
                act()
        except Exception:
            if not crash.name:
                raise
        self.steps.append(f"  died at {crash.name}" if crash.name else "  done")
        return bool(crash.name)

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}", *self.steps])


def tell(folder: Path, undisturbed: Undisturbed, seed: int, steps: int, look_secs: float = 0) -> Story:
    """Let random changes happen to a topology, then run it to its end.

    With ``look_secs``, so much time passes at each look at the clock, and nothing stays in its tables but points.
    """
    looks, began_secs = itertools.count(1), time.time()
    wall_secs = (lambda: began_secs + look_secs * next(looks)) if look_secs else time.time
    story = Story(folder, undisturbed, seed, wall_secs=wall_secs)
    story.begin()
    for _ in range(steps):
        story.step()
    story.finish()
    return story
