"""The checks of the journal alone: groups without a gap, attempts that rise, input that continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.reference import SeenVersion
from txtopo.attempts import TransactionAttempt, attempt_words
from txtopo.inspect.audit.report import AuditReport, CheckedInput, Gap, Replanned, SeenVersions
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalPart, JournalTransaction


@attrs.frozen
class CountedEntry:
    """An entry that counts, and the epochs that may have written its tables: from its own to that of the next header.

    The next coordinator finishes a group that this one left; only a table that was restored from before it opened that
    may get it from a later one.
    """

    entry: JournalEntry
    header: JournalHeader
    epoch_max: int | None
    """None if there is no later epoch in the journal."""

    @property
    def epoch(self) -> int:
        """The epoch that entered it."""
        return self.header.epoch


def check_journal(
    parts: Sequence[JournalPart],
    rolled_back: set[int],
    report: AuditReport,
    filled: Mapping[str, Sequence[CountedEntry]],
) -> list[CountedEntry]:
    """Return the entries that count, and report violations of their order.

    In the epochs ``rolled_back`` a repair has rolled tables back, which may make several groups void; so may one that
    found a table restored where it went, and says so in its header.
    """
    rolled_back = rolled_back | {part.header.epoch for part in parts if part.header.undone_until}
    everywhere = {transaction.txid for part in parts for entry in part.entries for transaction in entry.transactions}
    order = _Order(report, begin_of(parts) + 1, everywhere)
    counted: list[CountedEntry] = []
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
            counted.append(CountedEntry(entry, header, None if following is None else following.epoch))
        if void and bound is not None:
            report.dropped += len(void)
            is_repaired = any(epoch > header.epoch for epoch in rolled_back)
            _check_void(void, bound, report, may_be_many=is_repaired)
    return counted


def begin_of(parts: Sequence[JournalPart]) -> int:
    """Return the last transaction before those that a journal has; a rewind may have gone back further than it went."""
    return min(part.header.committed for part in parts)


def _check_void(void: Sequence[JournalEntry], bound: int, report: AuditReport, *, may_be_many: bool) -> None:
    first = void[0]
    group = f"group {first.first} to {first.last}"
    if first.first <= bound:
        text = f"a later epoch found {bound} committed, which is in the middle of {group}"
        report.find(text, first.first)
    # A coordinator commits one group after another, so a crash leaves one in flight; only a repair goes back further.
    if len(void) > 1 and not may_be_many:
        text = f"a later epoch found {bound} committed, but after it {group} and further groups were entered"
        report.find(text, first.first)


def _check_sequence(old: JournalHeader, header: JournalHeader, rolled_back: set[int], report: AuditReport) -> None:
    epochs = f"epoch {header.epoch}"
    for what, was, now in (
        ("topology", old.topology, header.topology),
        ("incarnation", old.incarnation, header.incarnation),
    ):
        if was != now:
            report.find(f"{epochs} belongs to {what} {now!r}, the one before it to {was!r}")
    if header.epoch <= old.epoch:
        report.find(f"{epochs} follows epoch {old.epoch}: epochs do not rise")
    # A repair that dies after it has rolled all tables back is finished by a later one, which rolls back none.
    is_repaired = any(old.epoch < epoch <= header.epoch for epoch in rolled_back)
    if header.committed < old.committed and not is_repaired:
        text = f"{epochs} found {header.committed} committed, but epoch {old.epoch} had found {old.committed}"
        report.find(text, header.committed + 1)


def _check_found(
    before: Sequence[JournalPart],
    header: JournalHeader,
    counted: Sequence[CountedEntry],
    order: _Order,
    filled: Mapping[str, Sequence[CountedEntry]],
) -> None:
    """Compare the header of a new coordinator with the entries before it."""
    old = before[-1].header
    # Where the journal begins, or where a rewind went back to from there.
    first = min((*(part.header for part in before), header), key=lambda header: header.committed)
    epochs = f"epoch {header.epoch}"
    order.check_reached(header)
    last = counted[-1].entry.transactions[-1] if counted else None
    if last is not None and last.txid == header.committed and last.metadata != header.metadata:
        text = f"{epochs} found metadata {header.metadata}, but the journal has {last.metadata}"
        order.report.find(text, last.txid)
    for name, txid in header.states.items():
        begun_after = header.begun_after.get(name, 0)
        entered_so_far = (*filled.get(name, ()), *counted)
        # A state that joined, and was left out for a while, may have what its backfill has run later.
        until = max(header.committed, counted[-1].entry.last if counted else 0)
        lasts = (entry.entry.last for entry in entered_so_far if name in entry.entry.states)
        own = [last for last in lasts if begun_after < last <= until]
        # A state that the epoch before did not have, or had in another table, may have any txid.
        is_known = name in old.states and old.tables.get(name) == header.tables.get(name)
        entered = own[-1] if own else None if begun_after else first.states.get(name)
        # Where a topology went back, one without versions stays where it was.
        is_ahead = bool(header.turns) and name not in header.tables and (txid or 0) > (entered or 0)
        if is_known and not is_ahead and (txid or 0) != (entered or 0):
            text = f"{epochs} found it at transaction {txid}, but its last write in the journal is {entered}"
            order.report.find(text, txid if txid is not None else entered, name)


@attrs.define
class _Order:
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
        self.report.find(text, txid)


def check_ranges(transactions: Sequence[JournalTransaction], report: AuditReport) -> None:
    """Check that each transaction's input begins where it ended before, in each partition."""
    ends: dict[tuple[str, str], tuple[Any, int]] = {}
    ranges = untold = 0
    for transaction in transactions:
        for partition, gaps in transaction.gaps.items():
            report.skipped.setdefault(partition, []).extend(Gap(transaction.txid, *gap) for gap in gaps)
        untold += None in transaction.ranges.values()
        for spout, own in transaction.ranges.items():
            of_spout = f" of spout {spout!r}" if len(transaction.ranges) > 1 else ""
            for partition, (start, end) in (own or {}).items():
                ranges += 1
                where = f"partition {partition}{of_spout}"
                before, txid = ends.get((spout, partition), (start, 0))
                if before != start:
                    text = (
                        f"{_gap_or_overlap(before, start)} in {where}: transaction {txid} ended at {before}, this one "
                        f"begins at {start}"
                    )
                    report.find(text, transaction.txid)
                if _is_number(start) and _is_number(end) and end < start:
                    report.find(f"{where} goes back, {start} to {end}", transaction.txid)
                ends[spout, partition] = end, transaction.txid
    report.input = CheckedInput(len(ends), ranges, untold)


def check_references(transactions: Sequence[JournalTransaction], report: AuditReport) -> None:
    """Check that all transactions have seen one table under each name, and none an older version than one before it."""
    last: dict[str, tuple[int, SeenVersion]] = {}
    for transaction in transactions:
        for seen in transaction.planned.references:
            before, known = last.get(seen.name, (0, seen))
            if seen.instead_of is not None:
                report.replanned.append(
                    Replanned(transaction.txid, seen.name, seen.version, seen.instead_of, seen.words)
                )
            elif seen.identity != known.identity:
                text = f"reference {seen.name!r} is another table than transaction {before} saw"
                report.find(text, transaction.txid)
            elif seen.version < known.version:
                text = f"it saw version {seen.version} of reference {seen.name!r}, and {before} saw {known.version}"
                report.find(text, transaction.txid)
            last[seen.name] = transaction.txid, seen
            first = report.references.get(seen.name, SeenVersions(seen.version, 0)).first
            report.references[seen.name] = SeenVersions(first, seen.version)


def _gap_or_overlap(end: Any, start: Any) -> str:
    if _is_number(end) and _is_number(start):
        return "a gap" if start > end else "an overlap"
    return "a gap or an overlap"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
