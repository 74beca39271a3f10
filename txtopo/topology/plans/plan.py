"""The plan: a checked graph, split into the two phases.

Committers and all components below them belong to the *commit phase*, all others to the *processing phase*. In
spout → A → B (committer) → C → D, the spout and A belong to the processing phase, B, C and D to the commit phase.
A component of the commit phase executes tuples from the processing phase as soon as they arrive; only its
``finish_batch`` waits for the commit phase.
"""

from __future__ import annotations

import datetime as dt
import enum
import urllib.parse
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any

import attrs

from txtopo.api.abilities import BoundsSkew, DescribesFolds
from txtopo.api.components.bolt import TakesBatches
from txtopo.api.components.groupings import Grouping
from txtopo.api.data.fields import Fields
from txtopo.api.reference import Reference
from txtopo.api.state import State
from txtopo.api.values import ROWS_KINDS
from txtopo.topology.spout_semantics import SpoutSemantics, semantics_of


def shared_storage_options(states: Iterable[State], place: str | None) -> Mapping[str, str] | None:
    """Return the options of the first table that is in the same object store as a place and has some."""
    store = urllib.parse.urlsplit(place or "")[:2]
    homes = ((state.home, state.storage_options) for state in states)
    return next((known for home, known in homes if known and home and urllib.parse.urlsplit(home)[:2] == store), None)


class Phase(enum.Enum):
    """The two phases of a transaction."""

    PROCESSING = "processing"
    COMMIT = "commit"


class ComponentKind(enum.Enum):
    """The kind of a component, which determines how it runs."""

    __hash__ = object.__hash__  # it is looked up 16 times per transaction, and Enum hashes the name in Python

    SPOUT = "spout"
    DATAFRAME_SPOUT = "DataFrame spout"
    BASIC_BOLT = "basic bolt"
    BATCH_BOLT = "batch bolt"
    ARROW_BOLT = "Arrow batch bolt"
    DATAFRAME_BOLT = "DataFrame bolt"


DATAFRAMES = frozenset({ComponentKind.DATAFRAME_SPOUT, ComponentKind.DATAFRAME_BOLT})
"""Kinds that Spark SQL runs, not Python tasks."""

SPOUTS = frozenset({ComponentKind.SPOUT, ComponentKind.DATAFRAME_SPOUT})
"""Kinds of sources."""


@attrs.frozen
class Edge:
    """A subscription: tuples of ``source``'s ``stream`` go to ``target``."""

    index: int
    source: str
    stream: str
    target: str
    grouping: Grouping


@attrs.frozen
class PlannedComponent:
    """A spout or bolt of the plan."""

    id: str
    kind: ComponentKind
    component: Any
    """The declared object: the prototype of each task's object."""
    tasks: int
    streams: Mapping[str, Fields]
    phase: Phase
    is_committer: bool
    configuration: Mapping[str, Any]
    is_left_out_without_tuples: bool = False
    """Whether a transaction creates no task of it that receives no tuple."""


_any = State.fitted


