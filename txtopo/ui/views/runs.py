"""The runs of a topology: the last one, and those before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txtopo.engine.timeline.records import PAST_BYTES_MAX, PAST_RUNS_MAX
from txtopo.text.words import UNKNOWN, duration, moment, number, size
from txtopo.ui.markup.elements import Markup, tag
from txtopo.ui.views.tables import table


def runs_part(runs: Mapping[str, Any]) -> Markup:
    """Return a table of runs, the last one first, each a link to its page."""
    is_plain = runs["runs"][0]["kind"] == "plain"
    of_transactions = ("up to transaction", "transactions", "tuples", "dead letters", "failures")
    counts = ("acked", "failed") if is_plain else of_transactions
    heads = ("began (UTC)", "status", "took", *counts, "process")
    rows = []
    for each in runs["runs"]:
        began, ended, process = each["startedAt"], each["endedAt"] or each["updatedAt"], each["process"]
        roots = each["roots"] or {}
        names = ("committed", "transactions", "tuples", "deadLetters", "failures")
        numbers = (roots.get("acked"), roots.get("failed")) if is_plain else [each[name] for name in names]
        which = "last" if each["past"] is None else f"run {each['past']}"
        rows.append(
            [
                [tag("a", moment(began), href=f"/t/{each['slug']}", class_="time"), tag("small", which)],
                _status(each),
                tag("span", UNKNOWN if None in {began, ended} else duration(ended - began), class_="time"),
                *map(number, numbers),
                process and f"{process['pid']} on {process['host']}, epoch {process['epoch']}",
            ]
        )
    kept = f"The {PAST_RUNS_MAX} runs before the last one are kept, or as many as have room in {size(PAST_BYTES_MAX)}."
    return tag("div", table(heads, rows), tag("p", kept, class_="about"))


def _status(run: Mapping[str, Any]) -> Markup:
    dot = tag("span", class_="dot", aria_hidden="true")
    words = ": ".join(filter(None, (run["status"], run["why"])))
    return tag("span", dot, words, class_=f"status {run['status']}")
