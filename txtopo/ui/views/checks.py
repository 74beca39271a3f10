"""An audit or a replay that the page has begun: that it runs, and what it has found."""

from __future__ import annotations

from collections.abc import Mapping

from txtopo.text.words import duration, moment
from txtopo.ui.checks import Check
from txtopo.ui.markup.elements import Markup, tag

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
    """Return what a check has printed; ``data-running`` stands in it until it has ended."""
    words, tone = CHECK_WORDS[check.kind, check.state]
    what = "audit of all transactions" if check.txid is None else f"{check.kind} of transaction {check.txid}"
    is_running = check.state == "running"
    took = "" if is_running or check.ended_at is None else f", took {duration(check.ended_at - check.started_at)}"
    return tag(
        "div",
        tag("h3", f"{what}: ", tag("span", words, class_=tone or None)),
        tag("p", f"began {moment(check.started_at)} UTC{took}", class_="about"),
        tag("p", check.progress or check.reason) if check.progress or check.reason else None,
        tag("button", "cancel", type="button", data_post="cancel") if is_running else None,
        tag("pre", check.output, tabindex=0) if check.output else None,
        data_running=is_running,
        class_=f"check {tone}".strip(),
    )
