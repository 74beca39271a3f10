"""What is known of one transaction: its state, since when, what it waits for, and what happens next."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence

import attrs

from state.delta.read.consistent import committed_in_tables
from txtopo.api.components.planned import NEVER, BeginReason
from txtopo.assembly.snapshot import WHY_DEAD, Snapshot, TransactionSnapshot, Writer
from txtopo.attempts import attempt_words, transactions_words
from txtopo.errors import ConfigError
from txtopo.files.folder import Folder
from txtopo.inspect.past.wording import STATUS_WORDS, StoryLine, readings_of
from txtopo.journal.ending import read_end
from txtopo.journal.entries import JournalEntry
from txtopo.journal.folders import find_journal
from txtopo.journal.search import EnteredGroup, JournalSearch
from txtopo.text.words import clock, count_of, cut
from txtopo.transactional.core.readings import Reading
from txtopo.transactional.core.record.history import ABRIDGED_FIRST, HistoryEntry, HistoryEvent
from txtopo.transactional.core.transitions import Status

SILENT_SECS = 10.0
"""If a run's process is alive but its snapshot is older than this, the run is reported as silent."""

METADATA_CHARACTERS_MAX = 200
"""Two lines of a terminal: enough to tell offsets apart."""


@attrs.frozen
class Known:
    """The known facts about a topology's run."""

    journal: JournalSearch
    committed: int
    """The last transaction that is committed for certain."""
    in_doubt: JournalEntry | None
    """The last group of the journal if it is not committed for certain."""
    is_decided: bool
    """Whether a table has it, so that the next run finishes it."""
    writer: Writer | None
    snapshot: Snapshot | None

    @classmethod
    def of(cls, metadata_dir: Folder, topology_id: str, found: tuple[Writer, Snapshot] | None) -> Known:
        """Merge journal, tables and snapshot. The snapshot may be a second behind: drop what is committed since."""
        journal = find_journal(metadata_dir, topology_id)
        end = read_end(journal)
        if found is None or (end is not None and not found[0].wrote(end.header)):
            if end is None:
                raise ConfigError(f"there is no record of a run in {metadata_dir}: run the topology first")
            found = None
        writer, snapshot = found or (None, None)
        committed = 0 if snapshot is None else snapshot.committed
        in_doubt, is_decided = None, False
        if end is not None and end.last is not None and committed < end.last.last:
            last = end.last  # its group may still be in progress
            in_all, in_any = committed_in_tables(metadata_dir, topology_id) or (0, 0)
            committed = max(committed, last.first - 1, in_all)
            in_doubt, is_decided = None if committed >= last.last else last, in_any >= last.last
        elif end is not None:
            committed = max(committed, end.header.committed)
        if snapshot is not None:
            snapshot = attrs.evolve(
                snapshot,
                committed=committed,
                last_begun=max(committed, snapshot.last_begun),
                transactions=tuple(
                    transaction for transaction in snapshot.transactions if transaction.txid > committed
                ),
            )
        return cls(JournalSearch(journal), committed, in_doubt, is_decided, writer, snapshot)

    @property
    def resumption(self) -> str:
        """What the next run begins with."""
        group = self.in_doubt
        if group is None:
            return f"the next run resumes with transaction {self.committed + 1}"
        finishes = f"finishes the group, {_span(group)}, and resumes with transaction {group.last + 1}"
        if self.is_decided:
            return f"the next run {finishes}: a table has it already"
        return f"the next run {finishes} if it was decided; otherwise it resumes with transaction {group.first}"

    @property
    def is_alive(self) -> bool:
        """Whether the run continues, as far as this machine can see."""
        has_end = self.snapshot is None or bool(self.snapshot.ended)
        return not has_end and self.writer is not None and self.writer.is_alive is not False


@attrs.frozen
class Story:
    """What is known of a transaction, in words."""

    headline: str
    lines: tuple[StoryLine, ...] = ()

    def with_lines(self, lines: Iterable[StoryLine]) -> Story:
        """Return it with further lines."""
        return Story(self.headline, (*self.lines, *lines))


def story_of(known: Known, txid: int) -> Story:
    """Tell what is known of a transaction; raise ConfigError if it has not begun."""
    if txid < 1:
        raise ConfigError(f"there is no transaction {txid}: the first one is 1")
    entered = known.journal.find(txid)
    if txid <= known.committed:
        readings = () if known.snapshot is None else known.snapshot.readings
        return _committed(known, txid, entered).with_lines(_measured(readings))
    last_begun = known.committed if known.snapshot is None else known.snapshot.last_begun
    is_unseen = known.snapshot is None or known.writer is None or txid > last_begun or not known.is_alive
    if entered is not None and is_unseen:  # no live run could report whether its writes have landed
        return Story(f"transaction {txid}: {_unsure(entered, txid)}; {known.resumption}")
    if known.snapshot is None or known.writer is None:
        why = "none has recorded which transactions have begun; the next one resumes after the last committed one"
        last = known.committed or "none yet"
        return Story(f"transaction {txid}: not committed; the last committed one is {last}", (StoryLine("run", why),))
    if txid > last_begun:
        far = f"the last one that has is {last_begun}, the last committed one is {known.committed or 'none yet'}"
        raise ConfigError(f"transaction {txid} has not begun: {far if last_begun else 'none has yet'}")
    pending = _pending(known.snapshot, txid, known.writer, is_live=known.is_alive)
    run = _run(known.snapshot, known.writer, known.resumption)
    return pending.with_lines([*run, *_measured(known.snapshot.readings)])


