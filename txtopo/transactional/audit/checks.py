"""The audit: proves from journal and tables that every transaction was committed once, in order, without a gap.

It uses no other information, and checks every fact that is recorded in two places:

1. *The journal alone.* Groups follow one another without a gap. The last committed transaction that a new coordinator
   found is the last one that the previous coordinator entered. Attempt numbers rise and are of the epoch that entered
   them. Each partition's input begins where it ended before. Input that a spout skipped, because it was gone and the
   user allows that, is reported and is no violation.
2. *Each table against the journal.* Its txids are the last ones of exactly the groups that wrote it, in order. The
   version of a group puts as many rows as the journal records, all with txids of that group, and changes no other row;
   a version without a group changes no row. No other writer made a version, and no coordinator of an older epoch made
   one after a newer epoch.
3. *The states of the topology.* Each state was in the topology at every transaction, from the journal's start or from
   where it was begun empty by ``topology.state.start.empty``, up to the end or to where it left the topology. So a
   transaction that put nothing into a table had nothing for it. States that txtopo adds by itself, for dead letters
   and those of the spout, may come and go; the report says when they were away.
   A state that was backfilled was written by its backfill until it joined the topology: the backfill's journal is the
   evidence for its table up to there, and its transactions are compared with those of the topology.
4. *The end.* Tables end where the journal does. The last group may be in flight; recovery will finish or drop it.

Given-up transactions count as committed: their dead letter is their write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.table_history import TableHistory, TableVersion, rolled_back_from
from txtopo.attempts import TransactionAttempt, attempt_words
from txtopo.topology.checks import OWN_PREFIX
from txtopo.transactional.audit.backfills import difference_between
from txtopo.transactional.journal.journal import (
    DEAD_LETTERS,
    JournalEntry,
    JournalHeader,
    JournalPart,
    JournalTable,
    JournalTransaction,
)

__all__ = ["AuditReport", "Finding", "TableProof", "audit", "tables_of"]


@attrs.frozen
class Finding:
    """A violation of a check."""

    text: str
    txid: int | None = None
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


@attrs.define
class TableProof:
    """The proof for one table."""

    state: str
    from_txid: int
    """The proof covers the history after this transaction; 0 for all of it."""
    to_txid: int
    versions: int = 0
    groups: int = 0
    rows_put: int = 0
    rows_removed: int = 0
    unread: int = 0
    """The number of groups' versions whose rows were not compared."""
    repaired: int = 0
    """The number of versions that repairs made, to roll back or to accept other writers' changes."""
    begun_after: int = 0
    """The state was begun empty after this transaction; 0 if it was not."""
    backfilled_to: int = 0
    """The state joined the topology after this transaction, and a backfill wrote its table until then; 0: none did."""
    left_after: int | None = None
    """The last transaction at which the topology had the state; None if it has it still."""
    away: tuple[tuple[int, int], ...] = ()
    """The transactions, (first, last), at which a state that may come and go was not in the topology."""


@attrs.define
class AuditReport:
    """The findings and the proofs of an audit."""

    findings: list[Finding] = attrs.field(factory=list)
    epochs: int = 0
    groups: int = 0
    first: int = 0
    last: int = 0
    """All transactions from ``first`` to ``last`` are committed."""
    dead_letters: int = 0
    void: int = 0
    """The number of groups that were entered and not committed; they were dropped, and their transactions ran again."""
    partitions: int = 0
    ranges: int = 0
    skipped: dict[str, list[tuple[int, Any, Any]]] = attrs.field(factory=dict)
    """The input that the spout skipped because it was gone: (txid, start, end), by partition."""
    untold: int = 0
    """The number of transactions whose input the spout does not report."""
    in_flight: tuple[int, int] | None = None
    """(first, last) txid of a group that was entered but is not in every table yet."""
    has_it: tuple[str, ...] = ()
    """The states whose tables have this group."""
    lacks_it: tuple[str, ...] = ()
    """The other states that it names."""
    tables: list[TableProof] = attrs.field(factory=list)
    elsewhere: list[str] = attrs.field(factory=list)
    """States of the topology in the journal whose tables were not audited."""
    departed: dict[str, int] = attrs.field(factory=dict)
    """Such states that have left the topology, each with the last transaction at which it had them."""


