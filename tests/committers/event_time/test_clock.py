"""EventClock: where the watermark is after each transaction."""

import datetime as dt
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from committers import EventClock, EventTime
from committers.event_time.times import MICROS_MAX
from spouts import MemoryTransactionalSpout
from state import DeltaRows, read_table
from tests.budgets import examples
from tests.committers.event_time.oracle import ClockOfSources, PartitionedClock
from tests.committers.event_time.scripted import SECOND, START, TOLD, Planned, Script, Telling, run_clock, told
from txtopo import ArrowBatchBolt, BasicBolt, Config, Fields, TransactionalTopologyBuilder
from txtopo.api.data.utc import MICROS_MIN
from txtopo.errors import ConfigError, TopologyError
from txtopo.testing.inline import run_inline

TYPED = Fields("at: timestamp", "part: string")
UNTYPED = Fields("at", "part")
FIRST = MICROS_MIN / 1e6 - START.timestamp()
ENDED = MICROS_MAX / 1e6 - START.timestamp()


def at(second: float | None, part: Any = "p") -> tuple[Any, ...]:
    return None if second is None else START + second * SECOND, part


def watermarks(root: Path, *transactions: Planned, fields: Fields = TYPED, **options: Any) -> list[float | None]:
    """Run a clock over a script; return the watermark after each transaction."""
    clock = EventClock("clock", time="at", **{"delay": 10 * SECOND, **options})
    run_clock(root, Script(transactions, fields), clock)
    return [after for _, after, _ in told(root)]


@pytest.mark.parametrize("fields", [TYPED, UNTYPED])
def test_all_rows(tmp_path: Path, fields: Fields) -> None:
    """It is the largest time so far less the delay, never falls, and is none before there is a time."""
    script = (
        Planned(0, [at(None)]),
        Planned(1, [at(50), at(70), at(None)]),
        Planned(2, [at(20)]),
        Planned(3, [at(-3e9)]),
        Planned(4, [at(71.25)]),
    )
    assert watermarks(tmp_path, *script, fields=fields) == [None, 60, 60, 60, 61.25]
    assert told(tmp_path) == [
        (None, None, ENDED), (None, 60, ENDED), (60, 60, ENDED), (60, 60, ENDED), (60, 61.25, ENDED)
    ]  # fmt: skip


def test_before_1970(tmp_path: Path) -> None:
    """Times before 1970 are times like others."""
    old = (START.replace(year=1901) - START).total_seconds()
    assert watermarks(tmp_path, Planned(0, [at(old + 0.5)]), Planned(1, [at(old + 3)])) == [old - 9.5, old - 7]


class Ticks(ArrowBatchBolt):
    """Converts numbers of microseconds, in which any time may be written, to timestamps."""

    output_fields = Fields("attempt", "at: timestamp", "part: string")

    def execute(self, batch):
        at = batch.schema.get_field_index("at")
        self.collector.emit_batch(batch.set_column(at, "at", batch["at"].cast(pa.timestamp("us", "UTC"))))


def test_times_that_cannot_be(tmp_path: Path) -> None:
    """Times before the year 1 and after the year 9999 do not move it; the first day of the year 1 is a time."""
    script = (
        Planned(0, [(MICROS_MIN - 1, "p")]),
        Planned(1, [(MICROS_MIN, "p"), (MICROS_MAX + 1, "p"), (1 << 62, "q")]),
        Planned(2, [(0, "p")]),
    )
    clock = EventClock("clock", time="at", delay=SECOND)
    run_clock(tmp_path, Script(script, Fields("at: long", "part: string")), clock, above=Ticks())
    assert [after for _, after, _ in told(tmp_path)] == [None, FIRST, -1 - START.timestamp()]


