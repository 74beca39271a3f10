"""TransactionalTopologyBuilder: declares, checks and plans a topology."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import attrs
import cloudpickle

from txtopo.api.components.bolt import Bolt, Component, ICommitter, OutputFieldsDeclarer
from txtopo.api.components.groupings import Grouping, GroupingKind
from txtopo.api.components.spout import AnySpout, DataFrameSpout, Spout
from txtopo.api.data.copying import culprit
from txtopo.api.data.fields import Fields
from txtopo.api.reference import Reference
from txtopo.api.state import State
from txtopo.errors import SharedStateWarning, TopologyError
from txtopo.topology.builders import checks
from txtopo.topology.builders.code_checks import shared_defaults, signature_mistakes, undeclared_streams
from txtopo.topology.builders.graph import BoltDeclarer, ComponentDeclarer, Declared, Graph, Subscription
from txtopo.topology.builders.kinds import rules_of
from txtopo.topology.builders.probe import find_state_mistakes, requested_states
from txtopo.topology.plans.plan import ComponentKind, Edge, Phase, Plan, PlannedComponent, shared_storage_options
from txtopo.topology.spout_semantics import semantics_of
from txtopo.topology.topology import TransactionalTopology


class TransactionalTopologyBuilder:
    """Builds a topology: its spouts, the bolts below them, and the states that its committers write.

    Args:
        topology_id: the name of the topology's coordinator state; no two topologies may share one.
        spout_id: the first spout's component id.
        spout: the source of the transactions.
        parallelism: the number of tasks that emit a transaction; 1 by default.
        output: the folder, or the address in an object store, in which metadata is kept unless ``topology.state.dir``
            says where; None: beside the first table.
    """

    def __init__(
        self,
        topology_id: str,
        spout_id: str,
        spout: AnySpout,
        parallelism: int | None = None,
        *,
        output: str | os.PathLike[str] | None = None,
    ) -> None:
        self._graph = Graph(topology_id, output=None if output is None else os.fspath(output))
        self._graph.declared.append(Declared(spout_id, spout, parallelism, is_spout=True))

    @property
    def spout_declarer(self) -> ComponentDeclarer:
        """The declarer that sets the first spout's number of tasks and configuration."""
        return ComponentDeclarer(self._graph.declared[0])

    def add_spout(self, spout_id: str, spout: AnySpout, parallelism: int | None = None) -> ComponentDeclarer:
        """Add another source of the transactions, beside the first one.

        *txtopo* guarantees that each transaction takes what each source has when the transaction begins, and that none
        is waited for: one that has nothing then, or does not answer, has no tuples in it. A topology that has run
        before takes what a new spout has from its next transaction on.

        Args:
            spout_id: the spout's component id, under which its metadata is kept.
            spout: the source.
            parallelism: the number of tasks that emit a transaction; 1 by default.
        """
        declared = Declared(spout_id, spout, parallelism, is_spout=True)
        self._graph.declared.append(declared)
        return ComponentDeclarer(declared)

    def set_bolt(self, bolt_id: str, bolt: Bolt, parallelism: int | None = None) -> BoltDeclarer:
        """Add a bolt; a bolt that subclasses ``ICommitter`` becomes a committer.

        Args:
            bolt_id: the bolt's component id.
            bolt: the prototype; each task works on its own copy.
            parallelism: the number of tasks; 1 by default.
        """
        return self._add(bolt_id, bolt, parallelism, is_committer=isinstance(bolt, ICommitter))

    def set_committer_bolt(self, bolt_id: str, bolt: Bolt, parallelism: int | None = None) -> BoltDeclarer:
        """Add a batch bolt as a committer: its ``finish_batch`` runs in the commit phase, in txid order."""
        return self._add(bolt_id, bolt, parallelism, is_committer=True)

    def set_state(self, name: str, state: State) -> None:
        """Add a state; committers and the bolts below them get it from ``context.state(name)``."""
        self._graph.states.append((name, state))

    def set_reference(self, name: str, reference: Reference) -> None:
        """Add a table that the topology only reads; bolts of both phases get it from ``context.reference(name)``.

        Args:
            name: its name; a transaction records under it which version it sees.
            reference: the table, a ``DeltaReference``.
        """
        self._graph.references.append((name, reference))

    def build(self) -> TransactionalTopology:
        """Check the graph and return the topology.

        It calls ``prepare`` once on a copy of each bolt of the commit phase, to find the states that it requests.

        Raises:
            TopologyError: the graph has mistakes; the message lists each with its remedy.

        Warns:
            SharedStateWarning: a bolt's class has an attribute that is a list, a dictionary or a set.
        """
        # Each group of checks relies on those before it: the streams, for example, are asked for by a method whose
        # signature was checked. So a group's mistakes are raised before the next group runs.
        refuse(list(checks.check_own_tables(self._graph)))
        graph = _with_own_tables(self._graph)
        refuse(
            [
                *checks.check_ids(graph),
                *checks.check_places(graph.states),
                *checks.check_kinds(graph),
                *checks.check_parallelism(graph),
                *checks.check_settings(graph),
                *checks.check_times(graph),
                *checks.check_clocks(graph),
                *checks.check_references(graph),
            ]
        )
        refuse([mistake for d in graph.declared for mistake in signature_mistakes(d.id, d.component)])
        streams = {declared.id: _streams_of(declared) for declared in graph.declared}
        refuse(
            [
                mistake
                for d in graph.declared
                for mistake in (
                    *checks.check_streams(d, streams[d.id]),
                    *undeclared_streams(d.id, d.component, streams[d.id]),
                )
            ]
        )
        refuse([*checks.check_subscriptions(graph, streams), *checks.check_cycle(graph)])
        refuse(list(checks.check_inputs(graph, streams)))
        refuse(list(checks.check_whole_keys(graph, streams)))
        ordered = _in_topological_order(graph)
        commit_phase = _find_commit_phase(ordered)
        refuse(list(checks.check_dataframes(graph, streams, commit_phase)))
        plan = _make_plan(graph, ordered, streams, commit_phase)
        refuse(list(checks.check_skew(plan)))
        plan = attrs.evolve(plan, requested_states=requested_states(plan))
        refuse(list(find_state_mistakes(plan)))
        for shared in {shared for d in graph.bolts for shared in shared_defaults(d.component)}:
            warnings.warn(shared.text, SharedStateWarning, stacklevel=2)
        return TransactionalTopology(plan)

    def _add(self, bolt_id: str, bolt: Bolt, parallelism: int | None, *, is_committer: bool) -> BoltDeclarer:
        declared = Declared(bolt_id, bolt, parallelism, is_committer=is_committer)
        self._graph.declared.append(declared)
        return BoltDeclarer(declared)


