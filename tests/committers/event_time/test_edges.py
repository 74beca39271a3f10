"""Committers of event time at the ends of time: the years 1 and 9999, times beyond, and durations that are for ever."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from committers import Days, Deduplicate, Hours, Sessions, Sliding, Tumbling
from committers.event_time.timed import with_ahead
from committers.event_time.times import MICROS_MAX
from state import read_table
from tests.committers.event_time.scripted import SECOND, START, Planned, Script, rows_of, run_timed
from tests.committers.event_time.test_windowed import ROWS, at, counting
from txtopo import ArrowBatchBolt, Fields
from txtopo.api.data.utc import MICROS_MIN, datetime_at

FOR_EVER = dt.timedelta.max
DAY = dt.timedelta(days=1)

IN_TIME = [MICROS_MIN, MICROS_MAX - 999_999, MICROS_MAX, -(1 << 63), MICROS_MIN - 1]
"""The first moment of the year 1, the last second of the year 9999, its last moment, and times before the first one."""

TOO_FAR = [MICROS_MAX + 1, (1 << 63) - 1]


class Times(ArrowBatchBolt):
    """Converts numbers of microseconds, in which any time may be written, to timestamps."""

    output_fields = Fields("attempt", "at: timestamp", "key: string", "n: long")

    def execute(self, batch):
        at = batch.schema.get_field_index("at")
        self.collector.emit_batch(batch.set_column(at, "at", batch["at"].cast(pa.timestamp("us", "UTC"))))


def run_edges(root: Path, committer: Any, **of_clock: Any) -> dict[str, list[dict[str, Any]]]:
    """Run a committer over the ends of time, a key for each; return what it says, and what it has left."""
    rows = [(time, f"{time}", 1) for time in (*IN_TIME, *TOO_FAR)]
    script = Script([Planned(0, rows)], Fields("at: long", "key: string", "n: long"))
    run_timed(root, script, committer, above=Times(), close_at_end=True, **of_clock)
    return {name: read_table(root / name).to_pylist() for name in ("default", "late", "untimed", "windows")}


@pytest.mark.few(1)
@pytest.mark.covering(2)
@pytest.mark.parametrize("late_rows", [None, ROWS], ids=["reduced", "whole"])
@pytest.mark.parametrize(
    "window",
    [
        Tumbling(10 * SECOND),
        Tumbling(7 * DAY),
        Tumbling(FOR_EVER),
        Sliding(10 * DAY, 5 * DAY),
        Sessions(DAY),
        Sessions(FOR_EVER),
        Days(),
        Days("Pacific/Apia"),
        Days("America/New_York"),
        Hours("Asia/Kolkata"),
    ],
    ids=str,
)
@pytest.mark.parametrize("lateness", [0, 3])
def test_windows(tmp_path: Path, window: Any, late_rows: Any, lateness: int) -> None:
    """Each is said at the end, with times that Python can read; what is after the year 9999 is late."""
    found = run_edges(tmp_path, counting(window, lateness, late_rows=late_rows))
    windows = 2 if isinstance(window, Sliding) and not isinstance(window, Tumbling) else 1
    assert sorted(row["key"] for row in found["default"]) == sorted(map(str, IN_TIME * windows))
    assert sorted(row["key"] for row in found["late"]) == sorted(map(str, TOO_FAR * windows))
    assert found["windows"] == []
    for row in (*found["default"], *found["late"]):
        time = datetime_at(min(max(int(row["key"]), MICROS_MIN), MICROS_MAX))
        assert row["window_start"] <= time <= row["window_end"]
        assert row.get("at", time) == time


def test_deduplication(tmp_path: Path) -> None:
    """Each key is passed on, and forgotten at the end; what is after the year 9999 is late."""
    committer = Deduplicate("windows", clock="clock", time="at", key="key", within=FOR_EVER, fields=ROWS)
    found = run_edges(tmp_path, committer)
    assert sorted(row["key"] for row in found["default"]) == sorted(map(str, IN_TIME))
    assert {row["key"]: row["at"] for row in found["late"]} == dict.fromkeys(map(str, TOO_FAR), datetime_at(MICROS_MAX))
    assert found["windows"] == []


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "of_clock", [{"delay": FOR_EVER}, {"idle_after": FOR_EVER}, {"ahead_max": FOR_EVER, "delay": DAY}], ids=str
)
def test_for_ever(tmp_path: Path, of_clock: dict[str, Any]) -> None:
    """``timedelta.max`` is for ever: nothing closes until the end, and nothing is late or too far ahead."""
    script = [Planned(0, [at(1), at(5e9)]), Planned(1, [at(2), at(1e9)])]
    committer = counting(Tumbling(10 * SECOND), FOR_EVER // SECOND)
    run_timed(tmp_path, Script(script, ROWS), committer, close_at_end=True, **of_clock)
    expected = [(3, 0, 10, 2), (3, 1e9, 1e9 + 10, 1), (3, 5e9, 5e9 + 10, 1)]
    assert rows_of(tmp_path, "default", "txid", "window_start", "window_end", "n") == expected
    assert rows_of(tmp_path, "late") == []


@pytest.mark.slow
def test_after_the_end_all_is_late(tmp_path: Path) -> None:
    """Whatever comes once a source has ended is late, a row of the last moment, too, whatever the lateness."""
    script = [Planned(0, [at(1)]), Planned(1, None), Planned(2, [at(1), (datetime_at(MICROS_MAX), "k", 1)])]
    for until in (2, 3):
        run_timed(
            tmp_path, Script(script[: until - (until == 2)], ROWS), counting(Tumbling(DAY), 9e9), close_at_end=True
        )
    assert len(rows_of(tmp_path, "default")) == 1
    assert rows_of(tmp_path, "late", "txid", "n") == [(3, 1), (3, 1)]


@pytest.mark.slow
def test_a_row_of_the_last_moment_is_not_the_end(tmp_path: Path) -> None:
    """A watermark that has come to the last moment is not after all times: a lateness still holds windows open."""
    last = (datetime_at(MICROS_MAX), "k", 1)
    script = [Planned(0, [last]), Planned(1, [last, (datetime_at(MICROS_MAX - 90_000_000), "k", 2)])]
    committer = counting(Tumbling(60 * SECOND), 600)
    run_timed(tmp_path, Script(script, ROWS), committer, delay=dt.timedelta())
    assert rows_of(tmp_path, "default") == []
    assert rows_of(tmp_path, "late") == []
    run_timed(tmp_path, Script(script, ROWS), committer, delay=dt.timedelta(), close_at_end=True)
    assert rows_of(tmp_path, "default", "txid", "n") == [(3, 2), (3, 2)]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("s", "UTC")])
def test_times_beyond_keep_their_type(kind: pa.DataType) -> None:
    """A field without a zone is still one where a row of it has the first or the last moment instead of its time."""
    seconds = [MICROS_MIN // 10**6 - 1, 0, MICROS_MAX // 10**6 + 1]
    column = pa.array(seconds, pa.timestamp("s")).cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
    rows, times = with_ahead(pa.table({"at": column}), "at", START)
    assert rows["at"].type == kind
    assert times.cast(pa.int64()).to_pylist() == [MICROS_MIN, 0, MICROS_MAX]
    assert rows["at"].cast(pa.timestamp("us")).cast(pa.int64())[1].as_py() == 0