@attrs.frozen
class _Counted:
    """An entry that counts, and the epochs that may have written its tables: from its own to that of the next header.

    The next coordinator finishes a group that this one left.
    """

    entry: JournalEntry
    header: JournalHeader
    epoch_max: int | None
    """None if there is no later epoch in the journal."""

    @property
    def epoch(self) -> int:
        return self.header.epoch


def tables_of(parts: Sequence[JournalPart]) -> tuple[dict[str, JournalTable], set[str]]:
    """Return the tables, as the journal names them last, and the states that the topology no longer has.

    The table of such a state may be gone, or be another by now.
    """
    tables = {name: table for part in parts for name, table in part.header.tables.items()}
    return tables, tables.keys() - parts[-1].header.tables.keys()


def audit(
    parts: Sequence[JournalPart],
    histories: Mapping[str, TableHistory],
    committed: int = 0,
    backfills: Mapping[str, Sequence[JournalPart]] | None = None,
) -> AuditReport:
    """Audit a journal of at least one part, oldest first, and the histories of its tables by state.

    Histories of states that have left the topology may be missing. ``committed`` is a transaction that a run reported
    as committed before the histories were read: a table that lacks it has lost it. ``backfills`` are the journals of
    backfills, by the state whose table they wrote until it joined the topology.
    """
    report = AuditReport(epochs=len(parts), first=parts[0].header.committed + 1)
    rolled_back = {
        each.epoch for history in histories.values() for each in history.versions if each.is_rollback and each.epoch
    }
    filled = {name: _check_backfill(name, own, report) for name, own in (backfills or {}).items()}
    counted = _check_journal(parts, rolled_back, report, filled)
    for name, own_entries in filled.items():
        _compare_backfill(name, own_entries, counted, report)
    # Recovery will finish this group or drop it, so it is neither committed nor a finding.
    in_flight = _find_in_flight(parts[-1], histories, committed)
    if in_flight is not None:
        report.in_flight = (in_flight.first, in_flight.last)
        written = [name for name in in_flight.states if name in histories]
        report.has_it = tuple(name for name in written if _has(histories[name], in_flight))
        report.lacks_it = tuple(name for name in written if name not in report.has_it)
    settled = [each for each in counted if each.entry is not in_flight]
    report.groups = len(settled)
    report.last = settled[-1].entry.last if settled else parts[-1].header.committed
    transactions = [transaction for each in settled for transaction in each.entry.transactions]
    report.dead_letters = sum(transaction.is_dead_letter for transaction in transactions)
    _check_ranges([transaction for each in counted for transaction in each.entry.transactions], report)
    presence = {name: _Presence.of(name, parts, counted, _end_of(filled.get(name))) for name in _states_of(parts)}
    for each in presence.values():
        report.findings += each.findings()
    named = {name for each in counted for name in each.entry.states} - set(histories)
    left = {name: each.left_after for name, each in presence.items()}
    report.departed = {name: txid for name, txid in left.items() if txid is not None and name in named}
    report.elsewhere = sorted(named - set(report.departed))
    for name, history in histories.items():
        if name not in presence:
            continue  # the topology had it at no transaction
        known = next(p.header.tables[name] for p in reversed(parts) if name in p.header.tables)
        if known.identity != history.identity:
            text = f"the table at {history.address} is not the one in the journal"
            report.findings.append(Finding(text, state=name))
            continue
        own = presence[name]
        of_state = [each for each in (*filled.get(name, ()), *counted) if name in each.entry.states]
        walk = _TableWalk(history, of_state, in_flight, report, own.begun_after)
        proof = walk.run()
        proof.left_after = own.left_after
        proof.backfilled_to = _end_of(filled.get(name))
        proof.away = own.gaps if own.is_optional else ()
        report.tables.append(proof)
    return report


def _states_of(parts: Sequence[JournalPart]) -> list[str]:
    """Return the states that the topology had at some transaction, then those that it has now, each once."""
    headers = [part.header for part in parts if part.entries] + [parts[-1].header]
    return list(dict.fromkeys(name for header in headers for name in header.states))


