"""The bound on the skew of event time between spouts: which spout waits for which, in every transaction."""

import contextlib
import datetime as dt
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from committers import EventClock, EventTime
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaRows, DeltaState
from tests.acceptance.test_several_spouts import Count, counts, transactions
from tests.budgets import examples
from tests.cli.conftest import command_line
from tests.committers.event_time.scripted import SECOND, START, TOLD, Planned, Script, Telling, told
from txtopo import BasicBolt, Config, FailedException, Fields, Topology, TransactionalTopologyBuilder, run
from txtopo.backfill.backfill import BackfillNews, backfill
from txtopo.errors import ConfigError, TopologyError
from txtopo.files.places import folder_at
from txtopo.fork.forking import moved
from txtopo.inspect.backend import FolderBackend
from txtopo.testing.inline import inline_environment, run_inline
from txtopo.testing.simulation.schedules import make_subject, run_schedules
from txtopo.topology.topology import TransactionalTopology
from txtopo.topology.user_code.loading import load_target

__all__ = ["command_line"]

TIMED = Fields("at: timestamp")


def rows(seconds: Sequence[float | None]) -> list[Any]:
    return [[None if each is None else START + each * SECOND] for each in seconds]


def topology(root: Path, spouts: Mapping[str, Any], tasks: int = 1, *, tells: bool = True, **options: Any) -> Topology:
    """Return a topology that counts the rows of some spouts by time, with a clock of them all."""
    (first, *others) = spouts
    builder = TransactionalTopologyBuilder("skew", first, spouts[first], tasks)
    for name in others:
        builder.add_spout(name, spouts[name], tasks)
    clock = EventClock("clock", **({"time": "at", "delay": 0 * SECOND, "close_at_end": True} | options))
    moving, count = builder.set_committer_bolt("clock", clock), builder.set_committer_bolt("count", Count(), 2)
    for name in spouts:
        moving.global_grouping(name)
        count.fields_grouping(name, TIMED)
    builder.set_state("clock", clock.state(root / "clock"))
    if tells:
        builder.set_committer_bolt("telling", Telling()).all_grouping("clock")
        builder.set_state("told", DeltaRows(root / "told", TOLD))
    builder.set_state("counts", DeltaState(root / "counts", Fields("key: string"), Fields("n: long")))
    return builder.build()


@attrs.frozen
class Source:
    """A source of rows in memory, as an oracle sees it."""

    seconds: Sequence[float | None]
    take: int

    def ends(self, start: int) -> int:
        return min(start + self.take, len(self.seconds))

    def time(self, end: int) -> float | None:
        return max((each for each in self.seconds[:end] if each is not None), default=None)


def planned_by(sources: Mapping[str, Source], skew_max: float) -> list[tuple[dict[str, tuple[int, int]], set[str]]]:
    """Return what each transaction takes, and who waits, if each is planned when the one before is committed."""
    at, found = dict.fromkeys(sources, 0), []
    while ready := {name for name, source in sources.items() if at[name] < len(source.seconds)}:
        times = {name: time for name in ready if (time := sources[name].time(at[name])) is not None}
        ahead = {name for name, time in times.items() if time > min(times.values()) + skew_max}
        taken = {name: (at[name], sources[name].ends(at[name])) for name in ready - ahead}
        at |= {name: end for name, (_, end) in taken.items()}
        found.append((taken, ahead))
    return found


def found_in(root: Path) -> list[tuple[dict[str, tuple[int, int]], set[str]]]:
    return [
        ({name: each for name, own in entry.ranges.items() for each in own.values()}, set(entry.planned.ahead))
        for entry in transactions(root)
        if entry.planned.has_input
    ]


