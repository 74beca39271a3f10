"""The conformance tests of every store, yours and txtopo's: a test class to subclass.

::

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def place(self, tmp_path):
            return MyPlace(tmp_path)

``place`` is a :class:`StorePlace`: the place of a store, which outlives it. Each test opens its stores there.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from txtopo.api.store import VALUE_BYTES_MAX, Delete, Lead, Put, Store
from txtopo.errors import AlreadyRunning, LostLead, RuleError

TOPOLOGY = "counting"
FREED_SECS = 30.0
"""Within which time a killed holder's lead must be free, whatever the store."""

ODD_NAMES = (
    "with space",
    "%2F",
    "dots.and..dots",
    ".",
    "..",
    "Wörter-数え-🌪",
    "tab\tnewline\n",
    "zookeeper",
    "quote'\"`",
    "UPPER",
    "upper",
    "x" * 200,
    "0",
    "-",
)
"""Names that could cause trouble in file names, SQL or ZooKeeper."""

_HOLDER_PROGRAM = """
import os, sys, threading
{opening}
lead = store.take_lead(sys.argv[1], sys.argv[2])
print(lead.epoch, os.getpid(), flush=True)
threading.Event().wait()
"""


class StorePlace(ABC):
    """The place of a store: a file, a server, a piece of memory."""

    opening: str | None = None
    """A Python statement that opens a store here as ``store`` in another process; None if no other process can."""

    @abstractmethod
    def open(self) -> Store:
        """Open one more store on this place."""

    @abstractmethod
    def usurp(self, topology_id: str, holder: Store) -> None:
        """Make the next ``take_lead`` of a topology succeed, although ``holder`` lives and holds the lead."""


_WRITING_PROGRAM = """
import itertools, os, sys
from txtopo.api.store import Delete, Put
{opening}
lead = store.take_lead(sys.argv[1], sys.argv[2])
print(lead.epoch, os.getpid(), flush=True)
for number in itertools.count(1):
    value = str(number).encode()
    lead.write([Put(f"{{sys.argv[1]}}/first", value), Delete(f"{{sys.argv[1]}}/log/{{number - 1}}"),
                Put(f"{{sys.argv[1]}}/log/{{number}}", value), Put(f"{{sys.argv[1]}}/last", value)])
    print(number, flush=True)
"""


