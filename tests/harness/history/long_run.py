"""Let one run make a million transactions of one tuple each, on a simulated clock, and print what grows.

A transaction comes each 10 ms of the clock, so what is recent, the points, checkpoints and clean-ups of hours are in it.
"""

import gc
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, Self

import attrs
import click

from committers import ReduceCommitter
from state import DeltaState
from tests.harness.benchmarks.memory import resident_mib
from tests.harness.history.clock import SimulatedClock
from txtopo import (
    BatchOutputCollector,
    Coordinator,
    Emitter,
    Fields,
    TopologyContext,
    TransactionalSpout,
    TransactionalTopologyBuilder,
    TransactionAttempt,
)
from txtopo.testing.inline import run_inline

COST_MAX = 1.05
"""What a transaction of the last window may cost, by one of the first, on the line through those of all windows: of one
window it is up to twice as much while others use the cores."""

MIB_MORE_MAX = 32.0
"""How much more memory may be resident at the end than after the first window."""

STEP_SECS = 0.01
"""From one transaction to the next, by the clock."""

KEYS = 1_000
_CLOCK_EVERY = 500
"""The clock goes on after so many transactions at once: it remembers each of its steps."""


@attrs.frozen
class Window:
    """What a run is like after some transactions, and what they took."""

    last: int
    cost: float
    """The processor time of a transaction in µs, of all threads of the process, or how many functions it calls."""
    resident_mib: float
    objects: int
    """The blocks of memory that Python has allocated, about one for each object that is not garbage."""
    threads: int
    descriptors: int
    files: int
    """Those below the topology's folder."""


class Calls:
    """Counts the calls of functions, of Python's and of C's, in this thread and in those that begin in its context."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        for profiled in (threading, sys):
            profiled.setprofile(self._tell)
        return self

    def __exit__(self, *_: object) -> None:
        for profiled in (threading, sys):
            profiled.setprofile(None)

    def _tell(self, _frame: FrameType, event: str, _argument: Any) -> None:
        if event in {"call", "c_call"}:
            self.count += 1


@attrs.define(eq=False)
class Windows:
    """The windows of a run, each measured as the next one begins."""

    folder: Path
    clock: SimulatedClock
    size: int
    calls: Calls | None = None
    """What the cost of a transaction is counted by; None: it is the processor time."""
    done: list[Window] = attrs.field(factory=list)
    _spent_before: float = attrs.field(default=attrs.Factory(lambda self: self._spent(), takes_self=True))

    def _spent(self) -> float:
        return time.process_time() * 1e6 if self.calls is None else self.calls.count

    def pass_one(self, txid: int) -> None:
        """Take note that a transaction begins."""
        if txid % _CLOCK_EVERY == 0:
            self.clock.go_on(_CLOCK_EVERY * STEP_SECS)
        if txid > 1 and (txid - 1) % self.size == 0:
            self._end(txid - 1)

    def _end(self, last: int) -> None:
        cost = (self._spent() - self._spent_before) / self.size
        descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
        files = sum(len(names) for *_, names in os.walk(self.folder))
        gc.collect()  # what is garbage by now would count until the next full collection, some 40,000 transactions on
        # Not by gc.get_objects(), which refers to each of them: a tuple that another thread is making at that moment may
        # then not be resized, and that thread gets a SystemError.
        seen = resident_mib(), sys.getallocatedblocks(), threading.active_count(), descriptors, files
        self.done.append(Window(last, cost, *seen))
        what, unit = ("CPU each", " µs") if self.calls is None else ("calls each", "")
        if len(self.done) == 1:
            _say(f"{'transactions':>12} {what:>10} {'MiB':>6} {'objects':>9} {'threads':>7} {'fds':>5} {'files':>7}")
        each = f"{cost:,.0f}{unit}"
        _say(f"{last:12,} {each:>10} {seen[0]:6.0f} {seen[1]:9,} {seen[2]:7} {seen[3]:5} {seen[4]:7,}")
        self._spent_before = self._spent()  # to look costs no transaction anything


def _say(text: str) -> None:
    click.echo(text, file=sys.__stdout__)  # what a coordinator prints on the other one has its name in front


class _Numbers(Coordinator):
    def __init__(self, transactions: int, windows: Windows) -> None:
        self._transactions = transactions
        self._windows = windows
        self._last = 0

    def resume(self, txid: int, metadata: Any) -> None:
        self._last = txid

    def initialize_transaction(self, txid: int, previous_metadata: Any) -> int:
        self._last = txid
        self._windows.pass_one(txid)
        return txid

    def is_exhausted(self) -> bool:
        return self._last >= self._transactions


class _One(Emitter):
    def emit_batch(self, attempt: TransactionAttempt, metadata: int, collector: BatchOutputCollector) -> None:
        collector.emit((attempt, metadata % KEYS, 1))


class _Spout(TransactionalSpout):
    output_fields = Fields("attempt", "id: long", "n: long")

    def __init__(self, transactions: int, windows: Windows | None) -> None:
        self._transactions = transactions
        self._windows = windows

    def __reduce__(self) -> Any:  # the tasks need no clock
        return _Spout, (self._transactions, None)

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        assert self._windows is not None, "coordinators are made in the driver"
        return _Numbers(self._transactions, self._windows)

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        return _One()


def long_run(folder: Path, transactions: int, window: int, calls: Calls | None = None) -> list[Window]:
    """Make transactions in one run; return its windows."""
    clock = SimulatedClock(time.time() - transactions * STEP_SECS)
    windows = Windows(folder, clock, window, calls)
    builder = TransactionalTopologyBuilder("long", "ones", _Spout(transactions + 1, windows), 1)
    builder.set_committer_bolt("sum", ReduceCommitter("sums", "id", "n"), 1).fields_grouping("ones", Fields("id"))
    builder.set_state("sums", DeltaState(folder / "sums", Fields("id: long"), Fields("n: long")))
    with clock.instead_of_the_real_one():
        run_inline(builder.build(), {"topology.message.timeout.secs": 3_600}, slots=1, wall_secs=lambda: clock.now_secs)
    return windows.done


def broken(windows: list[Window]) -> list[str]:
    """Compare the last window with the first, and print how; return in words what is too much."""
    first, last = windows[0], windows[-1]
    line = statistics.linear_regression([window.last for window in windows], [window.cost for window in windows])
    on_line = [line.intercept + line.slope * each.last for each in (first, last)]
    share, more_mib = on_line[1] / on_line[0], last.resident_mib - first.resident_mib
    click.echo(
        f"the last {last.last // len(windows):,} transactions cost {share:.2f} of the first; {more_mib:+.0f} MiB; "
        f"{last.objects - first.objects:+,} objects"
    )
    found = ["the cost of a transaction"] if share > COST_MAX else []
    return found + (["memory"] if more_mib > MIB_MORE_MAX else [])


@click.command()
@click.option("--transactions", default=1_000_000, show_default=True, type=click.IntRange(2))
@click.option("--window", default=10_000, show_default=True, type=click.IntRange(1), help="Transactions of a line.")
@click.option("--calls", is_flag=True, help="Count calls of functions, which no load changes, and not processor time.")
def main(transactions: int, window: int, *, calls: bool) -> None:
    """Make transactions in one run, without Spark; fail if the last ones cost more than the first."""
    with tempfile.TemporaryDirectory(prefix="txtopo-long-run-") as scratch, Calls() if calls else nullcontext() as told:
        found = broken(long_run(Path(scratch), transactions, window, told))
    if found:
        click.echo(f"too much: {', '.join(found)}")
        sys.exit(1)


if __name__ == "__main__":
    main()
