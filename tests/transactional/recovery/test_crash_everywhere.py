"""Promises 8, 9, 10 and 16: a crash before or after any durable step, at any step, changes no total."""

import attrs
import pytest

from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import MemoryState, MemoryStore
from tests.acceptance.topologies import CountWords, Partial, SumDeltas, counts_of, make_data
from tests.topologies import values_in
from tests.transactional.recovery.crashes import CrashError, CrashingState, CrashingStore, Fuse
from txtopo import Config, Fields, Topology, TransactionalTopologyBuilder
from txtopo.api.values import KEYED_KINDS, StateKind
from txtopo.engine.runner import run_with
from txtopo.errors import InternalError
from txtopo.testing.inline import inline_environment

DATA = make_data(2, 10)
STEPS_MAX = 200


class World:
    """What outlives a crash: a store and two tables."""

    def __init__(self, opaque: bool, kind: StateKind) -> None:
        self.opaque = opaque
        self.store = MemoryStore()
        self.words = MemoryState(Fields("word"), Fields("n"), kind)
        self.total = MemoryState(Fields("name"), Fields("n"), kind)

    def topology(self, fuse: Fuse) -> Topology:
        spouts = OpaqueMemoryTransactionalSpout if self.opaque else MemoryTransactionalSpout
        builder = TransactionalTopologyBuilder("crash", "spout", spouts(DATA, Fields("word"), 3), 2)
        builder.set_bolt("partial", Partial(), 2).shuffle_grouping("spout")
        builder.set_committer_bolt("count", CountWords(), 2).fields_grouping("partial", Fields("word"))
        builder.set_bolt("sum", SumDeltas(), 1).global_grouping("count")
        builder.set_state("words", CrashingState(self.words, fuse))
        builder.set_state("total", CrashingState(self.total, fuse))
        return builder.build()

    def run(self, fuse: Fuse) -> None:
        environment = attrs.evolve(inline_environment(), make_store=lambda: CrashingStore(self.store, fuse))
        run_with(self.topology(fuse), Config(max_spout_pending=6, group_transactions_max=2), environment)

    def check(self) -> None:
        assert values_in(self.words) == counts_of(DATA)
        assert [kept.value for kept in self.total.items().values()] == [sum(counts_of(DATA).values())]


KINDS = pytest.mark.parametrize(
    ("opaque", "kind"),
    [
        pytest.param(
            opaque,
            kind,
            id=f"{'opaque' if opaque else 'repeatable'}-{kind.value}",
            marks=[pytest.mark.long] if opaque != (kind is StateKind.OPAQUE) else [],
        )
        for opaque in (False, True)
        for kind in KEYED_KINDS
    ],
)
"""Spouts, and what a state keeps beside its values. A transaction that was decided never runs again, so every kind is
exact with every spout: the other pairs are for ``make long``."""


@pytest.mark.slow
@pytest.mark.covering(1)
@KINDS
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_crash_at_each_step(opaque: bool, kind: StateKind, before: bool) -> None:
    """One crash, at each durable step in turn; the run that follows ends with exact tables."""
    for steps in range(1, STEPS_MAX):
        world, fuse = World(opaque, kind), Fuse(steps, before)
        try:
            world.run(fuse)
        except (InternalError, CrashError):
            world.run(Fuse())
            world.check()
        else:
            world.check()
            assert steps > 15, "the fuse is longer than the run: there were too few durable steps"
            return
    pytest.fail("the run never got through")


@pytest.mark.slow
@KINDS
def test_crash_again_and_again(opaque: bool, kind: StateKind) -> None:
    """A crash after every few durable steps, recovery included, until the run gets through."""
    for stride in (7, 8, 9, 11, 13):
        world = World(opaque, kind)
        for lives in range(STEPS_MAX):
            try:
                world.run(Fuse(stride, before=lives % 2 == 0))
                break
            except (InternalError, CrashError):
                continue
        else:
            pytest.fail(f"no progress with a crash every {stride} steps")
        world.check()
