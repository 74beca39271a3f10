"""What can be known of a topology, as types: commands and the page show them, and the API writes them as JSON.

In JSON names are in camel case; ``schema_of`` says what there is. An answer that another version of txtopo has made may
lack names, which then have their defaults, and may have others, which are ignored. Times are in seconds since 1970.
"""

from __future__ import annotations

import collections.abc
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Union

import attrs

from txtopo.files.records import name_in_json, written_as

Line = list[float | None]
"""The values of a plot, one for each of its times; None where nothing was measured."""


def _camel(name: str) -> str:
    first, *others = name.rstrip("_").split("_")
    return "".join([first, *(other.capitalize() for other in others)])


def in_camel_case(_kind: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """Give the fields of an attrs class names in camel case in JSON."""
    return [field.evolve(metadata={**written_as(_camel(field.name)), **field.metadata}) for field in fields]


# Status.


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


# Transactions.


@attrs.frozen(field_transformer=in_camel_case)
class TransactionLine:
    """A transaction in a list."""

    txid: int
    status: str = ""
    attempts: int = 0
    epoch: int = 0
    group: int | None = None
    tuples: int = 0
    began_at: float | None = None
    ended_at: float | None = None
    secs: float | None = None
    component: str | None = None
    error: str | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Transactions:
    """Transactions, newest first; ``is_cut`` if there are more."""

    transactions: Sequence[TransactionLine] = ()
    is_cut: bool = False


@attrs.frozen(field_transformer=in_camel_case)
class Attempt:
    """An attempt at a transaction, and the moments that it has reached."""

    try_: int
    epoch: int = 0
    outcome: str = "open"
    job: int | None = None
    group: int | None = None
    tuples: int = 0
    component: str | None = None
    error: str | None = None
    available_at: float | None = None
    begun_at: float | None = None
    metadata_at: float | None = None
    started_at: float | None = None
    processed_at: float | None = None
    grouped_at: float | None = None
    phases_at: float | None = None
    ended_at: float | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Write:
    """The write of a commit group to a state."""

    state: str = ""
    rows: int = 0
    removed: int = 0
    prepared_at: float | None = None
    decided_at: float | None = None
    from_at: float | None = None
    to_at: float | None = None


@attrs.frozen(field_transformer=in_camel_case)
class StoryLine:
    """A line of a story: what it is about, in at most nine characters, and what there is to say; often a time first."""

    label: str
    text: str


@attrs.frozen(field_transformer=in_camel_case)
class Reference:
    """The version of a reference table that a transaction has seen; ``instead_of`` is the first that was planned."""

    table: str
    version: int
    instead_of: int | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Entered:
    """What the journal has of a transaction."""

    group: Sequence[int] = ()
    metadata: Any = None
    planned_at: float | None = None
    references: Mapping[str, Reference] = attrs.field(factory=dict)
    waited: Sequence[str] = ()
    ranges: Mapping[str, Sequence[Any]] = attrs.field(factory=dict)
    skipped: Mapping[str, Sequence[Sequence[Any]]] = attrs.field(factory=dict)
    tuples: Mapping[str, int] = attrs.field(factory=dict)
    is_dead_letter: bool = False


@attrs.frozen(field_transformer=in_camel_case)
class CanCheck:
    """What may be asked for of a transaction."""

    audit: bool = False
    replay: bool = False


@attrs.frozen(field_transformer=in_camel_case)
class Transaction:
    """All that is known of a transaction; ``previous`` and ``next`` are those beside it, if there are any."""

    txid: int
    now: float = 0.0
    headline: str = ""
    story: Sequence[StoryLine] = ()
    attempts: Sequence[Attempt] = ()
    writes: Sequence[Write] = ()
    journal: Entered | None = None
    can: CanCheck = CanCheck()
    previous: int | None = None
    next: int | None = None


@attrs.frozen(field_transformer=in_camel_case)
class TimelineRun:
    """A run that has begun within a timeline; ``at`` is in ms after its base."""

    epoch: int
    pid: int
    at: float


@attrs.frozen(field_transformer=in_camel_case)
class TimelineAttempts:
    """Attempts in columns; moments are in ms after the base, 0 if they were not reached."""

    txid: list[int]
    try_: list[int]
    epoch: list[int]
    outcome: list[int]
    job: list[int]
    group: list[int]
    tuples: list[int]
    component: list[int]
    text: list[int]
    available: list[float]
    begun: list[float]
    metadata: list[float]
    started: list[float]
    processed: list[float]
    grouped: list[float]
    phases: list[float]
    ended: list[float]


@attrs.frozen(field_transformer=in_camel_case)
class TimelineWrites:
    """Writes in columns, as :class:`TimelineAttempts`."""

    epoch: list[int]
    group: list[int]
    state: list[int]
    prepared: list[float]
    decided: list[float]
    from_: list[float]
    to: list[float]
    rows: list[int]
    removed: list[int]


@attrs.frozen(field_transformer=in_camel_case)
class Timeline:
    """A timeline after a record, in columns: ``head`` is its last record, ``base`` in ms since 1970."""

    head: int
    lost: bool
    base: float
    epoch: int
    runs: list[TimelineRun]
    attempts: TimelineAttempts
    writes: TimelineWrites
    texts: dict[str, str]
    now: float


# Errors.


@attrs.frozen(field_transformer=in_camel_case)
class Error:
    """An error, with its traceback."""

    at: float
    txid: int | None = None
    attempt: int | None = None
    epoch: int | None = None
    component: str = ""
    text: str = ""


@attrs.frozen(field_transformer=in_camel_case)
class ErrorGroup:
    """Errors of one component with the same first line, newest first."""

    component: str
    first: str
    count: int
    first_at: float
    last_at: float
    errors: Sequence[Error]


@attrs.frozen(field_transformer=in_camel_case)
class Errors:
    """The last errors in groups, and how many failures there were."""

    total: int = 0
    groups: Sequence[ErrorGroup] = ()


# States.


@attrs.frozen(field_transformer=in_camel_case)
class TablePoint:
    """A transaction as of which a table can be shown, and when it was written."""

    txid: int
    written_at: float | None = None


@attrs.frozen(field_transformer=in_camel_case)
class StateTable:
    """A state, and how large its table is; ``advice`` says what its use costs that need not be.

    ``files`` and ``bytes`` are those of its rows; ``disk_files`` and ``disk_bytes`` are of all that it keeps, of some
    time ago. It can be shown as of ``points``, and as of each commit group from ``all_since`` on.
    """

    name: str
    kind: str | None = None
    class_: str | None = None
    key: str | None = None
    value: str | None = None
    path: str = ""
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    version: int | None = None
    txid: int | None = None
    updated_at: float | None = None
    disk_files: int | None = None
    disk_bytes: int | None = None
    points: Sequence[TablePoint] = ()
    all_since: TablePoint | None = None
    advice: str = ""
    error: str | None = None


@attrs.frozen(field_transformer=in_camel_case)
class States:
    """The states of a topology; ``why`` some may be missing."""

    states: Sequence[StateTable] = ()
    is_live: bool = False
    why: str = ""


@attrs.frozen(field_transformer=in_camel_case)
class Rows:
    """Rows of a state as texts."""

    name: str
    txid: int | None = None
    columns: Sequence[str] = ()
    types: Sequence[str] = ()
    rows: Sequence[Sequence[str | None]] = ()
    found: int = 0
    total: int = 0
    is_cut: bool = False
    last_txid: int | None = None
    error: str | None = None


# The graph.


@attrs.frozen(field_transformer=in_camel_case)
class Flow:
    """What a component has got, and what it has emitted, by stream."""

    in_: float | None = None
    out: Mapping[str, float] | None = None
    emitted: float | None = None
    executed: float | None = None
    acked: float | None = None
    failed: float | None = None
    queued: float | None = None


@attrs.frozen(field_transformer=in_camel_case)
class Component:
    """A component of a graph."""

    id: str
    kind: str = ""
    class_: str = ""
    tasks: int = 0
    phase: str | None = None
    committer: bool = False
    streams: Mapping[str, str] = attrs.field(factory=dict)
    states: Sequence[str] = ()
    counts: Flow = Flow()
    last_error: str | None = None
    last_failed_at: float | None = None
    is_failing: bool = False


@attrs.frozen(field_transformer=in_camel_case)
class Edge:
    """An edge of a graph."""

    source: str
    stream: str
    target: str
    grouping: str


@attrs.frozen(field_transformer=in_camel_case)
class GraphState:
    """A state in a graph."""

    class_: str = ""
    kind: str = ""
    key: str = ""
    value: str = ""
    path: str = ""


@attrs.frozen(field_transformer=in_camel_case)
class Graph:
    """The graph of a topology; ``why`` it has no components."""

    topology: str
    kind: str = "transactional"
    components: Sequence[Component] = ()
    edges: Sequence[Edge] = ()
    states: Mapping[str, GraphState] = attrs.field(factory=dict)
    why: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it is a plain topology's."""
        return self.kind == "plain"


# Plots and settings.


@attrs.frozen(field_transformer=in_camel_case)
class Plot:
    """Lines over time, by name."""

    name: str
    title: str
    unit: str
    lines: Mapping[str, Line]


@attrs.frozen(field_transformer=in_camel_case)
class Plots:
    """Plots of some seconds; ``at`` are the times of their values."""

    secs: int
    step_secs: int = 1
    until: int = 0
    is_last: bool = True
    at: Sequence[int] = ()
    plots: Sequence[Plot] = ()


@attrs.frozen(field_transformer=in_camel_case)
class SettingValue:
    """A setting of a run."""

    name: str
    in_python: str = ""
    value: str = ""
    default: str = ""
    is_default: bool = True
    purpose: str = ""
    is_secret: bool = False


@attrs.frozen(field_transformer=in_camel_case)
class Settings:
    """The settings of a run, and the arguments of its topology's function."""

    settings: Sequence[SettingValue] = ()
    arguments: Mapping[str, str] = attrs.field(factory=dict)
    why: str = ""


# A cluster.


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


# As JSON.

_SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a type: of an answer, or of what stands in one."""
    if kind is Any:
        return {}
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]}
    if attrs.has(kind):
        hints = _hints(kind)
        properties = {name_in_json(field): schema_of(hints[field.name]) for field in attrs.fields(kind)}
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in {Union, types.UnionType}:
        schemas = [schema_of(part) for part in parts]
        if all(isinstance(schema.get("type"), str) and schema["type"] in _SCALARS.values() for schema in schemas):
            return {"type": [schema["type"] for schema in schemas]}
        return {"anyOf": schemas}
    if origin in {dict, collections.abc.Mapping}:
        return {"type": "object", "additionalProperties": schema_of(parts[1])}
    return {"type": "array", "items": schema_of(parts[0])}


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
