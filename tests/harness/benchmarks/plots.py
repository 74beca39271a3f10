"""Plots of a workload's series, by matplotlib, which no other module imports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tests.harness.benchmarks.outcome import Outcome

_PANELS = {
    "transactions_per_sec": "transactions/s",
    "tuples_per_sec": "tuples/s",
    "commit_ms_a_transaction": "commit phase, ms a transaction",
    "python_mib_peak": "driver's Python process so far, MiB",
}


def check_matplotlib() -> None:
    """Raise a ClickException if matplotlib is missing, before anything is measured."""
    try:
        import matplotlib as _  # noqa: F401
    except ImportError as error:
        raise click.ClickException(
            "plots need matplotlib, which is not installed; get it with: pip install '.[benchmarks]'"
        ) from error


def write_plots(folder: Path, outcome: Outcome) -> list[Path]:
    """Write a PNG file for each series of the workload ``scale``, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_write_plot(folder, name, points) for name, points in outcome.series.items()]


def _write_plot(folder: Path, name: str, points: Sequence[Mapping[str, Any]]) -> Path:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(10, 7), layout="constrained")
    figure.suptitle(f"txtopo: cost against {name}")
    values = [point[name] for point in points]
    for axis, (key, label) in zip(axes.flat, _PANELS.items(), strict=True):
        axis.plot(values, [point[key] for point in points], marker="o")
        axis.set(xscale="log", xlabel=name, ylabel=label)
        axis.margins(y=0.1)
        axis.set_ylim(bottom=0)
        axis.set_xticks(values, [f"{value:,}" for value in values])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    path = folder / f"scale_{name}.png"
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
