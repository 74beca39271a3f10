"""The making of a fork; ``tests/cli/mend/test_fork.py`` has the rest."""

import json
from pathlib import Path

import attrs
import pytest

from state.stores.memory import MemoryPlace, MemoryStore
from tests.journals import HEADER
from txtopo.api.components.planned import NEVER, Planned
from txtopo.errors import ConfigError, StopError
from txtopo.files.places import folder_at
from txtopo.fork.fork import Fork, ForkSubject, claim, find_fork, make
from txtopo.journal.folders import find_journal
from txtopo.journal.writer import JournalWriter
from txtopo.transactional.core.events import TransactionMetadata
from txtopo.transactional.recovery.checkpoints import Checkpoint
from txtopo.transactional.recovery.coordinator_state import CommittedMark, CoordinatorState
from txtopo.transactional.recovery.operations.diagnosis import RepairSubject
from txtopo.transactional.recovery.plans import GoTo


@pytest.fixture
def subject(tmp_path):
    origin = RepairSubject("first", {"spout": "repeatable"}, {}, folder_at(tmp_path / "out" / "_txtopo"), {})
    header = attrs.evolve(HEADER, topology="first", incarnation="a life")
    JournalWriter(find_journal(origin.metadata_dir, "first"), header, 1 << 20)
    point = Checkpoint(3, "metadata", "a life", {"spout": "repeatable"}, {}, "the journal")
    begun = [TransactionMetadata(4, "next", Planned(1000)), TransactionMetadata(5, "last", NEVER)]
    plan = GoTo.of_fork(point, CommittedMark(3, "metadata"))
    return ForkSubject(
        Fork("second", "own life", "first"), folder_at(tmp_path / "side"), origin, plan, {}, begun, {"a/b": b"1"}
    )


def coordinator_state(store: MemoryStore) -> CoordinatorState:
    return CoordinatorState(store, store.take_lead("second", "test"), "second")


def test_the_coordinator_state_of_a_fork(subject):
    """It has the fork's incarnation, the transactions and what the spout keeps, and nothing of an earlier try."""
    store = MemoryStore(MemoryPlace())
    state = coordinator_state(store)
    earlier = [TransactionMetadata(7, "another", NEVER)]
    state.found("own life", CommittedMark(6, "another"), {}, earlier, {"old": b"0"})
    claim(subject)
    make(subject, state)
    assert (state.incarnation, state.committed()) == ("own life", CommittedMark(3, "metadata"))
    assert [(each.txid, each.metadata) for each in state.begun(3)] == [(4, "next"), (5, "last")]
    assert state.begun(3)[0].planned == Planned(1000)
    assert (store.children("second/source"), store.read("second/source/a/b")) == (["a"], b"1")


def test_an_id_that_the_store_has_is_refused(subject):
    """In a store that several topologies share, nobody's coordinator state is taken for that of a fork."""
    state = coordinator_state(MemoryStore(MemoryPlace()))
    state.begin()
    claim(subject)
    with pytest.raises(ConfigError, match="the store has a topology 'second' already: choose another id"):
        make(subject, state)


def test_a_fork_of_a_newer_version_is_refused(subject):
    """It names the version that reads it."""
    claim(subject)
    path = Path(str(subject.metadata_dir), "fork.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": {"number": 99, "needs": "9.0"}}))
    with pytest.raises(StopError, match=r"9\.0 or newer"):
        find_fork(subject.folder)


def test_one_folder_is_of_one_fork(subject):
    """Two forks with different ids, whose leads do not exclude each other, never share a folder."""
    claim(subject)
    other = ForkSubject(Fork("third", "other life", "first"), subject.folder, subject.origin, subject.plan, {}, (), {})
    with pytest.raises(ConfigError, match="holds a fork 'second' that is not finished: make it with --id second"):
        claim(other)


def test_what_an_interrupted_try_has_begun_is_its_own(subject):
    """The next one has another incarnation, and takes over a store that has the one that the folder names."""
    state = coordinator_state(MemoryStore(MemoryPlace()))
    claim(subject)
    state.found("own life", CommittedMark(3, "metadata"), {})
    make(attrs.evolve(subject, fork=attrs.evolve(subject.fork, incarnation="another life")), state)
    assert state.incarnation == "another life"


def test_a_fork_is_the_same_while_its_origin_goes_on(subject):
    """How far that is by now makes no other fork; another transaction of the same number does."""

    def tried(**changes):
        plan = attrs.evolve(subject.plan, **changes)
        claim(attrs.evolve(subject, fork=attrs.evolve(subject.fork, plan=plan, txid=3), plan=plan))

    tried()
    tried(until=9, last_txids={"words": 9})
    with pytest.raises(ConfigError, match="the topology has gone back since, and that is another one by now"):
        tried(metadata="another")
    with pytest.raises(ConfigError, match="a fork of transaction 3 that is not finished, and it begins there"):
        tried(txid=2)


def test_a_folder_that_is_not_free(subject):
    """Neither beside the metadata of a topology nor among it; what a crash has left of a draft is nothing."""
    metadata_dir = Path(str(subject.metadata_dir))
    metadata_dir.mkdir(parents=True)
    journal = metadata_dir / "journal.jsonl"
    for path in (metadata_dir.parent / "words", journal):
        path.touch()
        with pytest.raises(ConfigError, match="is not empty: give the fork a folder of its own"):
            claim(subject)
        path.unlink()
    claim(subject)
    assert find_fork(subject.folder) is not None
