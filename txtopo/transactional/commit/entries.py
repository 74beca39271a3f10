"""The journal's entry for a commit group: the input that each transaction took, and what its components emitted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from txtopo.api.components.optional import call_if_there
from txtopo.api.components.planned import metadata_of
from txtopo.api.data.copying import copied, copied_json
from txtopo.api.writes import Writes, put_and_removed
from txtopo.attempts import TransactionAttempt
from txtopo.journal.entries import JournalEntry, JournalTransaction, by_partition
from txtopo.topology.plans.plan import PlannedComponent
from txtopo.topology.spout_semantics import semantics_of
from txtopo.topology.user_code.blame import user_code
from txtopo.transactional.core.actions import AssignedAttempt
from txtopo.transactional.core.record.history import shortened
from txtopo.transactional.tasks.fingerprint import Fingerprint, Fingerprints

FAILURE_CHARACTERS_MAX = 400
"""Characters of a failure in the journal, which keeps many transactions."""

_Spans = Mapping[str, Sequence[tuple[Any, Any]]]
"""(start, end) of parts of the input, by partition."""


def journal_entry(
    spouts: Sequence[PlannedComponent],
    group: Sequence[AssignedAttempt],
    previous: Any,
    writes: Mapping[str, Writes],
    fingerprints: Mapping[TransactionAttempt, Fingerprints] | None,
) -> JournalEntry:
    """Return the entry of a group after the metadata ``previous``; without ``fingerprints``, of a dead letter."""
    transactions = []
    for assigned in group:
        own = {} if fingerprints is None else fingerprints[assigned.attempt]
        inputs = {spout.id: _input(spout, assigned, previous, own.get(spout.id)) for spout in spouts}
        transactions.append(
            JournalTransaction(
                txid=assigned.attempt.txid,
                attempt=assigned.attempt.attempt,
                metadata=assigned.metadata,
                fingerprints={name: (fingerprint.tuples, fingerprint.checksum) for name, fingerprint in own.items()},
                ranges={name: ranges for name, (ranges, _) in inputs.items()},
                is_dead_letter=fingerprints is None,
                skipped={name: gaps for name, (_, gaps) in inputs.items() if gaps},
                planned=assigned.planned,
                failure=shortened(" ".join(assigned.failure.split()), FAILURE_CHARACTERS_MAX),
            )
        )
        previous = assigned.metadata
    states = {name: put_and_removed(values) for name, values in writes.items()}
    return JournalEntry(states, tuple(transactions))


def input_ranges(spouts: Sequence[PlannedComponent], metadata: Any, previous: Any) -> dict[str, tuple[Any, Any]]:
    """Return the input of a transaction that is not committed, by partition, for a display; empty if it is not known.

    It is between ``previous``, the metadata of the transaction before it, and its own, which an opaque one gets late.
    """
    return by_partition(
        {spout.id: _ranges(spout, *(metadata_of(each, spout.id) for each in (metadata, previous))) for spout in spouts}
    )


def _ranges(spout: PlannedComponent, metadata: Any, previous: Any) -> dict[str, tuple[Any, Any]]:
    is_complete = semantics_of(spout.component).is_complete
    if metadata is None or not (is_complete(metadata) and is_complete(previous)):
        return {}
    try:
        ranges = call_if_there(spout.component, "input_ranges", copied_json(metadata), copied_json(previous))
        ranges_known = json.loads(json.dumps(ranges or {}))  # fails here if it is not JSON
        return {name: (start, end) for name, (start, end) in ranges_known.items()}
    except Exception:  # noqa: BLE001 - the spout's; the entry for the journal reports it
        return {}


def _input(
    spout: PlannedComponent, assigned: AssignedAttempt, previous: Any, emitted: Fingerprint | None
) -> tuple[Mapping[str, tuple[Any, Any]] | None, dict[str, tuple[tuple[Any, Any], ...]]]:
    ranges: Mapping[str, tuple[Any, Any]] | None = {}
    skipped: _Spans = {}
    with user_code(spout.id, assigned.attempt):
        if assigned.planned.has_input_of(spout.id, assigned.metadata):
            # Copies: the spout may change its arguments, but not the metadata that is recorded.
            metadata_copies = [copied_json(metadata_of(each, spout.id)) for each in (assigned.metadata, previous)]
            ranges = call_if_there(spout.component, "input_ranges", *metadata_copies)
            skipped = call_if_there(spout.component, "input_skipped", *metadata_copies) or {}
        gaps = {name: tuple((start, end) for start, end in spans) for name, spans in skipped.items() if spans}
        for name, start, end in () if emitted is None else emitted.skipped:
            gaps[name] = (*gaps.get(name, ()), (start, end))
        json.dumps((ranges, gaps))  # fails here, as the spout's fault, if it returns something that is not JSON
    return copied(ranges), gaps
