"""What can be replayed: the part of a topology that can be judged, and the past that journal and tables have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs

from txtopo.api.state import KeepsVersions
from txtopo.api.table_history import StateComparison
from txtopo.api.writes import Writes
from txtopo.errors import ConfigError, DivergenceError, StateAccessError
from txtopo.journal.entries import DEAD_LETTERS, JournalEntry, JournalPart
from txtopo.journal.journal import counting_entries
from txtopo.topology.builders.checks import OWN_PREFIX
from txtopo.topology.plans.plan import Plan

FORWARD_MAX = 10_000
"""How many transactions are run at most because the tables have no version nearer to the one that is replayed."""

NO_BOUND = 1 << 60
"""A limit that is never reached: for bytes in memory, so nothing is spilled, and for transactions."""


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
            components |= {state for state, own in whole.requested_states.items() if not states.isdisjoint(own)}
            components |= {edge.target for edge in whole.edges if edge.source in components}
            states |= {each for component in components for each in whole.requested_states.get(component, ())}
            living = {name: state.time_to_live for name, state in whole.states.items()}
            states |= {name for name, ttl in living.items() if ttl is not None and ttl.clock in states}
        kept = [component.id for component in whole.components if component.id not in components]
        part = whole.part(kept, {name: state for name, state in whole.states.items() if name not in states})
        return cls(part if causes else whole, whole, causes)

    @property
    def left_out(self) -> tuple[str, ...]:
        """What can't be judged, and why, in lines; none if all can be."""
        names = [component.id for component in self.whole.components if component.id not in self.plan.by_id]
        names += [f"state {name}" for name in self.whole.states if name not in self.plan.states]
        told = [f"so it can't be judged, and is left out: {', '.join(names)}"] if names else []
        return (*(f"state {name!r} {why}" for name, why in self.causes.items()), *told)


def _without_past(whole: Plan, parts: Sequence[JournalPart], first: int, last: int) -> Iterator[tuple[str, str]]:
    headers = [
        part.header for part in parts if any(entry.first <= last and entry.last >= first for entry in part.entries)
    ]
    begun_after = parts[-1].header.begun_after if parts else {}
    for name, state in whole.states.items():
        if not isinstance(state, KeepsVersions):
            yield name, "keeps no versions"
        elif first <= begun_after.get(name, 0):
            yield name, f"was begun empty after transaction {begun_after[name]}"
        elif any(name not in header.states for header in headers) and not name.startswith(OWN_PREFIX):
            yield name, "was not in the topology at all of them"


