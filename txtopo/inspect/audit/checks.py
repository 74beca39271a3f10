"""The audit: proves from journal and tables that every transaction was committed once, in order, without a gap.

It uses no other information, and checks every fact that is recorded in two places:

1. *The journal alone.* Groups follow one another without a gap. The last committed transaction that a new coordinator
   found is the last one that the previous coordinator entered. Attempt numbers rise and are of the epoch that entered
   them. Each partition's input begins where it ended before. Input that a spout skipped, because it was gone and the
   user allows that, is reported and is no violation. Transactions see one table under each reference's name, in
   versions that rise; a transaction that was planned again with a newer one is reported.
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

import attrs

from txtopo.api.table_history import TableHistory
from txtopo.attempts import transactions_words
from txtopo.backfill.difference import difference_between
from txtopo.inspect.audit.journal_checks import CountedEntry, begin_of, check_journal, check_ranges, check_references
from txtopo.inspect.audit.report import AuditReport, Finding, InFlight, Renamed
from txtopo.inspect.audit.table_checks import TableWalk
from txtopo.journal.entries import DEAD_LETTERS, JournalEntry, JournalPart, JournalTable
from txtopo.topology.builders.checks import OWN_PREFIX


def tables_of(parts: Sequence[JournalPart]) -> tuple[dict[str, JournalTable], set[str]]:
    """Return the tables as the journal names them last, and the states that are no more, whose tables may be gone."""
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
    renames = [
        Renamed(each.txid, each.topology, each.former, each.states, each.text) for each in parts[-1].header.renames
    ]
    report = AuditReport(
        parts[-1].header.topology,
        epochs=len(parts),
        first=begin_of(parts) + 1,
        renames=renames,
        tables_read=len(histories),
    )
    rolled_back = {
        version.epoch
        for history in histories.values()
        for version in history.versions
        if version.is_rollback and version.epoch
    }
    filled = {name: _check_backfill(name, own, report) for name, own in (backfills or {}).items()}
    counted = check_journal(parts, rolled_back, report, filled)
    for name, own_entries in filled.items():
        _compare_backfill(name, own_entries, counted, report)
    # Recovery will finish this group or drop it, so it is neither committed nor a finding.
    in_flight = _find_in_flight(parts[-1], histories, committed)
    if in_flight is not None:
        written = [name for name in in_flight.states if name in histories]
        has_it = tuple(name for name in written if _has(histories[name], in_flight))
        lacks_it = tuple(name for name in written if name not in has_it)
        report.in_flight = InFlight(in_flight.first, in_flight.last, has_it, lacks_it)
    _record_ended([entry for entry in counted if entry.entry is not in_flight], parts, report)
    transactions = [transaction for entry in counted for transaction in entry.entry.transactions]
    check_ranges(transactions, report)
    check_references(transactions, report)
    presence = {name: _Presence.of(name, parts, counted, _end_of(filled.get(name))) for name in _states_of(parts)}
    for each in presence.values():
        report.findings += each.findings()
    named = {name for entry in counted for name in entry.entry.states} - set(histories)
    left = {name: each.left_after for name, each in presence.items()}
    departed = {name: txid for name, txid in left.items() if txid is not None and name in named}
    report.not_proved = {**dict.fromkeys(sorted(named - departed.keys())), **departed}
    for name, history in histories.items():
        if name not in presence:
            continue  # the topology had it at no transaction
        known = next(p.header.tables[name] for p in reversed(parts) if name in p.header.tables)
        if known.identity != history.identity:
            report.find(f"the table at {history.address} is not the one in the journal", state=name)
            continue
        _check_table(history, presence[name], filled.get(name, ()), counted, in_flight, report)
    report.is_proved = not report.findings
    return report


def _record_ended(ended: Sequence[CountedEntry], parts: Sequence[JournalPart], report: AuditReport) -> None:
    report.groups = len(ended)
    report.last = ended[-1].entry.last if ended else parts[-1].header.committed
    report.dead_letters = sum(transaction.is_dead_letter for group in ended for transaction in group.entry.transactions)


def _check_table(  # noqa: PLR0913, PLR0917 - all that there is of one table
    history: TableHistory,
    presence: _Presence,
    filled: Sequence[CountedEntry],
    counted: Sequence[CountedEntry],
    in_flight: JournalEntry | None,
    report: AuditReport,
) -> None:
    name = presence.state
    of_state = [entry for entry in (*filled, *counted) if name in entry.entry.states]
    proof = TableWalk(history, of_state, in_flight, report, presence.begun_after).run()
    proof.left_after = presence.left_after
    proof.backfilled_to = _end_of(filled) or None
    proof.away = presence.gaps if presence.is_optional else ()
    report.tables.append(proof)


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
    def of(cls, name: str, parts: Sequence[JournalPart], counted: Sequence[CountedEntry], filled_to: int) -> _Presence:
        begun_after = next((p.header.begun_after.get(name, 0) for p in reversed(parts) if name in p.header.states), 0)
        gaps: list[tuple[int, int]] = []
        absent: tuple[int, int] | None = None
        left_after: int | None = None
        for entry in counted:
            if entry.entry.last <= max(begun_after, filled_to):
                continue
            first, last = entry.entry.first, entry.entry.last
            if name in entry.header.states:
                gaps += [absent] if absent is not None else []
                absent = None
            else:
                absent = (first, last) if absent is None else (absent[0], last)
        if absent is not None and name in parts[-1].header.states:
            gaps.append(absent)
        elif absent is not None:
            left_after = absent[0] - 1
        # A user's state may have the name of the one for dead letters, if no policy skips transactions.
        wrote = [
            transaction for entry in counted if name in entry.entry.states for transaction in entry.entry.transactions
        ]
        is_of_dead_letters = name == DEAD_LETTERS and all(transaction.is_dead_letter for transaction in wrote)
        return cls(name, begun_after, left_after, tuple(gaps), is_of_dead_letters or name.startswith(OWN_PREFIX))

    def findings(self) -> Iterator[Finding]:
        """Yield the gaps, unless the state may come and go."""
        for first, last in () if self.is_optional else self.gaps:
            which = transactions_words(first, last)
            text = f"the topology ran {which} without this state, so the table lacks their part, and nothing says so"
            yield Finding(text, first, self.state)


def _check_backfill(name: str, parts: Sequence[JournalPart], report: AuditReport) -> list[CountedEntry]:
    """Return the entries of the backfill of a state that count, and report violations of their order."""
    own = AuditReport(first=parts[0].header.committed + 1)
    counted = check_journal(parts, set(), own, {})
    report.findings += [
        attrs.evolve(finding, text=f"in its backfill: {finding.text}", state=name) for finding in own.findings
    ]
    return counted


def _compare_backfill(
    name: str, filled: Sequence[CountedEntry], counted: Sequence[CountedEntry], report: AuditReport
) -> None:
    """Report transactions of a backfill that are not those that the topology has committed."""
    committed = {transaction.txid: transaction for entry in counted for transaction in entry.entry.transactions}
    for now in (transaction for entry in filled for transaction in entry.entry.transactions):
        then = committed.get(now.txid)  # none if it is older than the journal
        both = (
            ()
            if then is None
            else [fingerprint for fingerprint in then.fingerprints if fingerprint in now.fingerprints]
        )
        difference = None if then is None else difference_between(then, now, both, both)
        if difference is not None:
            report.find(f"in its backfill: {difference}", now.txid, name)


def _end_of(filled: Sequence[CountedEntry] | None) -> int:
    """Return the last transaction of a backfill; 0 if there is none."""
    return filled[-1].entry.last if filled else 0


def _find_in_flight(part: JournalPart, histories: Mapping[str, TableHistory], committed: int) -> JournalEntry | None:
    """Return the last entry if it is not certainly committed: a table has not reached it, or it names no table."""
    if not part.entries or part.entries[-1].last <= committed:
        return None
    entry = part.entries[-1]
    named = [_has(histories[name], entry) for name in entry.states if name in histories]
    return None if named and all(named) else entry


def _has(history: TableHistory, entry: JournalEntry) -> bool:
    return (history.versions[-1].txid or 0) >= entry.last
