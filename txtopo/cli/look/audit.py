"""``txtopo audit``: prove offline that every transaction was committed once, in order, without a gap."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import click
from rich.text import Text

from txtopo.api.components.partitioned import spout_as_written
from txtopo.api.components.spout import AnySpout, PartitionedTransactionalSpout
from txtopo.attempts import transactions_words
from txtopo.cli.command import Verdict, json_option, print_json
from txtopo.cli.console import Console
from txtopo.cli.target import OutputFolder, journal_place, takes_folder_or_target
from txtopo.inspect.audit.evidence import audited
from txtopo.inspect.audit.report import AuditReport, TableProof
from txtopo.text.words import PROGRESS, count_of
from txtopo.topology.user_code.loading import Target

FINDINGS_SHOWN = 20
SPANS_SHOWN = 5


@click.command("audit", cls=Verdict)
@takes_folder_or_target
@click.option("--quick", is_flag=True, help="Do not compare the rows of each table version.")
@click.option("--progress", "is_telling", is_flag=True, help="Tell once a second how far it is.")
@json_option
@click.pass_context
def audit_command(
    ctx: click.Context,
    target: OutputFolder | Target,
    quick: bool,  # noqa: FBT001 - click's convention
    is_telling: bool,  # noqa: FBT001 - click's convention
    is_json: bool,  # noqa: FBT001 - click's convention
) -> None:
    """Prove from journal and tables that every transaction was committed once, in order, without a gap.

    OUTPUT is the folder that holds a topology's tables and its folder '_txtopo'; MODULE stands for the folder of that
    topology. Nothing is run or written, and the topology may be running. The command prints what it has proved. If a
    check fails, it names the fault and the exit status is 1; it is 2 if that can't be told.
    """
    metadata_dir, topology_id = journal_place(target)
    tell = _Progress() if is_telling else lambda *_: None
    report = audited(metadata_dir, topology_id, with_rows=not quick, tell=tell)
    if is_json:
        print_json(_document(topology_id, report, is_quick=quick))
    else:
        spouts = () if isinstance(target, OutputFolder) else target.plan.spouts
        _show(report, _range_method([spout_as_written(spout.component) for spout in spouts]), is_quick=quick)
    ctx.exit(1 if report.findings else 0)


class _Progress:
    """Tells on standard error how far an audit is, at most once a second."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def __call__(self, state: str, done: int, count: int) -> None:
        if time.monotonic() - self._told >= 1.0:
            self._told = time.monotonic()
            click.echo(f"{PROGRESS}state {state!r}: {done:,} of {count_of(count, 'version')}", err=True)


def _show(report: AuditReport, method: str, *, is_quick: bool) -> None:
    """Print what an audit of some tables has found or proved; ``method`` is as :func:`_range_method` returns it."""
    console = Console()
    if report.findings:
        checked = (
            f"checked {count_of(report.groups, 'group')} of the journal and {count_of(report.tables_read, 'table')}:"
        )
        console.print(Text(checked))
    else:
        for line in [
            *_proof_lines(report, method),
            *(_table_line(proof, is_quick=is_quick) for proof in report.tables),
        ]:
            console.print(Text(line), soft_wrap=True)
    for line in _skipped_lines(report):
        console.print(Text(line), soft_wrap=True)
    if report.in_flight is not None:
        console.print(Text(_in_flight_line(report, *report.in_flight)), soft_wrap=True)
    for finding in report.findings[:FINDINGS_SHOWN]:
        console.print(Text(f"✘ {finding}", "bold red"), soft_wrap=True)
    if len(report.findings) > FINDINGS_SHOWN:
        console.print(Text(f"✘ and {len(report.findings) - FINDINGS_SHOWN} more", "bold red"))
    if not report.findings:
        console.print(Text(_verdict(report, is_quick=is_quick), "bold green"), soft_wrap=True)


def _verdict(report: AuditReport, *, is_quick: bool) -> str:
    but = ", but for the input that the spout has skipped" if report.skipped else ""
    unread = sum(proof.unread for proof in report.tables)
    if is_quick:
        but += "; the rows of tables were not looked at"
    elif unread:
        but += f"; what {count_of(unread, 'version')} of tables put can't be known any more"
    return f"✔ every transaction was committed once, in order, without a gap{but}"


