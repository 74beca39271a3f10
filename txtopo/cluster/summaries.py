"""What a nimbus shows of its cluster, as types: its API writes them as JSON in camel case, and its client reads them.

An answer of another version of txtopo may lack names, which then have their defaults, and may have others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from txtopo.files.records import in_camel_case


@attrs.frozen(field_transformer=in_camel_case)
class ClusterSummary:
    """A cluster, as the nimbus at ``address`` sees it."""

    version: str = ""
    address: str = ""
    leader: str | None = None
    nimbuses: int = 0
    supervisors: int = 0
    slots_total: int = 0
    slots_used: int = 0
    slots_free: int = 0
    topologies: int = 0


@attrs.frozen(field_transformer=in_camel_case)
class NimbusSummary:
    """A live nimbus; ``status`` is ``Leader`` or ``Not a Leader``."""

    address: str = ""
    host: str = ""
    port: int = 0
    status: str = ""
    is_leader: bool = False
    started_at: float = 0.0
    uptime_seconds: int = 0
    version: str = ""


@attrs.frozen(field_transformer=in_camel_case)
class SupervisorSummary:
    """A live supervisor."""

    id: str = ""
    address: str = ""
    slots_total: int = 0
    slots_used: int = 0
    started_at: float = 0.0
    uptime_seconds: int = 0
    version: str = ""


@attrs.frozen(field_transformer=in_camel_case)
class AssignmentSummary:
    """Where a topology's driver runs."""

    supervisor: str = ""
    slot: int = 0
    number: int = 0


@attrs.frozen(field_transformer=in_camel_case)
class HeartbeatSummary:
    """The last sign of life of a topology's driver."""

    stage: str = ""
    detail: str = ""
    pid: int = 0
    count: int = 0
    figures: Mapping[str, float] = attrs.field(factory=dict)


@attrs.frozen(field_transformer=in_camel_case)
class TopologySummary:
    """A topology; without the token ``settings``, ``reason`` and the heartbeat's ``detail`` are empty.

    ``seconds_left`` are those of a wait.
    """

    id: str = ""
    name: str = ""
    topology_id: str = ""
    status: str = ""
    uptime_seconds: int = 0
    settings: Mapping[str, str] = attrs.field(factory=dict)
    reason: str | None = None
    seconds_left: float | None = None
    replication_count: int = 0
    holders: Sequence[str] = ()
    assignment: AssignmentSummary | None = None
    heartbeat: HeartbeatSummary | None = None

    @property
    def slot(self) -> str:
        """The slot of its driver, in words; empty if it has none."""
        return "" if self.assignment is None else f"{self.assignment.supervisor}/{self.assignment.slot}"


@attrs.frozen(field_transformer=in_camel_case)
class SubmittedTopology(TopologySummary):
    """A topology that was submitted just now, and what was not waited for."""

    warning: str | None = None
