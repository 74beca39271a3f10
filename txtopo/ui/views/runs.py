"""The runs of a topology: the last one, and those before it."""

from __future__ import annotations

from txtopo.engine.timeline.records import PAST_BYTES_MAX, PAST_RUNS_MAX
from txtopo.inspect.run.status import Roots, Run, Runs
from txtopo.text.words import UNKNOWN, duration, moment, number, size
from txtopo.ui.markup.elements import Markup, tag
from txtopo.ui.views.tables import table


def runs_part(runs: Runs) -> Markup:
    """Return a table of runs, the last one first, each a link to its page."""
    is_plain = runs.runs[0].kind == "plain"
    of_transactions = ("up to transaction", "transactions", "tuples", "dead letters", "failures")
    counts = ("acked", "failed") if is_plain else of_transactions
    heads = ("began (UTC)", "status", "took", *counts, "process")
    rows = []
    for run in runs.runs:
        began, ended, process = run.started_at, run.ended_at or run.updated_at, run.process
        roots = run.roots or Roots()
        own = (run.committed, run.transactions, run.tuples, run.dead_letters, run.failures)
        numbers = (roots.acked, roots.failed) if is_plain else own
        which = "last" if run.past is None else f"run {run.past}"
        rows.append(
            [
                [tag("a", moment(began), href=f"/t/{run.slug}", class_="time"), tag("small", which)],
                _status(run),
                tag("span", UNKNOWN if began is None or ended is None else duration(ended - began), class_="time"),
                *map(number, numbers),
                None if process is None else f"{process.pid} on {process.host}, epoch {process.epoch}",
            ]
        )
    kept = f"The {PAST_RUNS_MAX} runs before the last one are kept, or as many as have room in {size(PAST_BYTES_MAX)}."
    if any(run.status == "killed" for run in runs.runs):
        kept += " What a run did in the second before it was killed is not counted here."
    return tag("div", table(heads, rows), tag("p", kept, class_="about"))


def _status(run: Run) -> Markup:
    dot = tag("span", class_="dot", aria_hidden="true")
    words = ": ".join(filter(None, (run.status, run.why)))
    return tag("span", dot, words, class_=f"status {run.status}")