class Past:
    """The commit groups of a topology, as journal and tables have them, as far as they can be judged."""

    def __init__(self, part: ReplayedPart, parts: Sequence[JournalPart]) -> None:
        self._plan, self._whole, self._parts = part.plan, part.whole, parts
        self._headers = {id(entry): part.header for part in parts for entry in part.entries}
        self.entries = counting_entries(parts, self._is_written)
        """The committed groups."""
        self.metadata: dict[int, Any] = {part.header.committed: part.header.metadata for part in parts}
        """That of transactions, by txid."""
        self.metadata |= {
            transaction.txid: transaction.metadata for entry in self.entries for transaction in entry.transactions
        }

    def group_of(self, txid: int) -> JournalEntry:
        """Return the commit group of a transaction that can be replayed.

        Raises:
            ConfigError: the transaction is not committed, not in the journal or was given up.
            DivergenceError: the topology, or a table, is not the one that committed the transaction.
        """
        entry = next((each for each in self.entries if each.first <= txid <= each.last), None)
        if entry is None:
            raise ConfigError(f"the journal has no committed transaction {txid}; {self._span}")
        transactions = tuple(transaction for transaction in entry.transactions if transaction.txid <= txid)
        if transactions[-1].is_dead_letter:
            raise ConfigError(
                f"transaction {txid} was given up, so there are no results to compare; see its dead letter"
            )
        unknown = {name for transaction in transactions for name in transaction.fingerprints} - set(self._whole.by_id)
        if unknown:
            raise DivergenceError(
                f"transaction {txid} was committed by a topology with {min(unknown)!r}, which this one does not have; "
                "replay it with the topology that committed it"
            )
        self.check_states(entry)
        self._check_tables()
        return entry

    def groups(self, first: int, last: int) -> list[JournalEntry]:
        """Return the commit groups of a range of transactions.

        Raises:
            ConfigError: a transaction is not committed or not in the journal.
            DivergenceError: a table is not the one that the transactions were committed to.
        """
        found = [entry for entry in self.entries if entry.last >= first and entry.first <= last]
        if not found or found[0].first > first or found[-1].last < last:
            raise ConfigError(f"the journal does not have all of transactions {first} to {last}; {self._span}")
        self._check_tables()
        return found

    def between_points(self, group: JournalEntry, txid: int) -> JournalEntry:
        """Return all groups between the points around a group as one: the group's versions are gone.

        Raises:
            StateAccessError: there is no point before it, or it is too far from ``txid``, up to which they would run.
        """
        ends = self._kept_ends()
        before = max((end for end in ends if end < group.first), default=None)
        if before is None:
            oldest = min((end for end in ends if end >= group.first), default=None)
            later = "" if oldest is None else f"; the first that can be replayed is {oldest + 1}"
            raise StateAccessError(
                f"the tables keep neither their versions before transaction {group.first} nor a point before it{later}",
                txid=group.first,
            )
        after = min((end for end in ends if end >= group.last), default=self.entries[-1].last)
        count = min(txid, after) - before
        if count > FORWARD_MAX:
            raise StateAccessError(
                f"the nearest point before transaction {group.first} that the tables keep is {before}: {count:,} "
                f"transactions would run from there on, more than {FORWARD_MAX:,}",
                txid=group.first,
            )
        passed = [entry for entry in self.entries if entry.first > before and entry.last <= after]
        for entry in passed:
            self.check_states(entry)
        states = {
            name: (sum(entry.states[name][0] for entry in of), sum(entry.states[name][1] for entry in of))
            for name in {name: None for entry in passed for name in entry.states}
            if (of := [entry for entry in passed if name in entry.states])
        }
        return JournalEntry(states, tuple(transaction for entry in passed for transaction in entry.transactions))

    def _kept_ends(self) -> list[int]:
        """Return the ends of groups as of which all tables can be opened."""
        begin = self._parts[0].header
        marks = {name: begin.states.get(name) or 0 for name in self._plan.states}
        tables = {name: state.table() for name, state in self._plan.states.items()}
        kept = {
            name: table.kept({marks[name], *(entry.last for entry in self.entries if name in entry.states)})
            for name, table in tables.items()
            if table is not None
        }
        found = [begin.committed] if all(marks[name] in kept[name] for name in kept) else []
        for entry in self.entries:
            marks |= {name: entry.last for name in entry.states if name in marks}
            if all(marks[name] in kept[name] for name in kept):
                found.append(entry.last)
        return found

    def _is_written(self, entry: JournalEntry) -> bool:
        named = [name for name in entry.states if name in self._plan.states]
        return all((self.as_of(name, entry.last).last_txid or 0) == entry.last for name in named)

    def check_states(self, entry: JournalEntry) -> None:
        """Check that the topology had the same states at a group, and that their tables still hold it.

        Raises:
            DivergenceError: it had others, or they were begun empty later.
        """
        header, newest = self._headers[id(entry)], self._parts[-1].header
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

    def _check_tables(self) -> None:
        for name, known in self._parts[-1].header.tables.items():
            if name in self._plan.states and self.as_of(name, NO_BOUND).identity != known.identity:
                raise DivergenceError(f"the table of state {name!r} is not the one in the journal")

    def as_of(self, name: str, txid: int) -> Any:
        """Return a state after a transaction; see :class:`PastState`."""
        state = self._plan.states[name]
        assert isinstance(state, KeepsVersions), "the others are left out"
        return state.open_as_of(self._plan.topology_id, name, txid)

    @property
    def _span(self) -> str:
        """The transactions that the journal has, in words."""
        entries = self.entries
        return f"it has {entries[0].first} to {entries[-1].last}" if entries else "it has no transactions"
