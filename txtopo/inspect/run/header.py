"""The status of a topology in figures: from its snapshot and its timeline."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from txtopo.assembly.snapshot import Snapshot, TransactionSnapshot, Writer
from txtopo.attempts import epoch_and_try
from txtopo.engine.timeline import records
from txtopo.inspect.run.failures import is_current, last_failed_at, last_failure
from txtopo.inspect.run.known import KnownRun, is_live, status_of
from txtopo.inspect.run.status import (
    Can,
    ComponentCounts,
    HasTimeline,
    Header,
    Latency,
    Lowest,
    Pending,
    Process,
    Rates,
    Roots,
    Run,
    Summary,
    Topology,
    Workers,
)
from txtopo.inspect.timeline.series import PHASES, last_number, rate
from txtopo.text.secrecy import without_secrets
from txtopo.transactional.core.record.history import HistoryEvent, first_line
from txtopo.transactional.core.transitions import Status

RATE_SECS = 10.0
"""Rates are those of so many seconds."""

# Places in samples, by the name in an answer.
_TOTALS = {
    "transactions": records.OfProgress.TRANSACTIONS,
    "dead_letters": records.OfProgress.DEAD_LETTERS,
    "attempts": records.OfProgress.ATTEMPTS,
    "failures": records.OfProgress.FAILURES,
    "tuples": records.OfProgress.TUPLES,
}
_ROOTS = {
    "emitted": records.OfRoots.EMITTED,
    "acked": records.OfRoots.ACKED,
    "failed": records.OfRoots.FAILED,
    "pending": records.OfRoots.PENDING,
}
_COUNTS = {component.name.lower(): component for component in records.OfComponent}


def summary(known: KnownRun) -> Summary:
    """Return a topology's line in the list of all."""
    return Summary(**attrs.asdict(_named(known), recurse=False), rate=_rates(known).transactions)


def _named(known: KnownRun) -> Topology:
    word, text = status_of(known)
    errors = known.timeline.errors()
    kind, at = (records.ROOTS, records.OfRoots.LAG) if known.is_plain else (records.PROGRESS, records.OfProgress.LAG)
    files = known.timeline.last(records.LAG).get("")
    return Topology(
        known.slug,
        known.id,
        "plain" if known.is_plain else "transactional",
        status=word,
        status_text=text,
        committed=_committed(known),
        lag=_last_whole(known.timeline.last(kind).get(""), at),
        lag_files=_last_whole(files, records.OfLag.FILES),
        lag_bytes=_last_whole(files, records.OfLag.BYTES),
        last_error=first_line(without_secrets(errors[-1].text)) if errors else None,
        started_at=None if known.run is None else known.run.started_secs,
        updated_at=known.updated_secs,
    )


def header(known: KnownRun, can: Can = Can()) -> Header:  # noqa: B008 - frozen
    """Return what a topology's header shows."""
    writer, snapshot = known.last_writer, known.snapshot
    driver = known.timeline.last(records.DRIVER).get("")
    roots = known.timeline.last(records.ROOTS).get("")
    progress = known.timeline.last(records.PROGRESS).get("")
    if known.is_plain:
        latency = Latency(last_number(roots, records.OfRoots.P50), last_number(roots, records.OfRoots.P99))
    else:
        latency = Latency(last_number(driver, records.OfDriver.P50), last_number(driver, records.OfDriver.P99))
    is_there = known.timeline.is_there
    workers = None
    if roots is not None:
        workers = Workers(
            wanted=last_number(roots, records.OfRoots.WORKERS),
            running=last_number(roots, records.OfRoots.WORKERS_RUNNING),
            restarts=last_number(roots, records.OfRoots.RESTARTS),
            killed=last_number(driver, records.OfDriver.WORKERS_KILLED),
            cpu_secs=last_number(roots, records.OfRoots.WORKERS_CPU_SECS),
        )
    return Header(
        **attrs.asdict(_named(known), recurse=False),
        **_wholes(progress, _TOTALS),
        pending=None if progress is None else Pending(**_wholes(progress, PHASES)),
        remaining=_last_whole(progress, records.OfProgress.REMAINING),
        now=time.time(),
        past=known.past,
        ended_at=known.updated_secs if known.ended else None,
        process=None if writer is None else Process(writer.pid, writer.host, writer.epoch, writer.is_alive),
        begun=_begun(known),
        rate=_rates(known),
        latency=latency,
        lowest=None if snapshot is None or not is_live(known) else _lowest(snapshot, known.writer),
        last_failure=last_failure(known),
        is_failing=is_current(known, last_failed_at(known)),
        timeline=HasTimeline(is_there, "" if is_there else _why_none(known)),
        damage=[text for text in (known.damage, *map(known.timeline.damage, records.FILES)) if text],
        can=can,
        roots=None if roots is None else Roots(**_wholes(roots, _ROOTS)),
        workers=workers,
        components=components(known),
    )


def components(known: KnownRun) -> list[ComponentCounts]:
    """Return what each component has counted since the run began."""
    last = known.timeline.last(records.COMPONENT)
    return [ComponentCounts(id=name, **counts_of(row)) for name, row in last.items()]


