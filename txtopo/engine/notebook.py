"""What a run shows in a notebook's cell."""

from __future__ import annotations

import sys
from typing import Any

from txtopo.assembly.report import Progress


def notebook_progress() -> Any:
    """Return what shows a run's progress in one line of a notebook's cell; None elsewhere."""
    if "ipykernel" not in sys.modules:
        return None

    def show(progress: Progress) -> None:
        waiting = progress.processing + progress.processed + progress.committing
        text = f"transaction {progress.committed_txid:,}; {progress.tuples:,} tuples; {waiting} in flight"
        print(f"\r{text:<80}", end="", flush=True)  # noqa: T201 - a cell's output

    return show