def _document(topology_id: str, report: AuditReport, *, is_quick: bool) -> dict[str, Any]:
    """Return what an audit has found and proved, as JSON; the guide on operations describes it."""
    return {
        "topology": topology_id,
        "isProved": not report.findings,
        "findings": [
            {"text": finding.text, "transaction": finding.txid, "state": finding.state, "version": finding.version}
            for finding in report.findings
        ],
        "first": report.first,
        "last": report.last,
        "groups": report.groups,
        "epochs": report.epochs,
        "deadLetters": report.dead_letters,
        "dropped": report.void,
        "input": {"partitions": report.partitions, "ranges": report.ranges, "untold": report.untold},
        "skipped": {
            partition: [{"transaction": txid, "start": start, "end": end} for txid, start, end in gaps]
            for partition, gaps in report.skipped.items()
        },
        "references": {name: {"first": first, "last": last} for name, (first, last) in report.references.items()},
        "replanned": [
            {"transaction": txid, "reference": seen.name, "version": seen.version, "insteadOf": seen.instead_of}
            for txid, seen in report.replanned
        ],
        "inFlight": None
        if report.in_flight is None
        else {
            "first": report.in_flight[0],
            "last": report.in_flight[1],
            "in": list(report.has_it),
            "notIn": list(report.lacks_it),
        },
        "renames": [
            {"after": rename.txid, "topology": rename.topology, "former": rename.former, "states": dict(rename.states)}
            for rename in report.renames
        ],
        "tables": [_table_of(proof, is_quick=is_quick) for proof in report.tables],
        "notProved": {**dict.fromkeys(report.elsewhere), **report.departed},
    }


def _table_of(proof: TableProof, *, is_quick: bool) -> dict[str, Any]:
    return {
        "state": proof.state,
        "first": proof.from_txid + 1,
        "last": proof.to_txid,
        "groups": proof.groups,
        "versions": proof.versions,
        "rowsPut": None if is_quick else proof.rows_put,
        "rowsRemoved": None if is_quick else proof.rows_removed,
        "unread": None if is_quick else proof.unread,
        "between": proof.between,
        "repairs": proof.repaired,
        "begunAfter": proof.begun_after or None,
        "backfilledTo": proof.backfilled_to or None,
        "leftAfter": proof.left_after,
        "away": [list(span) for span in proof.away],
    }


def _in_flight_line(report: AuditReport, first: int, last: int) -> str:
    text = f"in flight   transactions {first} to {last}: in the journal, but not yet in every table. "
    if not report.has_it:
        return f"{text}This is fine: they are being written, or the next start finishes or drops them"
    has, lacks = ", ".join(report.has_it), ", ".join(report.lacks_it)
    return (
        f"{text}In {has}, not in {lacks}: either they are being written or a run was interrupted, and the next start "
        f"finishes them; or {lacks} was restored from a copy, and the next start refuses and says so"
    )


def _range_method(spouts: Sequence[AnySpout]) -> str:
    """Name the method by which a spout reports each transaction's input, or both ways to do it."""
    of_all = "input_ranges(self, metadata, previous_metadata), which returns {partition: (start, end)}"
    of_one = "input_range(self, metadata, previous_metadata), which returns (start, end) of one partition"
    if len(spouts) != 1:
        return f"{of_all}; a PartitionedTransactionalSpout {of_one}"
    (spout,) = spouts
    name = type(spout).__name__
    return f"{of_one if isinstance(spout, PartitionedTransactionalSpout) else of_all}; {name} does not have it"