@attrs.frozen
class _Presence:
    """When a topology had a state."""

    state: str
    begun_after: int
    left_after: int | None
    """The last transaction at which the topology had it; None if it has it still."""
    gaps: tuple[tuple[int, int], ...]
    """The transactions, (first, last), at which it was away, although it was there later."""
    is_optional: bool
    """Whether it may come and go."""

    @classmethod
    def of(cls, name: str, parts: Sequence[JournalPart], counted: Sequence[_Counted], filled_to: int) -> _Presence:
        begun_after = next((p.header.begun_after.get(name, 0) for p in reversed(parts) if name in p.header.states), 0)
        gaps: list[tuple[int, int]] = []
        absent: tuple[int, int] | None = None
        left_after: int | None = None
        for each in counted:
            if each.entry.last <= max(begun_after, filled_to):
                continue
            first, last = each.entry.first, each.entry.last
            if name in each.header.states:
                gaps += [absent] if absent is not None else []
                absent = None
            else:
                absent = (first, last) if absent is None else (absent[0], last)
        if absent is not None and name in parts[-1].header.states:
            gaps.append(absent)
        elif absent is not None:
            left_after = absent[0] - 1
        # A user's state may have the name of the one for dead letters, if no policy skips transactions.
        wrote = [t for each in counted if name in each.entry.states for t in each.entry.transactions]
        is_of_dead_letters = name == DEAD_LETTERS and all(transaction.is_dead_letter for transaction in wrote)
        return cls(name, begun_after, left_after, tuple(gaps), is_of_dead_letters or name.startswith(OWN_PREFIX))

    def findings(self) -> Iterator[Finding]:
        """Yield the gaps, unless the state may come and go."""
        for first, last in () if self.is_optional else self.gaps:
            which = f"transaction {first}" if first == last else f"transactions {first} to {last}"
            text = f"the topology ran {which} without this state, so the table lacks their part, and nothing says so"
            yield Finding(text, first, self.state)


def _check_backfill(name: str, parts: Sequence[JournalPart], report: AuditReport) -> list[_Counted]:
    """Return the entries of the backfill of a state that count, and report violations of their order."""
    own = AuditReport(first=parts[0].header.committed + 1)
    counted = _check_journal(parts, set(), own, {})
    report.findings += [attrs.evolve(each, text=f"in its backfill: {each.text}", state=name) for each in own.findings]
    return counted


def _compare_backfill(name: str, filled: Sequence[_Counted], counted: Sequence[_Counted], report: AuditReport) -> None:
    """Report transactions of a backfill that are not those that the topology has committed."""
    committed = {transaction.txid: transaction for each in counted for transaction in each.entry.transactions}
    for now in (transaction for each in filled for transaction in each.entry.transactions):
        then = committed.get(now.txid)  # none if it is older than the journal
        both = () if then is None else [each for each in then.fingerprints if each in now.fingerprints]
        difference = None if then is None else difference_between(then, now, both, both)
        if difference is not None:
            report.findings.append(Finding(f"in its backfill: {difference}", now.txid, name))


def _end_of(filled: Sequence[_Counted] | None) -> int:
    """Return the last transaction of a backfill; 0 if there is none."""
    return filled[-1].entry.last if filled else 0


def _check_journal(
    parts: Sequence[JournalPart],
    rolled_back: set[int],
    report: AuditReport,
    filled: Mapping[str, Sequence[_Counted]],
) -> list[_Counted]:
    """Return the entries that count, and report violations of their order.

    In the epochs ``rolled_back`` a repair has rolled tables back, which may make several groups void.
    """
    everywhere = {transaction.txid for part in parts for entry in part.entries for transaction in entry.transactions}
    order = _Order(report, parts[0].header.committed + 1, everywhere)
    counted: list[_Counted] = []
    for index, part in enumerate(parts):
        header = part.header
        following = parts[index + 1].header if index + 1 < len(parts) else None
        # An entry counts if no later header has a lower committed txid.
        bound = min((later.header.committed for later in parts[index + 1 :]), default=None)
        if index > 0:
            _check_sequence(parts[index - 1].header, header, rolled_back, report)
            if bound is None or header.committed <= bound:  # otherwise a later repair has rolled back below it
                _check_found(parts[:index], header, counted, order, filled)
        void = []
        for entry in part.entries:
            if bound is not None and entry.last > bound:
                # Its transactions ran again, with attempts that must still rise.
                void.append(entry)
                order.check_attempts(entry, header.epoch)
                continue
            order.check_next(entry)
            order.check_attempts(entry, header.epoch)
            counted.append(_Counted(entry, header, None if following is None else following.epoch))
        if void and bound is not None:
            report.void += len(void)
            is_repaired = any(epoch > header.epoch for epoch in rolled_back)
            _check_void(void, bound, report, may_be_many=is_repaired)
    return counted


