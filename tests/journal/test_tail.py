"""Tests of the end of a journal that rides in the decisions of groups."""

import random
import uuid
from collections.abc import Callable, Iterator

import attrs
import pytest

pytest.importorskip("obstore")

from state.stores import replica
from state.stores.objects import ObjectLead, ObjectStore
from tests.journals import HEADER
from txtopo.api.store import Delete, Put
from txtopo.files import objects
from txtopo.files.folder import Item
from txtopo.files.objects import ObjectFolder
from txtopo.journal import tail
from txtopo.journal.ending import read_end
from txtopo.journal.entries import JournalEntry, JournalTransaction
from txtopo.journal.folders import begin_journal, find_journal
from txtopo.journal.following import JournalFollower
from txtopo.journal.journal import counting_entries, journal_files, read_journal
from txtopo.journal.search import JournalSearch
from txtopo.journal.tail import STORE_FOLDER, TAIL
from txtopo.journal.writer import JournalWriter

METADATA = {"place": "x" * 40}


class Bucket:
    """A bucket with one topology: its coordinators, one after another, and what they have decided."""

    def __init__(self) -> None:
        self.metadata_dir = ObjectFolder(f"memory:///{uuid.uuid4().hex}")
        self.store = ObjectStore(f"{self.metadata_dir}/{STORE_FOLDER}")
        self.lead: ObjectLead
        self.writer: JournalWriter
        self.former: list[JournalWriter] = []
        self.tail_bytes = 500
        self.decided: list[int] = []
        """The txids of the groups that were decided, each with one transaction."""
        self.start()

    def start(self) -> None:
        """Take the lead, as a coordinator does, from one that may live on."""
        self.lead = self.store.take_lead("t", "test")
        folder = begin_journal(self.metadata_dir, "t", HEADER.incarnation)
        header = attrs.evolve(
            HEADER,
            topology="t",
            epoch=self.lead.epoch,
            committed=len(self.decided),
            metadata=METADATA if self.decided else None,
        )
        self.writer = JournalWriter(folder, header, 1 << 30, rides=True)
        self.writer.tail_bytes, self.writer.tail_bytes_max = self.tail_bytes, 1000

    def die(self) -> None:
        """End the coordinator: nobody adds what it has left, until somebody starts."""
        self.former.append(self.writer)
        self.store.close()
        self.store = ObjectStore(f"{self.metadata_dir}/{STORE_FOLDER}")

    def enter(self) -> bytes | None:
        transaction = JournalTransaction(len(self.decided) + 1, 1, METADATA, {})
        return self.writer.enter(JournalEntry({"s": (1, 0)}, (transaction,)))

    def decide(self, riding: bytes | None) -> None:
        self.lead.write([Put("t/group", b"note"), *([] if riding is None else [Put(f"t/{TAIL}", riding)])])
        self.decided.append(len(self.decided) + 1)

    def group(self) -> None:
        self.decide(self.enter())
        self.writer.decided()

    def groups(self, count: int) -> None:
        for _ in range(count):
            self.group()

    @property
    def journal(self) -> ObjectFolder:
        found = find_journal(self.metadata_dir, "t")
        assert isinstance(found, ObjectFolder)
        return found

    def check(self, dropped: int = 0) -> None:
        """Assert that each reader finds what was decided, and up to ``dropped`` entries more that were not."""
        parts = read_journal(self.journal)
        found = [entry.last for entry in counting_entries(parts, lambda _: True)]
        assert found[: len(self.decided)] == self.decided
        assert len(found) <= len(self.decided) + dropped
        search = JournalSearch(self.journal)
        assert [each.entry.last for each in search.backwards()][::-1] == found
        assert {entry.last for part in search.around(self.decided) for entry in part.entries} >= set(found)
        end = read_end(self.journal)
        assert end is not None
        assert [end.header.committed if end.last is None else end.last.last] == (found or [0])[-1:]
        follower = JournalFollower(self.journal, 0)
        followed = iter(lambda: follower.read(len(self.decided)), [])
        assert [each.txid for some in followed for each in some] == self.decided


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Return a bucket whose log is cut, and whose lines go to the file, after a few groups."""
    monkeypatch.setattr(replica, "_SINCE_BYTES", 5 * 4096)
    return Bucket()


def test_what_rides_is_read(bucket: Bucket) -> None:
    """From the decision on and not before, also once the log is cut, the lines are in the file, or a part is over."""
    bucket.check()
    riding = bucket.enter()
    bucket.check()
    bucket.decide(riding)
    bucket.check()
    bucket.writer.decided()
    for number in range(40):
        bucket.group()
        bucket.check()
        if number % 9 == 0:
            bucket.writer.end_part()
    sizes = [item.size for item in journal_files(bucket.metadata_dir.below("journal/t"))]
    assert len(sizes) == 6
    bucket.writer.add_lines()
    bucket.check()
    assert [item.size for item in journal_files(bucket.journal)] == [
        item.size for item in journal_files(bucket.metadata_dir.below("journal/t"))
    ]


def test_a_line_that_is_long_goes_to_the_file_at_once(bucket: Bucket) -> None:
    """With those before it, in their order."""
    bucket.group()
    bucket.writer.tail_bytes_max = 1
    assert bucket.enter() is None
    bucket.check(dropped=1)
    bucket.decide(None)
    bucket.writer.decided()
    bucket.writer.tail_bytes_max = 1000
    bucket.groups(3)
    bucket.check()


def test_what_a_coordinator_has_left(bucket: Bucket) -> None:
    """A crash before the decision leaves no entry, one after it all of them; the next one adds them to their file."""
    for at in ("before", "decided", "counted"):
        bucket.groups(2)
        riding = bucket.enter()
        if at != "before":
            bucket.decide(riding)
        if at == "counted":
            bucket.writer.decided()
        bucket.die()
        bucket.check()
        bucket.start()
        bucket.check()
    own = bucket.metadata_dir.below("journal/t")
    assert [entry.last for part in read_journal(own) for entry in part.entries] == bucket.decided


def test_one_that_has_lost_the_lead_harms_nothing(bucket: Bucket) -> None:
    """What it adds late is there already, or is what the next one would add."""
    bucket.groups(2)
    zombie, other = bucket.writer, ObjectStore(f"{bucket.metadata_dir}/{STORE_FOLDER}")
    undecided = bucket.enter()
    bucket.store = other
    bucket.lead.release()
    bucket.start()
    assert undecided is not None
    zombie.add_lines()
    bucket.check()
    bucket.groups(2)
    zombie.add_lines()
    bucket.check()


def test_an_answer_is_lost_and_the_next_request_fails(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that are in the file already, as is found then, are not added once more."""
    bucket.groups(1)
    real = ObjectFolder.replace
    answers = ["lost", "given", "none"]

    def replace(self: ObjectFolder, path: str, content: bytes, version: objects.Version | None) -> object:
        answer = answers.pop(0) if version is not None and answers else "given"
        done = None if answer == "none" else real(self, path, content, version)
        if answer != "given":
            raise OSError("no answer")
        return done

    monkeypatch.setattr(ObjectFolder, "replace", replace)
    bucket.writer.add_lines()
    bucket.tail_bytes = bucket.writer.tail_bytes = 900
    bucket.groups(1)
    bucket.writer.add_lines()
    assert not answers
    bucket.groups(1)
    bucket.check()
    bucket.writer.add_lines()
    bucket.check()


