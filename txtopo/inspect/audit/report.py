"""What an audit or a replay finds: commands print it, as text or JSON, and the page shows it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import attrs

from txtopo.api.table_history import StateComparison
from txtopo.files.records import in_camel_case, written_as
from txtopo.text.words import count_of

SHORT_MAX = 200
"""A page is told so many findings, gaps of a partition and the like: more is no page."""


@attrs.frozen(field_transformer=in_camel_case)
class AuditProgress:
    """How many of the versions of a state's table have been read."""

    state: str
    done: int
    versions: int

    def __str__(self) -> str:
        return f"state {self.state!r}: {self.done:,} of {count_of(self.versions, 'version')}"


@attrs.frozen(field_transformer=in_camel_case)
class Finding:
    """A violation of a check."""

    text: str
    txid: int | None = attrs.field(default=None, metadata=written_as("transaction"))
    state: str | None = None
    version: int | None = None

    def __str__(self) -> str:
        where = [
            f"{name} {value}"
            for name, value in (
                ("transaction", self.txid),
                ("state", self.state and repr(self.state)),
                ("table version", self.version),
            )
            if value is not None
        ]
        return f"{', '.join(where)}: {self.text}" if where else self.text


@attrs.define(field_transformer=in_camel_case)
class TableProof:
    """What is proved of one table, from the transaction ``first`` to ``last``."""

    state: str
    first: int
    last: int
    groups: int = 0
    versions: int = 0
    rows_put: int | None = 0
    """None, as ``rows_removed`` and ``unread``: rows were not compared."""
    rows_removed: int | None = 0
    unread: int | None = 0
    """The number of groups' versions that are no longer kept, so that their rows were not compared."""
    between: int = 0
    """The number of groups between points, whose own versions are gone: their rows were compared as one."""
    believed: int = 0
    """The number of other writers' versions that moved rows, by their own account, and whose rows were not compared."""
    repairs: int = 0
    """The number of versions that repairs made, to roll back or to accept other writers' changes."""
    begun_after: int | None = None
    """The state was begun empty after this transaction; None if it was not."""
    backfilled_to: int | None = None
    """The state joined the topology after this transaction, and a backfill wrote its table until then."""
    left_after: int | None = None
    """The last transaction at which the topology had the state; None if it has it still."""
    away: tuple[tuple[int, int], ...] = ()
    """The transactions, (first, last), at which a state that may come and go was not in the topology."""


@attrs.frozen(field_transformer=in_camel_case)
class CheckedInput:
    """How much of the spouts' input was checked; of ``untold`` transactions a spout does not report it."""

    partitions: int = 0
    ranges: int = 0
    untold: int = 0


@attrs.frozen(field_transformer=in_camel_case)
class Gap:
    """Input that a transaction skipped because it was gone."""

    txid: int = attrs.field(metadata=written_as("transaction"))
    start: Any
    end: Any


@attrs.frozen(field_transformer=in_camel_case)
class SeenVersions:
    """The first and the last version of a reference table that transactions have seen."""

    first: int
    last: int


@attrs.frozen(field_transformer=in_camel_case)
class Replanned:
    """A transaction that was planned again with a newer version of a reference table."""

    txid: int = attrs.field(metadata=written_as("transaction"))
    reference: str
    version: int
    instead_of: int | None
    text: str


@attrs.frozen(field_transformer=in_camel_case)
class InFlight:
    """A group that was entered, but is not in every table yet: the states whose tables have it, and the others."""

    first: int
    last: int
    has_it: tuple[str, ...] = attrs.field(default=(), metadata=written_as("in"))
    lacks_it: tuple[str, ...] = attrs.field(default=(), metadata=written_as("notIn"))


@attrs.frozen(field_transformer=in_camel_case)
class Renamed:
    """Other names since a transaction: of the topology, and of states, the one before by the new one."""

    txid: int = attrs.field(metadata=written_as("after"))
    topology: str
    former: str
    states: Mapping[str, str]
    text: str


