"""What a backfill runs: all that writes a state and the states that those components use, and no more."""

import datetime as dt

import pytest

from committers import EventClock
from spouts import MemoryTransactionalSpout
from state import DeltaState, MemoryState
from tests.bolts import Take
from txtopo import Fields, ICommitter, TransactionalTopologyBuilder
from txtopo.backfill.part import part_of
from txtopo.errors import ConfigError
from txtopo.topology.plans.plan import Phase

ROW = Fields("word: string", "at: timestamp")


class Uses(Take, ICommitter):
    """Requests some states, and passes nothing on."""

    output_fields = Fields("attempt", "word: string", "at: timestamp")

    def __init__(self, *states: str) -> None:
        self.states = states

    def prepare(self, config, context, collector, attempt):
        self.opened = [context.state(name) for name in self.states]

    def finish_batch(self):
        pass


def plan(folder):
    """Return rows → writer (reads prices) → below; rows → pricing (writes prices); rows → other; rows → lazy."""
    builder = TransactionalTopologyBuilder("t", "rows", MemoryTransactionalSpout([], ROW, 1), 1)
    clock = EventClock("clock", time="at", delay=dt.timedelta(0))
    builder.set_committer_bolt("moves", clock).global_grouping("rows")
    builder.set_state("clock", clock.state(folder / "clock"))
    for name, states, source in (
        ("writer", ("bills", "prices"), "rows"),
        ("below", ("sums",), "writer"),
        ("pricing", ("prices",), "rows"),
        ("other", ("others",), "rows"),
        ("living", ("alive",), "rows"),
        ("remembers", ("memory",), "rows"),
    ):
        builder.set_committer_bolt(name, Uses(*states)).shuffle_grouping(source)
    key, value = Fields("word: string"), Fields("n: long", "at: timestamp")
    for name in ("bills", "prices", "sums", "others", "unused"):
        builder.set_state(name, DeltaState(folder / name, key, value))
    builder.set_state("alive", DeltaState(folder / "alive", key, value, ttl=dt.timedelta(days=1), clock="clock"))
    builder.set_state("memory", MemoryState(key, value))
    return builder.build().plan


@pytest.mark.parametrize(
    ("state", "known", "components", "new", "scratch"),
    [
        ("others", ["bills", "prices"], ("rows", "other"), ("others",), ()),
        ("bills", ["prices", "sums"], ("rows", "writer", "pricing"), ("bills",), ("prices",)),
        ("sums", ["clock"], ("rows", "writer", "below", "pricing"), ("bills", "prices", "sums"), ()),
        ("alive", ["clock"], ("rows", "moves", "living"), ("alive",), ("clock",)),
    ],
)
def test_the_part_of_a_state(tmp_path, state, known, components, new, scratch):
    """Upstream components, and whoever writes what they read; known states are written anew, new ones are filled."""
    whole = plan(tmp_path)
    part = part_of(whole, state, known)
    assert (set(part.components), set(part.new), set(part.scratch)) == (set(components), set(new), set(scratch))
    own = part.plan(whole, tmp_path / "scratch")
    assert [component.id for component in own.components] == list(part.components)
    assert own.states.keys() == set(new) | set(scratch)
    assert all(own.states[name] is whole.states[name] for name in new)
    assert {own.states[name].address for name in scratch} == {str(tmp_path / "scratch" / name) for name in scratch}
    assert [edge.index for edge in own.edges] == list(range(len(own.edges)))
    assert all(own.by_id[component].phase is Phase.COMMIT for component in part.components if component != "rows")


def test_what_can_not_be_written_beside_the_topology_is_refused(tmp_path):
    whole = plan(tmp_path)
    with pytest.raises(ConfigError, match=r"no committer requests state 'unused' in its prepare"):
        part_of(whole, "unused", ())
    with pytest.raises(ConfigError, match=r"'memory' is not in a table"):
        part_of(whole, "memory", ()).plan(whole, tmp_path)


def test_the_folder_is_the_same_for_states_that_are_filled_together(tmp_path):
    whole = plan(tmp_path)
    names = {part_of(whole, state, ["sums"]).folder_name for state in ("bills", "prices")}
    assert names == {"bills,prices"}
