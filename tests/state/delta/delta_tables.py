"""Tables of counts, as the tests of DeltaState open and fill them."""

from __future__ import annotations

import operator
from pathlib import Path

from state.delta.keyed import state as delta_opened, writing as delta_writing
from state.delta.keyed.state import DeltaState, OpenedDeltaState
from txtopo.api.values import TransactionalValue
from txtopo.testing.conformance.state import COUNT, WORD
from txtopo.transactional.commit.write_buffer import GroupState

TOPOLOGY, NAME, INCARNATION = "counting", "counts", "first-life"


def opened(path: Path, epoch: int = 1, **options: int) -> OpenedDeltaState:
    return DeltaState(path, WORD, COUNT, **options).open(TOPOLOGY, NAME, INCARNATION, epoch)


def counted(txid: int, **counts: int) -> dict[str, TransactionalValue]:
    return {word: TransactionalValue(txid, n) for word, n in counts.items()}


def merge_always(monkeypatch):
    """Have every write be a merge, which leaves several files."""
    monkeypatch.setattr(delta_writing, "REWRITE_ROWS_MAX", -1)
    monkeypatch.setattr(delta_writing, "REWRITE_SHARE", -1)
    monkeypatch.setattr(delta_opened, "ROWS_PER_KEY", -1)


def fold(state, *transactions, function=operator.add):
    """Return what a group of (txid, values of a task, …) is to write."""
    group = GroupState(state)
    for txid, *tasks in transactions:
        view = group.begin(txid)
        for values in tasks:
            view.multi_reduce(values, function)
        view.finish()
    return group.writes()
