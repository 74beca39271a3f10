"""What a builder returns: a topology that can be run."""

from __future__ import annotations

import attrs

from txtopo.topology.plans.plain_plan import PlainPlan
from txtopo.topology.plans.plan import Plan


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


@attrs.frozen
class PlainTopology(Topology):
    """What ``TopologyBuilder.build()`` returns."""

    plan: PlainPlan
