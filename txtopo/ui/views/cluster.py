"""The daemons of a cluster."""

from __future__ import annotations

from txtopo.inspect.cluster import Cluster, Nimbus
from txtopo.text.words import UNKNOWN, duration
from txtopo.ui.markup.elements import Markup, tag
from txtopo.ui.views.tables import none, table


def cluster_part(cluster: Cluster) -> Markup:
    """Return the nimbuses, of which one leads, and the supervisors with their drivers."""
    now = cluster.now
    nimbuses = [
        [
            nimbus.address,
            _role(nimbus),
            _age(now - nimbus.started_at) if nimbus.is_alive else UNKNOWN,
            nimbus.version,
            ", ".join(nimbus.code_held) or "none",
        ]
        for nimbus in cluster.nimbuses
    ]
    supervisors = [
        [
            supervisor.host,
            f"{supervisor.used} of {supervisor.slots}",
            _age(now - supervisor.started_at),
            [
                [
                    tag("a", driver.id, href=f"/t/{driver.slug}"),
                    "" if driver.pid is None else f" process {driver.pid}",
                    tag("br"),
                ]
                for driver in supervisor.drivers
            ],
        ]
        for supervisor in cluster.supervisors
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
