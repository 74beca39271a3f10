"""What a topology's header, its errors and its settings show: from its snapshot, its timeline and its settings."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from txtopo.attempts import epoch_and_try
from txtopo.cli.display.wording import clock
from txtopo.cli.explain import SILENT_SECS
from txtopo.cli.settings_command import default_text
from txtopo.config import SETTINGS
from txtopo.engine.timeline.records import COMPONENT, DRIVER, PROGRESS, ROOTS, RunRecord
from txtopo.secrecy import HIDDEN, is_secret, shown, without_secrets
from txtopo.transactional.core.actions import StopReason
from txtopo.transactional.core.history import HistoryEvent, first_line
from txtopo.transactional.core.transitions import Status
from txtopo.transactional.run.snapshot import Snapshot, TransactionSnapshot, Writer
from txtopo.ui.series import known, last_number, rate
from txtopo.ui.slugs import slug_of
from txtopo.ui.timeline import TimelineReader

RATE_SECS = 10.0
"""Rates are those of so many seconds."""

_ORDERLY = {reason.value for reason in StopReason} - {StopReason.FAILED.value}


@attrs.frozen
class Facts:
    """What is known of a topology at one moment."""

    id: str
    timeline: TimelineReader
    run: RunRecord | None
    writer: Writer | None
    snapshot: Snapshot | None

    @property
    def is_plain(self) -> bool:
        """Whether it is a plain topology."""
        return self.run is not None and self.run.kind == "plain"

    @property
    def last_writer(self) -> Writer | None:
        """The process of the last run: that of the snapshot, unless a later run has only begun."""
        if self.run is None or (self.writer is not None and self.writer.epoch >= self.run.writer.epoch):
            return self.writer
        return self.run.writer

    @property
    def is_starting(self) -> bool:
        """Whether the last run has no snapshot yet."""
        return not self.is_plain and self.last_writer is not self.writer

    @property
    def stage(self) -> str:
        """What the last run does before its run loop begins."""
        return "" if self.run is None else self.run.stage

    @property
    def ended(self) -> str:
        """Why the last run has ended; empty while it runs."""
        if self.run is not None and self.last_writer is not None and self.run.writer.epoch == self.last_writer.epoch:
            own = self.run.ended
        else:
            own = ""
        return own or ("" if self.snapshot is None or self.is_starting else self.snapshot.ended)

    @property
    def is_failed(self) -> bool:
        """Whether that was an error."""
        if self.run is not None and self.run.ended:
            return self.run.is_failed
        return bool(self.ended) and self.ended not in _ORDERLY

    @property
    def updated_secs(self) -> float | None:
        """When the last run has last said something."""
        writer = self.last_writer
        found = [] if writer is None else [writer.written_secs]
        found += [int(row["at"]) / 1e6 for row in self.timeline.last(DRIVER).values()]
        return max(found, default=None)


def status_of(facts: Facts) -> tuple[str, str]:
    """Return the status of a topology in a word, and in a sentence."""
    writer, updated = facts.last_writer, facts.updated_secs
    if writer is None or updated is None:
        return "unknown", "no run has recorded what it does"
    age_secs = max(0.0, time.time() - updated)
    if facts.ended:
        word = "failed" if facts.is_failed else "ended"
        return word, f"{word} {clock(age_secs)} ago: {facts.ended}"
    alive = writer.is_alive
    if alive is False:
        return "killed", f"process {writer.pid} is dead, probably killed; its last report is {clock(age_secs)} old"
    if age_secs > SILENT_SECS:
        where = "it is alive" if alive else f"it is on {writer.host}, so this machine can't see whether it is alive"
        return "silent" if alive else "unknown", f"silent: its last report is {clock(age_secs)} old; {where}"
    if facts.is_starting or (facts.is_plain and facts.stage):
        return "starting", facts.stage or "the run loop begins"
    return "running", f"running, as of {age_secs:.1f} s ago"


def is_live(facts: Facts) -> bool:
    """Whether the topology runs, as far as this machine can see."""
    return status_of(facts)[0] in {"running", "starting", "silent"}


def now_of(facts: Facts) -> float:
    """Return the end of what is still open: now while the topology runs, else when it has last said something."""
    return time.time() if is_live(facts) else facts.updated_secs or time.time()


def summary(facts: Facts) -> dict[str, Any]:
    """Return a topology's line in the list of all."""
    word, text = status_of(facts)
    errors = facts.timeline.errors()
    return {
        "slug": slug_of(facts.id),
        "id": facts.id,
        "kind": "plain" if facts.is_plain else "transactional",
        "status": word,
        "statusText": text,
        "committed": None if facts.snapshot is None else facts.snapshot.committed,
        "rate": _rates(facts)["transactions"],
        "lag": _lag(facts),
        "lastError": first_line(without_secrets(str(errors[-1].get("text", "")))) if errors else None,
        "startedAt": None if facts.run is None else facts.run.started_secs,
        "updatedAt": facts.updated_secs,
    }


