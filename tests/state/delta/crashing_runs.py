"""Runs of a topology with two tables that crash at each failpoint in turn: what audit and readers are tested on."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import attrs

from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaState, StateKind, read_tables
from tests.acceptance.topologies import CountWords, Partial, SumDeltas, make_data
from txtopo import Config, Fields, Topology, TransactionalTopologyBuilder
from txtopo.errors import ConfigError, InternalError
from txtopo.failpoints import armed
from txtopo.testing.inline import run_inline

DATA = make_data(2, 7)
"""Seventeen rows, which make four transactions of three rows a partition."""

CONFIG = Config(max_spout_pending=6, group_transactions_max=2)


class CrashError(Exception):
    """The process dies here."""


@attrs.define(eq=False)
class Crash:
    """Lets a run die at the n-th failpoint that it reaches; dead processes do nothing more.

    Args:
        at: the n, from 1; 0 for never.
        look: called at each failpoint, before anything happens there.
        looks_max: how often, at most.
        only: the failpoint that counts; empty for all of them.
    """

    at: int = 0
    look: Callable[[], None] = lambda: None
    looks_max: int = 1_000_000
    only: str = ""
    reached: int = 0
    name: str = ""

    def __call__(self, name: str) -> None:
        if name.startswith(("spout.", "bolt.")):
            return
        if self.name:
            raise CrashError("dead processes do nothing")
        if self.reached < self.looks_max:
            self.look()
        self.reached += self.only in {"", name}
        if self.reached == self.at:
            self.name = name
            raise CrashError(f"at {name}")


def two_tables(output: pathlib.Path, *, opaque: bool = False, **options) -> Topology:
    """Return spout → partial → count (words) → sum (total): one state of each committer's own."""
    spouts = OpaqueMemoryTransactionalSpout if opaque else MemoryTransactionalSpout
    kind = StateKind.OPAQUE if opaque else StateKind.TRANSACTIONAL
    builder = TransactionalTopologyBuilder("crash", "spout", spouts(DATA, Fields("word"), 3), 2)
    builder.set_bolt("partial", Partial(), 2).shuffle_grouping("spout")
    builder.set_committer_bolt("count", CountWords(), 2).fields_grouping("partial", Fields("word"))
    builder.set_bolt("sum", SumDeltas(), 1).global_grouping("count")
    for name, key in (("words", "word"), ("total", "name")):
        state = DeltaState(output / name, Fields(f"{key}: string"), Fields("n: long"), kind, **options)
        builder.set_state(name, state)
    return builder.build()


def run_with_crash(make: Callable[[], Topology], crash: Crash, config: Config = CONFIG) -> bool:
    """Run a topology; return whether it came to its end."""
    try:
        with armed(crash):
            run_inline(make(), config)
    except (CrashError, InternalError):
        assert crash.name, "nothing else goes wrong"
        return False
    return True


def crash_everywhere(
    make: Callable[[pathlib.Path], Topology], folder: pathlib.Path
) -> Iterator[tuple[Crash, pathlib.Path]]:
    """Yield a crash for each failpoint that a run reaches, and an output folder of its own; stop after the last."""
    for at in range(1, 1000):
        crash, output = Crash(at), folder / str(at)
        yield crash, output
        if not crash.name:
            assert at > 20, "the run reaches failpoints"
            return


class Reader:
    """Reads a view of both tables again and again: the words add up to the total, and txids do not fall."""

    def __init__(self, output: pathlib.Path) -> None:
        self.output = output
        self.txid = 0
        self.reads = 0

    def __call__(self) -> None:
        try:
            view = read_tables(self.output)
        except ConfigError:
            assert self.txid == 0, "a journal that was there stays there"
            return
        words = sum(view.tables["words"]["n"].to_pylist())
        assert words == sum(view.tables["total"]["n"].to_pylist()), view
        assert view.txid >= self.txid
        self.txid = view.txid
        self.reads += 1
