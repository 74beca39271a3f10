"""Replays: runs a committed transaction again from the journal's metadata, and compares the results.

The transactions of a group were written together, so a replay runs its group up to the transaction, in order, on each
table as it was before the group. It writes nothing, takes no lead and fences nobody.

1. It compares the tuples of the components in topological order. The first component that differs is at fault, because
   the components above it have emitted the same tuples. It compares checksums if the journal has them. If it has none
   (the tasks of the transaction were spread, or the encoding of its values depends on the process), it compares numbers
   of tuples, and a second replay must emit the same tuples as the first.
2. If all components have emitted the same tuples, it compares the transaction's rows in the table with the rows put
   now.
3. Components of the commit phase also depend on the earlier transactions of the group. If one of those emits different
   tuples, this transaction cannot be judged, and the report names the other one.

States that keep no versions are left out, and so are those that the topology did not have at the transaction: with them
go the components that request one, what is downstream of these, and the other states that these write.

Where tables no longer keep the versions before and after the group, all groups between the nearest points are run as
if they were one: from the point before, forward to the transaction.

A range of transactions is replayed group by group, each once, on the tables as they were before it: so what one group
does differently does not count again in the next. The topology may have got other components since.

An opaque spout's metadata contains only where each partition ended. The replay continues from the metadata of the
transaction before, and passes only the partitions that moved.
"""

from __future__ import annotations

import enum
import functools
import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs

from txtopo.api.components.optional import call_if_there
from txtopo.api.components.planned import metadata_of
from txtopo.api.state import OpenedState, Writes
from txtopo.api.table_history import StateComparison
from txtopo.attempts import TransactionAttempt
from txtopo.errors import ConfigError, DivergenceError, FailedException, StateAccessError
from txtopo.journal.journal import (
    DEAD_LETTERS,
    JournalEntry,
    JournalHeader,
    JournalPart,
    JournalTransaction,
    counting_entries,
)
from txtopo.topology.builders.checks import OWN_PREFIX
from txtopo.topology.plans.plan import DATAFRAMES, Phase, Plan, PlannedComponent
from txtopo.topology.user_code.blame import user_code
from txtopo.transactional.commit.phases import run_commit_phases
from txtopo.transactional.core.actions import AssignedAttempt, Process
from txtopo.transactional.core.limits import Limits
from txtopo.transactional.core.spout_policy import policy_of
from txtopo.transactional.jobs.job_runner import JobRunner
from txtopo.transactional.jobs.jobs import JobPlanner, Processing
from txtopo.transactional.tasks.factory import TaskFactory
from txtopo.transactional.tasks.fingerprint import Fingerprint, Fingerprints, joined

TRIES_MAX = 10
"""How often a replay is tried if it raises FailedException."""

FORWARD_MAX = 10_000
"""How many transactions are run at most because the tables have no version nearer to the one that is replayed."""

NO_BOUND = 1 << 60
"""A limit for bytes in memory that is never reached, so nothing is spilled."""


class Comparison(enum.Enum):
    """How the tuples of a component were compared."""

    CHECKSUM = "the checksum in the journal"
    TWO_RUNS = "their number in the journal, and the checksums of two replays"
    COUNT = "their number in the journal"


@attrs.frozen
class ComponentComparison:
    """The tuples that a component emitted at the commit and in the replay."""

    component: str
    tuples_then: int
    tuples_now: int
    comparison: Comparison
    is_same: bool


@attrs.frozen
class Difference:
    """The first difference."""

    text: str
    component: str | None = None
    """The component at fault; None if unknown."""


@attrs.frozen
class ReplayReport:
    """The comparison of one transaction with its replay."""

    txid: int
    attempt: int
    epoch: int
    first: int
    last: int
    """Its commit group holds ``first`` to ``last``; the replay also runs the group's earlier transactions."""
    run_from: int
    """The first transaction that the replay runs: that of the group, or the one after the nearest point."""
    components: tuple[ComponentComparison, ...]
    states: tuple[StateComparison, ...]
    difference: Difference | None