@pytest.mark.few(2)
@pytest.mark.parametrize("slow", [None, "None", "", "''", "'None'"])
def test_partitions_with_odd_names(tmp_path: Path, slow: str | None) -> None:
    """One without a name, one with an empty one, and those that are named like them in the clock's table are five."""
    every = (None, "None", "", "''", "'None'")
    script = (
        Planned(0, [at(100, name) for name in every]),
        Planned(1, [at(200, name) for name in every if name != slow]),
        Planned(2, [at(150, slow)]),
    )
    assert watermarks(tmp_path, *script, partition="part") == [90, 90, 140]


def test_an_older_row_of_a_partition(tmp_path: Path) -> None:
    """What a partition has shown stays, so its older rows hold up no other one that comes later."""
    script = Planned(0, [at(100, "p"), at(60, "q")]), Planned(1, [at(55, "p")]), Planned(2, [at(120, "q")])
    assert watermarks(tmp_path, *script, partition="part") == [50, 50, 90]


def test_numbered_partitions(tmp_path: Path) -> None:
    """A partition may be a number, as Kafka's."""
    script = Planned(0, [at(100, 0), at(90, 1)]), Planned(1, [at(100, 1)])
    assert watermarks(tmp_path, *script, fields=Fields("at: timestamp", "part: int"), partition="part") == [80, 90]


@pytest.mark.slow
@pytest.mark.parametrize("partition", [None, "part"])
def test_silence(tmp_path: Path, partition: str | None) -> None:
    """When all is silent, the watermark goes on as fast as time on the wall, by transactions without input."""
    script = (
        Planned(0, [at(7, "a"), at(3, "b")]),
        Planned(59, [at(8, "a")]),
        Planned(119, None),
        Planned(180, None),
        Planned(1_000_000, None),
        Planned(1_000_001, [at(9, "a")]),
    )
    found = watermarks(tmp_path, *script, partition=partition, idle_after=60 * SECOND)
    first = -2 if partition is None else -7
    # "b" is silent since 0, and at 119 it would be at 3 + 59; "a" is silent since 59.
    going_on = [8 - 10, 8 + 61 - 10, 8 + 999_881 - 10] if partition is None else [52, 113, 999_933]
    assert found == [8 - 11 if partition is None else -7, first, *going_on, going_on[-1]]


@pytest.mark.slow
def test_silence_after_the_last_year(tmp_path: Path) -> None:
    """When all is silent, the watermark goes on up to the last moment of the year 9999, and stays there."""
    script = (
        Planned(0, [at(ENDED - 1)]),
        Planned(70, None),
        Planned(200, None),
        Planned(201, [at(9)]),
    )
    found = watermarks(tmp_path, *script, idle_after=60 * SECOND, delay=SECOND)
    assert found[-2:] == [pytest.approx(ENDED)] * 2


def test_far_ahead(tmp_path: Path) -> None:
    """A time too far ahead of when its transaction was planned does not move it, and the limit is told."""
    script = (
        Planned(100, [at(130), at(131), at(1e11)]),
        Planned(200, [at(1e9)]),
        Planned(201, [at(150)]),
    )
    assert watermarks(tmp_path, *script, ahead_max=30 * SECOND) == [120, 120, 140]
    assert [limit for *_, limit in told(tmp_path)] == [130, 230, 231]


@pytest.mark.slow
def test_the_end(tmp_path: Path) -> None:
    """With close_at_end one transaction more moves it past all times, in which it stays; without, there is none."""
    script = Planned(0, [at(5)]), Planned(1, [at(None)])
    assert watermarks(tmp_path / "closed", *script, close_at_end=True) == [-5, -5, ENDED]
    again = (*script, Planned(2, None), Planned(3, [at(20)]))
    assert watermarks(tmp_path / "closed", *again, close_at_end=True) == [-5, -5, ENDED, ENDED, ENDED]
    assert watermarks(tmp_path / "open", *script) == [-5, -5]