_WITHOUT_INPUT = {
    BeginReason.QUIET: "the source had had none for a while, and a bolt asks for this (quiet_after)",
    BeginReason.END: "the source was exhausted, and a bolt asks for this (at_end)",
}


def _unsure(entered: EnteredGroup, txid: int) -> str:
    attempt = attempt_words(entered.transaction(txid).attempt)
    return (
        f"{attempt}, entered in the journal with its group, {_span(entered.entry)}, whose writes "
        "are in progress or were interrupted"
    )


def _span(entry: JournalEntry) -> str:
    return f"transactions {entry.first} to {entry.last}" if entry.first < entry.last else "which holds it alone"


def _lacks(journal: JournalSearch) -> str:
    headers = journal.headers()
    if not headers:
        return "the topology keeps none (topology.journal.bytes.max)"
    return (
        f"it begins with transaction {min(header.committed for header in headers) + 1}: earlier ones are before the "
        "oldest point (topology.rewind.hours), or were too much for topology.journal.bytes.max"
    )


def _committed(known: Known, txid: int, entered: EnteredGroup | None) -> Story:
    if entered is None:
        return Story(f"transaction {txid}: committed", (StoryLine("journal", _lacks(known.journal)),))
    entry, transaction = entered.entry, entered.transaction(txid)
    outcome = "given up, its dead letter is written" if transaction.is_dead_letter else "committed"
    lines = [
        StoryLine("attempt", f"{attempt_words(transaction.attempt)}, of topology {entered.header.topology!r}"),
        StoryLine("group", _span(entry)),
    ]
    if transaction.planned != NEVER:
        lines.append(StoryLine("planned", f"{transaction.planned.at:%Y-%m-%d %H:%M:%S.%f} UTC"))
    lines += [StoryLine("reference", seen.words) for seen in transaction.planned.references]
    for partition, (start, end) in transaction.input.items():
        lines.append(StoryLine("input", f"{partition}: {start} to {end}"))
    for spout in transaction.planned.ahead:
        lines.append(StoryLine("waited", f"{spout}: its event time was too far ahead of another spout's (skew_max)"))
    for partition, gaps in transaction.gaps.items():
        spans = ", ".join(f"{start} to {end}" for start, end in gaps)
        lines.append(StoryLine("skipped", f"{partition}: {spans}: the records were gone, and the spout went on"))
    if transaction.failure:
        lines.append(StoryLine("failed", f"before, at last by: {transaction.failure}"))
    if not transaction.planned.has_input:
        lines.append(StoryLine("input", f"none: {_WITHOUT_INPUT[transaction.planned.turn]}"))
    elif not transaction.input:
        metadata = json.dumps(transaction.metadata, ensure_ascii=False)
        lines.append(StoryLine("input", f"metadata {cut(metadata, METADATA_CHARACTERS_MAX)}"))
    if transaction.fingerprints:
        tuples = ", ".join(f"{name} {number:,}" for name, (number, _) in transaction.fingerprints.items())
        lines.append(StoryLine("tuples", tuples))
    lines += [
        StoryLine("written", f"{name}: {count_of(put, 'row')} put, {removed:,} removed, by the whole group")
        for name, (put, removed) in entry.states.items()
    ]
    lines.append(StoryLine("next", f"nothing: it is done; the last committed transaction is {known.committed}"))
    return Story(f"transaction {txid}: {outcome}", tuple(lines))


