"""The page of metrics lists what there is."""

import pathlib
import re

from prometheus_client import CollectorRegistry

from txtopo.cluster.nimbus.api import _Metrics
from txtopo.engine.metrics import RUN_METRICS

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "guides" / "metrics.md").read_text(encoding="utf-8")


def shown_names(registry: CollectorRegistry) -> set[str]:
    """Return the names of metrics as Prometheus shows them."""
    return {f"{each.name}_total" if each.type == "counter" else each.name for each in registry.collect()}


def test_all_metrics_of_runs_are_described() -> None:
    """Each in a row with its type, its labels and its words."""
    for metric in RUN_METRICS.values():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        row = f"| `{metric.shown_name}` | {metric.kind} | {labels} | {metric.words} |".replace("|  |", "| |")
        assert row in PAGE


def test_no_other_metric_is_described() -> None:
    """The page has the metrics of runs and of daemons, each once."""
    described = re.findall(r"^\| `(txtopo_\w+)` \|", PAGE, re.MULTILINE)
    runs = {metric.shown_name for metric in RUN_METRICS.values()}
    daemons = {*shown_names(_Metrics().registry), "txtopo_supervisor_slots"}
    assert sorted(described) == sorted(runs | daemons)
