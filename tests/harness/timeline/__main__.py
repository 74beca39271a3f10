"""Give a timeline the events of a busy run, and print what its observer and its thread cost.

``python -m tests.harness.timeline [TRANSACTIONS_A_SECOND [SECONDS]]``: as many transactions with two tables, in jobs and
groups of ten, as a run would report them. The observer's time is that of the run loop's thread, the thread's that of
the process without it; both as a share of a core.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.acceptance.topologies import make_data, words_topology
from tests.waiting import wait_for
from txtopo import Config
from txtopo.api.components.planned import NEVER
from txtopo.assembly.report import Progress
from txtopo.attempts import TransactionAttempt
from txtopo.engine.timeline.observer import Timeline
from txtopo.engine.timeline.records import path_of
from txtopo.transactional.core.actions import AssignedAttempt, Commit, Process, SaveMetadata
from txtopo.transactional.core.events import TransactionMetadata
from txtopo.transactional.core.measures import Measures, StateWrite
from txtopo.transactional.core.record.facts import Fact, carried_out, of_attempts
from txtopo.transactional.core.record.history import HistoryEvent
from txtopo.transactional.core.record.record import Record

GROUP = 10


def reports_of(timeline: Timeline, record: Record, number: int) -> list[Callable[[], None]]:
    """Return the calls that report a job and commit group of ten transactions."""
    first = number * GROUP + 1
    assigned = tuple(AssignedAttempt(TransactionAttempt(first + at, 1), {}, NEVER) for at in range(GROUP))
    attempts = tuple(each.attempt for each in assigned)
    txids = tuple(attempt.txid for attempt in attempts)
    begun = tuple(TransactionMetadata(txid, {}, NEVER) for txid in txids)
    now = time.monotonic()
    write = StateWrite((now - 0.03, now - 0.02), (now - 0.02, now), 120, 0)

    def note(fact: Fact) -> None:
        record.add(fact)
        timeline.recorded(fact)

    facts = [
        Fact(now, HistoryEvent.BEGUN, txids, planned_ms=(0,) * GROUP),
        carried_out(now, SaveMetadata(begun)),
        carried_out(now, Process(number + 1, assigned, {})),
        of_attempts(now, HistoryEvent.PROCESSED, attempts, tuples=(500,) * GROUP),
        carried_out(now, Commit(number + 1, assigned)),
    ]
    measures = Measures(dict.fromkeys(("counts", "buckets"), write))
    facts.append(of_attempts(now, HistoryEvent.COMMITTED, attempts, measures=measures))
    return [partial(note, fact) for fact in facts]


def progress(committed: int, elapsed: float) -> Progress:
    """Return what the run loop would report."""
    return Progress("words", committed, 10, 10, 10, 10, "processing", committed, 0, 500 * committed, 0, elapsed)


def fed(timeline: Timeline, rate: int, secs: float) -> tuple[int, float]:
    """Report transactions at a rate; return how many, and the observer's processor time."""
    began, observed, record = time.monotonic(), 0.0, Record()
    timeline.began(record, lambda: 0)
    numbers = int(rate * secs / GROUP)
    for number in range(numbers):
        ahead = began + number * GROUP / rate - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
            timeline.progressed(progress(number * GROUP, time.monotonic() - began))
        reports = reports_of(timeline, record, number)
        before = time.thread_time()
        for report in reports:
            report()
        observed += time.thread_time() - before
    return numbers * GROUP, observed


def main(rate: int, secs: float) -> None:
    """Measure, and print the shares."""
    with tempfile.TemporaryDirectory() as scratch:
        topology = words_topology(scratch, make_data(2, 20))
        folder = Path(scratch) / "timeline"
        with Timeline(topology, Config(), folder) as timeline:
            timeline.leads("measured", 1)
            # What it costs to begin is no share of a run's time.
            wait_for("the timeline has begun", path_of(folder, 1, "run").exists)
            began, cpu_began, own_began = time.monotonic(), time.process_time(), time.thread_time()
            count, observed = fed(timeline, rate, secs)
            elapsed, cpu = time.monotonic() - began, time.process_time() - cpu_began
            others = cpu - (time.thread_time() - own_began)
            print(f"{count} transactions in {elapsed:.1f} s: {count / elapsed:.0f} a second")
            print(f"run loop's thread: {100 * observed / elapsed:.2f} % of a core")
            print(f"timeline's thread: {100 * others / elapsed:.2f} % of a core")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500, float(sys.argv[2]) if len(sys.argv) > 2 else 20.0)
