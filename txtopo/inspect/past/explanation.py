"""One transaction explained: the facts of its story by names, for programs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.components.planned import NEVER
from txtopo.api.reference import SeenVersion
from txtopo.attempts import epoch_and_try
from txtopo.files.records import in_camel_case
from txtopo.inspect.past.story import Known, story_of
from txtopo.inspect.past.transaction import Reference
from txtopo.journal.search import EnteredGroup


@attrs.frozen
class InputSpan:
    """What a transaction takes of a partition."""

    start: Any
    end: Any


@attrs.frozen
class GroupSpan:
    """The transactions of a commit group."""

    first: int
    last: int


@attrs.frozen
class WrittenRows:
    """How many rows a commit group puts into a state, and removes from it."""

    put: int
    removed: int


@attrs.frozen(field_transformer=in_camel_case)
class LastRun:
    """The last run; ``is_alive`` is None if it is on another machine, ``ended`` if it has not."""

    host: str
    pid: int
    epoch: int
    is_alive: bool | None
    ended: str | None
    reported_at: str


@attrs.frozen(field_transformer=in_camel_case)
class Explanation:
    """What is known of a transaction, and None for what is not; the guide on operations describes it."""

    transaction: int
    status: str
    last_committed: int
    topology: str | None = None
    attempt: int | None = None
    epoch: int | None = None
    group: GroupSpan | None = None
    planned_at: str | None = None
    references: Mapping[str, Reference] | None = None
    waited: Sequence[str] | None = None
    input: Mapping[str, InputSpan] | None = None
    skipped: Mapping[str, Sequence[Sequence[Any]]] | None = None
    metadata: Any = None
    failure: str | None = None
    tuples: Mapping[str, int] | None = None
    written: Mapping[str, WrittenRows] | None = None
    component: str | None = None
    history: Sequence[str] | None = None
    run: LastRun | None = None
    lines: Sequence[str] = ()

    @classmethod
    def of(cls, known: Known, txid: int) -> Explanation:
        """Explain a transaction; raise ConfigError if it has not begun."""
        story, entered, snapshot, writer = story_of(known, txid), known.journal.find(txid), known.snapshot, known.writer
        pending = () if snapshot is None else snapshot.transactions
        found = next((transaction for transaction in pending if transaction.txid == txid), None)
        is_committed, is_live = txid <= known.committed, known.is_alive
        status = "committed" if is_committed else "not committed" if entered is None else "entered"
        if not is_committed and is_live and found is not None:
            entered, status = None, found.status
        elif is_committed and entered is not None and entered.transaction(txid).is_dead_letter:
            status = "given up"
        explained = cls(txid, status, known.committed, **({} if entered is None else _entered(entered, txid)))
        if found is not None:
            failure = found.history.last_failure
            explained = attrs.evolve(
                explained,
                component=found.component if is_live else None,
                input=_spans_of(found.ranges),
                references=_versions_of(found.references),
                failure=explained.failure if failure is None else failure.own_reason,
                history=[str(entry) for entry in found.history.entries],
            )
        if snapshot is not None and writer is not None:
            is_alive, ended = False if snapshot.ended else writer.is_alive, snapshot.ended or None
            last = LastRun(writer.host, writer.pid, writer.epoch, is_alive, ended, _iso(writer.written_secs))
            explained = attrs.evolve(explained, run=last)
        lines = [" ".join(f"{line.label} {line.text}".split()) for line in story.lines]
        return attrs.evolve(explained, lines=[story.headline, *lines])


def _entered(entered: EnteredGroup, txid: int) -> dict[str, Any]:
    entry, transaction = entered.entry, entered.transaction(txid)
    epoch, attempt = epoch_and_try(transaction.attempt)
    return {
        "topology": entered.header.topology,
        "attempt": attempt,
        "epoch": epoch,
        "group": GroupSpan(entry.first, entry.last),
        "planned_at": None if transaction.planned == NEVER else _iso(transaction.planned.at_ms / 1000),
        "references": _versions_of(transaction.planned.references),
        "waited": transaction.planned.ahead,
        "input": _spans_of(transaction.input),
        "skipped": transaction.gaps,
        "metadata": transaction.metadata,
        "failure": transaction.failure or None,
        "tuples": {name: number for name, (number, _) in transaction.fingerprints.items()},
        "written": {name: WrittenRows(put, removed) for name, (put, removed) in entry.states.items()},
    }


def _versions_of(references: Sequence[SeenVersion]) -> dict[str, Reference]:
    return {seen.name: Reference(seen.identity, seen.version, seen.instead_of) for seen in references}


def _spans_of(ranges: Mapping[str, tuple[Any, Any]]) -> dict[str, InputSpan]:
    return {partition: InputSpan(start, end) for partition, (start, end) in ranges.items()}


def _iso(secs: float) -> str:
    return dt.datetime.fromtimestamp(secs, dt.UTC).isoformat(timespec="milliseconds")
