"""Somebody else who compacts a table, orders its rows, and vacuums it at once, again and again, beside a run."""

import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_PROGRAM = """
import sys
import time
from deltalake import DeltaTable

DEEDS = {
    "compacted": lambda table: table.optimize.compact(),
    "ordered": lambda table: table.optimize.z_order([sys.argv[2]]),
    "vacuumed": lambda table: table.vacuum(0, dry_run=False, enforce_retention_duration=False),
}
while True:
    for name, deed in DEEDS.items():
        try:
            deed(DeltaTable(sys.argv[1]))
        except Exception:  # there is no table yet, or the run has marked rows that were to be moved
            name = f"{name} in vain"
        print(name, flush=True)
    time.sleep(0.05)  # or nobody would have a processor for the run
"""


@contextlib.contextmanager
def tidying(table: Path, column: str, log: Path) -> Iterator[None]:
    """Have it done in a process of its own within the context; ``column`` is the one to order by."""
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(table), column], stdout=out)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def deeds_in(log: Path) -> Counter[str]:
    """Return how often each thing was done by the process with this log."""
    return Counter(log.read_text().splitlines()) if log.exists() else Counter()
