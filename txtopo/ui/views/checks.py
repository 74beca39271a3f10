"""An audit or a replay that the page has begun: how far it is, and what it has found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from txtopo.inspect.audit.report import AuditReport, Finding, ReplayReport
from txtopo.inspect.audit.wording import lines_of, remarks_on, span_of, state_words, verdict_of
from txtopo.text.words import duration, moment, number
from txtopo.ui.checks import Check
from txtopo.ui.markup.elements import Child, Markup, tag
from txtopo.ui.views.tables import story, table

CHECK_WORDS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("audit", "running"): ("audit runs…", ""),
    ("audit", "same"): ("sound", "good"),
    ("audit", "differs"): ("a fault was found", "bad"),
    ("audit", "failed"): ("could not audit", "bad"),
    ("audit", "cancelled"): ("audit cancelled", ""),
    ("replay", "running"): ("replay runs…", ""),
    ("replay", "same"): ("the same", "good"),
    ("replay", "differs"): ("it differs", "bad"),
    ("replay", "failed"): ("could not replay", "bad"),
    ("replay", "cancelled"): ("replay cancelled", ""),
}
"""The outcome of a check and its tone, by its kind and state."""


def check_part(check: Check) -> Markup:
    """Return how far a check is, or what it has found; ``data-running`` stands in it until it has ended."""
    words, tone = CHECK_WORDS[check.kind, check.state]
    title = "audit of all transactions" if check.txid is None else f"{check.kind} of transaction {check.txid}"
    is_running = check.state == "running"
    took = "" if is_running or check.ended_at is None else f", took {duration(check.ended_at - check.started_at)}"
    state = check.reason if check.progress is None else str(check.progress)
    return tag(
        "div",
        tag("h3", f"{title}: ", tag("span", words, class_=tone or None)),
        tag("p", f"began {moment(check.started_at)} UTC{took}", class_="about"),
        state and tag("p", state, class_="reason"),
        is_running and tag("button", "cancel", type="button", data_post="cancel"),
        None if check.audit is None else _audit(check.audit),
        None if check.replay is None else _replay(check.replay),
        check.output and [tag("h4", "Printed meanwhile"), tag("pre", check.output, tabindex=0)],
        data_running=is_running,
        class_=f"check {tone}".strip(),
    )


def _audit(report: AuditReport) -> Iterator[Markup]:
    """Yield what was proved, and of each table what was compared and what was found."""
    if report.is_proved:
        yield tag("p", verdict_of(report))
    yield story(lines_of(report))
    found: dict[str | None, list[Finding]] = {}
    for finding in report.findings:
        found.setdefault(finding.state, []).append(finding)
    yield _faults(found.pop(None, ()))
    rows: list[list[Child]] = [
        [
            proof.state,
            span_of(proof),
            *map(number, (proof.groups, proof.versions, proof.rows_put, proof.rows_removed)),
            [tag("p", remark) for remark in remarks_on(proof)],
            _faults(found.pop(proof.state, ())),
        ]
        for proof in report.tables
    ]
    rows += [[state, *[""] * 6, _faults(findings)] for state, findings in found.items()]
    if rows:
        heads = ("table", "transactions", "groups", "versions", "rows put", "removed", "of note", "faults")
        yield table(heads, rows)
    if report.left_out:
        yield tag("p", f"{report.left_out:,} more are left out here; 'txtopo audit' has them.", class_="about")


def _faults(findings: Iterable[Finding]) -> Markup:
    return tag("ul", (tag("li", str(finding)) for finding in findings), class_="faults bad")


def _replay(report: ReplayReport) -> Iterator[Markup]:
    """Yield the first difference, and how each component and state was compared."""
    if report.difference is not None:
        yield tag("p", str(report.difference), class_="bad")
    forward = f", run from transaction {report.run_from} on" if report.run_from < report.first else ""
    committed = f"attempt {report.try_}, epoch {report.epoch}, committed with {report.first} to {report.last}{forward}"
    yield tag("p", committed, class_="about")
    yield from (tag("p", text) for text in report.left_out)
    components = [
        [
            compared.component,
            _outcome(is_same=compared.is_same),
            number(compared.tuples_then),
            number(compared.tuples_now),
            compared.comparison.value,
        ]
        for compared in report.components
    ]
    yield table(("component", "tuples are", "then", "now", "compared by"), components)
    for state in report.states:
        yield tag("p", f"state {state.state}: {state_words(state)}")


def _outcome(*, is_same: bool) -> Markup:
    return tag("span", "the same" if is_same else "other ones", class_="" if is_same else "bad")
