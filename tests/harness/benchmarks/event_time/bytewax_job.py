"""Windows in bytewax, in one process, without recovery. Its own environment runs this file as a script.

Arguments: the folder of the transactions, the file for the closed windows, the delay and the size of a window in seconds.
It prints the seconds from the start of the flow to its end.

Two options make bytewax quicker and change no answer: events of a key are folded in the order in which they come, and
watermarks move by event times only, not by the time that passes while it runs. The latter also makes its answers the
same in each run.
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from pathlib import Path

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

BATCH = 1_000
"""Rows that bytewax is given at a time."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class _Rows(StatelessSourcePartition):
    def __init__(self, folder: Path) -> None:
        self._batches = self._read(folder)

    def next_batch(self) -> list:
        return next(self._batches)

    @staticmethod
    def _read(folder: Path):
        for path in sorted(folder.glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(BATCH):
                keys, times, values = (column.to_pylist() for column in batch.columns)
                yield list(zip(keys, zip(times, values, strict=True), strict=True))


class _Source(DynamicSource):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Rows:
        return _Rows(self._folder)


class _Collect(StatelessSinkPartition):
    def __init__(self, items: list) -> None:
        self._items = items

    def write_batch(self, items: list) -> None:
        self._items.extend(items)


class _Sink(DynamicSink):
    def __init__(self, items: list) -> None:
        self._items = items

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Collect:
        return _Collect(self._items)


def _added(sums: tuple, event: tuple) -> tuple:
    return sums[0] + 1, sums[1] + event[1]


def main(folder: str, output: str, delay_secs: str, window_secs: str) -> None:
    size = dt.timedelta(seconds=int(window_secs))
    clock = win.EventClock(
        lambda event: event[0],
        dt.timedelta(seconds=int(delay_secs)),
        now_getter=lambda: _EPOCH,
        to_system_utc=lambda _: None,
    )
    closed: list = []
    flow = Dataflow("windows")
    events = op.input("events", flow, _Source(Path(folder)))
    windows = win.fold_window(
        "windows",
        events,
        clock,
        win.TumblingWindower(length=size, align_to=_EPOCH),
        lambda: (0, 0),
        _added,
        lambda one, other: (one[0] + other[0], one[1] + other[1]),
        ordered=False,
    )
    op.output("closed", windows.down, _Sink(closed))
    started = time.perf_counter()
    run_main(flow)
    secs = time.perf_counter() - started
    table = pa.table(
        {
            "key": pa.array([key for key, _ in closed], pa.string()),
            # Windows are numbered from the epoch on, because they are aligned to it.
            "start": pa.array([_EPOCH + number * size for _, (number, _) in closed], pa.timestamp("us", tz="UTC")),
            "events": pa.array([sums[0] for _, (_, sums) in closed], pa.int64()),
            "total": pa.array([sums[1] for _, (_, sums) in closed], pa.int64()),
        }
    )
    pq.write_table(table, output)
    print(secs)


if __name__ == "__main__":
    main(*sys.argv[1:])
