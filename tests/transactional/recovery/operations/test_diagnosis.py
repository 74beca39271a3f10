"""A repair is proposed by what the journal says of where tables are and can be, without a look at the rest."""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from state import MemoryState
from state.stores.memory import MemoryPlace, MemoryStore
from tests.transactional.recovery.operations.test_rewind import Subject, Table, written
from txtopo import Fields
from txtopo.files.folder import LocalFolder
from txtopo.journal.search import JournalSearch, SearchSizes
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState, StateMark
from txtopo.transactional.recovery.operations.diagnosis import Diagnosis, diagnose

STATE = MemoryState(Fields("key"), Fields("value"))


def diagnosed(
    folder: Path, tables: dict[str, Table], mark: CommittedMark | None, sizes: SearchSizes | None = None
) -> Diagnosis:
    """Diagnose a topology whose coordinator state is wiped, or has a mark."""
    states = dict.fromkeys(tables, STATE)
    subject = Subject(
        "top", {"s": "repeatable"}, states, LocalFolder(folder), {}, made=tables, sizes=sizes or SearchSizes()
    )
    store = MemoryStore(MemoryPlace())
    lead = store.take_lead("top", "test", 100)
    coordinator_state = CoordinatorState(store, lead, "top")
    if mark is not None:
        coordinator_state.found("life", mark, {})
    return diagnose(subject, CoordinatorState(store, lead, "top"))


@contextlib.contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Yield the entries that are parsed meanwhile."""
    parse, parsed = JournalSearch._entry, []

    def entry(journal: Any, file: Any, line: bytes) -> Any:
        parsed.append(line)
        return parse(journal, file, line)

    with monkeypatch.context() as patched:
        patched.setattr(JournalSearch, "_entry", entry)
        yield parsed


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("is_wiped", [False, True])
def test_a_repair_is_that_of_the_whole_journal(tmp_path, monkeypatch, seed, is_wiped):
    """Whichever table was restored from a backup, and whether the coordinator state is there: it goes to the same place."""
    draw = random.Random(seed)
    writes = written(tmp_path, draw, draw.randrange(1, 4))
    kept = sorted(draw.sample(writes["a"], 6))
    tables = {}
    for name, own in writes.items():
        versions = {max(w for w in own if w <= txid) for txid in kept}
        last = (
            own[-1]
            if draw.random() < 0.5
            else draw.choice([version for version in sorted(versions) if version] or own[-1:])
        )
        tables[name] = Table(name, last, {version for version in versions if version <= last})
    marks = {name: StateMark(name, own[-1]) for name, own in writes.items()}
    mark = None if is_wiped else CommittedMark(writes["a"][-1], None, marks)
    found, entries = [], []
    for block_bytes in (1 << 30, 1_000):  # a file that is not larger is read whole
        sizes = SearchSizes(bytes=500, near_lines=3, block_bytes=block_bytes)
        with counted(monkeypatch) as parsed:
            found.append(diagnosed(tmp_path, tables, mark, sizes))
        entries.append(len(parsed))
    whole, around = found
    assert around.go_to == whole.go_to
    assert attrs.evolve(around, obstacles=()) == attrs.evolve(whole, obstacles=())
    assert entries[1] < entries[0] / 2
