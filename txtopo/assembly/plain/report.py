"""What a plain topology has done: a report, and the sums over its workers that it is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from txtopo.plain.tasks.metrics import Counts, LatencyHistogram, by_component
from txtopo.plain.worker import WorkerStatus
from txtopo.topology.plans.plain_plan import PlainPlan
from txtopo.workers.messages import Health
from txtopo.workers.supervisor import Supervisor


@attrs.frozen
class PlainReport:
    """What a plain topology has done.

    Args:
        topology_id: the topology.
        reason: why it stopped, in words; empty while it runs.
        elapsed_secs: time since its start.
        emitted: roots and untracked tuples that its spouts emitted.
        acked: roots that were acked.
        failed: roots that failed.
        pending: roots that are neither.
        latency_p50_secs: the time within which half of the acked roots were acked; None if there are none.
        latency_p99_secs: the same for 99 % of them.
        components: the counts of each component, ``__acker`` among them.
        workers: the number of workers.
        workers_running: how many of them run.
        restarts: how often a worker was started again.
        worker_cpu_secs: processor time of the workers.
        reported_errors: errors that components reported.
        last_error: the last error that ended a worker, or else the last that was reported; empty if there was none.
        latencies: complete latencies of the acked roots.
        lag: for each spout that knows it, how many records its tasks are behind the end of their source.
        workers_killed: workers that died without reporting an error. The counts of their last two seconds are lost, so
            the true numbers of roots and tuples are *at least* these.
        queued: for each bolt, how many tuples wait in memory to be executed.
    """

    topology_id: str
    reason: str
    elapsed_secs: float
    emitted: int
    acked: int
    failed: int
    pending: int
    latency_p50_secs: float | None
    latency_p99_secs: float | None
    components: Mapping[str, Counts]
    workers: int
    workers_running: int
    restarts: int
    worker_cpu_secs: float
    reported_errors: int
    last_error: str
    latencies: LatencyHistogram = attrs.field(factory=LatencyHistogram, repr=False)
    lag: Mapping[str, int] = attrs.field(factory=dict)
    workers_killed: int = 0
    queued: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen
class Totals:
    """Sums over workers: those that have died, and those of the runs before a rebalance."""

    counts: Mapping[str, Counts] = attrs.field(factory=dict)
    latencies: LatencyHistogram = attrs.field(factory=LatencyHistogram)
    restarts: int = 0
    workers_killed: int = 0
    cpu_secs: float = 0.0
    reported_errors: int = 0
    last_error: str = ""

    def with_health(self, health: Health) -> Totals:
        """Return the sums with a worker's."""
        status: WorkerStatus = health.status
        return attrs.evolve(
            self,
            counts=by_component([*self.counts.items(), *status.counts]),
            latencies=LatencyHistogram.sum([self.latencies, status.latencies]),
            cpu_secs=self.cpu_secs + health.cpu_secs,
            reported_errors=self.reported_errors + status.reported_errors,
            last_error=status.last_error or self.last_error,
        )

    def plus(self, supervisor: Supervisor, health: Iterable[Health]) -> Totals:
        """Return the sums with a run's: its supervisor's, and those of its workers that live."""
        sums = self
        for each in health:
            sums = sums.with_health(each)
        return attrs.evolve(
            sums,
            restarts=sums.restarts + supervisor.restarts,
            workers_killed=sums.workers_killed + supervisor.killed,
            last_error=supervisor.last_error or sums.last_error,
        )


def report_of(  # noqa: PLR0913 - what a report says
    plan: PlainPlan,
    totals: Totals,
    statuses: Iterable[WorkerStatus],
    *,
    reason: str,
    elapsed_secs: float,
    workers: int,
    workers_running: int,
) -> PlainReport:
    """Return a report of the sums over all workers, and of what those that live say about now."""
    pending, lag, queued = 0, Counter[str](), Counter[str]()
    for status in statuses:
        pending += status.pending
        for spout, records in status.lag:
            lag[spout] += records
        for bolt, tuples in status.queued:
            queued[bolt] += tuples
    spouts = [totals.counts[spout.id] for spout in plan.spouts if spout.id in totals.counts]
    return PlainReport(
        topology_id=plan.topology_id,
        reason=reason,
        elapsed_secs=elapsed_secs,
        emitted=sum(sum(spout.emitted.values()) for spout in spouts),
        acked=sum(spout.acked for spout in spouts),
        failed=sum(spout.failed for spout in spouts),
        pending=pending,
        latency_p50_secs=totals.latencies.quantile(0.5),
        latency_p99_secs=totals.latencies.quantile(0.99),
        components=dict(totals.counts),
        workers=workers,
        workers_running=workers_running,
        restarts=totals.restarts,
        worker_cpu_secs=totals.cpu_secs,
        reported_errors=totals.reported_errors,
        last_error=totals.last_error,
        latencies=totals.latencies,
        lag=dict(lag),
        workers_killed=totals.workers_killed,
        queued=dict(queued),
    )