def _check_void(void: Sequence[JournalEntry], bound: int, report: AuditReport, *, may_be_many: bool) -> None:
    first = void[0]
    group = f"group {first.first} to {first.last}"
    if first.first <= bound:
        text = f"a later epoch found {bound} committed, which is in the middle of {group}"
        report.findings.append(Finding(text, first.first))
    # A coordinator commits one group after another, so a crash leaves one in flight; only a repair goes back further.
    if len(void) > 1 and not may_be_many:
        text = f"a later epoch found {bound} committed, but after it {group} and further groups were entered"
        report.findings.append(Finding(text, first.first))


def _check_sequence(old: JournalHeader, header: JournalHeader, rolled_back: set[int], report: AuditReport) -> None:
    epochs = f"epoch {header.epoch}"
    for what, was, now in (
        ("topology", old.topology, header.topology),
        ("incarnation", old.incarnation, header.incarnation),
    ):
        if was != now:
            report.findings.append(Finding(f"{epochs} belongs to {what} {now!r}, the one before it to {was!r}"))
    if header.epoch <= old.epoch:
        report.findings.append(Finding(f"{epochs} follows epoch {old.epoch}: epochs do not rise"))
    # A repair that dies after it has rolled all tables back is finished by a later one, which rolls back none.
    is_repaired = any(old.epoch < epoch <= header.epoch for epoch in rolled_back)
    if header.committed < old.committed and not is_repaired:
        text = f"{epochs} found {header.committed} committed, but epoch {old.epoch} had found {old.committed}"
        report.findings.append(Finding(text, header.committed + 1))


def _check_found(
    before: Sequence[JournalPart],
    header: JournalHeader,
    counted: Sequence[_Counted],
    order: _Order,
    filled: Mapping[str, Sequence[_Counted]],
) -> None:
    """Compare the header of a new coordinator with the entries before it."""
    first, old = before[0].header, before[-1].header
    epochs = f"epoch {header.epoch}"
    order.check_reached(header)
    last = counted[-1].entry.transactions[-1] if counted else None
    if last is not None and last.txid == header.committed and last.metadata != header.metadata:
        text = f"{epochs} found metadata {header.metadata}, but the journal has {last.metadata}"
        order.report.findings.append(Finding(text, last.txid))
    for name, txid in header.states.items():
        begun_after = header.begun_after.get(name, 0)
        entered_so_far = (*filled.get(name, ()), *counted)
        own = [e.entry.last for e in entered_so_far if name in e.entry.states and e.entry.last > begun_after]
        # A state that the epoch before did not have, or had in another table, may have any txid.
        is_known = name in old.states and old.tables.get(name) == header.tables.get(name)
        entered = own[-1] if own else None if begun_after else first.states.get(name)
        if is_known and (txid or 0) != (entered or 0):
            text = f"{epochs} found it at transaction {txid}, but its last write in the journal is {entered}"
            order.report.findings.append(Finding(text, txid if txid is not None else entered, name))


@attrs.define
class _Order:
    """Checks the order of txids and attempts in a journal."""

    report: AuditReport
    expected: int
    everywhere: set[int]
    _attempts: dict[int, int] = attrs.field(factory=dict)

    def check_next(self, entry: JournalEntry) -> None:
        """Check that an entry's transactions continue those of the entries before."""
        for transaction in entry.transactions:
            txid = transaction.txid
            if txid < self.expected:
                self._find(f"it is entered again after transaction {self.expected - 1}: twice, or out of order", txid)
            elif txid > self.expected:
                self._miss(txid - 1, f"transaction {txid} follows {self.expected - 1}")
            self.expected = max(self.expected, txid + 1)

    def check_reached(self, header: JournalHeader) -> None:
        """Check that the entries reach the committed transaction of a header."""
        if header.committed >= self.expected:
            self._miss(header.committed, f"epoch {header.epoch} found {header.committed} committed")
            self.expected = header.committed + 1

    def check_attempts(self, entry: JournalEntry, epoch: int) -> None:
        """Check that an entry's attempts are above those of earlier entries, void ones included."""
        for transaction in entry.transactions:
            attempt = TransactionAttempt(transaction.txid, transaction.attempt)
            before = self._attempts.get(attempt.txid)
            if attempt.epoch != epoch:
                self._find(f"{attempt_words(attempt.attempt)}, was entered by epoch {epoch}", attempt.txid)
            elif before is not None and attempt.attempt <= before:
                words = f"{attempt_words(attempt.attempt)}, follows {attempt_words(before)}"
                self._find(f"{words}: attempts do not rise", attempt.txid)
            self._attempts[attempt.txid] = attempt.attempt

    def _miss(self, last: int, why: str) -> None:
        who = f"all from it to {last} are" if last > self.expected else "it is"
        where = "out of order" if self.expected in self.everywhere else "not in the journal"
        self._find(f"{who} {where}: {why}", self.expected)

    def _find(self, text: str, txid: int) -> None:
        self.report.findings.append(Finding(text, txid))


