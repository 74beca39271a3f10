"""What the driver sends to the processes of a run, in both kinds of topologies."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import attrs
import cloudpickle

from txtopo.spark.tasks.user_lines import LinesAddress
from txtopo.workers.garbage import collect_seldom


@attrs.frozen
class RunPackage:
    """The data that every task of a run needs."""

    run_key: bytes
    """16 bytes that identify the run."""
    content: bytes = attrs.field(repr=False)
    """What :func:`pack_up` returned."""
    import_paths: tuple[str, ...]
    """The driver's module search path; empty if its modules are shipped."""
    driver_address: tuple[str, int]
    """Where the driver listens: for progress, or for the workers of a plain topology."""
    lines_address: LinesAddress

    def unpacked(self) -> Any:
        """Make the driver's modules importable in this process, and return the content."""
        sys.path.extend(path for path in self.import_paths if path not in sys.path)  # first: unpickling imports
        content = pickle.loads(self.content)  # noqa: S301 - from our driver
        collect_seldom()
        return content


def pack_up(*content: Any) -> bytes:
    """Return the content of a run package: a plan as tasks need it, and what goes with it."""
    packed: bytes = cloudpickle.dumps(content)
    return packed