def _with_own_tables(graph: Graph) -> Graph:
    """Return the graph with the spouts' committers and states added.

    Each committer has as many tasks as the spout, and each task reads from the spout task with its index. So nothing is
    shuffled, and the committer needs no stage.
    """
    tables = checks.own_tables_of(graph)
    committers = [
        Declared(
            name,
            table.make_committer(name),
            spout.parallelism,
            is_committer=True,
            num_tasks=spout.num_tasks,
            subscriptions=[Subscription(spout.id, table.stream, Grouping(GroupingKind.LOCAL_OR_SHUFFLE))],
            is_of_spout=True,
        )
        for spout, name, table in tables
    ]
    states = [(name, table.state) for _, name, table in tables]
    return attrs.evolve(graph, declared=[*graph.declared, *committers], states=[*graph.states, *states])


def refuse(mistakes: list[str]) -> None:
    """Raise a TopologyError that names all mistakes, if there are any."""
    if mistakes:
        raise TopologyError("\n".join(mistakes))


def _streams_of(declared: Declared) -> Mapping[str, Fields]:
    declarer = OutputFieldsDeclarer()
    declared.component.declare_output_fields(declarer)
    if isinstance(
        declared.component, DataFrameSpout
    ):  # read() returns no attempt column, so the declared fields may omit the attempt; it is added here
        return {
            stream: fields.with_attempt() if _is_typed(fields) else fields
            for stream, fields in declarer.streams.items()
        }
    return declarer.streams


def _is_typed(fields: Fields) -> bool:
    return isinstance(fields, Fields) and bool(fields.names) and fields.types[0] is not None


def _in_topological_order(graph: Graph) -> list[Declared]:
    """Sort components so that each follows its inputs, otherwise in the order of declaration."""
    ordered: list[Declared] = []
    placed: set[str] = set()
    waiting = list(graph.declared)
    while waiting:  # ends, because check_cycle has found no cycle
        ready = next(d for d in waiting if all(s.source in placed for s in d.subscriptions))
        waiting.remove(ready)
        placed.add(ready.id)
        ordered.append(ready)
    return ordered


def _find_commit_phase(ordered: list[Declared]) -> set[str]:
    below: set[str] = set()
    for declared in ordered:  # inputs come first, so one pass is enough
        if declared.is_committer or any(s.source in below for s in declared.subscriptions):
            below.add(declared.id)
    return below


def _make_plan(
    graph: Graph, ordered: list[Declared], streams: Mapping[str, Mapping[str, Fields]], commit_phase: set[str]
) -> Plan:
    components = tuple(
        PlannedComponent(
            id=declared.id,
            kind=_kind_of(declared.component),
            component=_prototype(declared),
            tasks=declared.num_tasks or declared.parallelism or 1,
            streams=dict(streams[declared.id]),
            phase=Phase.COMMIT if declared.id in commit_phase else Phase.PROCESSING,
            is_committer=declared.is_committer,
            configuration=dict(declared.configuration),
            is_left_out_without_tuples=declared.is_of_spout,
        )
        for declared in ordered
    )
    subscriptions = [(declared.id, s) for declared in ordered for s in declared.subscriptions]
    edges = tuple(
        Edge(index, subscription.source, subscription.stream, target, subscription.grouping)
        for index, (target, subscription) in enumerate(subscriptions)
    )
    declared_states = dict(graph.states)
    return Plan(
        topology_id=graph.topology_id,
        components=components,
        edges=edges,
        states={
            name: state.in_store(shared_storage_options(declared_states.values(), state.home))
            for name, state in declared_states.items()
        },
        references=dict(graph.references),
        output=graph.output,
    )


def _kind_of(component: object) -> ComponentKind:
    rules = rules_of(component)
    assert rules is not None, "checked before"
    assert isinstance(rules.kind, ComponentKind), "as the table says"
    return rules.kind


def _prototype(declared: Declared) -> Any:
    component = declared.component
    if isinstance(component, Bolt):
        check_pickles(declared.id, component)
        return component
    assert not isinstance(component, Spout), "checked before"
    return semantics_of(component).prototype(component)


def check_pickles(component_id: str, component: Component) -> None:
    """Raise a TopologyError if a component does not pickle, and so can't travel to the executors."""
    try:
        cloudpickle.dumps(component)
    except Exception as error:  # a user's object may raise anything while it is pickled
        kind, method = ("bolt", "prepare") if isinstance(component, Bolt) else ("spout", "open")
        name = f"{type(component).__name__}{culprit(component)}"
        raise TopologyError(
            f"{kind} {component_id!r}: {name} does not pickle ({error}); create objects that do not pickle in "
            f"{method}()"
        ) from error
