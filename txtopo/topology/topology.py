"""What a builder returns: a topology that can be run."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from txtopo.topology.plans.plain_plan import PlainPlan
from txtopo.topology.plans.plan import Plan

ColumnSources = Mapping[str, Mapping[str, Collection[tuple[str, str]]]]
"""By state and column, the fields that its values are made of: each a spout or a reference table, and a name."""


class Topology:
    """A topology that can be run, of either kind."""

    plan: Plan | PlainPlan

    @property
    def id(self) -> str:
        """Its name, under which a transactional topology keeps its coordinator state."""
        return self.plan.topology_id


@attrs.frozen
class TransactionalTopology(Topology):
    """What ``TransactionalTopologyBuilder.build()`` returns."""

    plan: Plan
    columns: ColumnSources = attrs.field(factory=dict)
    """Of what the columns of states are made, as far as it is known: a flow knows it."""
    places: Mapping[str, str] = attrs.field(factory=dict)
    """Where users have written each component, as far as it is known, for errors: a flow knows it."""


@attrs.frozen
class PlainTopology(Topology):
    """What ``TopologyBuilder.build()`` returns."""

    plan: PlainPlan
