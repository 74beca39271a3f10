"""Run topologies in the calling process, without Spark, for tests and experiments."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from txtopo.assembly.environment import Environment
from txtopo.assembly.report import RunReport
from txtopo.assembly.threads import ThreadPools, Threads
from txtopo.config import Config
from txtopo.engine.runner import run_with
from txtopo.topology.plans.plan import Plan
from txtopo.topology.topology import TransactionalTopology
from txtopo.transactional.jobs.inline_runner import InlineJobRunner
from txtopo.transactional.jobs.job_runner import JobRunner

__all__ = ["InlineJobRunner", "run_inline"]


def run_inline(
    topology: TransactionalTopology,
    config: Config | Mapping[str, Any] | None = None,
    *,
    until: int | None = None,
    slots: int = 2,
    wall_secs: Callable[[], float] = time.time,
) -> RunReport:
    """Run a topology in this process, without Spark, and write tables one after another; see :func:`txtopo.run`.

    Args:
        topology: a topology without DataFrame components.
        config: its configuration; None: the defaults.
        until: the txid after whose commit the run stops; None: it stops when the input ends.
        slots: the number of partitions of a job.
        wall_secs: returns the seconds since 1970, UTC, at which a transaction is planned.
    """
    config = config if isinstance(config, Config) else Config(config)
    return run_with(topology, config, inline_environment(slots, wall_secs), until=until)


def inline_environment(slots: int = 2, wall_secs: Callable[[], float] = time.time) -> Environment:
    """Return the environment of :func:`run_inline`, which see."""

    @contextlib.contextmanager
    def make_runner(plan: Plan, config: Config, prototypes: dict[str, bytes]) -> Iterator[JobRunner]:
        runner = InlineJobRunner(plan, config, prototypes, slots)
        try:
            yield runner
        finally:
            runner.close()

    def make_threads(jobs_max: int) -> Threads:
        return ThreadPools(jobs_max, steps_max=1, wall_secs=wall_secs)

    return Environment(make_runner, make_threads=make_threads)
