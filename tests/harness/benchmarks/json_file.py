"""Outcomes as JSON: figures of each round, settings, versions, cores."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

import attrs

from tests.harness.benchmarks.bench import Bench
from tests.harness.benchmarks.outcome import Outcome

_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow")


def write_json(folder: Path, outcome: Outcome, bench: Bench) -> Path:
    """Write ``WORKLOAD.json`` and return its path."""
    document = {
        "workload": outcome.workload,
        "title": outcome.title,
        "unit": outcome.unit.name,
        "is_lower_better": outcome.unit.is_lower_better,
        "lines": [
            {
                "contender": line.contender,
                "role": line.role.value,
                "figure": line.figure,
                "rounds": list(line.rounds),
                "median": line.median,
            }
            for line in outcome.lines
        ],
        "targets": [
            {**attrs.asdict(verdict.target), "ratio": verdict.ratio, "is_reached": verdict.is_reached}
            for verdict in outcome.verdicts()
        ],
        "phases": outcome.phases,
        "notes": list(outcome.notes),
        "settings": {"rounds": bench.rounds, "scale": bench.scale, **outcome.settings},
        "series": outcome.series,
        "machine": _machine(bench),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{outcome.workload}.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _machine(bench: Bench) -> dict[str, Any]:
    java = bench.spark.sparkContext._jvm.java.lang.System.getProperty("java.version")
    return {
        "cores": os.cpu_count(),
        "parallelism": bench.spark.sparkContext.defaultParallelism,
        "python": platform.python_version(),
        "java": java,
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
    }
