"""Runs topologies in the calling process, without Spark: for tests, and for trying a topology out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from txtopo.config import Config
from txtopo.monitor.report import RunReport
from txtopo.phases.inline_runner import InlinePackRunner
from txtopo.phases.pack_runner import PackRunner
from txtopo.runner import Outfit, run_with
from txtopo.topology.plan import Plan, Topology

__all__ = ["InlinePackRunner", "run_inline"]


def run_inline(
    topology: Topology, config: Config | None = None, *, until: int | None = None, places: int = 2
) -> RunReport:
    """Run a topology in this process, without Spark; see :func:`txtopo.run`."""

    @contextlib.contextmanager
    def make_runner(plan: Plan, config: Config, prototypes: dict[str, bytes]) -> Iterator[PackRunner]:
        runner = InlinePackRunner(plan, config, prototypes, places)
        try:
            yield runner
        finally:
            runner.close()

    return run_with(topology, config or Config(), Outfit(make_runner), until=until)
