"""Generated events, and the answers of one-minute windows over them.

What is late depends on when a watermark moves, and systems differ in that. So the answers are calculated for each
contender by its own rule, in numpy and Arrow, from the events alone:

    ============================  =========================================  ==================================
    rule                          an event of batch N is too late if         windows that are closed in the end
    ============================  =========================================  ==================================
    ``AfterBatches(1)``: txtopo   its window ends at or before W(N-1)        those that end at or before W(last)
    ``AfterBatches(2)``: Spark    its window ends at or before W(N-2)        those that end at or before W(last)
    ``AfterEvents``: bytewax      its time is before the watermark of its    all, because bytewax closes them at
                                  key after the events before it             the end of its input
    ============================  =========================================  ==================================

W(N) is the largest event time of batches 1 to N less the delay. Spark calculates a batch's watermark when the batch has
ended, so windows that end at or before W(N-1) are closed by batch N. What batch N brings for them still counts, and
what is late is judged by the watermark that has closed windows before: W(N-2).
"""

from __future__ import annotations

from typing import Protocol

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

EVENTS = 2_000_000
KEYS = 1_000
DELAY_SECS = 60
WINDOW_SECS = 60
LATE_SHARE = 0.05
FAR_SHARE = 0.01

TIMESTAMP = pa.timestamp("us", tz="UTC")

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z, where a window begins
_NEVER = np.iinfo(np.int64).min


@attrs.frozen
class Events:
    """Events of some keys, with times that go on evenly over ``minutes``; 5 % of them come late.

    Event number i of n is due at ``minutes * i / n``. Of all events, 4 % are up to the delay older than that, evenly;
    and 1 % have any time between the start and then, so most of these come later than the delay. Each is drawn from
    ``seed`` and the same for everyone. Times are whole milliseconds, as Spark's watermarks are.
    """

    count: int
    minutes: int
    keys: int = KEYS
    seed: int = 4

    def table(self) -> pa.Table:
        """Return the events in the order in which they come: key, at and value."""
        drawing = np.random.default_rng((self.seed, self.count, self.minutes))
        due = np.arange(self.count) * (self.minutes * 60_000) // self.count
        kind = drawing.random(self.count)
        back = drawing.random(self.count)
        late = np.where(kind < FAR_SHARE, due, np.minimum(due, DELAY_SECS * 1000)) * (kind < LATE_SHARE)
        at_us = (START_MS + due - (late * back).astype(np.int64)) * 1000
        names = pa.array([f"k{key}" for key in range(self.keys)])
        return pa.table(
            {
                "key": names.take(pa.array(drawing.integers(self.keys, size=self.count))),
                "at": pa.array(at_us).cast(TIMESTAMP),
                "value": pa.array(drawing.integers(1, 100, size=self.count)),
            }
        )


class LateRule(Protocol):
    """Says which events are too late for their windows, and up to when windows are closed in the end."""

    def judge(self, events: pa.Table, ends: np.ndarray) -> tuple[np.ndarray, int | None]:
        """Return whether each event is too late, and the last watermark in microseconds.

        ``ends`` are the ends of the events' windows. None: all windows are closed.
        """