@attrs.define
class Tally:
    """How many transactions of a range differ in one component or state."""

    compared: int = 0
    differing: int = 0
    first: int | None = None
    """The first one that does."""

    def add(self, txid: int, *, differs: bool) -> None:
        """Count a transaction."""
        self.compared += 1
        if differs:
            self.differing += 1
            self.first = self.first or txid


@attrs.define
class RangeReport:
    """The comparison of a range of transactions with their replay."""

    first: int
    last: int
    groups: int = 0
    transactions: Tally = attrs.field(factory=Tally)
    given_up: int = 0
    """The number of transactions that were given up, which have nothing to compare."""
    components: dict[str, Tally] = attrs.field(factory=dict)
    states: dict[str, Tally] = attrs.field(factory=dict)
    changed: tuple[str, ...] = ()
    """The components that the topology had at some of them and does not have now."""
    earliest: ReplayReport | None = None
    """That of the first transaction that differs; None if none does."""

    def add(self, report: ReplayReport) -> None:
        """Count one transaction."""
        self.transactions.add(report.txid, differs=report.difference is not None)
        for component in report.components:
            self.components.setdefault(component.component, Tally()).add(report.txid, differs=not component.is_same)
        for state in report.states:
            if state.is_compared:
                self.states.setdefault(state.state, Tally()).add(report.txid, differs=state.difference is not None)
        if report.difference is not None and self.earliest is None:
            self.earliest = report


class PastState(Protocol):
    """An earlier version of a state, read only."""

    @property
    def identity(self) -> str:
        """An id that differs from that of any other table ever created at the same place."""

    @property
    def last_txid(self) -> int | None:
        """The last txid of that version; None before the first write."""

    def compare(self, txid: int, writes: Writes, last: int, *, may_be_removed: bool) -> StateComparison:
        """Compare the rows of a transaction with the writes of a replay."""


@attrs.frozen
class _Group:
    """The transactions that are run up to the replayed one, and the metadata of all by txid."""

    entry: JournalEntry
    """Its commit group; or all between two points, as one."""
    own: JournalEntry
    """Its commit group."""
    transactions: tuple[JournalTransaction, ...]
    metadata: Mapping[int, Any]

    @property
    def transaction(self) -> JournalTransaction:
        return self.transactions[-1]


@attrs.frozen
class _Run:
    """One replay of a group up to a transaction."""

    fingerprints: Mapping[int, Fingerprints]
    """The components' fingerprints, by txid."""
    metadata: Mapping[int, Any]
    """The metadata that the emitters returned, by txid; None for a repeatable spout."""
    writes: Mapping[str, Writes]
    writers: Mapping[int, Mapping[str, Sequence[str]]]
    """The components that have written each state, by txid."""


@attrs.frozen
class ReplayedPart:
    """The part of a topology that a replay of some transactions can judge."""

    plan: Plan
    whole: Plan
    causes: Mapping[str, str]
    """The states because of which something is left out, each with why."""

    @classmethod
    def of(cls, whole: Plan, parts: Sequence[JournalPart], first: int, last: int) -> ReplayedPart:
        """Return the part for the transactions from ``first`` to ``last``, given the journal."""
        causes = dict(_without_past(whole, parts, first, last))
        states, components, size = set(causes), set[str](), -1
        while size < len(states) + len(components):
            size = len(states) + len(components)
            components |= {each for each, own in whole.requested_states.items() if not states.isdisjoint(own)}
            components |= {edge.target for edge in whole.edges if edge.source in components}
            states |= {each for component in components for each in whole.requested_states.get(component, ())}
            living = {name: each.time_to_live for name, each in whole.states.items()}
            states |= {name for name, each in living.items() if each is not None and each.clock in states}
        kept = [each.id for each in whole.components if each.id not in components]
        part = whole.part(kept, {name: each for name, each in whole.states.items() if name not in states})
        return cls(part if causes else whole, whole, causes)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of what is left out: components, then states."""
        components = [each.id for each in self.whole.components if each.id not in self.plan.by_id]
        return (*components, *(f"state {name}" for name in self.whole.states if name not in self.plan.states))


def _without_past(whole: Plan, parts: Sequence[JournalPart], first: int, last: int) -> Iterator[tuple[str, str]]:
    """Yield the states that can't be shown as of some transactions, each with why."""
    headers = [part.header for part in parts if any(each.first <= last and each.last >= first for each in part.entries)]
    begun_after = parts[-1].header.begun_after if parts else {}
    for name, state in whole.states.items():
        if not hasattr(state, "open_as_of"):
            yield name, "keeps no versions"
        elif first <= begun_after.get(name, 0):
            yield name, f"was begun empty after transaction {begun_after[name]}"
        elif any(name not in header.states for header in headers) and not name.startswith(OWN_PREFIX):
            yield name, "was not in the topology at all of them"


