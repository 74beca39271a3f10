"""Tests of the store in a bucket: on objects in memory, and on a server that speaks S3."""

import contextlib
import itertools
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest

pytest.importorskip("obstore")

from state.stores.holder import Holder
from state.stores.objects import ObjectLead, ObjectStore
from state.stores.replica import Entry, Term
from tests.azurite import AzuriteServer
from tests.object_server import ObjectStore as Server, object_store
from tests.waiting import wait_for
from txtopo.api.store import Put, Store
from txtopo.errors import AlreadyRunning, ConfigError, LostLead
from txtopo.files.objects import ObjectFolder
from txtopo.testing.conformance.store import StoreConformance, StorePlace

LEASE_SECS = 1.5

BUCKET = "TXTOPO_BUCKET"
"""The variable with the address of a bucket."""

_PLACES = itertools.count()


@attrs.define(eq=False)
class ObjectStorePlace(StorePlace):
    address: str
    options: dict[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if not self.address.startswith("memory:"):
            self.opening = (
                "from state.stores.objects import ObjectStore; "
                f"store = ObjectStore({self.address!r}, {self.options!r}, {LEASE_SECS})"
            )

    def open(self) -> ObjectStore:
        return ObjectStore(self.address, self.options, LEASE_SECS)

    def usurp(self, topology_id: str, holder: Store) -> None:
        """Stop the heartbeats of a holder, as SIGSTOP does."""
        assert isinstance(holder, ObjectStore)
        for lead in holder._leads:
            lead._ended.set()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with object_store() as server:
        yield server


class TestObjectStore(StoreConformance):
    @pytest.fixture
    def place(self) -> ObjectStorePlace:
        return ObjectStorePlace(f"memory:///stores/{next(_PLACES)}")


@pytest.mark.slow
class TestObjectStoreOnS3(StoreConformance):
    @pytest.fixture
    def place(self, server: Server) -> ObjectStorePlace:
        return ObjectStorePlace(f"s3://bucket/{next(_PLACES)}", server.options)


@pytest.mark.slow
class TestObjectStoreOnAzure(StoreConformance):
    @pytest.fixture
    def place(self, azure: AzuriteServer) -> ObjectStorePlace:
        return ObjectStorePlace(f"az://bucket/{next(_PLACES)}", azure.options)


@pytest.mark.slow
@pytest.mark.skipif(BUCKET not in os.environ, reason=f"{BUCKET} names no bucket to try it in")
class TestObjectStoreElsewhere(StoreConformance):
    """In a bucket of any kind, with the options in the environment."""

    @pytest.fixture
    def place(self) -> ObjectStorePlace:
        return ObjectStorePlace(f"{os.environ[BUCKET]}/{uuid.uuid4()}")


@pytest.fixture
def place() -> ObjectStorePlace:
    return ObjectStorePlace(f"memory:///stores/{next(_PLACES)}")


def write_many(lead: ObjectLead, first: int, count: int) -> None:
    for number in range(first, first + count):
        lead.write([Put("t/last", str(number).encode()), Put(f"t/of/{number % 7}", str(number).encode())])


def objects_of(place: ObjectStorePlace) -> list[str]:
    folder = ObjectFolder(place.address, tuple(place.options.items()))
    (name,) = folder.folders()
    return folder.names(f"{name}/log")


def test_the_log_is_cut(place: ObjectStorePlace) -> None:
    """However much is written, a start reads some hundred entries at most, and finds the same values."""
    store = place.open()
    lead = store.take_lead("t", "one")
    write_many(lead, 0, 1_500)
    store.close()
    assert len(objects_of(place)) <= 3 * 257
    other = place.open()
    assert other.read("t/last") == b"1499"
    assert {other.read(f"t/of/{number}") for number in range(7)} == {str(n).encode() for n in range(1_493, 1_500)}
    other.close()


def test_entries_that_a_killed_leader_left_are_removed(
    place: ObjectStorePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who dies between a new base and the removal of its entries leaves them to the next leader."""
    with monkeypatch.context() as patched:
        patched.setattr(ObjectFolder, "delete", lambda *_, **__: None)
        store = place.open()
        write_many(store.take_lead("t", "one"), 0, 600)
        store.close()
    assert len(objects_of(place)) > 600
    second = place.open()
    lead = second.take_lead("t", "two")
    wait_for("entries to be removed", lambda: len(objects_of(place)) < 400)
    write_many(lead, 600, 1)
    second.close()
    assert place.open().read("t/last") == b"600"


def test_a_leader_that_wakes_up_after_the_log_was_cut_writes_nothing(place: ObjectStorePlace) -> None:
    """The name of its next entry stays taken, however many entries and leads come after."""
    first, second = place.open(), place.open()
    zombie = first.take_lead("t", "zombie")
    write_many(zombie, 0, 5)
    place.usurp("t", first)
    lead = second.take_lead("t", "new")
    write_many(lead, 5, 600)
    wait_for("entries to be removed", lambda: len(objects_of(place)) < 400)
    with pytest.raises(LostLead, match=r"epoch 1, .*epoch 2"):
        zombie.write([Put("t/last", b"zombie")])
    assert second.read("t/last") == b"604"
    second.close()
    first.close()


@attrs.frozen
class _Pausing(ObjectFolder):
    """A folder whose client is stopped before a put."""

    before: Callable[[], None] = lambda: None

    def put_if_absent(self, path: str, content: bytes | memoryview) -> bool:
        self.before()
        return ObjectFolder(self.address, self.options).put_if_absent(path, content)


def test_a_contender_that_wakes_up_after_the_log_was_cut_begins_again(place: ObjectStorePlace) -> None:
    """The name of the entry that was next when it looked is free again, and counts for nothing."""
    leading, contending = place.open(), place.open()
    lead = leading.take_lead("t", "one")
    write_many(lead, 0, 3)
    place.usurp("t", leading)
    written: list[int] = []

    def meanwhile() -> None:
        if not written:
            write_many(lead, 3, 600)
            wait_for("entries to be removed", lambda: len(objects_of(place)) < 400)
        written.append(lead.epoch)

    contending._folder = _Pausing(place.address, before=meanwhile)
    second = contending.take_lead("t", "two")
    assert len(written) == 2
    write_many(second, 603, 1)
    with pytest.raises(LostLead):
        lead.write([])
    third = place.open()
    assert (third.read("t/last"), second.epoch) == (b"603", 2)
    for each in (leading, contending, third):
        each.close()


def test_a_reader_that_was_away_while_the_log_was_cut(place: ObjectStorePlace) -> None:
    """It begins at the base again, even if a late request has taken the names that it would have read next."""
    first, reader = place.open(), place.open()
    lead = first.take_lead("t", "one")
    write_many(lead, 0, 5)
    assert reader.read("t/last") == b"4"
    write_many(lead, 5, 600)
    wait_for("entries to be removed", lambda: len(objects_of(place)) < 400)
    folder = ObjectFolder(place.address)
    (name,) = folder.folders()
    late = Entry(Term("t", 7, Holder.of_this_process("late")), (Put("t/last", b"late"),)).to_bytes()
    removed = [number for number in range(1, 606) if folder.put_if_absent(f"{name}/log/{number:020d}", late)]
    assert len(removed) > 200
    assert (reader.read("t/last"), place.open().read("t/last")) == (b"604", b"604")
    first.close()


@pytest.mark.slow
def test_lost_answers(server: Server) -> None:
    """A write whose answer was lost is written once, and a lead is not lost by it."""
    place = ObjectStorePlace(f"s3://bucket/{next(_PLACES)}", server.options)
    server.lose_answers(3)
    try:
        store = place.open()
        lead = store.take_lead("t", "one")
        write_many(lead, 0, 30)
    finally:
        server.lose_answers(0)
    assert lead.is_held()
    store.close()
    other = place.open()
    assert (other.read("t/last"), other.take_lead("t", "two").epoch) == (b"29", 2)
    other.close()


@pytest.mark.long
def test_two_coordinators_that_are_started_at_once(server: Server) -> None:
    """Of fifty pairs, one of each leads, and the other is told so or was fenced: never can both write."""
    for _ in range(50):
        place = ObjectStorePlace(f"s3://bucket/{next(_PLACES)}", server.options)
        stores = [place.open(), place.open()]
        together = threading.Barrier(2)

        def start(store: ObjectStore, together: threading.Barrier = together) -> ObjectLead | None:
            together.wait()
            try:
                return store.take_lead("t", "one of two")
            except AlreadyRunning:
                return None

        with ThreadPoolExecutor(2) as threads:
            leads = list(threads.map(start, stores))
        written = []
        for lead in leads:
            if lead is not None:
                with contextlib.suppress(LostLead):
                    lead.write([Put("t/by", str(lead.epoch).encode())])
                    written.append(lead)
        assert len(written) == 1, leads
        for store in stores:
            store.close()


def test_a_store_that_does_not_compare_is_refused(server: Server) -> None:
    """Two coordinators on it would both write, so it is refused before anything is written."""
    server.ignore_conditions(are_ignored=True)
    try:
        with pytest.raises(ConfigError, match="two coordinators could both write there"):
            ObjectStore(f"s3://bucket/{next(_PLACES)}", server.options).take_lead("t", "one")
    finally:
        server.ignore_conditions(are_ignored=False)


def test_a_write_is_one_request(server: Server) -> None:
    """The leader puts one object a write, and reads its own state without a request."""
    store = ObjectStore(f"s3://bucket/{next(_PLACES)}", server.options, lease_secs=1e6)
    lead = store.take_lead("t", "one")
    with server.counting() as requests:
        write_many(lead, 0, 20)
        assert (store.read("t/last"), store.children("t")) == (b"19", ["last", "of"])
    assert dict(requests) == {"PUT": 20}
    store.close()


def test_the_object_of_a_probe_that_was_killed_goes(server: Server) -> None:
    """A later leader removes it once it is a day old: a younger one may be somebody's."""
    place = ObjectStorePlace(f"s3://bucket/{next(_PLACES)}", server.options)
    folder = ObjectFolder(place.address, tuple(server.options.items()))
    server.set_clock(time.time() - 25 * 3600)
    folder.put("probe-old", b"1")
    server.set_clock(0)
    folder.put("probe-new", b"1")
    first = place.open()
    write_many(first.take_lead("t", "one"), 0, 700)
    first.close()
    second = place.open()
    second.take_lead("t", "two")
    second.close()
    assert [name for name in folder.names() if name.startswith("probe-")] == ["probe-new"]
