"""The dashboard and the alert rules ask for metrics that there are."""

import json
import re

from tests.docs.grafana import ALERTS, DASHBOARD, text
from tests.docs.test_metrics import PAGE
from txtopo.engine.metrics import RUN_METRICS

_METRIC = re.compile(r"txtopo_\w+")


def test_the_dashboard_is_that_of_the_metrics() -> None:
    """It is up to date, and each metric of runs has a panel; panels do not lie on one another."""
    held = DASHBOARD.read_text(encoding="utf-8")
    assert held == text(), "run: python -m tests.docs.grafana"
    panels = [panel for panel in json.loads(held)["panels"] if panel["type"] != "row"]
    asked = {name for panel in panels for target in panel["targets"] for name in _METRIC.findall(target["expr"])}
    known = {
        f"{metric.name}_bucket" if metric.kind == "histogram" else metric.shown_name for metric in RUN_METRICS.values()
    }
    assert asked == known
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)


def test_alerts() -> None:
    """Each rule asks for metrics that the page of metrics has."""
    described = set(re.findall(r"^\| `(txtopo_\w+)` \|", PAGE, re.MULTILINE))
    rules = re.findall(r"^ +expr: (.+)$", ALERTS.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rules) >= 4
    for rule in rules:
        assert set(_METRIC.findall(rule)) <= described
        assert _METRIC.search(rule)
