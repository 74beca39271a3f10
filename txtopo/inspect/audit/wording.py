"""What an audit has proved, in words: each line is about the journal, the input, a reference or a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from txtopo.api.table_history import StateComparison
from txtopo.attempts import transactions_words
from txtopo.inspect.audit.report import AuditReport, Gap, InFlight, TableProof
from txtopo.inspect.past.wording import StoryLine
from txtopo.text.words import count_of

OF_ALL = "input_ranges(self, metadata, previous_metadata), which returns {partition: (start, end)}"
"""The method by which a spout tells where the input of each transaction begins and ends."""
OF_ONE = "input_range(self, metadata, previous_metadata), which returns (start, end) of one partition"
"""The one of a PartitionedTransactionalSpout."""

_SPANS_SHOWN = 5


def lines_of(
    report: AuditReport, method: str = f"{OF_ALL}; a PartitionedTransactionalSpout {OF_ONE}"
) -> Iterator[StoryLine]:
    """Yield what was proved, or only how much was checked if there are findings; and what is no fault, but to be known.

    ``method`` is what a spout must define to tell its input.
    """
    if report.findings:
        checked = f"{count_of(report.groups, 'group')} of the journal and {count_of(report.tables_read, 'table')}"
        yield StoryLine("checked", checked)
    else:
        yield from _proved(report, method)
    for partition, gaps in sorted(report.skipped.items()):
        yield StoryLine("skipped", f"{partition}: {_gaps(gaps)}: the records were gone, and the spout went on")
    if report.in_flight is not None:
        yield StoryLine("in flight", _in_flight(report.in_flight))


def _proved(report: AuditReport, method: str) -> Iterator[StoryLine]:
    epochs = f"{count_of(report.groups, 'group')} in {count_of(report.epochs, 'epoch')}"
    if report.last < report.first:
        yield StoryLine("journal", f"no transaction is committed yet; {epochs}")
    else:
        transactions = count_of(report.last - report.first + 1, "transaction")
        text = f"{transactions}, {report.first} to {report.last}, each once and in order; {epochs}"
        yield StoryLine("journal", text)
    if report.dead_letters:
        yield StoryLine("", f"{count_of(report.dead_letters, 'dead letter')} among them")
    if report.dropped:
        yield StoryLine("", f"{count_of(report.dropped, 'group')} dropped; their transactions run again")
    if report.input.ranges:
        ranges = f"{count_of(report.input.ranges, 'range')} of {count_of(report.input.partitions, 'partition')}"
        yield StoryLine("input", f"{ranges}, without gap or overlap")
    for name, seen in report.references.items():
        text = f"{name}: versions {seen.first} to {seen.last} of one table, in their order"
        yield StoryLine("reference", text)
    for planned in report.replanned:
        yield StoryLine("reference", f"transaction {planned.txid} saw {planned.text}")
    for rename in filter(lambda rename: rename.text, report.renames):
        yield StoryLine("renamed", f"after transaction {rename.txid}: {rename.text}")
    yield from _not_proved(report, method)


def _not_proved(report: AuditReport, method: str) -> Iterator[StoryLine]:
    if report.input.untold:
        of = count_of(report.input.untold, "transaction")
        text = f"not reported by the spout for {of}: not proved; to have it proved, define in the spout {method}"
        yield StoryLine("input", text)
    elsewhere = [name for name, left_after in report.not_proved.items() if left_after is None]
    if elsewhere:
        yield StoryLine("states", f"not proved, because they are not in Delta: {', '.join(elsewhere)}")
    for name, left_after in report.not_proved.items():
        if left_after is not None:
            text = f"not proved, because its table is gone; it left the topology after transaction {left_after}"
            yield StoryLine("table", f"{name}: {text}")


def verdict_of(report: AuditReport) -> str:
    """Return what an audit without findings has proved, and what not, in a line."""
    but = ", but for the input that the spout has skipped" if report.skipped else ""
    unread = sum(proof.unread or 0 for proof in report.tables)
    if not report.with_rows:
        but += "; the rows of tables were not looked at"
    elif unread:
        but += f"; what {count_of(unread, 'version')} of tables put can't be known any more"
    return f"every transaction was committed once, in order, without a gap{but}"


def table_line(proof: TableProof) -> str:
    """Return what was compared of a table."""
    rows = "rows not compared"
    if proof.rows_put is not None:
        rows = f"{count_of(proof.rows_put, 'row')} put, {proof.rows_removed:,} removed, all others left as they were"
    compared = f"{count_of(proof.groups, 'group')} in {count_of(proof.versions, 'version')}"
    return f"{proof.state}: {'; '.join([compared, rows, span_of(proof), *remarks_on(proof)])}"


def span_of(proof: TableProof) -> str:
    """Return the transactions that a proof is of."""
    if proof.first == 1 or proof.last <= (proof.begun_after or 0):
        return f"up to {proof.last}"
    if proof.last < proof.first:  # of a fork that has not run
        return f"none after transaction {proof.first - 1} yet"
    return f"proved from transaction {proof.first} to {proof.last}"


def remarks_on(proof: TableProof) -> Iterator[str]:
    """Yield what is special about a table, and what could not be compared."""
    if proof.backfilled_to is not None:
        begun = "" if proof.begun_after is None else f" from transaction {proof.begun_after + 1} on"
        yield f"backfilled{begun} up to transaction {proof.backfilled_to}"
    elif proof.begun_after is not None:
        yield f"begun empty after transaction {proof.begun_after}, by topology.state.start.empty"
    if proof.away:
        spans = ", ".join(f"{first} to {last}" if last > first else str(first) for first, last in proof.away)
        yield f"not in the topology for transactions {spans}, which put nothing into it"
    if proof.left_after is not None:
        yield f"it left the topology after transaction {proof.left_after}"
    if proof.between:
        yield f"{count_of(proof.between, 'group')} between points: only what they made together"
    if proof.unread:
        yield f"{count_of(proof.unread, 'version')} no longer kept: rows not compared"
    if proof.believed and proof.rows_put is not None:
        moved = count_of(proof.believed, "version")
        yield f"{moved} of others, such as an OPTIMIZE, believed: what they moved is gone, so rows not compared"
    if proof.repairs:
        yield count_of(proof.repairs, "repair")


def state_words(state: StateComparison) -> str:
    """Return what a replay has found of a state."""
    if state.rows is None:
        return "not compared; its rows do not show which transaction of the group put them"
    return f"{count_of(state.rows, 'row')}, {'the same' if state.difference is None else 'differs'}"


def _in_flight(group: InFlight) -> str:
    text = f"transactions {group.first} to {group.last}: in the journal, but not yet in every table. "
    if not group.has_it:
        return f"{text}This is fine: they are being written, or the next start finishes or drops them"
    has, lacks = ", ".join(group.has_it), ", ".join(group.lacks_it)
    return (
        f"{text}In {has}, not in {lacks}: either they are being written or a run was interrupted, and the next start "
        f"finishes them; or {lacks} was restored from a copy, and the next start refuses and says so"
    )


def _gaps(gaps: list[Gap]) -> str:
    spans: list[tuple[Any, Any]] = []
    for gap in gaps:
        if spans and spans[-1][1] == gap.start:
            spans[-1] = spans[-1][0], gap.end
        else:
            spans.append((gap.start, gap.end))
    count = ""
    if all(isinstance(bound, int) for span in spans for bound in span):
        count = f"{count_of(sum(end - start for start, end in spans), 'offset')}, "
    shown = ", ".join(f"{start} to {end}" for start, end in spans[:_SPANS_SHOWN])
    more = f" and {len(spans) - _SPANS_SHOWN} more gaps" if len(spans) > _SPANS_SHOWN else ""
    return f"{count}{shown}{more}, in {transactions_words(gaps[0].txid, gaps[-1].txid)}"
