"""The daemons of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from txtopo.files.records import in_camel_case


@attrs.frozen(field_transformer=in_camel_case)
class Nimbus:
    """A nimbus."""

    address: str
    is_leader: bool = False
    is_alive: bool = False
    started_at: float = 0.0
    version: str = ""
    code_held: Sequence[str] = ()


@attrs.frozen(field_transformer=in_camel_case)
class Driver:
    """A driver in a slot of a supervisor."""

    slug: str
    id: str
    pid: int | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Supervisor:
    """A supervisor."""

    host: str
    started_at: float = 0.0
    slots: int = 0
    used: int = 0
    drivers: Sequence[Driver] = ()


@attrs.frozen(field_transformer=in_camel_case)
class Cluster:
    """The daemons of a cluster; ``why`` nothing newer is known."""

    now: float
    nimbuses: Sequence[Nimbus] = ()
    supervisors: Sequence[Supervisor] = ()
    why: str = ""


@attrs.frozen(field_transformer=in_camel_case)
class Changed:
    """What a topology of a cluster is after a change."""

    id: str
    status: str
    seconds_left: float | None = None
