"""TimerCommitter: what fires when, in which order, once."""

import datetime as dt
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from committers import EventClock, TimerCommitter
from state import DeltaState, read_table
from tests.committers.event_time.scripted import SECOND, START, Planned, Script
from txtopo import Config, FailedException, Fields, TransactionalTopologyBuilder
from txtopo.testing.inline import run_inline

ROWS = Fields("at: timestamp", "key: string", "wait: long")


class Noting(TimerCommitter):
    """Sets a timer for each row, so many seconds after its time, and notes what fires; "again" sets others."""

    failing = False

    def on_rows(self, key: Any, rows: Any, old: Any) -> Any:
        for row in rows:
            self.set_timer(key, row["at"] + row["wait"] * SECOND)
        return old or ""

    def on_timer(self, key: Any, time: dt.datetime, old: Any) -> Any:
        second = round((time - START).total_seconds())
        if key.startswith("again") and second > 0:
            self.set_timer(key, START + (second // 2) * SECOND)
        return f"{old} {second}@{self.attempt.txid}".strip()

    def finish_batch(self) -> None:
        super().finish_batch()
        if self.failing and self.attempt.attempt & 0xFFFF <= 1:
            raise FailedException("once")


def fired(
    root: Path,
    *transactions: Planned,
    group: int = 2,
    tasks: int = 2,
    failing: bool = False,
    kind: type[Noting] = Noting,
    **of_clock: Any,
) -> dict[str, str]:
    """Run a committer with timers; return what has fired of each key, as second@txid."""
    script = Script(transactions, ROWS)
    builder = TransactionalTopologyBuilder("timers", "rows", script)
    clock = EventClock("clock", time="at", delay=10 * SECOND, **of_clock)
    builder.set_committer_bolt("clock", clock).global_grouping("rows")
    builder.set_state("clock", clock.state(root / "clock"))
    committer = kind("values", "timers", clock="clock", key=Fields("key: string"))
    committer.failing = failing
    bolt = builder.set_committer_bolt("noting", committer, tasks)
    bolt.fields_grouping("rows", Fields("key")).all_grouping("clock")
    builder.set_state("values", DeltaState(root / "values", Fields("key: string"), Fields("fired: string")))
    builder.set_state("timers", committer.timers_state(root / "timers"))
    run_inline(builder.build(), Config(group_transactions_max=group), wall_secs=script.wall_secs)
    return {row["key"]: row["fired"] for row in read_table(root / "values").to_pylist()}


def at(second: int, key: str, wait: int) -> tuple[Any, ...]:
    return START + second * SECOND, key, wait


@pytest.mark.few(2)
@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize("group", [1, 4])
def test_when_timers_fire(tmp_path: Path, group: int, failing: bool) -> None:
    """One fires in the transaction whose watermark has reached it, once, in the order of the times."""
    script = (
        Planned(0, [at(20, "a", 30), at(20, "a", 5), at(20, "a", 5), at(20, "b", 25)]),
        Planned(1, [at(35, "c", 100)]),
        Planned(2, [at(60, "c", 100)]),
        Planned(3, [at(61, "b", -30), at(61, "a", 0)]),
    )
    assert fired(tmp_path, *script, group=group, failing=failing) == {"a": "25@2 50@3", "b": "45@3 31@4", "c": ""}


@pytest.mark.parametrize("tasks", [1, 3])
def test_timers_for_times_that_have_passed(tmp_path: Path, tasks: int) -> None:
    """They fire in the same transaction, whether on_rows or on_timer has set them, in whatever task."""
    keys = [f"again-{n}" for n in range(6)]
    script = Planned(0, [at(50, "z", 0)]), Planned(1, [at(40, key, -20) for key in keys]), Planned(2, [at(40, "z", 0)])
    assert fired(tmp_path, *script, tasks=tasks) == dict.fromkeys(keys, "20@2 10@2 5@2 2@2 1@2 0@2") | {"z": "40@3"}


class Stepping(Noting):
    """Each timer sets another one for a second later, up to second 26."""

    def on_timer(self, key: Any, time: dt.datetime, old: Any) -> Any:
        if time < START + 26 * SECOND:
            self.set_timer(key, time + SECOND)
        return super().on_timer(key, time, old)


def test_timers_between_others(tmp_path: Path) -> None:
    """One that has passed when on_timer sets it has its turn by its time: before a later one, and once with it."""
    script = Planned(0, [at(20, "a", 1), at(20, "a", 4), at(20, "b", 5)]), Planned(1, [at(60, "z", 100)])
    found = fired(tmp_path, *script, kind=Stepping)
    assert found == {"a": "21@2 22@2 23@2 24@2 25@2 26@2", "b": "25@2 26@2", "z": ""}


class Ticking(Noting):
    """Counts what has fired; each timer sets the next one."""

    def on_timer(self, key: Any, time: dt.datetime, old: Any) -> Any:
        if len(old or "") > 20:
            pytest.fail("it sets timers for ever")
        self.set_timer(key, time + SECOND)
        return f"{old or ''}."


def test_timers_that_set_others_after_the_end(tmp_path: Path) -> None:
    """A timer that is set once all times have passed fires, and those that it sets do not, in whatever task."""
    rows = [at(0, key, 0) for key in "abcdef"]
    for script in ([Planned(0, rows)], [Planned(0, rows), Planned(1, None), Planned(2, rows)]):
        found = fired(tmp_path, *script, kind=Ticking, close_at_end=True)
    assert found == dict.fromkeys("abcdef", "..")


class ByHour(TimerCommitter):
    """Counts the rows of each hour, which a timer ends."""

    def on_rows(self, key: Any, rows: Any, old: Any) -> Any:
        self.set_timer(rows[0]["hour"], START)
        return f"{old or ''}{len(rows)} "

    def on_timer(self, key: Any, time: dt.datetime, old: Any) -> Any:
        return f"{old}fired"


def test_keys_when_clocks_go_back(tmp_path: Path) -> None:
    """Hours that clocks show twice are two keys, with a timer each, though Python takes them for equal."""
    hours = [dt.datetime(2026, 10, 25, 2, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold) for fold in (0, 1)]
    rows = [(START + 100 * SECOND, hour) for hour in (*hours, hours[1])]
    script = Script([Planned(0, rows[:1]), Planned(1, rows)], Fields("at", "hour"))
    builder = TransactionalTopologyBuilder("timers", "rows", script)
    clock = EventClock("clock", time="at", delay=SECOND)
    builder.set_committer_bolt("clock", clock).global_grouping("rows")
    builder.set_state("clock", clock.state(tmp_path / "clock"))
    committer = ByHour("values", "timers", clock="clock", key=Fields("hour: timestamp"))
    builder.set_committer_bolt("hours", committer).fields_grouping("rows", Fields("hour")).all_grouping("clock")
    builder.set_state("values", DeltaState(tmp_path / "values", Fields("hour: timestamp"), Fields("n: string")))
    builder.set_state("timers", committer.timers_state(tmp_path / "timers"))
    run_inline(builder.build(), wall_secs=script.wall_secs)
    values = {row["hour"].hour: row["n"] for row in read_table(tmp_path / "values").to_pylist()}
    assert values == {0: "1 fired1 fired", 1: "2 fired"}