@attrs.frozen(slots=False)
class Plan:
    """The components in topological order, their edges, and the states."""

    topology_id: str
    components: tuple[PlannedComponent, ...]
    edges: tuple[Edge, ...]
    states: Mapping[str, State]
    row_tables: Mapping[str, State] = attrs.field(
        default=attrs.Factory(
            lambda plan: {name: s for name, s in plan.states.items() if getattr(s, "kind", None) in ROWS_KINDS},
            takes_self=True,
        )
    )
    """The declared states that are rows tables. Executors have them too, to convert tuples to rows."""
    fitting: Mapping[str, State] = attrs.field(
        default=attrs.Factory(
            lambda plan: {name: s for name, s in plan.states.items() if getattr(type(s), "fitted", _any) is not _any},
            takes_self=True,
        )
    )
    """The declared states that override ``fitted`` to check keys and values. Executors have them too."""
    requested_states: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """The states that each component of the commit phase requests in its ``prepare``, by component."""
    references: Mapping[str, Reference] = attrs.field(factory=dict)
    """The tables that the topology only reads."""
    output: str | None = None
    """The folder in which metadata is if no setting says where; None: beside the first table."""

    @cached_property
    def spouts(self) -> tuple[PlannedComponent, ...]:
        """The spouts, in the order in which they were declared."""
        return tuple(component for component in self.components if component.kind in SPOUTS)

    @cached_property
    def bolts(self) -> tuple[PlannedComponent, ...]:
        """All other components."""
        return tuple(component for component in self.components if component.kind not in SPOUTS)

    @cached_property
    def semantics(self) -> Mapping[str, SpoutSemantics]:
        """The semantics of each spout's kind, by its id."""
        return {spout.id: semantics_of(spout.component) for spout in self.spouts}

    @property
    def kinds(self) -> Mapping[str, str]:
        """The name of each spout's kind, as coordinator state and journal have it, by its id."""
        return {name: semantics.name for name, semantics in self.semantics.items()}

    @cached_property
    def emits_in_turn(self) -> bool:
        """Whether the tasks of some spout emit the transactions of a job one after another."""
        return any(semantics.emits_in_turn for semantics in self.semantics.values())

    @cached_property
    def by_id(self) -> Mapping[str, PlannedComponent]:
        """The components by id."""
        return {component.id: component for component in self.components}

    @cached_property
    def dataframes(self) -> tuple[PlannedComponent, ...]:
        """The components that Spark SQL runs instead of Python tasks."""
        return tuple(component for component in self.components if component.kind in DATAFRAMES)

    @cached_property
    def quiet_after(self) -> dt.timedelta | None:
        """How long a source may have nothing until a transaction without input begins; None: none begins."""
        quiet_times = (bolt.component.quiet_after for bolt in self.bolts if isinstance(bolt.component, TakesBatches))
        return min((after for after in quiet_times if after is not None), default=None)

    @cached_property
    def at_end(self) -> bool:
        """Whether a transaction without input begins once the source is exhausted."""
        return any(isinstance(bolt.component, TakesBatches) and bolt.component.at_end for bolt in self.bolts)

    @cached_property
    def bounds_skew(self) -> PlannedComponent | None:
        """The bolt that bounds the skew of event time between spouts; None if there is none."""
        bounds = (bolt for bolt in self.bolts if isinstance(bolt.component, BoundsSkew) and bolt.component.skew_max)
        return next(bounds, None)

    @property
    def is_cut_by_input(self) -> bool:
        """Whether only the sources decide what transactions hold, and neither the time nor what is committed."""
        return self.quiet_after is None and self.bounds_skew is None

    @cached_property
    def folds(self) -> Mapping[str, Mapping[str, str]]:
        """What committers fold into each column of each state, in words, as far as they say it."""
        folds: dict[str, dict[str, set[str]]] = {}
        for bolt in self.bolts:
            told_of = bolt.component.folds if isinstance(bolt.component, DescribesFolds) else {}
            for state, columns in told_of.items():
                for column, how in columns.items():
                    folds.setdefault(state, {}).setdefault(column, set()).add(how)
        return {
            state: {column: " and ".join(sorted(every)) for column, every in columns.items()}
            for state, columns in folds.items()
        }

    @property
    def delta_users(self) -> tuple[str, ...]:
        """The components that read Delta tables through Spark."""
        return tuple(component.id for component in self.dataframes if component.component.uses_delta)

    @cached_property
    def _outputs(self) -> Mapping[tuple[str, str], tuple[Edge, ...]]:
        outputs: dict[tuple[str, str], tuple[Edge, ...]] = {}
        for edge in self.edges:
            outputs[edge.source, edge.stream] = (*outputs.get((edge.source, edge.stream), ()), edge)
        return outputs

    def without_states(self) -> Plan:
        """Return the plan as executors need it: of most states, only the names."""
        names_only: Any = dict.fromkeys(self.states)
        return attrs.evolve(self, states=names_only)

    def part(self, components: Collection[str], states: Mapping[str, State]) -> Plan:
        """Return the plan of some of the components, with these states; all that is upstream of one must be among them.

        Each component keeps its phase and its place, so it emits what it emits in the whole plan.
        """
        edges = [edge for edge in self.edges if edge.source in components and edge.target in components]
        return Plan(
            self.topology_id,
            tuple(component for component in self.components if component.id in components),
            tuple(attrs.evolve(edge, index=index) for index, edge in enumerate(edges)),
            states,
            requested_states={name: states for name, states in self.requested_states.items() if name in components},
            references=self.references,
            output=self.output,
        )

    def of_phase(self, phase: Phase) -> tuple[PlannedComponent, ...]:
        """Return the components of a phase, in topological order."""
        return tuple(component for component in self.components if component.phase is phase)

    def outputs(self, component: str, stream: str) -> tuple[Edge, ...]:
        """Return the edges that start at a stream."""
        return self._outputs.get((component, stream), ())

    def spouts_above(self, component: str) -> frozenset[str]:
        """Return the spouts whose tuples, or what is made of them, a component emits; of a spout itself."""
        if self.by_id[component].kind in SPOUTS:
            return frozenset({component})
        return frozenset(spout for edge in self.inputs(component) for spout in self.spouts_above(edge.source))

    def inputs(self, component: str) -> tuple[Edge, ...]:
        """Return the edges that end at a component."""
        return tuple(edge for edge in self.edges if edge.target == component)