@attrs.frozen
class AfterBatches:
    """A window is closed for what comes ``lag`` batches after the watermark has passed its end.

    Args:
        rows: the number of events in a batch.
        lag: 1 for txtopo, 2 for Structured Streaming.
        delay_secs: the delay of the watermark.
    """

    rows: int
    lag: int
    delay_secs: int = DELAY_SECS

    def judge(self, events: pa.Table, ends: np.ndarray) -> tuple[np.ndarray, int | None]:
        """Judge by the watermark after an earlier batch."""
        firsts = np.arange(0, len(ends), self.rows)
        watermarks = np.maximum.accumulate(np.maximum.reduceat(_micros(events), firsts)) - self.delay_secs * 1_000_000
        judging = np.concatenate([np.full(self.lag, _NEVER), watermarks])[: len(firsts)]
        return ends <= judging[np.arange(len(ends)) // self.rows], int(watermarks[-1])


@attrs.frozen
class AfterEvents:
    """Each key has a watermark, which moves with each of its events; an event before it is late, window or not."""

    def judge(self, events: pa.Table, ends: np.ndarray) -> tuple[np.ndarray, int | None]:
        """Judge by the key's events before."""
        del ends
        times = _micros(events)
        codes = events["key"].combine_chunks().dictionary_encode().indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        is_late = np.zeros(len(times), dtype=bool)
        for own in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
            is_late[own] = times[own] < np.maximum.accumulate(times[own]) - DELAY_SECS * 1_000_000
        return is_late, None


@attrs.frozen
class Answers:
    """What windows say by some rule.

    Args:
        windows: key, start, events and total of each closed window, sorted.
        late: the number of events that came too late.
    """

    windows: pa.Table
    late: int


COLUMNS = ("key", "start", "events", "total")
"""The columns of an answer."""


def answers(events: pa.Table, rule: LateRule) -> Answers:
    """Return what one-minute windows of each key say about events in the order in which they come."""
    window_us = WINDOW_SECS * 1_000_000
    times = _micros(events)
    starts = times - times % window_us
    is_late, watermark = rule.judge(events, starts + window_us)
    is_closed = ~is_late if watermark is None else ~is_late & (starts + window_us <= watermark)
    counted = pa.table(
        {"key": events["key"], "start": pa.array(starts).cast(TIMESTAMP), "value": events["value"]}
    ).filter(pa.array(is_closed))
    sums = counted.group_by(["key", "start"]).aggregate([("value", "count"), ("value", "sum")])
    return Answers(_sorted(sums.select(["key", "start", "value_count", "value_sum"])), int(is_late.sum()))


class WrongAnswersError(Exception):
    """A contender says something else than the events, so none of its figures counts."""


def check_windows(who: str, found: pa.Table, expected: Answers) -> None:
    """Compare every closed window of ``who`` with those expected; ``found`` has the columns of an answer by name.

    Raises:
        WrongAnswersError: a window is missing, doubled, closed too early, or has another count or total.
    """
    windows = _sorted(found.select(list(COLUMNS)))
    if windows.equals(expected.windows):
        return
    ours, theirs = expected.windows.num_rows, windows.num_rows
    keys = ["key", "start"]
    both = expected.windows.join(windows, keys, join_type="full outer", right_suffix="_found")
    is_same = pc.and_(pc.equal(both["events"], both["events_found"]), pc.equal(both["total"], both["total_found"]))
    wrong = both.filter(pc.invert(pc.fill_null(is_same, False)))
    raise WrongAnswersError(
        f"{who}: {theirs:,} windows instead of {ours:,}, {wrong.num_rows:,} differ, such as {wrong.slice(0, 5).to_pylist()}"
    )


def check_rows(who: str, found: pa.Table, expected: pa.Table, by: str) -> None:
    """Compare every row of ``who`` with those expected, sorted by a column that has each value once.

    Raises:
        WrongAnswersError: a row is missing, doubled or different.
    """
    rows = found.select(expected.column_names).cast(expected.schema).sort_by(by)
    if not rows.equals(expected.sort_by(by)):
        distinct = pc.count_distinct(rows[by]).as_py()
        raise WrongAnswersError(
            f"{who}: {rows.num_rows:,} rows, of {distinct:,} values of {by}, are not the {expected.num_rows:,} expected"
        )


def _micros(events: pa.Table) -> np.ndarray:
    return events["at"].cast(pa.int64()).to_numpy()


def _sorted(windows: pa.Table) -> pa.Table:
    schema = pa.schema([("key", pa.string()), ("start", TIMESTAMP), ("events", pa.int64()), ("total", pa.int64())])
    return windows.rename_columns(list(COLUMNS)).cast(schema).sort_by([("key", "ascending"), ("start", "ascending")])