@attrs.define(field_transformer=in_camel_case)
class AuditReport:
    """What an audit has found, and what it has proved: all transactions from ``first`` to ``last`` are committed."""

    topology: str = ""
    is_proved: bool = False
    findings: list[Finding] = attrs.field(factory=list)
    left_out: int = 0
    """How many findings, gaps and the like a shortened report lacks."""
    with_rows: bool = True
    """Whether the rows of table versions were compared."""
    first: int = 0
    last: int = 0
    groups: int = 0
    epochs: int = 0
    dead_letters: int = 0
    dropped: int = 0
    """The number of groups that were entered and not committed, or undone; their transactions run again."""
    input: CheckedInput = CheckedInput()
    skipped: dict[str, list[Gap]] = attrs.field(factory=dict)
    """By partition."""
    references: dict[str, SeenVersions] = attrs.field(factory=dict)
    replanned: list[Replanned] = attrs.field(factory=list)
    in_flight: InFlight | None = None
    renames: list[Renamed] = attrs.field(factory=list)
    tables_read: int = 0
    """The number of tables whose histories were read."""
    tables: list[TableProof] = attrs.field(factory=list)
    not_proved: dict[str, int | None] = attrs.field(factory=dict)
    """The states in the journal without a table to audit; if they have left, the last transaction that had them."""

    def find(self, text: str, txid: int | None = None, state: str | None = None, version: int | None = None) -> None:
        """Add a finding."""
        self.findings.append(Finding(text, txid, state, version))

    def shortened(self) -> AuditReport:
        """Return it with the first findings, gaps and transactions that were planned again, for a page."""
        gaps = sum(map(len, self.skipped.values()))
        short = attrs.evolve(
            self,
            findings=self.findings[:SHORT_MAX],
            skipped={name: found[:SHORT_MAX] for name, found in list(self.skipped.items())[:SHORT_MAX]},
            replanned=self.replanned[:SHORT_MAX],
        )
        all_of = len(self.findings) + gaps + len(self.replanned)
        kept = len(short.findings) + sum(map(len, short.skipped.values())) + len(short.replanned)
        return attrs.evolve(short, left_out=all_of - kept)


class Comparison(enum.Enum):
    """How the tuples of a component were compared."""

    CHECKSUM = "the checksum in the journal"
    TWO_RUNS = "their number in the journal, and the checksums of two replays"
    COUNT = "their number in the journal"


@attrs.frozen(field_transformer=in_camel_case)
class ComponentComparison:
    """The tuples that a component emitted at the commit and in the replay."""

    component: str
    tuples_then: int
    tuples_now: int
    comparison: Comparison
    is_same: bool


@attrs.frozen(field_transformer=in_camel_case)
class Difference:
    """The first difference."""

    text: str
    component: str | None = None
    """The component at fault; None if unknown."""

    def __str__(self) -> str:
        return self.text if self.component is None else f"{self.component!r}: {self.text}"


@attrs.frozen(field_transformer=in_camel_case)
class ReplayReport:
    """The comparison of one transaction with its replay."""

    txid: int
    epoch: int
    try_: int
    first: int
    last: int
    """Its commit group holds ``first`` to ``last``; the replay also runs the group's earlier transactions."""
    run_from: int
    """The first transaction that the replay runs: that of the group, or the one after the nearest point."""
    left_out: tuple[str, ...]
    """What of the topology can't be judged, in words."""
    components: tuple[ComponentComparison, ...]
    states: tuple[StateComparison, ...]
    difference: Difference | None


@attrs.frozen(field_transformer=in_camel_case)
class CheckLine:
    """What a command tells the page that has begun it, in a line of JSON: how far it is, and what came of it."""

    progress: AuditProgress | None = None
    audit: AuditReport | None = None
    replay: ReplayReport | None = None
    error: str = ""
