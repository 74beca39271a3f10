"""Checkpoints: transactions to which coordinator state and tables can be brought together, found in the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from txtopo.backend.table import TableDescription
from txtopo.journal.journal import JournalEntry, JournalHeader, JournalPart, counting_parts
from txtopo.recovery.coordinator_state import CommittedMark


@attrs.frozen
class Checkpoint:
    """The state of a topology after a commit group.

    Args:
        txid: the last committed transaction: the group's last one.
        metadata: that transaction's metadata.
        incarnation: the topology's incarnation.
        spout: ``repeatable`` or ``opaque``.
        states: the last txid of each state, by name; 0 if the state was not written yet.
        identities: the identity of each state's table, as far as known.
        source: where this information was found, for messages.
    """

    txid: int
    metadata: Any
    incarnation: str
    spout: str
    states: Mapping[str, int]
    identities: Mapping[str, str]
    source: str


def checkpoint_of(mark: CommittedMark, incarnation: str, spout: str) -> Checkpoint:
    """Return the checkpoint in the coordinator state itself."""
    return Checkpoint(
        txid=mark.txid,
        metadata=mark.metadata,
        incarnation=incarnation,
        spout=spout,
        states={name: state.txid or 0 for name, state in mark.states.items()},
        identities={name: state.identity for name, state in mark.states.items()},
        source="the coordinator state",
    )


def checkpoints_in(
    parts: Sequence[JournalPart], topology_id: str, incarnation: str, descriptions: Mapping[str, TableDescription]
) -> list[Checkpoint]:
    """Return a journal's checkpoints of one incarnation of a topology, newest first, each transaction once.

    Args:
        parts: the journal.
        topology_id: the topology.
        incarnation: the incarnation.
        descriptions: the tables' descriptions; the last group counts if its tables have reached it.
    """

    def is_written(entry: JournalEntry) -> bool:
        return all(name in descriptions and (descriptions[name].last_txid or 0) >= entry.last for name in entry.states)

    own = [part for part in parts if (part.header.topology, part.header.incarnation) == (topology_id, incarnation)]
    found: dict[int, Checkpoint] = {}
    for part in counting_parts(own, is_written):
        found = {txid: each for txid, each in found.items() if txid <= part.header.committed}
        states = {name: txid or 0 for name, txid in part.header.states.items()}
        found[part.header.committed] = _checkpoint(part.header, part.header.committed, part.header.metadata, states)
        for entry in part.entries:
            states = {**states, **dict.fromkeys(entry.states, entry.last)}
            found[entry.last] = _checkpoint(part.header, entry.last, entry.transactions[-1].metadata, states)
    return [found[txid] for txid in sorted(found, reverse=True)]


def _checkpoint(header: JournalHeader, txid: int, metadata: Any, states: Mapping[str, int]) -> Checkpoint:
    identities = {name: table.identity for name, table in header.tables.items()}
    return Checkpoint(txid, metadata, header.incarnation, header.spout, states, identities, "the journal")