seconds_of_a_source = st.lists(st.one_of(st.none(), st.integers(0, 60)), max_size=12)
sources_of_both = st.fixed_dictionaries(
    {name: st.builds(Source, seconds_of_a_source, st.integers(1, 3)) for name in ("a", "b", "c")}
)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    sources=sources_of_both,
    skew_max=st.sampled_from([1, 5, 20]),
    until=st.integers(1, 5),
    kinds=st.tuples(*[st.sampled_from([MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout])] * 3),
    is_sorted=st.booleans(),
)
def test_generated_sources(
    sources: dict[str, Source], skew_max: int, until: int, kinds: Sequence[Any], *, is_sorted: bool
) -> None:
    """Of whatever kinds, in order or not, with and without times, over a restart: a plain loop says who waits."""
    if is_sorted:
        sources = {
            name: attrs.evolve(source, seconds=sorted(source.seconds, key=lambda second: (second is None, second)))
            for name, source in sources.items()
        }
    config = Config(max_spout_pending=1, group_transactions_max=1)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as folder:
        for each in (until, None):
            spouts = {
                name: kind(rows(source.seconds), TIMED, source.take)
                for kind, (name, source) in zip(kinds, sources.items(), strict=True)
            }
            run_inline(topology(Path(folder), spouts, skew_max=skew_max * SECOND), config, until=each)
        assert found_in(Path(folder)) == planned_by(sources, skew_max)


FAST, SLOW = [0, 100, 101, 200, 300], [*range(0, 120, 10), 290]
EXPECTED = {f"{name} {row[0]}" for name, own in (("fast", FAST), ("slow", SLOW)) for row in rows(own)}


def pair(root: Path, tasks: int = 1, *, is_opaque: bool = False, **options: Any) -> Topology:
    kind = OpaqueMemoryTransactionalSpout if is_opaque else MemoryTransactionalSpout
    spouts = {"fast": kind(rows(FAST), TIMED, 1), "slow": MemoryTransactionalSpout(rows(SLOW), TIMED, 1)}
    return topology(root, spouts, tasks, **({"skew_max": 30 * SECOND} | options))


@pytest.mark.slow
def test_the_pages_api_says_who_waited(tmp_path: Path) -> None:
    """So does the answer about a transaction, with which the page is made."""
    run_inline(pair(tmp_path), Config(max_spout_pending=1))
    with contextlib.closing(FolderBackend(folder_at(tmp_path))) as backend:
        found = [backend.transaction("skew", transaction.txid).journal.waited for transaction in transactions(tmp_path)]
    assert found == [transaction.planned.ahead for transaction in transactions(tmp_path)]
    assert ("fast",) in found


@pytest.mark.slow
def test_explain_says_who_waited(tmp_path: Path, command_line: Any) -> None:
    """A user who wonders why the lag of a source rises finds the spout named with its transaction."""
    run_inline(pair(tmp_path), Config(max_spout_pending=1))
    txid = next(transaction.txid for transaction in transactions(tmp_path) if transaction.planned.ahead)
    assert "fast: its event time was too far ahead of another spout's" in command_line.told(
        "explain", str(tmp_path), str(txid)
    )


@pytest.mark.slow
def test_pending_transactions_are_not_called_back(tmp_path: Path) -> None:
    """A spout is taken only if it was not ahead after one of the last transactions, as many as may be pending."""
    pending = 3
    run_inline(pair(tmp_path), Config(max_spout_pending=pending, group_transactions_max=1))
    at, after = {"fast": 0, "slow": 0}, []
    for taken, _ in [({}, set()), *found_in(tmp_path)]:
        may_take = [
            own["slow"] == len(SLOW) or not all(own.values()) or FAST[own["fast"] - 1] <= SLOW[own["slow"] - 1] + 30
            for own in after[-pending - 1 :]
        ]
        assert "fast" not in taken or any(may_take)
        at |= {name: end for name, (_, end) in taken.items()}
        after.append(dict(at))
    assert counts(tmp_path) == dict.fromkeys(EXPECTED, 1)


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("is_opaque", [False, True], ids=["repeatable", "opaque"])
@pytest.mark.parametrize("is_real_time", [False, True], ids=["micro-batch", "real-time"])
def test_under_seeded_disasters(tmp_path: Path, *, is_opaque: bool, is_real_time: bool) -> None:
    """Who waits decides what is planned and nothing else: nothing is lost or doubled, and no run stands still."""

    def each_once(tables: Mapping[str, Mapping[Any, Any]]) -> None:
        assert set(tables["counts"].values()) <= {1}

    made = pair(tmp_path, 2, is_opaque=is_opaque)
    assert not run_schedules(make_subject(made, invariant=each_once, is_real_time=is_real_time), range(12)).failures


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_on_spark(tmp_path: Path, spark: Any, mode: str) -> None:
    """The faster one waits, in jobs and in real-time workers."""
    run(pair(tmp_path, 2), Config({"topology.processing.mode": mode, "topology.max.spout.pending": 1}))
    sources = {"fast": Source(FAST, 1), "slow": Source(SLOW, 1)}
    assert found_in(tmp_path) == planned_by(sources, 30)
    assert counts(tmp_path) == dict.fromkeys(EXPECTED, 1)


