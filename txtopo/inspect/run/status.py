"""What is said of a topology and its runs: status, figures, and what may be asked for beside answers."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from txtopo.files.records import in_camel_case


@attrs.frozen(field_transformer=in_camel_case)
class Process:
    """The process of a run. ``is_alive`` is None if it is on another machine."""

    pid: int = 0
    host: str = ""
    epoch: int = 0
    is_alive: bool | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Topology:
    """What is said of a topology wherever it is named."""

    slug: str = ""
    id: str = ""
    kind: str = "transactional"
    status: str = "unknown"
    status_text: str = ""
    committed: int | None = None
    lag: int | None = None
    lag_files: int | None = None
    lag_bytes: int | None = None
    last_error: str | None = None
    started_at: float | None = None
    updated_at: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is a plain topology."""
        return self.kind == "plain"


@attrs.frozen(field_transformer=in_camel_case)
class Summary(Topology):
    """A topology in the list of all; ``rate`` is of transactions, or of roots, a second."""

    rate: float | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Topologies:
    """All topologies of a place."""

    version: str = ""
    place: str = ""
    is_cluster: bool = False
    topologies: Sequence[Summary] = ()


@attrs.frozen(field_transformer=in_camel_case)
class Pending:
    """How many transactions are in each phase."""

    ready: int | None = None
    processing: int | None = None
    processed: int | None = None
    committing: int | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Rates:
    """What is done in a second: transactions, or roots of a plain topology, and tuples."""

    transactions: float | None = None
    tuples: float | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Latency:
    """How long it takes from when input is available until it is visible, or until a root is acked."""

    p50_secs: float | None = None
    p99_secs: float | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Lowest:
    """The lowest uncommitted transaction."""

    txid: int
    status: str = ""
    waits_for: str = ""
    since_secs: float | None = None
    attempt: int | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Failure:
    """The last failure, in a line."""

    txid: int | None = None
    attempt: int | None = None
    component: str | None = None
    error: str = ""
    at: float = 0.0


@attrs.frozen(field_transformer=in_camel_case)
class HasTimeline:
    """Whether there is a timeline, and why not."""

    is_there: bool = False
    why: str = ""


@attrs.frozen(field_transformer=in_camel_case)
class Can:
    """What may be asked for, beside answers."""

    audit: bool = False
    replay: bool = False
    activate: bool = False
    rebalance: bool = False
    kill: bool = False


@attrs.frozen(field_transformer=in_camel_case)
class Roots:
    """The roots of a plain topology."""

    emitted: int | None = None
    acked: int | None = None
    failed: int | None = None
    pending: int | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Workers:
    """The workers of a plain topology."""

    wanted: float | None = None
    running: float | None = None
    restarts: float | None = None
    killed: float | None = None
    cpu_secs: float | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Counts:
    """What a component has counted since the run began."""

    emitted: float | None = None
    transferred: float | None = None
    executed: float | None = None
    acked: float | None = None
    failed: float | None = None
    queued: float | None = None


@attrs.frozen(field_transformer=in_camel_case)
class ComponentCounts(Counts):
    """The counts of the component ``id``."""

    id: str = ""


@attrs.frozen(field_transformer=in_camel_case)
class Header(Topology):
    """All that stands above the details of a topology, or of an earlier run of it."""

    now: float = 0.0
    past: int | None = None
    ended_at: float | None = None
    process: Process | None = None
    begun: int | None = None
    transactions: int | None = None
    dead_letters: int | None = None
    attempts: int | None = None
    failures: int | None = None
    tuples: int | None = None
    pending: Pending | None = None
    remaining: int | None = None
    rate: Rates = Rates()
    latency: Latency = Latency()
    lowest: Lowest | None = None
    last_failure: Failure | None = None
    is_failing: bool = False
    timeline: HasTimeline = HasTimeline()
    damage: Sequence[str] = ()
    can: Can = Can()
    is_active: bool | None = None
    roots: Roots | None = None
    workers: Workers | None = None
    components: Sequence[ComponentCounts] = ()


@attrs.frozen(field_transformer=in_camel_case)
class Run:
    """A run in the list of a topology's; ``past`` is None for the last one."""

    slug: str = ""
    past: int | None = None
    kind: str = "transactional"
    status: str = "unknown"
    why: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    updated_at: float | None = None
    process: Process | None = None
    committed: int | None = None
    transactions: int | None = None
    tuples: int | None = None
    dead_letters: int | None = None
    failures: int | None = None
    roots: Roots | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Runs:
    """The runs of a topology, the last one first."""

    runs: Sequence[Run] = ()
