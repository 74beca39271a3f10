"""The topologies of a folder or a cluster."""

from __future__ import annotations

from txtopo.inspect.run.status import Topologies
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
    for topology in topologies.topologies:
        age = UNKNOWN
        if topology.started_at is not None and topology.updated_at is not None:
            age = duration(topology.updated_at - topology.started_at)
        rows.append(
            [
                tag("a", topology.id, href=f"/t/{topology.slug}"),
                tag(
                    "span",
                    tag("span", class_="dot", aria_hidden="true"),
                    topology.status_text,
                    class_=f"status {topology.status}",
                ),
                number(topology.committed) if topology.kind == "transactional" else "plain",
                short(topology.rate),
                short(topology.lag) if topology.lag_files is None else count_of(topology.lag_files, "file"),
                tag("span", age, class_="time"),
                topology.last_error and tag("span", topology.last_error, class_="reason"),
            ]
        )
    return table(heads, rows)
