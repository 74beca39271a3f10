"""Checkpoints: transactions to which coordinator state and tables can be brought together, found in the journal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.components.planned import NEVER, Planned
from txtopo.api.state import TableDescription
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalPart, JournalTable
from txtopo.journal.journal import counting_parts
from txtopo.journal.turns import UNKNOWN, Timeline
from txtopo.transactional.recovery.coordinator_state import CommittedMark, StateMark

JOURNAL = "the journal"
"""A source of checkpoints."""


@attrs.frozen
class Checkpoint:
    """The state of a topology after a commit group, whose last transaction is ``txid``."""

    txid: int
    metadata: Any
    incarnation: str
    spouts: Mapping[str, str]
    states: Mapping[str, StateMark]
    """The mark of each state that the topology has had so far, as far as known."""
    source: str
    """The place where this was found, for messages."""
    planned: Planned = NEVER
    timeline: Timeline = UNKNOWN
    """That of the place where this was found."""

    def has(self, name: str) -> bool:
        """Whether the topology had a state at that transaction."""
        return name in self.states and self.states[name].left_after is None


def checkpoint_of(mark: CommittedMark, incarnation: str, spouts: Mapping[str, str], timeline: Timeline) -> Checkpoint:
    """Return the checkpoint in the coordinator state itself."""
    where = "the coordinator state"
    return Checkpoint(mark.txid, mark.metadata, incarnation, spouts, mark.states, where, mark.planned, timeline)


def checkpoints_in(  # noqa: PLR0913 - what a journal is read with
    parts: Sequence[JournalPart],
    topology_id: str,
    incarnation: str,
    states: Collection[str],
    descriptions: Mapping[str, TableDescription],
    *,
    decided: int = 0,
) -> list[Checkpoint]:
    """Return a journal's checkpoints of one incarnation, newest first, each transaction once.

    The last group counts if the coordinator state says so, by ``decided``, the last transaction that it knows to be
    decided; or if the tables that the group wrote of ``states``, which the code has, have reached it, as their
    descriptions show: no table of an undecided group ever does.
    """

    def is_written(entry: JournalEntry) -> bool:
        if entry.last <= decided:
            return True
        seen = [name for name in entry.states if name in states]
        reached = (name in descriptions and (descriptions[name].last_txid or 0) >= entry.last for name in seen)
        return bool(seen) and all(reached)

    found: dict[int, Checkpoint] = {}
    marks: dict[str, StateMark] = {}
    own = _of_incarnation(parts, topology_id, incarnation)
    newest = own[-1].header if own else None
    timeline = Timeline() if newest is None else Timeline(newest.epoch, newest.turns, newest.renames)
    for part in counting_parts(own, is_written):
        header = part.header
        # A repair may have gone back, so that the transactions after it ran again: what came before is undone.
        # So are the marks: a state that joined the topology later is none of it any more.
        if any(txid > header.committed for txid in found):
            found = {txid: checkpoint for txid, checkpoint in found.items() if txid <= header.committed}
            marks = dict(found[max(found)].states) if found else {}
        marks |= _marks_in(header)
        found[header.committed] = _checkpoint(header, header.committed, header.metadata, header.planned, marks)
        marks = _without_others(marks, part)
        for entry in part.entries:
            written = {name: attrs.evolve(marks[name], txid=entry.last) for name in entry.states if name in marks}
            marks = {**marks, **written}
            last = entry.transactions[-1]
            found[entry.last] = _checkpoint(header, entry.last, last.metadata, last.planned, marks)
    return [attrs.evolve(found[txid], timeline=timeline) for txid in sorted(found, reverse=True)]


def header_after(  # noqa: PLR0913 - what a header says
    mark: CommittedMark,
    owner: tuple[str, str, int],
    spouts: Mapping[str, str],
    addresses: Mapping[str, str],
    timeline: Timeline | None = None,
    *,
    undone_until: int = 0,
    store: str = "",
) -> JournalHeader:
    """Return what a part of a journal begins with that goes on after a mark.

    Args:
        mark: the last committed transaction, with the marks of the states that are there.
        owner: the topology, its incarnation, and the epoch of who writes.
        spouts: the kind of each spout.
        addresses: those of the tables, by state.
        timeline: the turns and renames so far.
        undone_until: see :class:`JournalHeader`.
        store: likewise.
    """
    topology_id, incarnation, epoch = owner
    timeline = timeline or Timeline()
    marks = mark.states
    return JournalHeader(
        topology=topology_id,
        incarnation=incarnation,
        epoch=epoch,
        spouts=spouts,
        committed=mark.txid,
        metadata=mark.metadata,
        planned=mark.planned,
        undone_until=undone_until,
        tables={name: JournalTable(place, marks[name].identity) for name, place in addresses.items() if name in marks},
        states={name: state.txid for name, state in marks.items()},
        begun_after={name: state.begun_after for name, state in marks.items() if state.begun_after},
        turns=timeline.turns,
        renames=timeline.renames,
        store=store,
    )


def _of_incarnation(parts: Sequence[JournalPart], topology_id: str, incarnation: str) -> list[JournalPart]:
    return [part for part in parts if (part.header.topology, part.header.incarnation) == (topology_id, incarnation)]


def _marks_in(header: JournalHeader) -> dict[str, StateMark]:
    identities = {name: table.identity for name, table in header.tables.items()}
    return {
        name: StateMark(identities.get(name, ""), txid, begun_after=header.begun_after.get(name, 0))
        for name, txid in header.states.items()
    }


def _without_others(marks: Mapping[str, StateMark], part: JournalPart) -> dict[str, StateMark]:
    """Return the marks, with the states that the part's topology lacks as departed if the part has entries."""
    if not part.entries:
        return dict(marks)
    before = part.entries[0].first - 1
    return {
        name: mark
        if name in part.header.states or mark.left_after is not None
        else attrs.evolve(mark, left_after=before)
        for name, mark in marks.items()
    }


def _checkpoint(
    header: JournalHeader, txid: int, metadata: Any, planned: Planned, marks: Mapping[str, StateMark]
) -> Checkpoint:
    return Checkpoint(txid, metadata, header.incarnation, header.spouts, dict(marks), JOURNAL, planned)
