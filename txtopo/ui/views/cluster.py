"""The daemons of a cluster."""

from __future__ import annotations

from txtopo.inspect.answers import Cluster, Nimbus
from txtopo.text.words import UNKNOWN, duration
from txtopo.ui.markup.elements import Markup, tag
from txtopo.ui.views.tables import none, table


def cluster_part(cluster: Cluster) -> Markup:
    """Return the nimbuses, of which one leads, and the supervisors with their drivers."""
    now = cluster.now
    nimbuses = [
        [
            each.address,
            _role(each),
            _age(now - each.started_at) if each.is_alive else UNKNOWN,
            each.version,
            ", ".join(each.code_held) or "none",
        ]
        for each in cluster.nimbuses
    ]
    supervisors = [
        [
            each.host,
            f"{each.used} of {each.slots}",
            _age(now - each.started_at),
            [
                [tag("a", d.id, href=f"/t/{d.slug}"), "" if d.pid is None else f" process {d.pid}", tag("br")]
                for d in each.drivers
            ],
        ]
        for each in cluster.supervisors
    ]
    return tag(
        "div",
        cluster.why and tag("p", cluster.why, class_="none message"),
        tag("h2", "Nimbuses"),
        table(("nimbus", "role", "up for", "version", "code held"), nimbuses) if nimbuses else none("none is there"),
        tag("h2", "Supervisors"),
        table(("supervisor", "slots used", "up for", "drivers"), supervisors) if supervisors else none("none is there"),
    )


def _role(nimbus: Nimbus) -> Markup:
    if not nimbus.is_alive:
        return _sign("killed", "gone; it led" if nimbus.is_leader else "gone")
    return _sign("running", "leads") if nimbus.is_leader else _sign("ended", "waits to lead")


def _age(secs: float) -> Markup:
    return tag("span", duration(secs), class_="time")


def _sign(status: str, words: str) -> Markup:
    return tag("span", tag("span", class_="dot", aria_hidden="true"), words, class_=f"status {status}")