def test_nothing_changes(tmp_path: Path) -> None:
    """A transaction that neither moves the watermark nor brings a time writes no version of the clock's table."""
    watermarks(tmp_path, Planned(0, [at(5)]), *(Planned(n, [at(None)]) for n in range(1, 9)))
    assert read_table(tmp_path / "clock")["txid"].to_pylist() == [1]


@pytest.mark.parametrize(
    "wrong", [{"delay": -SECOND}, {"delay": 5}, {"idle_after": dt.timedelta()}, {"ahead_max": -SECOND}]
)
def test_no_duration(wrong: dict[str, Any]) -> None:
    """What is no duration is refused."""
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))} .*is "):
        EventClock("clock", time="at", **{"delay": SECOND, **wrong})


seconds = st.one_of(st.none(), st.integers(-50, 300))
rows = st.builds(at, seconds, st.sampled_from(["a", "b", None]))
steps = st.tuples(st.integers(0, 90), st.one_of(st.none(), st.lists(rows, max_size=4)))
settings_of_clocks = st.fixed_dictionaries(
    {
        "delay": st.integers(0, 40).map(lambda n: n * SECOND),
        "partition": st.sampled_from([None, "part"]),
        "idle_after": st.sampled_from([None, 30 * SECOND, 100 * SECOND]),
        "ahead_max": st.sampled_from([None, 20 * SECOND]),
        "close_at_end": st.booleans(),
    }
)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    script=st.lists(steps, min_size=1, max_size=10),
    clocks=st.lists(settings_of_clocks, min_size=1, max_size=3),
    fields=st.sampled_from([TYPED, UNTYPED]),
    group=st.integers(1, 4),
)
def test_generated(script: Sequence[Any], clocks: list[dict[str, Any]], fields: Fields, group: int) -> None:
    """Whatever comes, when, in which groups, and with other settings after each restart: a plain loop says the same."""
    now, transactions = 0, []
    for pause, taken in script:
        # A transaction without input begins only if the source was silent for as long as all the clocks ask.
        is_quiet = taken is None and transactions and all(each["idle_after"] for each in clocks)
        now += max(pause, 100) if is_quiet else pause
        transactions.append(Planned(now, None if is_quiet else taken or []))
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as folder:
        expected, oracle = [], PartitionedClock()
        for number, options in enumerate(clocks, 1):
            first, last = (len(transactions) * each // len(clocks) for each in (number - 1, number))
            is_end = number == len(clocks) and options["close_at_end"]
            if first == last and not is_end:
                continue
            clock = EventClock("clock", time="at", **options)
            script_of_all = Script(transactions, fields)
            run_clock(Path(folder), script_of_all, clock, until=None if number == len(clocks) else last, group=group)
            expected += [
                oracle.move(planned.rows or (), START + planned.second * SECOND, **options)
                for planned in transactions[first:last]
            ]
            if is_end:
                expected.append((oracle.watermark, dt.datetime.max.replace(tzinfo=dt.UTC)))
        found = [(before, after) for before, after, _ in told(Path(folder))]
    in_seconds = [[each and (each - START).total_seconds() for each in pair] for pair in expected]
    assert found == [pytest.approx(tuple(pair)) for pair in in_seconds]


ONE_ROW = [(dt.datetime(2026, 3, 1, tzinfo=dt.UTC),)]


@pytest.mark.parametrize("fields", ["at: timestamp", "at"])
@pytest.mark.parametrize(
    ("time", "tasks", "error", "said"),
    [
        ("at", 2, TopologyError, r"one task, not 2; declare it with parallelism 1"),
        ("time", 1, TopologyError, "reads field 'time', which 'rows' does not have"),
    ],
)
def test_a_wrong_declaration(time, tasks, error, said, fields, tmp_path):
    """Several tasks would each move the watermark; a field that does not exist is named beside those that do."""
    builder = TransactionalTopologyBuilder("clocked", "rows", MemoryTransactionalSpout(ONE_ROW, Fields(fields), 1))
    clock = EventClock("clock", time=time, delay=dt.timedelta())
    builder.set_committer_bolt("clock", clock, tasks).shuffle_grouping("rows")
    builder.set_state("clock", clock.state(tmp_path / "clock"))
    with pytest.raises(error, match=said):
        run_inline(builder.build())


SOURCED = Fields("at: timestamp", "source: string", "part: string")


class Only(BasicBolt):
    """Emits the rows of one source, under a field of its own."""

    def __init__(self, source, is_typed):
        self.source = source
        self.output_fields = Fields(
            "attempt", *(f"at_{source}: timestamp", "part: string") if is_typed else (f"at_{source}", "part")
        )

    def execute(self, tuple, collector):
        if tuple["source"] == self.source:
            collector.emit((tuple.attempt, tuple["at"], tuple["part"]))


def run_sources(
    root: Path,
    transactions: Sequence[Planned],
    sources: dict[str, EventTime],
    *,
    until: int | None = None,
    is_typed: bool = True,
    group: int = 4,
    **options: Any,
) -> None:
    """Run a clock over the sources of a script, each of which is a component."""
    script = Script(transactions, SOURCED)
    builder = TransactionalTopologyBuilder("clock", "rows", script)
    clock = EventClock("clock", sources=sources, **options)
    declared = builder.set_committer_bolt("clock", clock)
    for source in sources:
        builder.set_bolt(source, Only(source, is_typed)).shuffle_grouping("rows")
        declared.global_grouping(source)
    builder.set_state("clock", clock.state(root / "clock"))
    builder.set_committer_bolt("telling", Telling()).all_grouping("clock")
    builder.set_state("told", DeltaRows(root / "told", TOLD))
    config = Config(max_spout_pending=4, group_transactions_max=group)
    run_inline(builder.build(), config, until=until, wall_secs=script.wall_secs)


def of(second: float | None, source: str, part: Any = "p") -> tuple[Any, ...]:
    return None if second is None else START + second * SECOND, source, part


def source_time(source: str, **options: Any) -> EventTime:
    return EventTime(f"at_{source}", **{"delay": dt.timedelta(), **options})


def test_the_slowest_of_several_sources(tmp_path: Path) -> None:
    """It is the smallest of the sources' watermarks, each by its own field and delay; a silent one is waited for."""
    script = (
        Planned(0, [of(100, "a")]),
        Planned(1, [of(70, "b")]),
        Planned(2, [of(300, "a"), of(90, "b"), of(80, "b")]),
        Planned(3, [of(500, "b")]),
    )
    sources = {"a": source_time("a", delay=20 * SECOND), "b": source_time("b")}
    run_sources(tmp_path, script, sources, close_at_end=True)
    assert [after for _, after, _ in told(tmp_path)] == [None, 70, 90, 280, ENDED]


def test_a_source_that_is_idle_is_not_waited_for(tmp_path: Path) -> None:
    """Not even if it has brought nothing yet; when it comes back, the watermark waits for it again, and never falls."""
    script = (
        Planned(0, [of(10, "a")]),
        Planned(29, [of(20, "a")]),
        Planned(30, [of(30, "a")]),
        Planned(31, [of(25, "b"), of(40, "a")]),
        Planned(32, [of(50, "a"), of(35, "b")]),
    )
    run_sources(tmp_path, script, {"a": source_time("a"), "b": source_time("b", idle_after=30 * SECOND)})
    assert [after for _, after, _ in told(tmp_path)] == [None, None, 30, 30, 35]


def test_one_setting_for_all_sources(tmp_path: Path) -> None:
    """A clock with one field and delay, too, waits for each component that it subscribes to."""

    class Same(Only):
        def __init__(self, source):
            self.source, self.output_fields = source, Fields("attempt", "at: timestamp", "part: string")

    script = Script([Planned(0, [of(10, "a")]), Planned(1, [of(5, "b")]), Planned(2, [of(7, "b")])], SOURCED)
    builder = TransactionalTopologyBuilder("clock", "rows", script)
    clock = EventClock("clock", time="at", delay=SECOND)
    declared = builder.set_committer_bolt("clock", clock)
    for source in ("a", "b"):
        builder.set_bolt(source, Same(source)).shuffle_grouping("rows")
        declared.global_grouping(source)
    builder.set_state("clock", clock.state(tmp_path / "clock"))
    report = run_inline(builder.build(), wall_secs=script.wall_secs)
    gauges = {
        reading.of: reading.value - START.timestamp() for reading in report.readings if reading.name == "watermark"
    }
    assert gauges == {"": 6, "a": 9, "b": 6}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "either time= and delay="),
        ({"time": "at"}, "either time= and delay="),
        ({"sources": {}}, "either time= and delay="),
        ({"delay": SECOND, "sources": {"a": source_time("a")}}, "either time= and delay="),
    ],
)
def test_neither_one_setting_nor_several(options: dict[str, Any], said: str) -> None:
    """There is one event time for all sources, or one for each."""
    with pytest.raises(ConfigError, match=said):
        EventClock("clock", **options)


