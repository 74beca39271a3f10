"""TopologyBuilder: declares, checks and plans a plain topology."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from txtopo.api.components.bolt import Bolt, OutputFieldsDeclarer, RichBolt
from txtopo.api.components.spout import AnySpout, Spout
from txtopo.api.data.fields import Fields
from txtopo.topology.builders import checks
from txtopo.topology.builders.builder import check_pickles, refuse
from txtopo.topology.builders.code_checks import signature_mistakes, undeclared_streams
from txtopo.topology.builders.graph import BoltDeclarer, ComponentDeclarer, Declared, Graph
from txtopo.topology.builders.kinds import PLAIN_KINDS, bolt_classes, rules_of, takes_batches
from txtopo.topology.plans.plain_plan import SYSTEM, PlainComponent, PlainKind, PlainPlan
from txtopo.topology.plans.plan import Edge
from txtopo.topology.topology import PlainTopology

_RESERVED = "__"


class TopologyBuilder:
    """Builds the plain topology named ``topology_id``: spouts, and bolts below them in any graph, even with cycles."""

    def __init__(self, topology_id: str) -> None:
        self._graph = Graph(topology_id)

    def set_spout(self, spout_id: str, spout: Spout, parallelism: int | None = None) -> ComponentDeclarer:
        """Add a spout.

        Args:
            spout_id: the spout's component id.
            spout: the prototype; each task works on its own copy.
            parallelism: the number of executors; 1 by default. There are as many tasks unless ``set_num_tasks`` sets
                another number.
        """
        return ComponentDeclarer(self._add(Declared(spout_id, spout, parallelism, is_spout=True)))

    def set_bolt(self, bolt_id: str, bolt: Bolt, parallelism: int | None = None) -> BoltDeclarer:
        """Add a bolt: a ``RichBolt`` or a ``BasicBolt``.

        Args:
            bolt_id: the bolt's component id.
            bolt: the prototype; each task works on its own copy.
            parallelism: the number of executors; see :meth:`set_spout`.
        """
        return BoltDeclarer(self._add(Declared(bolt_id, bolt, parallelism)))

    def build(self) -> PlainTopology:
        """Check the graph and return the topology.

        Raises:
            TopologyError: the graph has mistakes; the message lists each with its remedy.
        """
        graph = self._graph
        refuse(
            [
                *checks.check_ids(graph),
                *_check_reserved_ids(graph),
                *_check_kinds(graph),
                *checks.check_parallelism(graph),
                *_check_executors(graph),
                *checks.check_settings(graph),
            ]
        )
        refuse([mistake for d in graph.declared for mistake in signature_mistakes(d.id, d.component)])
        declarers = {declared.id: _declared_streams(declared) for declared in graph.declared}
        streams = {name: declarer.streams for name, declarer in declarers.items()}
        refuse(
            [
                mistake
                for d in graph.declared
                for mistake in (
                    *_check_streams(d, streams[d.id]),
                    *undeclared_streams(d.id, d.component, streams[d.id], "Fields('name', …)"),
                )
            ]
        )
        all_streams = {name: {**stream, SYSTEM: Fields("event")} for name, stream in streams.items()}
        refuse([*checks.check_subscriptions(graph, all_streams), *_check_direct(graph, declarers)])
        refuse(list(checks.check_inputs(graph, all_streams)))
        return PlainTopology(_make_plan(graph, declarers))

    def _add(self, declared: Declared) -> Declared:
        self._graph.declared.append(declared)
        return declared


def _check_reserved_ids(graph: Graph) -> Iterator[str]:
    for declared in graph.declared:
        if isinstance(declared.id, str) and declared.id.startswith(_RESERVED):
            yield f"component id {declared.id!r} begins with {_RESERVED!r}, as txtopo's own do; give it another"


def _check_kinds(graph: Graph) -> Iterator[str]:
    if not any(declared.is_spout for declared in graph.declared):
        yield "the topology has no spout; add one by set_spout"
    for declared in graph.declared:
        component = declared.component
        name = component.__name__ if isinstance(component, type) else type(component).__name__
        if isinstance(component, type):
            yield f"{declared.id!r}: {name} is a class; give an object of it"
        elif declared.is_spout:
            if isinstance(component, AnySpout):
                yield (
                    f"{declared.id!r}: {name} is a spout of transactional topologies; give it to a "
                    "TransactionalTopologyBuilder, or subclass Spout"
                )
            elif not isinstance(component, Spout):
                yield f"{declared.id!r}: {name} is not a spout; subclass Spout"
        elif not isinstance(component, Bolt):
            yield f"{declared.id!r}: {name} is not a bolt; subclass {' or '.join(bolt_classes(PLAIN_KINDS))}"
        elif rules_of(component, PLAIN_KINDS) is None:
            yield (
                f"{declared.id!r}: {name} is a bolt of transactional topologies; give it to a "
                f"TransactionalTopologyBuilder, or subclass {' or '.join(bolt_classes(PLAIN_KINDS))}"
            )
        elif isinstance(component, RichBolt) and not _executes(component):
            yield f"{declared.id!r}: {name} has neither execute() nor execute_batch(); write def execute(self, tuple)"


def _executes(bolt: RichBolt) -> bool:
    """Return whether a bolt has an ``execute`` or ``execute_batch`` of its own: by default, each calls the other."""
    kind = type(bolt)
    return kind.execute is not RichBolt.execute or kind.execute_batch is not RichBolt.execute_batch


def _check_executors(graph: Graph) -> Iterator[str]:
    for declared in graph.declared:
        tasks, executors = declared.num_tasks, declared.parallelism
        if isinstance(tasks, int) and isinstance(executors, int) and tasks < executors:
            yield (
                f"{declared.id!r} has {tasks} tasks for a parallelism of {executors}; each executor needs a task: "
                "raise set_num_tasks or lower the parallelism"
            )


def _declared_streams(declared: Declared) -> OutputFieldsDeclarer:
    declarer = OutputFieldsDeclarer()
    declared.component.declare_output_fields(declarer)
    return declarer


def _check_streams(declared: Declared, streams: Mapping[str, Any]) -> Iterator[str]:
    for stream, fields in streams.items():
        where = f"{declared.id!r}, stream {stream!r}"
        if not isinstance(stream, str) or not stream:
            yield f"{where}: a stream's name is a text that is not empty"
        elif stream.startswith(_RESERVED):
            yield f"{where}: names that begin with {_RESERVED!r} are txtopo's own; give it another"
        if not isinstance(fields, Fields):
            yield f"{where}: output fields are {fields!r}; write them as Fields('name', …)"


def _check_direct(graph: Graph, declarers: Mapping[str, OutputFieldsDeclarer]) -> Iterator[str]:
    """Find other groupings on direct streams, and direct groupings on other streams."""
    for declared in graph.bolts:
        for subscription in declared.subscriptions:
            source, stream = subscription.source, subscription.stream
            if source not in declarers:
                continue  # check_subscriptions reports it
            is_direct = stream in declarers[source].direct_streams
            if is_direct != subscription.grouping.is_direct:
                problem = "is direct" if is_direct else "is not declared as direct"
                remedy = "use direct_grouping" if is_direct else "declare it with direct=True"
                yield f"bolt {declared.id!r}: stream {stream!r} of {source!r} {problem}; {remedy}"


def _make_plan(graph: Graph, declarers: Mapping[str, OutputFieldsDeclarer]) -> PlainPlan:
    components: list[PlainComponent] = []
    next_task = 1
    for declared in graph.declared:
        parallelism = declared.parallelism or 1
        tasks = declared.num_tasks or parallelism
        check_pickles(declared.id, declared.component)
        components.append(
            PlainComponent(
                id=declared.id,
                kind=_kind_of(declared.component),
                component=declared.component,
                parallelism=parallelism,
                tasks=tuple(range(next_task, next_task + tasks)),
                streams=dict(declarers[declared.id].streams),
                direct_streams=frozenset(declarers[declared.id].direct_streams),
                configuration={**declared.component.component_configuration(), **declared.configuration},
                takes_batches=isinstance(declared.component, RichBolt) and takes_batches(type(declared.component)),
            )
        )
        next_task += tasks
    subscriptions = [(declared.id, s) for declared in graph.declared for s in declared.subscriptions]
    edges = tuple(Edge(i, s.source, s.stream, target, s.grouping) for i, (target, s) in enumerate(subscriptions))
    return PlainPlan(graph.topology_id, tuple(components), edges)


def _kind_of(component: object) -> PlainKind:
    rules = rules_of(component, PLAIN_KINDS)
    assert rules is not None, "checked before"
    assert isinstance(rules.kind, PlainKind), "as the table says"
    return rules.kind