def _find_in_flight(part: JournalPart, histories: Mapping[str, TableHistory], committed: int) -> JournalEntry | None:
    """Return the last entry if it is not certainly committed: a table has not reached it, or it names no table."""
    if not part.entries or part.entries[-1].last <= committed:
        return None
    entry = part.entries[-1]
    named = [_has(histories[name], entry) for name in entry.states if name in histories]
    return None if named and all(named) else entry


def _has(history: TableHistory, entry: JournalEntry) -> bool:
    return (history.versions[-1].txid or 0) >= entry.last


def _check_ranges(transactions: Sequence[JournalTransaction], report: AuditReport) -> None:
    ends: dict[str, tuple[Any, int]] = {}
    for transaction in transactions:
        for partition, gaps in transaction.skipped.items():
            report.skipped.setdefault(partition, []).extend((transaction.txid, start, end) for start, end in gaps)
        if transaction.ranges is None:
            report.untold += 1
            continue
        for partition, (start, end) in transaction.ranges.items():
            report.ranges += 1
            if partition in ends and ends[partition][0] != start:
                before, txid = ends[partition]
                text = (
                    f"{_gap_or_overlap(before, start)} in partition {partition}: transaction {txid} ended at {before}, "
                    f"this one begins at {start}"
                )
                report.findings.append(Finding(text, transaction.txid))
            if _is_number(start) and _is_number(end) and end < start:
                report.findings.append(Finding(f"partition {partition} goes back, {start} to {end}", transaction.txid))
            ends[partition] = end, transaction.txid
    report.partitions = len(ends)


def _gap_or_overlap(end: Any, start: Any) -> str:
    if _is_number(end) and _is_number(start):
        return "a gap" if start > end else "an overlap"
    return "a gap or an overlap"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