def test_sources_and_subscriptions_differ(tmp_path: Path) -> None:
    """A component without an event time, a source without a subscription, and a field that is not there are named."""
    builder = TransactionalTopologyBuilder(
        "clocked", "rows", MemoryTransactionalSpout(ONE_ROW, Fields("at: timestamp"), 1)
    )
    sources = {"row": EventTime("at", delay=SECOND)}
    builder.set_committer_bolt("clock", EventClock("clock", sources=sources)).global_grouping("rows")
    builder.set_state("clock", EventClock.state(tmp_path / "clock"))
    with pytest.raises(
        TopologyError, match=r"no event time of 'rows'(.|\n)*source 'row', but does not subscribe to it"
    ):
        builder.build()


sourced_rows = st.builds(of, seconds, st.sampled_from(["a", "b"]), st.sampled_from(["p", None]))
sourced_steps = st.tuples(st.integers(0, 60), st.lists(sourced_rows, max_size=4))
settings_of_sources = st.fixed_dictionaries(
    {
        "delay": st.integers(0, 40).map(lambda n: n * SECOND),
        "partition": st.sampled_from([None, "part"]),
        "idle_after": st.sampled_from([None, 30 * SECOND, 100 * SECOND]),
    }
)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    script=st.lists(sourced_steps, min_size=1, max_size=10),
    runs=st.lists(
        st.dictionaries(st.sampled_from(["a", "b", "c"]), settings_of_sources, min_size=2), min_size=1, max_size=3
    ),
    is_typed=st.booleans(),
    group=st.integers(1, 4),
)
def test_generated_sources(script: Sequence[Any], runs: list[dict[str, Any]], is_typed: bool, group: int) -> None:
    """Whatever comes from which source, and whichever sources come and go with restarts: a plain loop says the same."""
    now, transactions = 0, []
    for pause, taken in script:
        now += pause
        transactions.append(Planned(now, taken))
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as folder:
        expected, oracle = [], ClockOfSources()
        for number, each in enumerate(runs, 1):
            first, last = (len(transactions) * part // len(runs) for part in (number - 1, number))
            if first == last:
                continue
            sources = {source: source_time(source, **options) for source, options in each.items()}
            until = None if number == len(runs) else last
            run_sources(Path(folder), transactions, sources, until=until, is_typed=is_typed, group=group)
            expected += [
                oracle.move(planned.rows or (), START + planned.second * SECOND, each)
                for planned in transactions[first:last]
            ]
        found = [(before, after) for before, after, _ in told(Path(folder))]
    in_seconds = [[each and (each - START).total_seconds() for each in pair] for pair in expected]
    assert found == [pytest.approx(tuple(pair)) for pair in in_seconds]
