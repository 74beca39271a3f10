"""The topologies of a folder or a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txtopo.text.words import UNKNOWN, count_of, duration, number
from txtopo.ui.markup.elements import Markup, tag
from txtopo.ui.markup.plots import short
from txtopo.ui.views.tables import none, table


def topologies_part(topologies: Mapping[str, Any]) -> Markup:
    """Return a table of the topologies, each a link to its page."""
    if not topologies["topologies"]:
        return none(f"there is no topology in {topologies['place']} yet")
    heads = ("topology", "status", "committed", "per second", "lag", "age", "last error")
    rows = []
    for each in topologies["topologies"]:
        known = (each["startedAt"], each["updatedAt"])
        rows.append(
            [
                tag("a", each["id"], href=f"/t/{each['slug']}"),
                tag(
                    "span",
                    tag("span", class_="dot", aria_hidden="true"),
                    each["statusText"],
                    class_=f"status {each['status']}",
                ),
                number(each["committed"]) if each["kind"] == "transactional" else "plain",
                short(each["rate"]),
                short(each["lag"]) if each["lagFiles"] is None else count_of(each["lagFiles"], "file"),
                tag("span", UNKNOWN if None in known else duration(known[1] - known[0]), class_="time"),
                each["lastError"] and tag("span", each["lastError"], class_="reason"),
            ]
        )
    return table(heads, rows)
