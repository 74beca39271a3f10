"""``txtopo explain``: the state of a transaction, since when, what it waits for, and what happens next."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import click

from txtopo.api.components.planned import NEVER
from txtopo.api.reference import SeenVersion
from txtopo.assembly.snapshot import read_snapshot, snapshots_in, topologies_with_snapshot
from txtopo.attempts import epoch_and_try
from txtopo.cli.command import Command, WholeNumber, json_option, print_json
from txtopo.cli.console import Console
from txtopo.cli.target import OutputFolder, module_place, takes_folder_or_target
from txtopo.files.folder import Folder
from txtopo.inspect.past.story import Known, story_of
from txtopo.journal.ending import METADATA_DIR, chosen, metadata_dir_below
from txtopo.journal.folders import topologies_with_journal
from txtopo.journal.search import EnteredGroup
from txtopo.topology.user_code.loading import Target


@click.command("explain", cls=Command)
@takes_folder_or_target
@click.argument("txid", metavar="TXID", type=WholeNumber(1))
@json_option
def explain_command(target: OutputFolder | Target, txid: int, is_json: bool) -> None:  # noqa: FBT001 - click's convention
    """Show the state of a transaction: since when, what it waits for or failed in, and what happens next.

    OUTPUT is the folder that holds a topology's tables and its folder '_txtopo'; MODULE stands for the folder of that
    topology. Committed transactions are read from the journal; others from a small file that a run keeps beside it,
    which is about a second old. Nothing is run or written.
    """
    known = _known(target)
    story = story_of(known, txid)
    if is_json:
        lines = [" ".join(f"{line.label} {line.text}".split()) for line in story.lines]
        print_json({**_document(known, txid), "lines": [story.headline, *lines]})
        return
    console = Console()
    console.say(story.headline, "bold")
    for line in story.lines:
        console.say(f"  {line.label:<10}{line.text}")


def _known(target: OutputFolder | Target) -> Known:
    """Read journal and snapshot of a topology's current incarnation; raise ConfigError if there is neither."""
    metadata_dir, topology_id = _metadata_dir(target)
    return Known.of(metadata_dir, topology_id, read_snapshot(snapshots_in(metadata_dir), topology_id))


def _metadata_dir(target: OutputFolder | Target) -> tuple[Folder, str]:
    if isinstance(target, OutputFolder):
        both = (target.folder.below(METADATA_DIR), target.folder)
        with_snapshot = (folder for folder in both if topologies_with_snapshot(snapshots_in(folder)))
        metadata_dir = next(with_snapshot, None) or metadata_dir_below(target.folder)  # a run may keep no journal
        known = {*topologies_with_journal(metadata_dir), *topologies_with_snapshot(snapshots_in(metadata_dir))}
        return metadata_dir, chosen(target.folder, sorted(known), target.topology_id)
    return module_place(target)


def _document(known: Known, txid: int) -> dict[str, Any]:
    """Return what is known of a transaction, as JSON; the guide on operations describes it."""
    entered, snapshot, writer = known.journal.find(txid), known.snapshot, known.writer
    pending = () if snapshot is None else snapshot.transactions
    found = next((transaction for transaction in pending if transaction.txid == txid), None)
    is_committed, is_live = txid <= known.committed, known.is_alive
    facts: dict[str, Any] = {"transaction": txid, "status": "not committed", "lastCommitted": known.committed}
    if is_committed:
        facts["status"] = "committed"
    elif is_live and found is not None:
        facts["status"] = found.status
    elif entered is not None:
        facts["status"] = "entered"
    if entered is not None and (is_committed or not is_live or found is None):
        facts |= _entered_facts(entered, txid)
        if is_committed and entered.transaction(txid).is_dead_letter:
            facts["status"] = "given up"
    if found is not None and not is_committed:
        failure = found.history.last_failure
        facts |= {
            "component": found.component if is_live else None,
            "input": _spans_of(found.ranges),
            "references": _versions_of(found.references),
            "failure": facts.get("failure") if failure is None else failure.own_reason,
            "history": [str(entry) for entry in found.history.entries],
        }
    if snapshot is not None and writer is not None:
        facts["run"] = {
            "host": writer.host,
            "pid": writer.pid,
            "epoch": writer.epoch,
            "isAlive": False if snapshot.ended else writer.is_alive,
            "ended": snapshot.ended or None,
            "reportedAt": _iso(writer.written_secs),
        }
    return facts


def _entered_facts(entered: EnteredGroup, txid: int) -> dict[str, Any]:
    entry, transaction = entered.entry, entered.transaction(txid)
    epoch, attempt = epoch_and_try(transaction.attempt)
    return {
        "topology": entered.header.topology,
        "attempt": attempt,
        "epoch": epoch,
        "group": {"first": entry.first, "last": entry.last},
        "plannedAt": None if transaction.planned == NEVER else _iso(transaction.planned.at_ms / 1000),
        "references": _versions_of(transaction.planned.references),
        "waited": list(transaction.planned.ahead),
        "input": _spans_of(transaction.input),
        "skipped": {partition: [list(gap) for gap in gaps] for partition, gaps in transaction.gaps.items()},
        "metadata": transaction.metadata,
        "failure": transaction.failure or None,
        "tuples": {name: number for name, (number, _) in transaction.fingerprints.items()},
        "written": {name: {"put": put, "removed": removed} for name, (put, removed) in entry.states.items()},
    }


def _versions_of(references: Sequence[SeenVersion]) -> dict[str, Any]:
    return {
        reference.name: {"table": reference.identity, "version": reference.version, "insteadOf": reference.instead_of}
        for reference in references
    }


def _spans_of(ranges: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    return {partition: {"start": start, "end": end} for partition, (start, end) in ranges.items()}


def _iso(secs: float) -> str:
    return dt.datetime.fromtimestamp(secs, dt.UTC).isoformat(timespec="milliseconds")