def header(facts: Facts, can: Mapping[str, bool]) -> dict[str, Any]:
    """Return what a topology's header shows."""
    writer, snapshot = facts.last_writer, facts.snapshot
    driver = facts.timeline.last(DRIVER).get("")
    roots = facts.timeline.last(ROOTS).get("")
    has_latency, at = (roots, 4) if facts.is_plain else (driver, 0)
    is_there = facts.timeline.is_there
    found = summary(facts)
    return {
        **found,
        "now": time.time(),
        "endedAt": facts.updated_secs if facts.ended else None,
        "process": None
        if writer is None
        else {"pid": writer.pid, "host": writer.host, "epoch": writer.epoch, "isAlive": writer.is_alive},
        "begun": None if snapshot is None else snapshot.last_begun,
        **_of_run(facts),
        "rate": _rates(facts),
        "latency": {
            "p50Secs": None if has_latency is None else known(has_latency["numbers"][at]),
            "p99Secs": None if has_latency is None else known(has_latency["numbers"][at + 1]),
        },
        "lowest": None if snapshot is None or not is_live(facts) else _lowest(snapshot, facts.writer),
        "lastFailure": _last_failure(facts),
        "check": None,
        "timeline": {"isThere": is_there, "why": "" if is_there else _why_none(facts)},
        "can": dict(can),
        "isActive": None,
        "roots": None if roots is None else _named(roots, ("emitted", "acked", "failed", "pending")),
        "workers": None
        if roots is None
        else {
            "wanted": known(roots["numbers"][6]),
            "running": known(roots["numbers"][7]),
            "restarts": known(roots["numbers"][8]),
            "killed": None,
            "cpuSecs": known(roots["numbers"][9]),
        },
        "components": components(facts),
    }


def components(facts: Facts) -> list[dict[str, Any]]:
    """Return what each component has counted since the run began."""
    last = facts.timeline.last(COMPONENT)
    return [{"id": name, **counts_of(facts, row)} for name, row in last.items()]


def counts_of(facts: Facts, row: Any) -> dict[str, Any]:
    """Return the counts of a component from its last sample."""
    numbers = [known(each) for each in row["numbers"]]
    if not facts.is_plain:
        numbers = [numbers[0], *[None] * 5]
    emitted, transferred, executed, acked, failed, queued = numbers[:6]
    return {
        "emitted": emitted,
        "transferred": transferred,
        "executed": executed,
        "acked": acked,
        "failed": failed,
        "queued": queued,
    }


def errors(facts: Facts) -> dict[str, Any]:
    """Return the last errors, grouped by component and first line, newest first."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    found = [_error(each) for each in reversed(facts.timeline.errors())]
    for error in found:
        groups.setdefault((error["component"], first_line(error["text"])), []).append(error)
    return {
        "total": _total_errors(facts, len(found)),
        "groups": [
            {
                "component": component,
                "first": first,
                "count": len(own),
                "firstAt": own[-1]["at"],
                "lastAt": own[0]["at"],
                "errors": own,
            }
            for (component, first), own in groups.items()
        ],
    }


def settings(facts: Facts, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return all settings with their values, those that differ from their defaults first."""
    if facts.run is None:
        return {"settings": [], "arguments": dict(arguments), "why": "no run has recorded its settings here"}
    given = facts.run.settings
    listed = []
    for name in [*SETTINGS, *(each for each in given if each not in SETTINGS)]:
        setting = SETTINGS.get(name)
        default = ""
        if setting is not None:
            own = attrs.evolve(setting, default=setting.plain_default) if facts.is_plain else setting
            default = default_text(own)
        value = str(shown(name, given.get(name, default)))
        listed.append(
            {
                "name": name,
                "inPython": "" if setting is None else setting.keyword,
                "value": value,
                "default": default,
                "isDefault": name not in given or _is_same(value, default),
                "purpose": "" if setting is None else setting.purpose,
                "isSecret": value == HIDDEN or is_secret(name),
            }
        )
    listed.sort(key=lambda each: (each["isDefault"], each["name"]))
    return {"settings": listed, "arguments": {k: str(shown(k, v)) for k, v in arguments.items()}, "why": ""}