def counts_of(row: Any) -> dict[str, float | None]:
    """Return the counts of a component from its last sample."""
    return {name: last_number(row, at) for name, at in _COUNTS.items()}


def run_of(known: KnownRun) -> Run:
    """Return a run's line in the list of all of a topology."""
    shown = header(known)
    fields = {field.name: getattr(shown, field.name) for field in attrs.fields(Run) if field.name != "why"}
    return Run(why=known.ended, **fields)


def _committed(known: KnownRun) -> int | None:
    if known.undone_to is not None:
        return known.undone_to
    if known.snapshot is not None:
        return known.snapshot.committed
    return _last_whole(known.timeline.last(records.PROGRESS).get(""), records.OfProgress.COMMITTED)


def _begun(known: KnownRun) -> int | None:
    """Return the last transaction that has begun: those up to it are committed or pending."""
    if known.undone_to is not None:
        return known.undone_to
    if known.snapshot is not None:
        return known.snapshot.last_begun
    row = known.timeline.last(records.PROGRESS).get("")
    numbers = [_last_whole(row, at) for at in (records.OfProgress.COMMITTED, *PHASES.values())]
    return None if None in numbers else sum(filter(None, numbers))


def _rates(known: KnownRun) -> Rates:
    if not is_live(known):
        return _averages(known)
    if known.is_plain:
        executed = [
            value
            for _, rows in known.timeline.samples(records.COMPONENT, RATE_SECS)
            if (value := rate(rows, records.OfComponent.EXECUTED)) is not None
        ]
        return Rates(last_rate(known, records.ROOTS, records.OfRoots.ACKED), sum(executed) if executed else None)
    return Rates(*(last_rate(known, records.PROGRESS, at) for at in _COMMITTED))


def _averages(known: KnownRun) -> Rates:
    """Return the rates of a whole run that is over."""
    kind, counts = (
        (records.ROOTS, (records.OfRoots.ACKED, records.OfRoots.EMITTED))
        if known.is_plain
        else (records.PROGRESS, _COMMITTED)
    )
    row, run = known.timeline.last(kind).get(""), known.run
    secs = 0.0 if run is None or known.updated_secs is None else known.updated_secs - run.started_secs
    totals = [last_number(row, at) for at in counts]
    return Rates(*(None if total is None or secs <= 0 else total / secs for total in totals))


_COMMITTED = (records.OfProgress.TRANSACTIONS, records.OfProgress.TUPLES)


def last_rate(known: KnownRun, kind: int, at: int) -> float | None:
    """Return how much a number of a sample grows in a second."""
    found = dict(known.timeline.samples(kind, RATE_SECS)).get("")
    return None if found is None else rate(found, at)


def _last_whole(row: Any | None, at: int) -> int | None:
    found = last_number(row, at)
    return None if found is None else int(found)


def _wholes(row: Any | None, places: Mapping[str, int]) -> dict[str, Any]:
    return {name: _last_whole(row, at) for name, at in places.items()}


def _lowest(snapshot: Snapshot, writer: Writer | None) -> Lowest | None:
    if not snapshot.transactions:
        return None
    found = snapshot.transactions[0]
    entries = found.history.entries
    age_secs = 0.0 if writer is None else max(0.0, time.time() - writer.written_secs)
    since = None if not entries else (snapshot.now_ms - entries[-1].at_ms) / 1000 + age_secs
    attempts = [entry.attempt for entry in entries if entry.attempt is not None]
    last = epoch_and_try(attempts[-1].attempt)[1] if attempts else None
    return Lowest(found.txid, found.status, _waits_for(found, snapshot.transactions), since, last)


def _waits_for(found: TransactionSnapshot, pending: Sequence[TransactionSnapshot]) -> str:
    if found.component is not None:
        return f"component {found.component!r}, which is running for it now"
    has_failed = any(entry.what is HistoryEvent.FAILED for entry in found.history.entries)
    return {
        Status.READY.value: "its replay, in one of the next jobs" if has_failed else "one of the next jobs",
        Status.PROCESSING.value: f"its job{_at_work(found, pending)}",
        Status.PROCESSED.value: "its turn to commit, with the next group",
        Status.COMMITTING.value: "the writes of its commit group",
        Status.DEAD.value: "its turn to be given up",
        Status.WRITING_DEAD_LETTER.value: "the write of its dead letter",
    }.get(found.status, "")


def _at_work(found: TransactionSnapshot, pending: Sequence[TransactionSnapshot]) -> str:
    """Name the transaction that holds a job up: a partition processes those of a job one after another."""
    job = _job_of(found)
    for other in pending:
        if other.component is not None and other.status == found.status and job is not None and _job_of(other) == job:
            return f", in which component {other.component!r} is running for transaction {other.txid}"
    return ""


def _job_of(found: TransactionSnapshot) -> int | None:
    jobs = [entry.job_id for entry in found.history.entries if entry.job_id is not None]
    return jobs[-1] if jobs else None


def _why_none(known: KnownRun) -> str:
    writer = known.last_writer
    if writer is not None and writer.is_alive is None:
        if known.ended:
            return f"the run on {writer.host} has left no timeline here"
        return f"the run is on {writer.host}, and keeps its timeline there until it ends"
    return "no run has left a timeline here: it was made by an older version of txtopo"