def _proof_lines(report: AuditReport, method: str) -> list[str]:
    epochs = f"{count_of(report.groups, 'group')} in {count_of(report.epochs, 'epoch')}"
    if report.last < report.first:
        lines = [f"journal     no transaction is committed yet; {epochs}"]
    else:
        transactions = count_of(report.last - report.first + 1, "transaction")
        lines = [f"journal     {transactions}, {report.first} to {report.last}, each once and in order; {epochs}"]
    if report.dead_letters:
        lines.append(f"            {count_of(report.dead_letters, 'dead letter')} among them")
    if report.void:
        lines.append(f"            {count_of(report.void, 'group')} dropped; their transactions ran again")
    if report.ranges:
        ranges = f"{count_of(report.ranges, 'range')} of {count_of(report.partitions, 'partition')}"
        lines.append(f"input       {ranges}, without gap or overlap")
    lines += [
        f"reference   {name}: versions {first} to {last} of one table, in their order"
        for name, (first, last) in report.references.items()
    ]
    lines += [f"reference   transaction {txid} saw {seen.words}" for txid, seen in report.replanned]
    lines += [f"renamed     after transaction {rename.txid}: {rename.text}" for rename in report.renames if rename.text]
    if report.untold:
        lines.append(
            f"input       not reported by the spout for {count_of(report.untold, 'transaction')}: not proved; to have "
            f"it proved, define in the spout {method}"
        )
    if report.elsewhere:
        lines.append(f"states      not proved, because they are not in Delta: {', '.join(report.elsewhere)}")
    lines += [
        f"table       {name}: not proved, because its table is gone; it left the topology after transaction {txid}"
        for name, txid in report.departed.items()
    ]
    return lines


def _skipped_lines(report: AuditReport) -> Iterator[str]:
    """Yield a line for each partition with skipped input, a loss that the user has allowed."""
    for partition, gaps in sorted(report.skipped.items()):
        spans: list[tuple[Any, Any]] = []
        for _, start, end in gaps:
            if spans and spans[-1][1] == start:
                spans[-1] = spans[-1][0], end
            else:
                spans.append((start, end))
        count = ""
        if all(isinstance(each, int) for span in spans for each in span):
            count = f"{count_of(sum(end - start for start, end in spans), 'offset')}, "
        shown = ", ".join(f"{start} to {end}" for start, end in spans[:SPANS_SHOWN])
        more = f" and {len(spans) - SPANS_SHOWN} more gaps" if len(spans) > SPANS_SHOWN else ""
        first, last = gaps[0][0], gaps[-1][0]
        where = transactions_words(first, last)
        yield f"skipped     {partition}: {count}{shown}{more}, in {where}: the records were gone, and the spout went on"


def _span(proof: TableProof) -> str:
    if not proof.from_txid or proof.to_txid <= proof.begun_after:
        return f"up to {proof.to_txid}"
    if proof.to_txid <= proof.from_txid:  # of a fork that has not run
        return f"none after transaction {proof.from_txid} yet"
    return f"proved from transaction {proof.from_txid + 1} to {proof.to_txid}"


def _table_line(proof: TableProof, *, is_quick: bool) -> str:
    rows = f"{count_of(proof.rows_put, 'row')} put, {proof.rows_removed:,} removed, all others left as they were"
    parts = [
        f"{count_of(proof.groups, 'group')} in {count_of(proof.versions, 'version')}",
        "rows not compared" if is_quick else rows,
        _span(proof),
    ]
    if proof.backfilled_to:
        begun = f" from transaction {proof.begun_after + 1} on" if proof.begun_after else ""
        parts.append(f"backfilled{begun} up to transaction {proof.backfilled_to}")
    elif proof.begun_after:
        parts.append(f"begun empty after transaction {proof.begun_after}, by topology.state.start.empty")
    if proof.away:
        spans = ", ".join(f"{first} to {last}" if last > first else str(first) for first, last in proof.away)
        parts.append(f"not in the topology for transactions {spans}, which put nothing into it")
    if proof.left_after is not None:
        parts.append(f"it left the topology after transaction {proof.left_after}")
    if proof.between:
        parts.append(f"{count_of(proof.between, 'group')} between points: only what they made together")
    if proof.unread and not is_quick:
        parts.append(f"{count_of(proof.unread, 'version')} no longer kept: rows not compared")
    if proof.believed and not is_quick:
        moved = count_of(proof.believed, "version")
        parts.append(f"{moved} of others, such as an OPTIMIZE, believed: what they moved is gone, so rows not compared")
    if proof.repaired:
        parts.append(count_of(proof.repaired, "repair"))
    return f"table       {proof.state}: {'; '.join(parts)}"