def test_a_part_of_the_lines_comes_while_they_are_added(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request of a dead coordinator that it had given up: whoever goes on adds the rest, too."""
    bucket.tail_bytes = bucket.writer.tail_bytes = 900
    bucket.groups(1)
    real = ObjectFolder.replace
    given_up: list[tuple[ObjectFolder, str, bytes, objects.Version]] = []

    def replace(self: ObjectFolder, path: str, content: bytes, version: objects.Version | None) -> object:
        if version is not None and not given_up:
            given_up.append((self, path, content, version))
            raise OSError("no answer")
        return real(self, path, content, version)

    def replace_late(self: ObjectFolder, path: str, content: bytes, version: objects.Version | None) -> object:
        if version is not None and given_up and given_up[0][1] == path:
            assert real(*given_up.pop()) is not None
        return real(self, path, content, version)

    monkeypatch.setattr(ObjectFolder, "replace", replace)
    bucket.writer.add_lines()
    bucket.groups(1)
    bucket.die()
    monkeypatch.setattr(ObjectFolder, "replace", replace_late)
    bucket.start()
    assert not given_up
    bucket.groups(1)
    bucket.check()


def test_another_store_after_the_tables_were_removed(bucket: Bucket) -> None:
    """Epochs begin again there, and the former lines, which are where the journal was set aside, are in no new file."""
    bucket.groups(2)
    bucket.die()
    decided, bucket.decided = bucket.decided, []
    begin_journal(bucket.metadata_dir, "t", "another")
    for epoch in (1, 2):
        header = attrs.evolve(HEADER, incarnation="another", epoch=epoch, committed=len(bucket.decided))
        bucket.writer = JournalWriter(bucket.journal, header, 1 << 30)
        bucket.check()
        for _ in range(3):
            assert bucket.enter() is None
            bucket.decided.append(len(bucket.decided) + 1)
            bucket.check()
        begin_journal(bucket.metadata_dir, "t", "another")
        bucket.check()
    aside = bucket.metadata_dir.below("journal.before-incarnation-another/t")
    assert [entry.last for part in read_journal(aside) for entry in part.entries] == decided


def test_a_file_is_read_by_several(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that go to the file, as another thread finds by a listing, are not missing in what was asked for before."""
    bucket.groups(1)
    journal, real = bucket.journal, ObjectFolder.get
    (file,) = journal_files(journal)

    def get(self: ObjectFolder, path: str) -> bytes:
        content = real(self, path)
        if path == file.path:
            bucket.writer.add_lines()
            assert journal_files(journal)
        return content

    monkeypatch.setattr(ObjectFolder, "get", get)
    assert len(journal.get(file.path)) == file.size


@pytest.mark.parametrize("seen", [0, 3])
def test_listings_that_are_late(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, seen: int) -> None:
    """A store whose listings lack what is new: whoever goes on adds all lines nevertheless, also to a file not listed."""
    bucket.groups(seen)
    real, known = ObjectFolder.list, {item.path for item in bucket.metadata_dir.walk()}
    is_late = True

    def listed(self: ObjectFolder, below: str = "", after: str = "") -> Iterator[Item]:
        prefix = self.address.removeprefix(bucket.metadata_dir.address).strip("/")
        found = real(self, below, after)
        yield from (each for each in found if not is_late or f"{prefix}/{each.path}".lstrip("/") in known)

    monkeypatch.setattr(ObjectFolder, "list", listed)
    bucket.tail_bytes = bucket.writer.tail_bytes = 900
    bucket.groups(2)
    bucket.die()
    bucket.start()
    bucket.groups(1)
    is_late = False
    bucket.check()


@pytest.mark.parametrize("late", ["merge", "part", "start", "group"])
def test_a_reader_between_two_looks(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, late: str) -> None:
    """Lines that go to the file, and files that are begun, after it has listed them and before it asks for the tail."""
    bucket.groups(2)
    real, done = tail._last_tail, []

    def last_tail(log: ObjectFolder, value: str) -> tail.Tail | None:
        if not done:
            done.append(late)
            if late == "merge":
                bucket.writer.add_lines()
            if late == "part":
                bucket.writer.end_part()
                bucket.groups(2)
            if late == "start":
                bucket.die()
                bucket.start()
                bucket.groups(1)
            if late == "group":
                bucket.groups(1)
        return real(log, value)

    monkeypatch.setattr(tail, "_last_tail", last_tail)
    found = [entry.last for part in read_journal(bucket.journal) for entry in part.entries]
    assert found == bucket.decided
    assert done


def test_a_file_that_is_gone_or_shorter(bucket: Bucket) -> None:
    """Where a journal was removed or restored from an earlier copy, what was decided since is not put into a gap."""
    own = bucket.metadata_dir.below("journal/t")
    bucket.groups(1)
    bucket.writer.add_lines()
    (file,) = journal_files(own)
    before = own.get(file.path)
    bucket.groups(1)
    bucket.writer.add_lines()
    bucket.groups(1)
    own.put(file.path, before)
    assert [entry.last for part in read_journal(bucket.journal) for entry in part.entries] == [1]
    own.delete(file.path)
    assert read_journal(bucket.journal) == []


def test_coordinator_state_that_is_removed_takes_its_lines_along(bucket: Bucket) -> None:
    """They are not found in an older entry of the log."""
    bucket.groups(1)
    bucket.lead.write([Delete("t")])
    assert [entry.last for part in read_journal(bucket.journal) for entry in part.entries] == []


def test_what_reading_costs(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the log is, its end is found by one listing and three objects."""
    monkeypatch.undo()
    bucket.writer.tail_bytes, bucket.writer.tail_bytes_max = 1 << 14, 1 << 16
    bucket.groups(3)
    for _ in range(50):
        bucket.lead.write([Put("t/metadata/1", b"1")])
    asked: list[str] = []
    real: Callable[..., bytes] = ObjectFolder.get
    monkeypatch.setattr(ObjectFolder, "get", lambda self, path: asked.append(path) or real(self, path))
    bucket.check()
    asked.clear()
    list(bucket.journal.list())
    assert len(asked) == 2


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(20))
def test_any_story(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whatever happens: groups, other writes, new parts, additions that fail, crashes, those who live on."""
    draw = random.Random(seed)
    failing = [False]
    real = ObjectFolder.replace

    def replace(self: ObjectFolder, path: str, content: bytes, version: object) -> object:
        """Fail before or after it is done, where a journal's file is made longer."""
        if not failing[0] or version is None or "journal" not in f"{self.address}/{path}":
            return real(self, path, content, version)  # type: ignore[arg-type]
        if draw.random() < 0.5:
            real(self, path, content, version)  # type: ignore[arg-type]
        raise OSError("no answer")

    monkeypatch.setattr(ObjectFolder, "replace", replace)
    for _ in range(60):
        step = draw.random()
        failing[0] = step < 0.15
        if step < 0.15:
            bucket.writer.add_lines()
        elif step < 0.6:
            bucket.group()
        elif step < 0.7:
            bucket.lead.write([Put("t/other", b"1")])
        elif step < 0.75:
            bucket.writer.end_part()
        elif step < 0.8:
            bucket.writer.add_lines()
        elif step < 0.9:
            for each in bucket.former[-2:]:
                each.add_lines()
        else:
            riding = bucket.enter()
            if draw.random() < 0.5:
                bucket.decide(riding)
            bucket.die()
            bucket.check(dropped=1)
            bucket.start()
        failing[0] = False
        bucket.check()
