"""Run a plain topology to its end, and return every tuple that it emitted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.components.bolt import RichBolt
from txtopo.api.components.collector import OutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.groupings import Grouping, GroupingKind
from txtopo.api.components.spout import Spout
from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import DEFAULT_STREAM, Tuple
from txtopo.config import Config
from txtopo.errors import TopologyError
from txtopo.plain.tasks.metrics import Counts
from txtopo.testing.feeders import WAIT_SECS, FixedTupleSpout, Shared
from txtopo.testing.inline_cluster import InlineCluster
from txtopo.topology.plans.plain_plan import PlainComponent, PlainKind, PlainPlan
from txtopo.topology.plans.plan import Edge
from txtopo.topology.topology import PlainTopology

CAPTURE = "__capture"
"""The added component that receives every tuple."""

_STEP_SECS = 1.0

MockSources = Mapping[str, Sequence[Sequence[Any]] | Mapping[str, Sequence[Sequence[Any]]]]
"""What spouts emit instead: by component the values of each tuple, or the same by stream."""


class _CaptureBolt(RichBolt, Shared):
    """Acks and keeps every tuple."""

    def __init__(self, streams: Mapping[tuple[str, str], Fields]) -> None:
        Shared.__init__(self)
        self.captured: dict[tuple[str, str], list[tuple[Any, ...]]] = {stream: [] for stream in streams}

    def prepare(self, config: Mapping[str, Any], context: TopologyContext, collector: OutputCollector) -> None:
        del config, context
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        captured = self.captured.get((tuple.source_component, tuple.source_stream))
        if captured is not None:  # if the topology sets ticks for all components, they come here, too
            captured.append((*tuple.values,))
        self._collector.ack(tuple)


@attrs.frozen
class CompletedTopology:
    """The result of a topology: its tuples, and by component what its tasks have counted."""

    statistics: Mapping[str, Counts]
    _captured: Mapping[tuple[str, str], Sequence[tuple[Any, ...]]]

    def tuples(self, component: str, stream: str = DEFAULT_STREAM) -> list[tuple[Any, ...]]:
        """Return the values of every tuple that a component emitted on a stream, in order of arrival.

        Raises:
            TopologyError: there is no such stream, or it is a direct one, which only the named task receives.
        """
        found = self._captured.get((component, stream))
        if found is None:
            known = ", ".join(f"{name!r}/{of_it!r}" for name, of_it in self._captured)
            raise TopologyError(f"no stream {stream!r} of {component!r} was captured; there are: {known}")
        return list(found)


def complete_topology(
    topology: PlainTopology,
    mock_sources: MockSources | None = None,
    config: Config | Mapping[str, Any] | None = None,
    *,
    workers: int = 2,
    timeout_secs: float = WAIT_SECS,
) -> CompletedTopology:
    """Run a plain topology in this process until its spouts are exhausted and nothing is pending.

    Simulated time passes while nothing else happens, so ticks come, and tuples that are never acked time out. The first
    exception in a component ends the run, unless ``topology.worker.max.restarts`` is set.

    Args:
        topology: the plain topology.
        mock_sources: by spout, the tuples to emit instead of its own: the values of each, or by stream the values of
            each. Every other spout must define ``is_exhausted``, so that the run can end.
        config: the topology's configuration.
        workers: the number of workers, unless the configuration gives it.
        timeout_secs: how long to wait, in real seconds.

    Raises:
        TopologyError: a spout cannot end, or ``mock_sources`` names no spout or none of its streams.
        TimeoutError: the topology has not ended in time.
        UserCodeError: a component raised an exception other than a FailedException.
    """
    if not isinstance(topology, PlainTopology):
        raise TopologyError(
            f"complete_topology runs plain topologies, not {topology!r}; run a transactional one by run_inline"
        )
    plan = _with_mocks(topology.plan, mock_sources or {})
    _check_completable(plan)
    capture = _CaptureBolt(dict(_streams(plan)))
    given = config if isinstance(config, Config) else Config(config)
    # No restarts unless the user asks for them: a test is to see the first exception.
    settings = given.with_settings({"topology.worker.max.restarts": 0, **given.given})
    with InlineCluster(workers) as cluster:
        running = cluster.submit(PlainTopology(_with_capture(plan, capture)), settings)
        end = time.monotonic() + timeout_secs
        cluster.advance_time(0)
        while not running.is_done:
            running.raise_if_given_up()
            if time.monotonic() > end:
                pending = sum(status.pending for status in running.statuses())
                raise TimeoutError(
                    f"topology {plan.topology_id!r} has not ended within {timeout_secs:g} s; roots pending: {pending}"
                )
            cluster.advance_time(_STEP_SECS)
        running.stop()
        return CompletedTopology(running.statistics(), capture.captured)


def _with_mocks(plan: PlainPlan, mock_sources: MockSources) -> PlainPlan:
    spouts = {spout.id: spout for spout in plan.spouts}
    for name, tuples in mock_sources.items():
        if name not in spouts:
            raise TopologyError(f"there is no spout {name!r} to mock; there are: {', '.join(map(repr, spouts))}")
        for stream in tuples if isinstance(tuples, Mapping) else (DEFAULT_STREAM,):
            if stream not in spouts[name].streams:
                known = ", ".join(map(repr, spouts[name].streams))
                raise TopologyError(f"spout {name!r} has no stream {stream!r} to mock; its streams are: {known}")
    return attrs.evolve(
        plan, components=tuple(_mocked(component, mock_sources.get(component.id)) for component in plan.components)
    )


def _mocked(
    component: PlainComponent, tuples: Sequence[Sequence[Any]] | Mapping[str, Sequence[Sequence[Any]]] | None
) -> PlainComponent:
    if tuples is None:
        return component
    return attrs.evolve(component, component=FixedTupleSpout(tuples, component.streams))


def _check_completable(plan: PlainPlan) -> None:
    for spout in plan.spouts:
        kind = type(spout.component)
        if kind.is_exhausted is Spout.is_exhausted:
            raise TopologyError(
                f"spout {spout.id!r} never ends: {kind.__name__} has no is_exhausted() of its own; write one, or give "
                f"mock_sources={{{spout.id!r}: [...]}}"
            )


def _streams(plan: PlainPlan) -> Iterator[tuple[tuple[str, str], Fields]]:
    """Yield the streams that can be captured: all but direct ones, whose tuples go to the named task alone."""
    for component in plan.components:
        for stream, fields in component.streams.items():
            if stream not in component.direct_streams:
                yield (component.id, stream), fields


def _with_capture(plan: PlainPlan, capture: _CaptureBolt) -> PlainPlan:
    task = 1 + max(task for component in plan.components for task in component.tasks)
    bolt = PlainComponent(
        id=CAPTURE,
        kind=PlainKind.RICH_BOLT,
        component=capture,
        parallelism=1,
        tasks=(task,),
        streams={},
        direct_streams=frozenset(),
        configuration={},
    )
    edges = (
        Edge(number, component, stream, CAPTURE, Grouping(GroupingKind.GLOBAL))
        for number, ((component, stream), _) in enumerate(_streams(plan), start=len(plan.edges))
    )
    return attrs.evolve(plan, components=(*plan.components, bolt), edges=(*plan.edges, *edges))