class Replay:
    """Replays transactions of one topology, as far as they can be judged."""

    def __init__(
        self,
        part: ReplayedPart,
        config: Mapping[str, Any],
        prototypes: Mapping[str, bytes],
        runner: JobRunner,
        *,
        has_edge_tallies: bool = True,
    ) -> None:
        plan = self._plan = part.plan
        self._whole = part.whole
        self._task_factory = TaskFactory(plan, config, prototypes)
        self._runner = runner
        self._job_ids = itertools.count(1)
        self._staging = tempfile.TemporaryDirectory(prefix="txtopo-replay-")
        # No coordinator applies these limits: the planner alone reads them, to share out the bytes.
        limits = Limits(1, 1, 1, 1, timeout_ms=1, spout=policy_of(plan.kinds))
        self._planner = JobPlanner(
            plan,
            limits,
            slots=runner.slots,
            layout="together",  # tuples keep their order in one partition, so every component gets a checksum
            staging_dir=self._staging.name,
            received_bytes_max=NO_BOUND,
            has_edge_tallies=has_edge_tallies,
        )

    def run(self, parts: Sequence[JournalPart], txid: int) -> ReplayReport:
        """Replay a transaction and compare the results.

        Raises:
            ConfigError: the transaction is not committed, not in the journal or was given up.
            DivergenceError: the topology, or a table, is not the one that committed the transaction.
            StateAccessError: the table's version before the group no longer exists.
            RuleError: a spout or bolt broke a rule during the replay.
        """
        entries, metadata = self._entries(parts)
        own = self._checked(parts, entries, txid)
        try:
            return self._replayed(own, own, metadata, txid)
        except StateAccessError:
            return self._replayed(self._between_points(entries, parts, own, txid), own, metadata, txid)

    def _replayed(self, entry: JournalEntry, own: JournalEntry, metadata: Mapping[int, Any], txid: int) -> ReplayReport:
        group = _Group(entry, own, _run_for(entry, txid), metadata)
        (report,) = self._reports(group, [group.transaction])
        return report

    def run_range(self, parts: Sequence[JournalPart], first: int, last: int) -> RangeReport:
        """Replay the transactions from ``first`` to ``last`` and compare the results.

        Raises:
            ConfigError: a transaction is not committed or not in the journal.
            DivergenceError: the states, or a table, are not those that committed the transactions.
            StateAccessError: a table's version before one of the groups no longer exists.
            RuleError: a spout or bolt broke a rule during the replay.
        """
        entries, metadata = self._entries(parts)
        known = [entry for entry in entries if entry.last >= first and entry.first <= last]
        if not known or known[0].first > first or known[-1].last < last:
            raise ConfigError(f"the journal does not have all of transactions {first} to {last}; {_span_of(entries)}")
        self._check_tables(parts)
        report = RangeReport(first, last, groups=len(known))
        changed = {name for entry in known for t in entry.transactions for name in t.fingerprints}
        report.changed = tuple(sorted(changed - set(self._whole.by_id)))
        headers = {id(entry): part.header for part in parts for entry in part.entries}
        rest = list(known)
        while rest:
            own = [rest[0]]
            self._check_states(headers[id(own[0])], parts[-1].header, own[0])
            try:
                reports, given_up = self._reports_of(own[0], own, metadata, range(first, last + 1))
            except StateAccessError:
                entry = self._between_points(entries, parts, own[0], last)
                own = [each for each in rest if each.last <= entry.last]
                reports, given_up = self._reports_of(entry, own, metadata, range(first, last + 1))
            report.given_up += given_up
            for found in reports:
                report.add(found)
            rest = rest[len(own) :]
        return report

    def _reports_of(
        self, entry: JournalEntry, own: Sequence[JournalEntry], metadata: Mapping[int, Any], txids: range
    ) -> tuple[list[ReplayReport], int]:
        """Run the transactions of some groups; return the comparison of each wanted one, and how many were given up."""
        transactions = _run_for(entry, txids[-1])
        wanted = [each for each in transactions if each.txid in txids]
        asked = [t for each in own for t in each.transactions if t.txid in txids]
        if not wanted:
            return [], len(asked)
        found = list(self._reports(_Group(entry, own[0], transactions, metadata), wanted, own))
        return found, len(asked) - len(wanted)

    def _reports(
        self, group: _Group, wanted: Sequence[JournalTransaction], own: Sequence[JournalEntry] = ()
    ) -> Iterator[ReplayReport]:
        """Run a group, and yield the comparison of each of its transactions that are wanted."""
        then = {name: self._as_of(name, group.entry.last) for name in self._plan.states}
        runs = self._runs_of(group, wanted)
        compared = {t.txid: self._compare_components(t, runs) for t in group.transactions}
        differing = [txid for txid, components in compared.items() if not all(each.is_same for each in components)]
        groups = {each.txid: entry for entry in own for each in entry.transactions}
        for transaction in wanted:
            # Nothing of those before it: of many between two points, each would look at all of them.
            narrowed = attrs.evolve(group, own=groups.get(transaction.txid, group.own), transactions=(transaction,))
            other = next((txid for txid in differing if txid < transaction.txid), None)
            yield self._report(narrowed, runs, then, compared[transaction.txid], other)

    def _runs_of(self, group: _Group, wanted: Sequence[JournalTransaction]) -> list[_Run]:
        """Run a group; twice if that is needed to compare one of its transactions."""
        runs = [self._run_group(group)]
        if any(self._needs_second_run(each, runs[0]) for each in wanted):
            runs.append(self._run_group(group))
        return runs

    def _report(
        self,
        group: _Group,
        runs: Sequence[_Run],
        then: Mapping[str, PastState],
        components: tuple[ComponentComparison, ...],
        other: int | None,
    ) -> ReplayReport:
        """Compare a group's last transaction; the runs may be of later ones, too.

        ``other`` is the first of those before it that has emitted different tuples; None if none has.
        """
        txid = group.transaction.txid
        states = self._compare_states(group, runs[0], then)
        difference = self._difference(group, runs, components, states)
        depends = difference is not None and not self._is_of_processing(difference.component)
        if depends and other is not None:
            which = "an earlier one of the same commit group" if other >= group.own.first else "which ran before it"
            difference = Difference(
                f"transaction {other}, {which}, has emitted different tuples already, so this one cannot be judged; "
                f"replay {other}"
            )
        own, attempt = group.own, group.transaction.attempt
        epoch = TransactionAttempt(txid, attempt).epoch
        return ReplayReport(
            txid, attempt, epoch, own.first, own.last, group.entry.first, components, states, difference
        )

    def close(self) -> None:
        """Close the emitters of the replay."""
        self._task_factory.close()

    # Finding the group.

    def _checked(self, parts: Sequence[JournalPart], entries: Sequence[JournalEntry], txid: int) -> JournalEntry:
        """Return the commit group of a transaction that can be replayed."""
        entry = next((entry for entry in entries if entry.first <= txid <= entry.last), None)
        if entry is None:
            raise ConfigError(f"the journal has no committed transaction {txid}; {_span_of(entries)}")
        transactions = tuple(t for t in entry.transactions if t.txid <= txid)
        if transactions[-1].is_dead_letter:
            raise ConfigError(
                f"transaction {txid} was given up, so there are no results to compare; see its dead letter"
            )
        unknown = {name for t in transactions for name in t.fingerprints} - set(self._whole.by_id)
        if unknown:
            raise DivergenceError(
                f"transaction {txid} was committed by a topology with {min(unknown)!r}, which this one does not have; "
                "replay it with the topology that committed it"
            )
        header = next(part.header for part in reversed(parts) if any(each is entry for each in part.entries))
        self._check_states(header, parts[-1].header, entry)
        self._check_tables(parts)
        return entry

    def _between_points(
        self, entries: Sequence[JournalEntry], parts: Sequence[JournalPart], own: JournalEntry, txid: int
    ) -> JournalEntry:
        """Return all groups between the points around a group as one: its own versions are gone.

        Raises:
            StateAccessError: there is no point before it, or it is too far from ``txid``, up to which they would run.
        """
        ends = self._kept_ends(entries, parts)
        before = max((end for end in ends if end < own.first), default=None)
        if before is None:
            oldest = min((end for end in ends if end >= own.first), default=None)
            later = "" if oldest is None else f"; the first that can be replayed is {oldest + 1}"
            raise StateAccessError(
                f"the tables keep neither their versions before transaction {own.first} nor a point before it{later}",
                txid=own.first,
            )
        after = min((end for end in ends if end >= own.last), default=entries[-1].last)
        count = min(txid, after) - before
        if count > FORWARD_MAX:
            raise StateAccessError(
                f"the nearest point before transaction {own.first} that the tables keep is {before}: {count:,} "
                f"transactions would run from there on, more than {FORWARD_MAX:,}",
                txid=own.first,
            )
        passed = [each for each in entries if each.first > before and each.last <= after]
        headers = {id(entry): part.header for part in parts for entry in part.entries}
        for each in passed:
            self._check_states(headers[id(each)], parts[-1].header, each)
        states = {
            name: (sum(each.states[name][0] for each in of), sum(each.states[name][1] for each in of))
            for name in {name: None for each in passed for name in each.states}
            if (of := [each for each in passed if name in each.states])
        }
        return JournalEntry(states, tuple(t for each in passed for t in each.transactions))

    def _kept_ends(self, entries: Sequence[JournalEntry], parts: Sequence[JournalPart]) -> list[int]:
        """Return the ends of groups as of which all tables can be opened."""
        begin = parts[0].header
        marks = {name: begin.states.get(name) or 0 for name in self._plan.states}
        tables = {name: state.table() for name, state in self._plan.states.items()}
        kept = {
            name: table.kept({marks[name], *(each.last for each in entries if name in each.states)})
            for name, table in tables.items()
            if table is not None
        }
        found = [begin.committed] if all(marks[name] in kept[name] for name in kept) else []
        for each in entries:
            marks |= {name: each.last for name in each.states if name in marks}
            if all(marks[name] in kept[name] for name in kept):
                found.append(each.last)
        return found

    def _entries(self, parts: Sequence[JournalPart]) -> tuple[list[JournalEntry], dict[int, Any]]:
        """Return the committed groups, and the metadata of transactions by txid."""
        entries = counting_entries(parts, self._is_written)
        metadata = {part.header.committed: part.header.metadata for part in parts}
        metadata |= {t.txid: t.metadata for entry in entries for t in entry.transactions}
        return entries, metadata

    def _is_written(self, entry: JournalEntry) -> bool:
        named = [name for name in entry.states if name in self._plan.states]
        return all((self._as_of(name, entry.last).last_txid or 0) == entry.last for name in named)

    def _check_states(self, header: JournalHeader, newest: JournalHeader, entry: JournalEntry) -> None:
        """Check that the topology had the same states at a group, and that their tables still hold it."""
        gone, new = header.states.keys() - self._whole.states.keys(), self._plan.states.keys() - header.states.keys()
        others = (gone | new) - {DEAD_LETTERS}
        for name in sorted(name for name in others if not name.startswith(OWN_PREFIX)):
            which, this = ("with", "does not have") if name in header.states else ("without", "has")
            raise DivergenceError(
                f"transaction {entry.last} was committed by a topology {which} state {name!r}, which this one {this}; "
                "replay it with the topology that committed it"
            )
        for name, begun_after in newest.begun_after.items():
            if name in self._plan.states and entry.first <= begun_after:
                raise DivergenceError(
                    f"state {name!r} was begun empty after transaction {begun_after}, so its table has nothing to "
                    f"compare transaction {entry.last} with; replay a later one"
                )

    def _check_tables(self, parts: Sequence[JournalPart]) -> None:
        for name, known in parts[-1].header.tables.items():
            if name in self._plan.states and self._as_of(name, NO_BOUND).identity != known.identity:
                raise DivergenceError(f"the table of state {name!r} is not the one in the journal")

    def _as_of(self, name: str, txid: int) -> Any:
        return call_if_there(self._plan.states[name], "open_as_of", self._plan.topology_id, name, txid)

    # Running it.

    def _run_group(self, group: _Group) -> _Run:
        """Run a group up to its transaction; try again if it raises FailedException."""
        for _ in range(TRIES_MAX):
            try:
                return self._try_group(group)
            except FailedException as error:
                failure = error
        raise failure

    def _try_group(self, group: _Group) -> _Run:
        states: dict[str, OpenedState] = {name: self._as_of(name, group.entry.first - 1) for name in self._plan.states}
        by_attempt = {TransactionAttempt(t.txid, t.attempt): t for t in group.transactions}
        assigned = [AssignedAttempt(attempt, t.metadata, t.planned) for attempt, t in by_attempt.items()]
        processed: dict[int, Processing] = {}
        writers: dict[int, dict[str, list[str]]] = {}
        current: dict[str, list[str]] = {}

        def load(attempt: TransactionAttempt) -> Any:
            nonlocal current
            before = group.metadata.get(attempt.txid - 1)
            outcome = processed[attempt.txid] = self._process(by_attempt[attempt], before)
            current = writers[attempt.txid] = {}  # its commit phase comes next
            return outcome.load()

        def note(component: str, state: str) -> None:
            if component not in current.setdefault(state, []):
                current[state].append(component)

        self._task_factory.record_write = note
        outcome = run_commit_phases(self._task_factory, states, assigned, load)
        if outcome.failure is not None:
            raise outcome.failure
        return _Run(
            {a.txid: joined([processed[a.txid].fingerprints, outcome.fingerprints[a]]) for a in by_attempt},
            {txid: each.metadata for txid, each in processed.items()},
            outcome.writes,
            writers,
        )

    def _process(self, transaction: JournalTransaction, previous: Any) -> Processing:
        attempt = TransactionAttempt(transaction.txid, transaction.attempt)
        metadata = dict(transaction.metadata or {})
        for spout in self._plan.spouts:
            if transaction.planned.has_input_of(spout.id, transaction.metadata):
                coordinator = functools.partial(self._task_factory.coordinator, spout)
                with user_code(spout.id, attempt):
                    metadata[spout.id] = self._plan.semantics[spout.id].metadata_to_replay(
                        coordinator, attempt.txid, metadata_of(previous, spout.id), metadata.get(spout.id)
                    )
        action = Process(next(self._job_ids), (AssignedAttempt(attempt, metadata, transaction.planned),), previous)
        job = self._planner.job(action, committed=0)  # so the emitters clean up nothing
        outcome = self._planner.judge(job, self._runner.run(job, lambda: None))[0]
        if outcome.failure is not None:
            raise outcome.failure
        return outcome

    # Comparing it.

    def _compared(self) -> list[PlannedComponent]:
        """Return the components whose tuples are counted: all that emit, but those of Spark SQL."""
        return [c for c in self._plan.components if c.kind not in DATAFRAMES and c.streams]

    def _needs_second_run(self, transaction: JournalTransaction, run: _Run) -> bool:
        own = run.fingerprints[transaction.txid]
        return any(
            _then(transaction, c.id).checksum is None or own.get(c.id, Fingerprint()).checksum is None
            for c in self._compared()
        )

    def _compare_components(
        self, transaction: JournalTransaction, runs: Sequence[_Run]
    ) -> tuple[ComponentComparison, ...]:
        comparisons = []
        for component in self._compared():
            then = _then(transaction, component.id)
            now, *again = [run.fingerprints[transaction.txid].get(component.id, Fingerprint()) for run in runs]
            comparison, is_same = Comparison.COUNT, then.tuples == now.tuples
            if then.checksum is not None and now.checksum is not None:
                comparison, is_same = Comparison.CHECKSUM, then == now
            elif again and now.checksum is not None and again[0].checksum is not None:
                comparison, is_same = Comparison.TWO_RUNS, is_same and now == again[0]
            comparisons.append(ComponentComparison(component.id, then.tuples, now.tuples, comparison, is_same))
        return tuple(comparisons)

    def _compare_states(self, group: _Group, run: _Run, then: Mapping[str, PastState]) -> tuple[StateComparison, ...]:
        comparisons = []
        entry, txid = group.entry, group.transaction.txid
        for name in self._plan.states:
            writes = run.writes.get(name, {})
            if not writes and name not in entry.states:
                continue
            _, removed = entry.states.get(name, (0, 0))
            comparisons.append(then[name].compare(txid, writes, entry.last, may_be_removed=removed > 0))
        return tuple(comparisons)

    def _difference(
        self,
        group: _Group,
        runs: Sequence[_Run],
        components: Sequence[ComponentComparison],
        states: Sequence[StateComparison],
    ) -> Difference | None:
        txid = group.transaction.txid
        first = next((each for each in components if not each.is_same), None)
        if first is not None and first.component in self._plan.semantics:
            why = self._plan.semantics[first.component].emits_other_tuples(_counts(first))
            return Difference(why, first.component)
        for name, semantics in self._plan.semantics.items():
            then, now = (metadata_of(each, name) for each in (group.transaction.metadata, runs[0].metadata[txid]))
            moved = semantics.moved_elsewhere(then, now)
            if moved is not None:
                return Difference(moved, name)
        if first is not None:
            return Difference(self._of_bolt(first, components), first.component)
        state = next((each for each in states if each.difference is not None), None)
        if state is None:
            return None
        writers = runs[0].writers[txid].get(state.state, ())
        who = " or ".join(repr(name) for name in writers) or "a committer"
        counted = [c.component for c in components if c.comparison is not Comparison.CHECKSUM]
        above = [name for name in counted if name not in writers]
        if above:
            names = " or ".join(map(repr, above))
            return Difference(
                f"each component emits as many tuples, but state {state.state!r} gets different values: "
                f"{state.difference}. Either {who} writes others, or {names} emits others, of which the journal has "
                "only the number: code has changed, is not deterministic, or reads external data that has changed"
            )
        text = (
            f"all components emit the same tuples, but {who} writes different values to state {state.state!r}: "
            f"{state.difference}; its code has changed, it is not deterministic, or external data that it reads has "
            "changed"
        )
        return Difference(text, writers[0] if writers else None)

    def _of_bolt(self, found: ComponentComparison, components: Sequence[ComponentComparison]) -> str:
        above = [c.component for c in components if c.comparison is not Comparison.CHECKSUM and c.is_same]
        order = [component.id for component in self._plan.components]
        doubtful = [name for name in above if order.index(name) < order.index(found.component)]
        caveat = (
            f" (or {', '.join(map(repr, doubtful))} above it, whose tuples the journal only counts)" if doubtful else ""
        )
        if found.comparison is Comparison.TWO_RUNS and found.tuples_then == found.tuples_now:
            return f"it is not deterministic: two replays emit different tuples for the same input{caveat}"
        reason = "it is not deterministic, or its code has changed"
        return f"{reason}: it emits different tuples for the same input ({_counts(found)}){caveat}"

    def _is_of_processing(self, component: str | None) -> bool:
        return component is not None and self._plan.by_id[component].phase is Phase.PROCESSING


def _run_for(entry: JournalEntry, txid: int) -> tuple[JournalTransaction, ...]:
    """Return the transactions of an entry to run up to one: those that were given up have written nothing."""
    return tuple(t for t in entry.transactions if t.txid <= txid and not t.is_dead_letter)


def _then(transaction: JournalTransaction, component: str) -> Fingerprint:
    tuples, checksum = transaction.fingerprints.get(component, (0, 0))
    return Fingerprint(tuples, checksum)


def _span_of(entries: Sequence[JournalEntry]) -> str:
    return f"it has {entries[0].first} to {entries[-1].last}" if entries else "it has no transactions"


def _counts(found: ComponentComparison) -> str:
    if found.tuples_then == found.tuples_now:
        return f"{found.tuples_then} tuples at the commit and now, but with different values or in another order"
    return f"{found.tuples_then} tuples at the commit, {found.tuples_now} now"
