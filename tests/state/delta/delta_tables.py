"""Tables of counts, as the tests of DeltaState open and fill them."""

import json
import operator
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from state.delta import merging
from state.delta.keyed.state import DeltaState, OpenedDeltaState
from state.delta.merging import Merging
from txtopo.api.state import History
from txtopo.api.values import TransactionalValue
from txtopo.testing.conformance.state import COUNT, WORD
from txtopo.transactional.commit.write_buffer import group_state

TOPOLOGY, NAME, INCARNATION = "counting", "counts", "first-life"


def opened(path: Path, epoch: int = 1, sizes: Mapping[str, int] | None = None, **options: int) -> OpenedDeltaState:
    return sized(DeltaState(path, WORD, COUNT, **options), **(sizes or {})).open(TOPOLOGY, NAME, INCARNATION, epoch)


def counted(txid: int, **counts: int) -> dict[str, TransactionalValue]:
    return {word: TransactionalValue(txid, n) for word, n in counts.items()}


LARGE = {"held_bytes": 0, "small_bytes": 0, "full_rows": 1}
"""Sizes of which no rows are in memory, nor an index, but in mapped files, and no data file has room: a large table's."""

MANY_FILES = {"full_rows": 1}
"""Sizes of which new keys go to files of their own, as where other files are full."""


def sized(declared, **sizes):
    """Return a declared table, which has other sizes from now on."""
    declared.sizes = attrs.evolve(declared.sizes, **sizes)
    return declared


class NotedDeltaState(DeltaState):
    """A keyed table whose writes are decided by their rows, as small ones are in real-time mode."""

    def _opened(self, writer):
        state = super()._opened(writer)
        state.note_rows(1 << 20)
        return state


def scheduled(declared, **upkeep):
    """Return a declared table, which is looked after at other times from now on."""
    declared.upkeep = attrs.evolve(declared.upkeep, **upkeep)
    return declared


def sized_tables(topology, **sizes):
    """Return a topology whose tables have other sizes from now on."""
    for declared in topology.plan.states.values():
        sized(declared, **sizes)
    return topology


def scheduled_tables(topology, **upkeep):
    """Return a topology whose tables are looked after at other times from now on."""
    for declared in topology.plan.states.values():
        scheduled(declared, **upkeep)
    return topology


def all_of(hours):
    """Return a history that keeps what the versions of that time need."""
    return History((), None, hours, time.time())


def reread(note):
    """Return a note as the next coordinator reads it."""
    return json.loads(json.dumps(note))


def fold(state, *transactions, function=operator.add):
    """Return what a group of (txid, values of a task, …) is to write."""
    group = group_state(state)
    for txid, *tasks in transactions:
        view = group.begin(txid)
        for values in tasks:
            view.multi_reduce(values, function)
        view.finish()
    return group.writes()


def held_merges(monkeypatch):
    """Let merges end no sooner than an event is set, which it is first; return that, and one that one has begun."""
    gate, begun, merge_files = threading.Event(), threading.Event(), Merging._merge

    def waiting(self, *files):
        made = merge_files(self, *files)
        begun.set()
        assert gate.wait(600)
        return made

    monkeypatch.setattr(Merging, "_merge", waiting)
    gate.set()
    return gate, begun


def step_beside(table, gate, step):
    """Do a step of generated ones that writes nothing: go back, merge, be opened again.

    ``gate`` is that of :func:`held_merges`.
    """
    match step:
        case ("go back", count):
            if table.txid:
                table.go_back(count)
        case ("merge",):
            gate.set()
            merge(table.state)
        case ("merge slowly",):
            gate.clear()
            table.state.maintain()
        case ("open again",):
            gate.set()
            table.open()
        case _:
            raise ValueError(f"there is no step {step!r}")


class AtOnce(ThreadPoolExecutor):
    """Does what it is given at once."""

    def submit(self, do, /, *args, **options):
        made = super().submit(do, *args, **options)
        made.exception()
        return made


def merge_at_once(monkeypatch):
    """Let each merge have ended by the next upkeep."""
    monkeypatch.setattr(merging, "ThreadPoolExecutor", AtOnce)


def put_merged(state):
    """Let a state put what it was merging, and nothing more."""
    state._log_upkeep.close()
    state._merging._under_way.exception()
    state.maintain()
    state._merging.close()


def merge(state):
    """Let a state merge what should be, to the end, and put it."""
    state._log_upkeep.close()  # none is due before the last round is over
    state.maintain()
    for _ in range(20):  # each may be in vain, and the next one too, if others have changed the table
        if state._merging._under_way is None:
            break
        state._merging._under_way.exception()
        state.maintain()


def maintain(state):
    """Let a state do its upkeep, to the end of what goes on beside later writes."""
    merge(state)
    state.close()