@pytest.mark.slow
def test_a_spout_that_waits_is_not_silent(tmp_path: Path) -> None:
    """The watermark waits for it, however long it takes the slower one to come, and to pass it in one leap.

    A backfill knows who waited, too.
    """
    made, wall_secs = waiting(tmp_path / "all")
    run_inline(made, Config(max_spout_pending=1), wall_secs=wall_secs)
    assert [after for _, after, _ in told(tmp_path / "all")][:6] == [0, 1, 2, 3, 100, 101]
    made, wall_secs = waiting(tmp_path / "later", tells=False)
    run_inline(made, Config(max_spout_pending=1), wall_secs=wall_secs)
    news = BackfillNews(lambda point: None, lambda part, txid: None, lambda txid: None)
    report = backfill(waiting(tmp_path / "later")[0], Config(), inline_environment(), "told", news)
    assert report.part.scratch == ("clock",)
    assert told(tmp_path / "later") == told(tmp_path / "all")


def waiting(root: Path, *, tells: bool = True) -> tuple[Topology, Callable[[], float]]:
    """Return a topology in which the faster source waits for longer than it may be idle, and its clock."""
    slow = Script([Planned(20 * n, [(START + second * SECOND,)]) for n, second in enumerate([0, 1, 2, 3, 500])], TIMED)
    fast = MemoryTransactionalSpout(rows([100, 101, 600]), TIMED, 1)
    sources = {name: EventTime("at", delay=0 * SECOND, idle_after=30 * SECOND) for name in ("slow", "fast")}
    options = {"time": None, "delay": None, "sources": sources, "skew_max": 10 * SECOND, "tells": tells}
    return topology(root, {"slow": slow, "fast": fast}, **options), slow.wall_secs


@pytest.mark.slow
def test_a_spout_that_was_idle_before_stays_so(tmp_path: Path) -> None:
    """A partition that the watermark has passed holds it up no more because others of its spout wait."""
    slow = Script([Planned(20 * n, [(START + n * SECOND,)]) for n in range(6)], TIMED)
    parted = Fields("at: timestamp", "part: string")
    fast = MemoryTransactionalSpout(
        {"dead": [[START - 5 * SECOND, "dead"]], "p": [[START + each * SECOND, "p"] for each in (0, 1, 100, 101)]},
        parted,
        1,
    )
    sources = {
        "slow": EventTime("at", delay=0 * SECOND),
        "fast": EventTime("at", delay=0 * SECOND, partition="part", idle_after=30 * SECOND),
    }
    made = topology(
        tmp_path, {"slow": slow, "fast": fast}, time=None, delay=None, sources=sources, skew_max=10 * SECOND
    )
    run_inline(made, Config(max_spout_pending=1), wall_secs=slow.wall_secs)
    assert [after for _, after, _ in told(tmp_path)][:6] == [-5, -5, 2, 3, 4, 5]


MODULE = """
from pathlib import Path

from tests.assembly.feed.test_skew import pair

def topology():
    return pair(Path("out").resolve(), is_opaque=False)
"""


@pytest.mark.slow
def test_going_back_forking_and_replaying(command_line: Any) -> None:
    """A fork begins as planned, and knows who waited; after a rewind the bound holds at once; replays see the same."""
    command_line.write_module("job", MODULE)
    config = Config(max_spout_pending=1, group_transactions_max=1)
    run_inline(load_target("job", {}).topology, config)
    before = found_in(Path("out"))
    at = next(number for number, (_, ahead) in enumerate(before, 1) if ahead)
    assert "✔" in command_line.told("replay", "job", str(at))
    command_line.told("fork", "job", str(at), "side")
    plan, moved_config = moved(load_target("job", {}).topology.plan, config, folder_at("side"))
    run_inline(TransactionalTopology(plan), moved_config)
    assert found_in(Path("side")) == before[at:]
    command_line.told("rewind", "job", str(at), "--yes")
    run_inline(load_target("job", {}).topology, config)
    assert found_in(Path("out")) == [*before, *before[at:]]  # the journal keeps what was undone
    assert counts(Path("out")) == counts(Path("side")) == dict.fromkeys(EXPECTED, 1)
    assert "✔" in command_line.told("audit", "out")


