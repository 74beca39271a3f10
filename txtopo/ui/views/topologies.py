"""The topologies of a folder or a cluster."""

from __future__ import annotations

from txtopo.inspect.answers import Topologies
from txtopo.text.words import UNKNOWN, count_of, duration, number
from txtopo.ui.markup.elements import Markup, tag
from txtopo.ui.markup.plots import short
from txtopo.ui.views.tables import none, table


def topologies_part(topologies: Topologies) -> Markup:
    """Return a table of the topologies, each a link to its page."""
    if not topologies.topologies:
        return none(f"there is no topology in {topologies.place} yet")
    heads = ("topology", "status", "committed", "per second", "lag", "age", "last error")
    rows = []
    for each in topologies.topologies:
        age = UNKNOWN
        if each.started_at is not None and each.updated_at is not None:
            age = duration(each.updated_at - each.started_at)
        rows.append(
            [
                tag("a", each.id, href=f"/t/{each.slug}"),
                tag(
                    "span",
                    tag("span", class_="dot", aria_hidden="true"),
                    each.status_text,
                    class_=f"status {each.status}",
                ),
                number(each.committed) if each.kind == "transactional" else "plain",
                short(each.rate),
                short(each.lag) if each.lag_files is None else count_of(each.lag_files, "file"),
                tag("span", age, class_="time"),
                each.last_error and tag("span", each.last_error, class_="reason"),
            ]
        )
    return table(heads, rows)