def _is_same(value: str, default: str) -> bool:
    """Whether a value, as Python shows it, is a default, as ``--set`` takes it."""
    if value.lower() == default.lower():
        return True
    try:
        return float(value) == float(default)
    except ValueError:
        return False


def _of_run(facts: Facts) -> dict[str, Any]:
    row = facts.timeline.last(PROGRESS).get("")
    names = ("transactions", "deadLetters", "attempts", "failures", "tuples", "ready", "processing", "processed")
    numbers = {name: None if row is None else _whole(row["numbers"][at]) for at, name in enumerate(names, 1)}
    committing = None if row is None else _whole(row["numbers"][9])
    pending = {name: numbers.pop(name) for name in ("ready", "processing", "processed")} | {"committing": committing}
    return {
        **numbers,
        "pending": None if row is None else pending,
        "remaining": None if row is None else _whole(row["numbers"][11]),
    }


def _rates(facts: Facts) -> dict[str, float | None]:
    if not is_live(facts):
        return {"transactions": None, "tuples": None}
    if facts.is_plain:
        executed = [
            value for _, rows in facts.timeline.samples(COMPONENT, RATE_SECS) if (value := rate(rows, 2)) is not None
        ]
        return {"transactions": last_rate(facts, ROOTS, 1), "tuples": sum(executed) if executed else None}
    return {"transactions": last_rate(facts, PROGRESS, 1), "tuples": last_rate(facts, PROGRESS, 5)}


def last_rate(facts: Facts, kind: int, at: int) -> float | None:
    """Return how much a number of a sample grows in a second."""
    found = dict(facts.timeline.samples(kind, RATE_SECS)).get("")
    return None if found is None else rate(found, at)


def _lag(facts: Facts) -> int | None:
    at, kind = (10, ROOTS) if facts.is_plain else (10, PROGRESS)
    value = last_number(facts.timeline.last(kind).get(""), at)
    return None if value is None else int(value)


def _whole(value: float) -> int | None:
    found = known(value)
    return None if found is None else int(found)


def _named(row: Any, names: tuple[str, ...]) -> dict[str, int | None]:
    return {name: _whole(row["numbers"][at]) for at, name in enumerate(names)}


def _total_errors(facts: Facts, listed: int) -> int:
    kind, at = (ROOTS, 11) if facts.is_plain else (PROGRESS, 4)
    total = last_number(facts.timeline.last(kind).get(""), at)
    return listed if total is None else max(int(total), 0)


def _error(each: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "at": each.get("at_secs"),
        "txid": each.get("txid"),
        "attempt": each.get("attempt"),
        "epoch": each.get("epoch"),
        "component": str(each.get("component") or ""),
        "text": without_secrets(str(each.get("text", ""))),
    }


def _last_failure(facts: Facts) -> dict[str, Any] | None:
    found = facts.timeline.errors()
    if not found:
        return None
    error = _error(found[-1])
    return {
        "txid": error["txid"],
        "attempt": error["attempt"],
        "component": error["component"] or None,
        "error": first_line(error["text"]),
        "at": error["at"],
    }


def _lowest(snapshot: Snapshot, writer: Writer | None) -> dict[str, Any] | None:
    if not snapshot.transactions:
        return None
    found = snapshot.transactions[0]
    entries = found.history.entries
    age_secs = 0.0 if writer is None else max(0.0, time.time() - writer.written_secs)
    since = None if not entries else (snapshot.now_ms - entries[-1].at_ms) / 1000 + age_secs
    attempts = [each.attempt for each in entries if each.attempt is not None]
    return {
        "txid": found.txid,
        "status": found.status,
        "waitsFor": _waits_for(found, snapshot.transactions),
        "sinceSecs": since,
        "attempt": epoch_and_try(attempts[-1].attempt)[1] if attempts else None,
    }


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


def _why_none(facts: Facts) -> str:
    writer = facts.last_writer
    if writer is not None and writer.is_alive is None:
        return f"the run is on {writer.host}, and keeps its timeline there"
    return "no run has left a timeline here: it was made by an older version of txtopo"