class _TableWalk:
    """Compares the versions of one table with the entries that wrote it, in order."""

    def __init__(
        self,
        history: TableHistory,
        counted: Sequence[_Counted],
        in_flight: JournalEntry | None,
        report: AuditReport,
        begun_after: int,
    ) -> None:
        self._history = history
        self._begun_after = begun_after
        self._in_flight = in_flight
        self._report = report
        first, *self._versions = _without_rolled_back(history.versions)
        self._txid = first.txid or 0
        self._epoch = first.epoch or 0
        self._from = max(self._txid, report.first - 1, begun_after)
        """Transactions up to this one are not in the table's log, or not in the journal, or before its begin."""
        self._expected: Iterator[_Counted] = iter([each for each in counted if each.entry.last > self._from])
        self._next = next(self._expected, None)
        self._doubts: list[Finding] = []
        """Changes by other writers, unless a repair has accepted them."""
        self._proof = TableProof(history.state, self._from, self._txid, begun_after=begun_after)
        if 0 < self._txid <= begun_after:
            self._find_early(self._txid, first)

    def run(self) -> TableProof:
        """Check each version in order, and then the end."""
        for version in self._versions:
            txid = version.txid or 0
            if version.is_adoption:  # the user has accepted all changes by others up to here
                self._doubts.clear()
            if version.is_rollback or version.is_adoption:
                self._proof.repaired += 1
            self._check_maker(version)
            self._check_rows(version)
            if version.is_rollback:
                self._txid = txid
            elif txid < self._txid:
                self._find(f"its last transaction is {txid}, but was {self._txid} before", txid, version)
            elif txid > self._txid and txid > self._from:
                self._check_group(txid, version)
            elif self._txid < txid <= self._begun_after:
                self._find_early(txid, version)
            self._proof.versions += 1
            self._txid = max(self._txid, txid)
        self._check_end()
        self._report.findings += self._doubts
        self._proof.to_txid = self._txid
        return self._proof

    def _find_early(self, txid: int, version: TableVersion) -> None:
        text = f"the table has it, but was begun empty after transaction {self._begun_after}"
        self._find(text, txid, version)

    def _check_maker(self, version: TableVersion) -> None:
        if version.epoch is None:
            if version.touches:
                text = f"another writer made this version ({version.operation}); the table was at {self._txid}"
                self._doubts.append(Finding(text, self._txid, self._history.state, version.version))
            return
        if version.epoch < self._epoch:
            text = f"a coordinator of epoch {version.epoch} wrote it after one of epoch {self._epoch}"
            self._find(text, version.txid, version)
        self._epoch = max(self._epoch, version.epoch)

    def _check_rows(self, version: TableVersion) -> None:
        changes = version.changes
        if changes is None:
            return
        txid = version.txid or 0
        if changes.unexplained:
            text = f"rows changed without a transaction above {self._txid}: {'; '.join(changes.unexplained)}"
            self._doubts.append(Finding(text, self._txid, self._history.state, version.version))
        if changes.doubled:
            self._find(f"keys occur more than once: {'; '.join(changes.doubled)}", txid, version)
        if changes.put_high is not None and changes.put_high > txid:
            text = f"a row has transaction {changes.put_high}, but the table is at {txid}"
            self._find(text, changes.put_high, version)
        elif txid == self._txid and changes.removed:
            text = f"{changes.removed} keys are gone, but no transaction removed them"
            self._doubts.append(Finding(text, txid, self._history.state, version.version))

    def _check_group(self, txid: int, version: TableVersion) -> None:
        while self._next is not None and self._next.entry.last < txid:
            entry = self._next.entry
            text = f"group {entry.first} to {entry.last} wrote it, but the table went from {self._txid} to {txid}"
            self._find(text, entry.first, version)
            self._next = next(self._expected, None)
        if self._next is None or self._next.entry.last != txid:
            text = f"the table went to {txid}, but no group in the journal that wrote it ends there"
            self._find(text, txid, version)
            return
        found, self._next = self._next, next(self._expected, None)
        entry = found.entry
        self._proof.groups += 1
        too_late = found.epoch_max is not None and (version.epoch or 0) > found.epoch_max
        if version.epoch is not None and (version.epoch < found.epoch or too_late):
            self._find(f"epoch {found.epoch} entered it, but epoch {version.epoch} wrote it", txid, version)
        if version.changes is None:
            self._proof.unread += 1
            return
        changes = version.changes
        put, removed = entry.states[self._history.state]
        if changes.put != put:
            self._find(f"the journal records {put} rows put, but the table gained {changes.put}", txid, version)
        # Fewer may be gone: a key that was removed need not have been there.
        if changes.removed > removed:
            text = f"the journal records {removed} keys removed, but the table lacks {changes.removed}"
            self._find(text, txid, version)
        if changes.put_low is not None and changes.put_low < entry.first:
            text = f"a row has transaction {changes.put_low}, but the group begins at {entry.first}"
            self._find(text, changes.put_low, version)
        self._proof.rows_put += changes.put
        self._proof.rows_removed += changes.removed

    def _check_end(self) -> None:
        while self._next is not None:
            entry = self._next.entry
            if entry is not self._in_flight:
                text = f"group {entry.first} to {entry.last} wrote it, but the table ends at {self._txid}"
                self._report.findings.append(Finding(text, entry.first, self._history.state))
            self._next = next(self._expected, None)

    def _find(self, text: str, txid: int | None, version: TableVersion) -> None:
        self._report.findings.append(Finding(text, txid, self._history.state, version.version))


def _without_rolled_back(versions: Sequence[TableVersion]) -> list[TableVersion]:
    """Return the versions that a repair has not rolled back."""
    counting: list[TableVersion] = []
    # The rollback itself stays: it is a version that a coordinator made, with an epoch to check.
    for version in versions:
        if version.is_rollback:
            del counting[rolled_back_from(counting, version.txid) :]
        counting.append(version)
    return counting
