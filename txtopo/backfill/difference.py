"""The evidence of backfills: the journals of the runs that gave new states their history.

Up to the transaction at which a state joined its topology, its table was written by a backfill, whose journal is in the
backfill's folder. It counts as evidence for the table if it names it by its identity, and if its transactions are those
that the topology has committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from txtopo.journal.entries import JournalTransaction
from txtopo.transactional.tasks.fingerprint import Fingerprint


def difference_between(
    old: JournalTransaction, new: JournalTransaction, components: Sequence[str], known: Collection[str]
) -> str | None:
    """Describe the first difference between a transaction and its backfill; None if there is none.

    ``old`` is as the topology has committed it, ``new`` as the backfill has; ``components`` ran in the backfill, in
    topological order; ``known`` are those that the topology had.
    """
    if (old.metadata, old.planned.at_ms) != (new.metadata, new.planned.at_ms):
        return "it is another transaction now than when the backfill began it, because the topology has gone back"
    if old.is_dead_letter:
        return None
    for name in components:
        if name not in known:
            continue
        was, found = _fingerprint(old.fingerprints, name), _fingerprint(new.fingerprints, name)
        if was.tuples != found.tuples:
            counts = f"{was.tuples} at the commit, {found.tuples} now"
            return f"component {name!r} emits other tuples than it did then ({counts}): its code or its input changed"
        if None not in {was.checksum, found.checksum} and was.tuples and was.checksum != found.checksum:
            return (
                f"component {name!r} emits as many tuples as it did then, {found.tuples}, but with other values, in "
                "another order or from other tasks: its code, its input or its parallelism changed"
            )
    return None


def _fingerprint(fingerprints: Mapping[str, tuple[Any, Any]], name: str) -> Fingerprint:
    tuples, checksum = fingerprints.get(name, (0, 0))
    return Fingerprint(tuples, checksum)