class Poisoned(MemoryTransactionalSpout):
    """One whose second transaction can't be emitted."""

    def emitter(self, config: Any, context: Any) -> Any:
        inner = super().emitter(config, context)
        emit = inner.emit_batch

        def emit_batch(attempt: Any, metadata: Any, collector: Any) -> None:
            if metadata["0"][0] == 1:
                raise FailedException("no such page")
            emit(attempt, metadata, collector)

        inner.emit_batch = emit_batch
        return inner


@pytest.mark.slow
def test_what_is_skipped_holds_up_nobody(tmp_path: Path) -> None:
    """A transaction that is set aside moves no event time; the others go on, each row once."""
    spouts = {"fast": MemoryTransactionalSpout(rows(FAST), TIMED, 1), "slow": Poisoned(rows(SLOW), TIMED, 1)}
    config = {"topology.transaction.max.attempts": 2, "topology.transaction.max.attempts.policy": "SKIP"}
    run_inline(topology(tmp_path, spouts, skew_max=30 * SECOND), Config({**config, "topology.max.spout.pending": 1}))
    skipped = {f"fast {rows([FAST[1]])[0][0]}", f"slow {rows([SLOW[1]])[0][0]}"}
    assert counts(tmp_path) == dict.fromkeys(EXPECTED - skipped, 1)


class Same(BasicBolt):
    """Passes rows on."""

    output_fields = Fields("attempt", "at: timestamp")

    def execute(self, tuple: Any, collector: Any) -> None:
        collector.emit((tuple.attempt, tuple["at"]))


def test_bolts_between(tmp_path: Path) -> None:
    """A source may be below bolts, as long as it has the tuples of one spout; else it is refused by name."""
    for both, refused in ((False, False), (True, True)):
        builder = TransactionalTopologyBuilder("skew", "fast", MemoryTransactionalSpout(rows(FAST), TIMED, 1))
        builder.add_spout("slow", MemoryTransactionalSpout(rows(SLOW), TIMED, 1))
        bolt = builder.set_bolt("same", Same()).shuffle_grouping("slow")
        if both:
            bolt.shuffle_grouping("fast")
        clock = EventClock("clock", time="at", delay=SECOND, skew_max=30 * SECOND)
        builder.set_committer_bolt("clock", clock).global_grouping("fast").global_grouping("same")
        builder.set_state("clock", clock.state(tmp_path / "clock"))
        if refused:
            with pytest.raises(TopologyError, match="'same' has the tuples of 'fast' and 'slow'"):
                builder.build()
            continue
        run_inline(builder.build(), Config(max_spout_pending=1))
        assert found_in(tmp_path) == planned_by({"fast": Source(FAST, 1), "slow": Source(SLOW, 1)}, 30)


def test_one_clock_bounds(tmp_path: Path) -> None:
    """Two could let each spout wait for the other one."""
    builder = TransactionalTopologyBuilder("skew", "rows", MemoryTransactionalSpout(rows(FAST), TIMED, 1))
    for name in ("first", "second"):
        clock = EventClock(name, time="at", delay=SECOND, skew_max=SECOND)
        builder.set_committer_bolt(name, clock).global_grouping("rows")
        builder.set_state(name, clock.state(tmp_path / name))
    with pytest.raises(TopologyError, match="'first' and 'second' have skew_max="):
        builder.build()


@pytest.mark.parametrize("skew_max", [dt.timedelta(), -SECOND])
def test_a_bound_that_is_none(skew_max: dt.timedelta) -> None:
    """It is a time."""
    with pytest.raises(ConfigError, match="skew_max of an EventClock"):
        EventClock("clock", time="at", delay=SECOND, skew_max=skew_max)
