"""The Grafana dashboard, made from the list of metrics: ``python -m tests.docs.grafana`` writes it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from txtopo.engine.metrics import RUN_METRICS, RunMetric
from txtopo.settings.setting import TopologyKind

FOLDER = Path(__file__).parents[2] / "docs" / "grafana"
DASHBOARD, ALERTS = FOLDER / "txtopo.json", FOLDER / "alerts.yml"

_ROWS = {
    "Transactional and plain": frozenset(TopologyKind),
    "Transactional topologies": frozenset({TopologyKind.TRANSACTIONAL}),
    "Plain topologies": frozenset({TopologyKind.PLAIN}),
}
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_WIDTH, _HEIGHT, _ACROSS = 8, 7, 3


def queries_of(metric: RunMetric) -> dict[str, str]:
    """Return what a panel asks of a metric, by its legend: rates of counters, quantiles of histograms."""
    labels = ["topology", *metric.labels]
    legend, by = " ".join(f"{{{{{label}}}}}" for label in labels), ", ".join(labels)
    chosen = f'{metric.shown_name}{{topology=~"$topology"}}'
    match metric.kind:
        case "counter":
            return {legend: f"sum by ({by}) (rate({chosen}[$__rate_interval]))"}
        case "histogram":
            buckets = f'sum by (le, {by}) (rate({metric.name}_bucket{{topology=~"$topology"}}[$__rate_interval]))'
            return {f"{legend} p{each}": f"histogram_quantile(0.{each}, {buckets})" for each in (50, 99)}
        case _:
            return {legend: f"sum by ({by}) ({chosen})"}


def dashboard() -> dict[str, Any]:
    """Return the dashboard: a row for each kind of topology, and a panel for each of its metrics."""
    choice = {
        "name": "topology",
        "type": "query",
        "datasource": _SOURCE,
        "query": "label_values(txtopo_run_seconds, topology)",
        "multi": True,
        "includeAll": True,
        "refresh": 2,
    }
    return {
        "title": "txtopo",
        "uid": "txtopo",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus"}, choice]},
        "panels": [{"id": number, **panel} for number, panel in enumerate(_panels(), 1)],
    }


def _panels() -> Iterator[dict[str, Any]]:
    top = 0
    for title, kinds in _ROWS.items():
        yield {"type": "row", "title": title, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}, "panels": []}
        own = [metric for metric in RUN_METRICS.values() if metric.of == kinds]
        for number, metric in enumerate(own):
            down, across = divmod(number, _ACROSS)
            place = {"x": across * _WIDTH, "y": top + 1 + down * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            yield _panel(metric, place)
        top += 1 + -(-len(own) // _ACROSS) * _HEIGHT


def _panel(metric: RunMetric, place: dict[str, int]) -> dict[str, Any]:
    per_second = ", a second" if metric.kind == "counter" else ""
    return {
        "type": "timeseries",
        "title": metric.shown_name.removeprefix("txtopo_").removesuffix("_total").replace("_", " "),
        "description": f"{metric.words}{per_second}",
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": _unit(metric), "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for number, (legend, query) in enumerate(queries_of(metric).items())
        ],
    }


def _unit(metric: RunMetric) -> str:
    if metric.kind == "counter":
        return "cps"
    return "s" if metric.name.endswith("_seconds") else "short"


def text() -> str:
    """Return the dashboard as the file holds it."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    DASHBOARD.write_text(text(), encoding="utf-8")
