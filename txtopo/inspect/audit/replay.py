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

import functools
import itertools
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.components.planned import metadata_of
from txtopo.api.state import OpenedState
from txtopo.api.table_history import StateComparison
from txtopo.api.writes import Writes
from txtopo.attempts import TransactionAttempt, epoch_and_try
from txtopo.errors import FailedException, StateAccessError
from txtopo.files.folder import LocalFolder
from txtopo.inspect.audit.replayable import NO_BOUND, Past, PastState, ReplayedPart
from txtopo.inspect.audit.report import Comparison, ComponentComparison, Difference, ReplayReport
from txtopo.journal.entries import JournalEntry, JournalPart, JournalTransaction
from txtopo.text.words import count_of
from txtopo.topology.plans.plan import DATAFRAMES, Phase, PlannedComponent
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
            if state.rows is not None:
                self.states.setdefault(state.state, Tally()).add(report.txid, differs=state.difference is not None)
        if report.difference is not None and self.earliest is None:
            self.earliest = report


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


class Replay:
    """Replays transactions of one topology, as far as ``part`` says that they can be judged.

    ``prototypes`` are its pickled components; ``has_edge_tallies``: whether edges count tuples at both ends.
    """

    def __init__(  # noqa: PLR0913 - the past, and what a run needs
        self,
        part: ReplayedPart,
        parts: Sequence[JournalPart],
        config: Mapping[str, Any],
        prototypes: Mapping[str, bytes],
        runner: JobRunner,
        *,
        has_edge_tallies: bool = True,
    ) -> None:
        plan = self._plan = part.plan
        self._whole, self._left_out = part.whole, part.left_out
        self._past = Past(part, parts)
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
            staging=LocalFolder(pathlib.Path(self._staging.name)),
            received_bytes_max=NO_BOUND,
            has_edge_tallies=has_edge_tallies,
        )

    def run(self, txid: int) -> ReplayReport:
        """Replay a transaction and compare the results.

        Raises:
            ConfigError: the transaction is not committed, not in the journal or was given up.
            DivergenceError: the topology, or a table, is not the one that committed the transaction.
            StateAccessError: the table's version before the group no longer exists.
            RuleError: a spout or bolt broke a rule during the replay.
        """
        _, (report,) = self._replayed([self._past.group_of(txid)], range(txid, txid + 1))
        return report

    def run_range(self, first: int, last: int) -> RangeReport:
        """Replay the transactions from ``first`` to ``last`` and compare the results.

        Raises:
            ConfigError: a transaction is not committed or not in the journal.
            DivergenceError: the states, or a table, are not those that committed the transactions.
            StateAccessError: a table's version before one of the groups no longer exists.
            RuleError: a spout or bolt broke a rule during the replay.
        """
        rest, txids = self._past.groups(first, last), range(first, last + 1)
        transactions = [transaction for group in rest for transaction in group.transactions]
        changed = {name for transaction in transactions for name in transaction.fingerprints} - set(self._whole.by_id)
        report = RangeReport(first, last, groups=len(rest), changed=tuple(sorted(changed)))
        report.given_up = sum(transaction.is_dead_letter for transaction in transactions if transaction.txid in txids)
        while rest:
            self._past.check_states(rest[0])
            count, reports = self._replayed(rest, txids)
            for each in reports:
                report.add(each)
            rest = rest[count:]
        return report

    def _replayed(self, groups: Sequence[JournalEntry], txids: range) -> tuple[int, list[ReplayReport]]:
        """Replay the wanted transactions of the first of some groups; return the number of groups run, and reports.

        If the tables lack its versions, these are all groups between the points around it, as one.
        """
        try:
            return 1, self._reports(groups[0], groups[:1], txids)
        except StateAccessError:
            between = self._past.between_points(groups[0], txids[-1])
            passed = [group for group in groups if group.last <= between.last]
            return len(passed), self._reports(between, passed, txids)

    def _reports(self, entry: JournalEntry, groups: Sequence[JournalEntry], txids: range) -> list[ReplayReport]:
        """Run an entry's transactions, and compare the wanted ones; ``groups`` are those that it is made of."""
        # Those that were given up have written nothing.
        transactions = [
            transaction
            for transaction in entry.transactions
            if transaction.txid <= txids[-1] and not transaction.is_dead_letter
        ]
        wanted = [transaction for transaction in transactions if transaction.txid in txids]
        if not wanted:
            return []
        then = {name: self._past.as_of(name, entry.last) for name in self._plan.states}
        runs = [self._run(entry, transactions)]
        if any(self._needs_second_run(transaction, runs[0]) for transaction in wanted):
            runs.append(self._run(entry, transactions))
        compared = {transaction.txid: self._compare_components(transaction, runs) for transaction in transactions}
        differing = [
            txid for txid, components in compared.items() if not all(component.is_same for component in components)
        ]
        group_of = {transaction.txid: group for group in groups for transaction in group.transactions}
        reports = []
        for transaction in wanted:
            states = self._compare_states(transaction.txid, entry, runs[0], then)
            difference = self._difference(transaction, runs, compared[transaction.txid], states)
            group = group_of[transaction.txid]
            # What a component of the commit phase does depends on those before it.
            other = next((txid for txid in differing if txid < transaction.txid), None)
            if difference is not None and other is not None and not self._is_of_processing(difference.component):
                which = "an earlier one of the same commit group" if other >= group.first else "which ran before it"
                difference = Difference(
                    f"transaction {other}, {which}, has emitted different tuples already, so this one cannot be "
                    f"judged; replay {other}"
                )
            reports.append(
                ReplayReport(
                    transaction.txid,
                    *epoch_and_try(transaction.attempt),
                    group.first,
                    group.last,
                    entry.first,
                    self._left_out,
                    compared[transaction.txid],
                    states,
                    difference,
                )
            )
        return reports

    def close(self) -> None:
        """Close the emitters of the replay."""
        self._task_factory.close()

    # Running it.

    def _run(self, entry: JournalEntry, transactions: Sequence[JournalTransaction]) -> _Run:
        """Run transactions on the tables as they were before an entry; try again if one raises FailedException."""
        for _ in range(TRIES_MAX):
            try:
                return self._try(entry, transactions)
            except FailedException as error:
                failure = error
        raise failure

    def _try(self, entry: JournalEntry, transactions: Sequence[JournalTransaction]) -> _Run:
        states: dict[str, OpenedState] = {name: self._past.as_of(name, entry.first - 1) for name in self._plan.states}
        by_attempt = {
            TransactionAttempt(transaction.txid, transaction.attempt): transaction for transaction in transactions
        }
        assigned = [
            AssignedAttempt(attempt, transaction.metadata, transaction.planned)
            for attempt, transaction in by_attempt.items()
        ]
        processed: dict[int, Processing] = {}
        writers: dict[int, dict[str, list[str]]] = {}
        current: dict[str, list[str]] = {}

        def load(attempt: TransactionAttempt) -> Any:
            nonlocal current
            before = self._past.metadata.get(attempt.txid - 1)
            outcome = processed[attempt.txid] = self._process(by_attempt[attempt], before)
            current = writers[attempt.txid] = {}  # its commit phase comes next
            return outcome.load()

        def record(component: str, state: str) -> None:
            if component not in current.setdefault(state, []):
                current[state].append(component)

        self._task_factory.record_write = record
        outcome = run_commit_phases(self._task_factory, states, assigned, load)
        if outcome.failure is not None:
            raise outcome.failure
        return _Run(
            {
                attempt.txid: joined([processed[attempt.txid].fingerprints, outcome.fingerprints[attempt]])
                for attempt in by_attempt
            },
            {txid: processing.metadata for txid, processing in processed.items()},
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

    def _compare_states(
        self, txid: int, entry: JournalEntry, run: _Run, then: Mapping[str, PastState]
    ) -> tuple[StateComparison, ...]:
        comparisons = []
        for name in self._plan.states:
            writes = run.writes.get(name, {})
            if not writes and name not in entry.states:
                continue
            _, removed = entry.states.get(name, (0, 0))
            comparisons.append(then[name].compare(txid, writes, entry.last, may_be_removed=removed > 0))
        return tuple(comparisons)

    def _difference(
        self,
        transaction: JournalTransaction,
        runs: Sequence[_Run],
        components: Sequence[ComponentComparison],
        states: Sequence[StateComparison],
    ) -> Difference | None:
        txid = transaction.txid
        first = next((component for component in components if not component.is_same), None)
        if first is not None and first.component in self._plan.semantics:
            why = self._plan.semantics[first.component].emits_other_tuples(_counts(first))
            return Difference(why, first.component)
        for name, semantics in self._plan.semantics.items():
            then, now = (metadata_of(each, name) for each in (transaction.metadata, runs[0].metadata[txid]))
            moved = semantics.moved_elsewhere(then, now)
            if moved is not None:
                return Difference(moved, name)
        if first is not None:
            return Difference(self._of_bolt(first, components), first.component)
        state = next((comparison for comparison in states if comparison.difference is not None), None)
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


def _then(transaction: JournalTransaction, component: str) -> Fingerprint:
    tuples, checksum = transaction.fingerprints.get(component, (0, 0))
    return Fingerprint(tuples, checksum)


def _counts(found: ComponentComparison) -> str:
    then = count_of(found.tuples_then, "tuple")
    if found.tuples_then == found.tuples_now:
        return f"{then} at the commit and now, but with different values or in another order"
    return f"{then} at the commit, {found.tuples_now:,} now"
