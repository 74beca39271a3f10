"""The checks of one table against the journal: its versions are the groups that wrote it, with the rows entered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from txtopo.api.table_history import RowChanges, TableHistory, TableVersion, rolled_back_from
from txtopo.inspect.audit.journal_checks import CountedEntry
from txtopo.inspect.audit.report import AuditReport, Finding, TableProof
from txtopo.journal.entries import JournalEntry


class TableWalk:
    """Compares the versions of one table with the entries that wrote it, in order."""

    def __init__(
        self,
        history: TableHistory,
        counted: Sequence[CountedEntry],
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
        self._epochs = {self._epoch}
        """Those of the versions up to the one that is looked at."""
        self._from = max(self._txid, report.first - 1, begun_after)
        """Transactions up to this one are not in the table's log, or not in the journal, or before its begin."""
        self._expected: Iterator[CountedEntry] = iter([entry for entry in counted if entry.entry.last > self._from])
        self._next = next(self._expected, None)
        self._doubts: list[Finding] = []
        """Changes by other writers, unless a repair has accepted them."""
        self._put = self._removed = self._unread = 0
        self._proof = TableProof(history.state, self._from + 1, self._txid, begun_after=begun_after or None)
        if 0 < self._txid <= begun_after:
            self._find_early(self._txid, first)

    def run(self) -> TableProof:
        """Check each version in order, and then the end."""
        for version in self._versions:
            txid = version.txid or 0
            if version.is_adoption:  # the user has accepted all changes by others up to here
                self._doubts.clear()
            if version.is_rollback or version.is_adoption:
                self._proof.repairs += 1
            self._check_maker(version)
            self._check_rows(version)
            if version.is_rollback and txid <= self._txid:
                self._txid = txid
            elif txid < self._txid:
                self._find(f"its last transaction is {txid}, but was {self._txid} before", txid, version)
            elif txid > self._txid and txid > self._from:
                self._check_group(txid, version)
            elif self._txid < txid <= self._begun_after:
                self._find_early(txid, version)
            self._proof.versions += 1
            self._txid = max(self._txid, txid)
        newest = self._history.versions[-1]
        if self._history.doubled and (newest.changes is None or not newest.changes.doubled):
            self._find(f"keys occur more than once: {'; '.join(self._history.doubled)}", newest.txid or 0, newest)
        self._check_end()
        self._report.findings += self._doubts
        self._proof.last = self._txid
        self._proof.rows_put, self._proof.rows_removed, self._proof.unread = self._put, self._removed, self._unread
        return self._proof

    def _find_early(self, txid: int, version: TableVersion) -> None:
        text = f"the table has it, but was begun empty after transaction {self._begun_after}"
        self._find(text, txid, version)

    def _check_maker(self, version: TableVersion) -> None:
        if version.epoch is None:
            if version.touches:
                text = f"another writer made this version ({version.operation}); the table was at {self._txid}"
                self._doubts.append(Finding(text, self._txid, self._history.state, version.version))
            elif version.moves and version.changes is None:
                self._proof.believed += 1
            return
        if version.epoch < self._epoch:
            text = f"a coordinator of epoch {version.epoch} wrote it after one of epoch {self._epoch}"
            self._find(text, version.txid, version)
        self._epoch = max(self._epoch, version.epoch)
        self._epochs.add(version.epoch)

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
        passed = self._passed_by(txid, version)
        if self._next is None or self._next.entry.last != txid:
            text = f"the table went to {txid}, but no group in the journal that wrote it ends there"
            self._find(text, txid, version)
            return
        found, self._next = self._next, next(self._expected, None)
        self._proof.groups += 1 + len(passed)
        self._proof.between += len(passed)
        self._check_epoch(found, version)
        if version.changes is None:
            self._unread += 1
        elif self._txid >= self._from or (version.follows and not version.is_rollback):
            self._check_changes(version.changes, [*passed, found.entry], version)
        # else the journal does not have all that was written since the version before

    def _passed_by(self, txid: int, version: TableVersion) -> list[JournalEntry]:
        passed: list[JournalEntry] = []
        while self._next is not None and self._next.entry.last < txid:
            entry = self._next.entry
            if version.follows and not version.is_rollback:
                text = f"group {entry.first} to {entry.last} wrote it, but the table went from {self._txid} to {txid}"
                self._find(text, entry.first, version)
            else:
                passed.append(entry)
            self._next = next(self._expected, None)
        return passed

    def _check_epoch(self, found: CountedEntry, version: TableVersion) -> None:
        if version.epoch is None or version.is_rollback:
            return
        # A table that was restored from before the next coordinator opened it gets the group from a later one.
        end = found.epoch_max
        is_too_late = end is not None and any(end <= epoch < version.epoch for epoch in self._epochs)
        if version.epoch < found.epoch or is_too_late:
            text = f"epoch {found.epoch} entered it, but epoch {version.epoch} wrote it"
            self._find(text, found.entry.last, version)

    def _check_changes(self, changes: RowChanges, entries: Sequence[JournalEntry], version: TableVersion) -> None:
        """Compare the rows of a version with those that the journal records of its groups."""
        txid, first = entries[-1].last, entries[0].first
        written = [entry.states[self._history.state] for entry in entries]
        put, removed = (sum(counts) for counts in zip(*written, strict=True))
        # Of rows that several groups have put, a keyed table has the last.
        if changes.put > put or (changes.put < put and len(entries) == 1):
            self._find(f"the journal records {put} rows put, but the table gained {changes.put}", txid, version)
        # Fewer may be gone: a key that was removed need not have been there.
        if changes.removed > removed:
            text = f"the journal records {removed} keys removed, but the table lacks {changes.removed}"
            self._find(text, txid, version)
        if changes.put_low is not None and changes.put_low < first:
            text = f"a row has transaction {changes.put_low}, but the group begins at {first}"
            self._find(text, changes.put_low, version)
        self._put += changes.put
        self._removed += changes.removed

    def _check_end(self) -> None:
        while self._next is not None:
            entry = self._next.entry
            if entry is not self._in_flight:
                text = f"group {entry.first} to {entry.last} wrote it, but the table ends at {self._txid}"
                self._report.find(text, entry.first, self._history.state)
            self._next = next(self._expected, None)

    def _find(self, text: str, txid: int | None, version: TableVersion) -> None:
        self._report.find(text, txid, self._history.state, version.version)


def _without_rolled_back(versions: Sequence[TableVersion]) -> list[TableVersion]:
    counting: list[TableVersion] = []
    # The rollback itself stays: it is a version that a coordinator made, with an epoch to check.
    for version in versions:
        if version.is_rollback:
            del counting[rolled_back_from(counting, version.txid) :]
        counting.append(version)
    return counting