@contextlib.contextmanager
def holding_process(
    place: StorePlace, topology_id: str, owner: str, program: str = _HOLDER_PROGRAM
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run another process that holds a lead; yield it and its epoch, and kill it at the end."""
    assert place.opening is not None, "the place can be opened from another process"
    command = [sys.executable, "-c", program.format(opening=place.opening), topology_id, owner]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(  # noqa: S603  # our command
        command, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None, "it has a pipe"
            words = process.stdout.readline().split()
            assert words, "the holding process took the lead"
            assert int(words[1]) == process.pid
            yield process, int(words[0])
        finally:
            process.kill()


class StoreConformance:
    """The promises of :class:`~txtopo.api.store.Store`, as tests.

    Subclass it, and define a fixture ``place`` that returns a new :class:`StorePlace`.
    """

    @pytest.fixture
    def store(self, place: StorePlace) -> Iterator[Store]:
        """Open a store, and close it after the test."""
        store = place.open()
        yield store
        store.close()

    @pytest.fixture
    def lead(self, store: Store) -> Lead:
        """Take the lead of the topology."""
        return store.take_lead(TOPOLOGY, "test")

    # Values

    def test_value_is_read_back(self, store: Store, lead: Lead) -> None:
        """A written value is read back byte for byte; a path without a value reads as None."""
        values = {"plain": b"value", "empty": b"", "zeros": b"\0\0", "bytes": bytes(range(256))}
        lead.write([Put(f"{TOPOLOGY}/{name}", value) for name, value in values.items()])
        assert {name: store.read(f"{TOPOLOGY}/{name}") for name in values} == values
        assert store.read(f"{TOPOLOGY}/other") is None
        assert store.read("never/written") is None

    def test_put_overwrites(self, store: Store, lead: Lead) -> None:
        """A read returns the last value put at a path."""
        lead.write([Put(f"{TOPOLOGY}/a", b"1")])
        lead.write([Put(f"{TOPOLOGY}/a", b"2")])
        assert store.read(f"{TOPOLOGY}/a") == b"2"

    def test_put_needs_no_parents(self, store: Store, lead: Lead) -> None:
        """A value may be at any depth; the paths above it have no value, but can get one."""
        lead.write([Put(f"{TOPOLOGY}/a/b/c", b"deep")])
        assert store.read(f"{TOPOLOGY}/a/b/c") == b"deep"
        assert store.read(f"{TOPOLOGY}/a") is None
        assert store.read(TOPOLOGY) is None
        lead.write([Put(f"{TOPOLOGY}/a", b"above")])
        assert (store.read(f"{TOPOLOGY}/a"), store.read(f"{TOPOLOGY}/a/b/c")) == (b"above", b"deep")

    def test_children_are_the_names_directly_below(self, store: Store, lead: Lead) -> None:
        """Children are sorted and distinct, whether they have a value or only values below them."""
        for path in ("b", "a/x", "a/y/z", "ab", "a0", "a-", "10", "9"):
            lead.write([Put(f"{TOPOLOGY}/{path}", b"v")])
        assert store.children(TOPOLOGY) == ["10", "9", "a", "a-", "a0", "ab", "b"]
        assert store.children(f"{TOPOLOGY}/a") == ["x", "y"]
        assert store.children(f"{TOPOLOGY}/b") == []
        assert store.children(f"{TOPOLOGY}/never") == []
        assert store.children("") == [TOPOLOGY]

    def test_delete_removes_all_below(self, store: Store, lead: Lead) -> None:
        """Delete removes the value and the whole tree below it, and nothing else."""
        for path in ("a", "a/x", "a/y/z", "ab", "a-/x", "a0/x"):
            lead.write([Put(f"{TOPOLOGY}/{path}", b"v")])
        lead.write([Delete(f"{TOPOLOGY}/a")])
        assert store.children(TOPOLOGY) == ["a-", "a0", "ab"]
        assert store.read(f"{TOPOLOGY}/a/y/z") is None

    def test_delete_of_nothing_is_no_error(self, store: Store, lead: Lead) -> None:
        """Deleting a missing path, or deleting twice, does nothing."""
        lead.write([Delete(f"{TOPOLOGY}/never"), Put(f"{TOPOLOGY}/a", b"v")])
        lead.write([Delete(f"{TOPOLOGY}/a"), Delete(f"{TOPOLOGY}/a")])
        assert store.read(f"{TOPOLOGY}/a") is None

    def test_last_delete_leaves_no_folder(self, store: Store, lead: Lead) -> None:
        """A path without a value is no longer a child once the last value below it is deleted."""
        lead.write([Put(f"{TOPOLOGY}/a/b/c", b"v"), Put(f"{TOPOLOGY}/k", b"v")])
        lead.write([Delete(f"{TOPOLOGY}/a/b/c")])
        assert store.children(TOPOLOGY) == ["k"]
        lead.write([Put(f"{TOPOLOGY}/a/b/c", b"again")])
        assert store.read(f"{TOPOLOGY}/a/b/c") == b"again"

    def test_changes_are_applied_in_order(self, store: Store, lead: Lead) -> None:
        """Changes of one write take effect one after another."""
        a, below = f"{TOPOLOGY}/a", f"{TOPOLOGY}/a/b"
        lead.write([Put(a, b"1"), Put(a, b"2"), Delete(a), Put(below, b"3"), Delete(a), Put(below, b"4")])
        assert (store.read(a), store.read(below)) == (None, b"4")

    def test_one_write_is_seen_whole(self, place: StorePlace, lead: Lead) -> None:
        """A reader never sees one value of a write without the others."""
        names = [str(number) for number in range(5)]
        other = place.open()
        ended = threading.Event()

        def read_until_ended() -> set[int]:
            seen = set()
            while not ended.is_set():
                # They are put and deleted together, so their number is 0 or 5, never in between.
                seen.add(len(other.children(f"{TOPOLOGY}/together")))
            return seen

        with ThreadPoolExecutor(1) as pool:
            seen = pool.submit(read_until_ended)
            for _ in range(30):
                lead.write([Put(f"{TOPOLOGY}/together/{name}", b"v") for name in names])
                lead.write([Delete(f"{TOPOLOGY}/together/{name}") for name in names])
            ended.set()
            assert seen.result() <= {0, len(names)}
        other.close()

    def test_many_changes_are_all_applied(self, store: Store, lead: Lead) -> None:
        """A list of changes that exceeds one step is applied completely, and can be deleted with one change."""
        lead.write([Put(f"{TOPOLOGY}/many/{number}/value", bytes(2000)) for number in range(1200)])
        assert len(store.children(f"{TOPOLOGY}/many")) == 1200  # noqa: PLR2004  # as many as were written
        lead.write([Delete(f"{TOPOLOGY}/many")])
        assert store.children(TOPOLOGY) == []

    def test_longest_value_is_taken(self, store: Store, lead: Lead) -> None:
        """A value of VALUE_BYTES_MAX bytes is accepted, also several in one write."""
        longest = bytes(VALUE_BYTES_MAX)
        lead.write([Put(f"{TOPOLOGY}/{name}", longest) for name in ("a", "b", "c")])
        assert [store.read(f"{TOPOLOGY}/{name}") for name in ("a", "b", "c")] == [longest] * 3

    def test_longer_value_is_refused(self, store: Store, lead: Lead) -> None:
        """A longer value is refused with its path and size, and nothing of its write is applied."""
        with pytest.raises(RuleError, match=f"'{TOPOLOGY}/long' has 524,289 bytes"):
            lead.write([Put(f"{TOPOLOGY}/a", b"v"), Put(f"{TOPOLOGY}/long", bytes(VALUE_BYTES_MAX + 1))])
        assert store.read(f"{TOPOLOGY}/a") is None

    @pytest.mark.parametrize("path", ["", "/", "/a", "a/", "a//b", "\ud800"])
    def test_malformed_path_is_refused(self, store: Store, lead: Lead, path: str) -> None:
        """Reads and writes refuse a path with an empty part or invalid text."""
        with pytest.raises(RuleError):
            lead.write([Put(f"{TOPOLOGY}/a", b"v"), Put(path, b"v")])
        with pytest.raises(RuleError):
            store.read(path)
        assert store.read(f"{TOPOLOGY}/a") is None

    def test_path_outside_the_topology_is_refused(self, lead: Lead) -> None:
        """A lead can only write below its own topology."""
        for path in ("other/a", f"{TOPOLOGY}x/a", f"{TOPOLOGY}x"):
            with pytest.raises(RuleError, match="outside topology"):
                lead.write([Put(path, b"v")])

    def test_odd_names(self, store: Store) -> None:
        """Names in topology ids and paths may hold any text except a slash, and are never confused."""
        for number, name in enumerate(ODD_NAMES):
            lead = store.take_lead(name, "test")
            lead.write([Put(f"{name}/{other}", str(number).encode()) for other in ODD_NAMES])
        assert store.children("") == sorted(ODD_NAMES)
        for number, name in enumerate(ODD_NAMES):
            assert store.children(name) == sorted(ODD_NAMES)
            assert {store.read(f"{name}/{other}") for other in ODD_NAMES} == {str(number).encode()}

    def test_values_outlive_the_store(self, place: StorePlace) -> None:
        """Written values are still there when the store is opened again."""
        first = place.open()
        first.take_lead(TOPOLOGY, "first").write([Put(f"{TOPOLOGY}/a/b", b"v")])
        first.close()
        second = place.open()
        assert (second.read(f"{TOPOLOGY}/a/b"), second.children(TOPOLOGY)) == (b"v", ["a"])
        second.take_lead(TOPOLOGY, "second").write([Put(f"{TOPOLOGY}/a/c", b"w"), Delete(f"{TOPOLOGY}/a/b")])
        assert second.children(f"{TOPOLOGY}/a") == ["c"]
        second.close()

    def test_several_threads(self, store: Store, lead: Lead) -> None:
        """Threads may read and write at once, and no write is lost."""

        def write(thread: int) -> None:
            for number in range(20):
                lead.write([Put(f"{TOPOLOGY}/{thread}/{number}", b"v")])
                assert store.read(f"{TOPOLOGY}/{thread}/{number}") == b"v"

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        assert [len(store.children(f"{TOPOLOGY}/{thread}")) for thread in range(4)] == [20] * 4

    # Leads

    def test_epoch_strictly_rises(self, place: StorePlace) -> None:
        """Each new lead increments the epoch by one, in the same store and in later ones."""
        epochs = []
        for _ in range(2):
            store = place.open()
            for _ in range(2):
                lead = store.take_lead(TOPOLOGY, "test")
                epochs.append(lead.epoch)
                lead.release()
            epochs.append(store.take_lead(TOPOLOGY, "test").epoch)
            store.close()
        assert epochs == [1, 2, 3, 4, 5, 6]

    def test_epoch_begins_where_it_is_asked_to(self, place: StorePlace) -> None:
        """A lead may begin at a higher epoch, for a wiped store; a request for a lower one has no effect."""
        store = place.open()
        epochs = []
        for epoch_min in (7, 3, 9, 30):
            lead = store.take_lead(TOPOLOGY, "test", epoch_min)
            lead.write([Put(f"{TOPOLOGY}/a", b"v")])
            epochs.append(lead.epoch)
            lead.release()
        store.close()
        store = place.open()
        epochs.append(store.take_lead(TOPOLOGY, "test").epoch)
        store.close()
        assert epochs == [7, 8, 9, 30, 31]

    def test_second_lead_is_refused(self, place: StorePlace, store: Store, lead: Lead) -> None:
        """While a lead is held, another request is refused with the holder's name, from this store and from others."""
        other = place.open()
        for asking in (store, other):
            with pytest.raises(AlreadyRunning, match=rf"'{TOPOLOGY}'.*'test', process \d+"):
                asking.take_lead(TOPOLOGY, "second")
        lead.write([Put(f"{TOPOLOGY}/a", b"still leading")])
        assert (lead.is_held(), lead.epoch) == (True, 1)
        other.close()

    def test_topologies_are_independent(self, store: Store, lead: Lead) -> None:
        """Leads of different topologies are independent."""
        other = store.take_lead("other", "test")
        lead.write([Put(f"{TOPOLOGY}/a", b"1")])
        other.write([Put("other/a", b"2")])
        other.release()
        lead.write([Put(f"{TOPOLOGY}/b", b"3")])
        assert (store.read(f"{TOPOLOGY}/a"), store.read("other/a"), lead.epoch) == (b"1", b"2", 1)

    def test_released_lead_writes_nothing(self, store: Store, lead: Lead) -> None:
        """After a release, also a repeated one, writes are refused, and the next request gets the lead immediately."""
        lead.release()
        lead.release()
        assert not lead.is_held()
        with pytest.raises(LostLead):
            lead.write([Put(f"{TOPOLOGY}/a", b"v")])
        next_lead = store.take_lead(TOPOLOGY, "next")
        lead.release()
        next_lead.write([Put(f"{TOPOLOGY}/a", b"next")])
        assert (next_lead.epoch, store.read(f"{TOPOLOGY}/a")) == (2, b"next")

    def test_closing_releases(self, place: StorePlace, store: Store) -> None:
        """Closing a store releases its leads."""
        first = place.open()
        first.take_lead(TOPOLOGY, "first")
        first.close()
        assert store.take_lead(TOPOLOGY, "second").epoch == 2  # noqa: PLR2004  # the second epoch

    def test_zombie_is_fenced(self, place: StorePlace) -> None:
        """Once another process has taken the lead, the old one can write nothing."""
        first, second = place.open(), place.open()
        zombie = first.take_lead(TOPOLOGY, "zombie")
        zombie.write([Put(f"{TOPOLOGY}/a", b"before")])
        place.usurp(TOPOLOGY, first)
        lead = second.take_lead(TOPOLOGY, "new")
        for changes in ([Put(f"{TOPOLOGY}/a", b"zombie")], [Delete(f"{TOPOLOGY}/a")], []):
            with pytest.raises(LostLead, match=f"'{TOPOLOGY}'.*epoch 1, .*epoch 2"):
                zombie.write(changes)
        assert (zombie.is_held(), lead.is_held(), lead.epoch) == (False, True, 2)
        zombie.release()
        lead.write([Put(f"{TOPOLOGY}/b", b"new")])
        assert (second.read(f"{TOPOLOGY}/a"), second.read(f"{TOPOLOGY}/b")) == (b"before", b"new")
        first.close()
        assert lead.is_held()
        second.close()

    def test_kill_leaves_whole_writes(self, place: StorePlace) -> None:
        """After a kill during writes, every confirmed write is there, and the last one completely or not at all."""
        if place.opening is None:
            pytest.skip("this place cannot be opened from another process")
        with holding_process(place, TOPOLOGY, "writer", _WRITING_PROGRAM) as (process, _):
            assert process.stdout is not None, "it has a pipe"
            answered = 0
            while answered < 100:  # noqa: PLR2004  # a kill in the middle of the writes
                answered = int(process.stdout.readline())
            process.kill()
            # Lines that it printed before the kill are confirmed writes, too; the last one may be half a line.
            answered = max([answered, *map(int, process.stdout.read().split("\n")[:-1])])
        store = place.open()
        store.take_lead(TOPOLOGY, "reader")
        last = int(store.read(f"{TOPOLOGY}/last") or 0)
        assert answered <= last <= answered + 1
        assert store.children(f"{TOPOLOGY}/log") == [str(last)]
        assert store.read(f"{TOPOLOGY}/first") == store.read(f"{TOPOLOGY}/log/{last}") == str(last).encode()
        store.close()

    def test_kill_frees_the_lead(self, place: StorePlace) -> None:
        """A holder that was killed (``kill -9``) delays the next one by at most a session's time."""
        if place.opening is None:
            pytest.skip("this place cannot be opened from another process")
        store = place.open()
        with holding_process(place, TOPOLOGY, "elsewhere") as (process, epoch):
            with pytest.raises(AlreadyRunning, match=rf"'{TOPOLOGY}'.*'elsewhere', process {process.pid}"):
                store.take_lead(TOPOLOGY, "second")
            process.kill()
            started = time.monotonic()
            lead = store.take_lead(TOPOLOGY, "second")
            assert time.monotonic() - started < FREED_SECS
            assert (epoch, lead.epoch) == (1, 2)
        store.close()