def _pending(snapshot: Snapshot, txid: int, writer: Writer, *, is_live: bool) -> Story:
    first = snapshot.committed + 1
    found = next((transaction for transaction in snapshot.transactions if transaction.txid == txid), None)
    if found is None:
        next_step = "it is the first in line; the run has not recorded more about it"
        if txid > first:
            next_step = f"it waits for {transactions_words(first, txid - 1)}; explain {first}, which is first in line"
        return Story(f"transaction {txid}: begun, not committed", (StoryLine("next", next_step),))
    status = Status(found.status)
    verb = STATUS_WORDS[found.status] if is_live else "was not committed when the run ended"
    lines = []
    entries = found.history.entries
    if is_live and entries:
        ago_ms = snapshot.now_ms - entries[-1].at_ms
        lines.append(StoryLine("since", f"{_time_of(writer, snapshot, entries[-1].at_ms)}, for {clock(ago_ms / 1000)}"))
    if is_live and found.component is not None:
        lines.append(StoryLine("waits for", f"component {found.component!r}, which is running for it now"))
    if is_live and status in {Status.PROCESSING, Status.COMMITTING}:
        idle_ms = snapshot.now_ms - found.progress_ms
        lines.append(
            StoryLine("progress", f"{idle_ms / 1000:.1f} s ago; the timeout is {snapshot.timeout_ms / 1000:g} s")
        )
    lines += [StoryLine("input", f"{partition}: {start} to {end}") for partition, (start, end) in found.ranges.items()]
    lines += [StoryLine("reference", seen.words) for seen in found.references]
    failure = found.history.last_failure
    if failure is not None:
        lines.append(StoryLine("failed", _failure(failure, writer, snapshot)))
    for number, entry in enumerate(entries):
        if number == ABRIDGED_FIRST and found.history.left_out:
            lines.append(StoryLine("…", f"{found.history.left_out:,} events left out"))
        lines.append(StoryLine(_time_of(writer, snapshot, entry.at_ms), str(entry)))
    if is_live:
        lines.append(StoryLine("next", _next(snapshot, found, status)))
    return Story(f"transaction {txid}: {verb}", tuple(lines))


def _failure(failure: HistoryEntry, writer: Writer, snapshot: Snapshot) -> str:
    attempt = "" if failure.attempt is None else attempt_words(failure.attempt.attempt)
    where = "" if failure.component is None else f" in component {failure.component!r}"
    reason = failure.own_reason.partition("\nTraceback ")[0]
    reason = cut(" ".join(reason.split()), METADATA_CHARACTERS_MAX)
    return f"{attempt}{where}, at {_time_of(writer, snapshot, failure.at_ms)}: {reason}"


def _next(snapshot: Snapshot, found: TransactionSnapshot, status: Status) -> str:
    first = snapshot.committed + 1
    behind = ""
    if found.txid > first:
        words = [
            f", which {STATUS_WORDS[transaction.status]}"
            for transaction in snapshot.transactions
            if transaction.txid == first
        ]
        behind = f", behind transaction {first}{''.join(words)}"
    match status:
        case Status.READY:
            bound = "" if snapshot.tries_max is None else f"; it may fail {count_of(snapshot.tries_max, 'time')} in all"
            is_replay = any(entry.what is HistoryEvent.FAILED for entry in found.history.entries)
            return f"{'it is replayed' if is_replay else 'it is processed'} in one of the next jobs{bound}"
        case Status.PROCESSING:
            return f"once processed, it waits for its turn to commit{behind}; without progress it is replayed"
        case Status.PROCESSED:
            return f"its turn to commit comes{behind or ', with the next group'}"
        case Status.COMMITTING:
            return "its group's commit phases end, and each table gets one Delta write; without progress the run stops"
        case Status.DEAD if snapshot.skips:
            return f"its dead letter is written in its turn{behind}"
        case Status.DEAD:
            return f"earlier transactions commit, then the run stops{behind}"
        case Status.WRITING_DEAD_LETTER:
            return "once its dead letter is written, later transactions continue"
        case _:
            return "nothing: it is done"


def _run(snapshot: Snapshot, writer: Writer, resumes: str) -> list[StoryLine]:
    age_secs = max(0.0, time.time() - writer.written_secs)
    process = f"process {writer.pid} on {writer.host}, epoch {writer.epoch}"
    if snapshot.ended:
        lines = [StoryLine("run", f"ended {clock(age_secs)} ago: {snapshot.ended}")]
        if snapshot.failed_txid is not None:
            where = "" if snapshot.failed_component is None else f", component {snapshot.failed_component!r}"
            lines.append(StoryLine("", f"that was in transaction {snapshot.failed_txid}{where}"))
        return [*lines, StoryLine("next", resumes)]
    alive = writer.is_alive
    if alive is False:
        return [
            StoryLine("run", f"{process}, is dead: {WHY_DEAD}; the one before is {clock(age_secs)} old"),
            StoryLine("next", resumes),
        ]
    if age_secs > SILENT_SECS + writer.every_secs:
        doubt = "it is alive" if alive else "this machine can't see whether it is alive"
        return [StoryLine("run", f"{process}: {doubt}, but its last report is {clock(age_secs)} old")]
    return [StoryLine("run", f"{process}, is running; as of {age_secs:.1f} s ago")]


def _measured(readings: Sequence[Reading]) -> list[StoryLine]:
    """Return what each component has counted and measured in the run so far, a line for each part; none by txid."""
    lines = [
        StoryLine("", f"{component}{f' {of!r}' if of else ''}: {values}")
        for component, of, values in readings_of(readings)
    ]
    return [StoryLine("measured", "in the run so far, not in this transaction alone"), *lines] if lines else []


def _time_of(writer: Writer, snapshot: Snapshot, at_ms: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(writer.written_secs - (snapshot.now_ms - at_ms) / 1000))
