"""Tests of the ZooKeeper store, against a real server."""

import contextlib
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Transaction

from state.stores.holder import Holder
from state.stores.zookeeper import ZooKeeperStore
from tests.full_disk import no_descriptor_left
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.api.store import VALUE_BYTES_MAX, Delete, Put, Store
from txtopo.errors import AlreadyRunning, LostLead, StopError
from txtopo.servers.zookeeper import running_zookeeper
from txtopo.testing.conformance.store import StoreConformance, StorePlace, holding_process

SESSION_SECS = 10.0
"""Longer than a busy machine keeps a client waiting."""


class ZooKeeperStorePlace(StorePlace):
    def __init__(self, hosts, root) -> None:
        self.hosts, self.root = hosts, root
        self.opening = f"from state.stores.zookeeper import ZooKeeperStore; store = ZooKeeperStore({hosts!r}, {root!r}, {SESSION_SECS})"

    def open(self) -> ZooKeeperStore:
        return ZooKeeperStore(self.hosts, self.root, SESSION_SECS)

    def usurp(self, topology_id: str, holder: Store) -> None:
        expire(self.hosts, holder)


@pytest.fixture
def place(zookeeper, root):
    return ZooKeeperStorePlace(zookeeper.hosts, root)


@pytest.fixture
def store(place):
    store = place.open()
    yield store
    store.close()


@pytest.fixture
def plain(zookeeper):
    """A plain kazoo client, to look behind the store."""
    client = KazooClient(zookeeper.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


class TestZooKeeperStore(StoreConformance):
    pass


def expire(hosts, store):
    """End a store's session behind its back: a second client joins the session, and closes it."""
    expire_id(hosts, store.session.client.client_id)


def expire_id(hosts, client_id):
    for _ in range(4):  # the server may leave a request for a connection unanswered
        client = KazooClient(hosts, client_id=client_id)
        with contextlib.suppress(KazooTimeoutError):
            client.start()
            break
    client.stop()
    client.close()


def test_no_descriptor_is_left(store):
    """The session goes on: a wait for its connection opens nothing."""
    with no_descriptor_left():
        for _ in range(20):
            assert store.session.data("/none") is None
        assert store.session.is_connected
    assert not store.session.sessions_lost


def test_expired_session_loses_the_lead(zookeeper, store):
    """A lead ends with its session, though nobody has taken it since and the store has a new session."""
    lead = store.take_lead("a", "test")
    lead.write([Put("a/x", b"before")])
    expire(zookeeper.hosts, store)
    with pytest.raises(LostLead, match=r"'a', epoch 1, is lost: .*session has expired"):
        lead.write([Put("a/x", b"after")])
    assert (lead.is_held(), store.read("a/x")) == (False, b"before")
    again = store.take_lead("a", "test")
    again.write([Put("a/x", b"again")])
    assert (again.epoch, store.read("a/x")) == (2, b"again")


def test_expired_session_is_noticed_without_a_write(zookeeper, store):
    """A lead knows by itself, a little later, that its session has expired."""
    lead = store.take_lead("a", "test")
    expire(zookeeper.hosts, store)
    wait_for("the lead is lost", lambda: not lead.is_held())


def test_wiped_tree_fences(store, plain, root):
    """A lead whose epoch node was deleted by hand writes nothing, and says that the store was wiped."""
    lead = store.take_lead("a", "test")
    plain.delete(f"{root}/leads", recursive=True)
    with pytest.raises(LostLead, match="wiped"):
        lead.write([Put("a/x", b"v")])


@pytest.mark.slow
def test_killed_holder_here_is_replaced_at_once(place, store, monkeypatch):
    """A holder killed on this machine is seen to be dead: its session is not waited for."""
    with holding_process(place, "a", "first") as (process, _):
        process.kill()
        process.wait()
        monkeypatch.setattr(store.session, "wait_until_gone", lambda *_: pytest.fail("it waits for the session"))
        assert store.take_lead("a", "second").epoch == 2


@pytest.mark.slow
def test_two_that_find_a_dead_holder_do_not_both_lead(place, store, monkeypatch):
    """Told as a history: whoever comes second has read the epoch before the first one counted it up.

    1. The holder is dead, its node is still there. 2. A reads the epoch and the holder. 3. B does, too, removes the
    holder's node and leads. 4. A would remove B's node, and count up to the very epoch that B has.
    """
    with holding_process(place, "a", "first") as (process, epoch):
        process.kill()
        process.wait()
        other = place.open()
        commit, leads = store.session.commit, []

        def commit_after_the_other(transaction, patience):
            if not leads:
                leads.append(other.take_lead("a", "other"))
            return commit(transaction, patience)

        monkeypatch.setattr(store.session, "commit", commit_after_the_other)
        with pytest.raises(AlreadyRunning, match="'other'"):
            store.take_lead("a", "second")
        leads[0].write([Put("a/x", b"of the other")])
        assert (leads[0].epoch, leads[0].is_held(), other.read("a/x")) == (epoch + 1, True, b"of the other")
        other.close()


def test_holder_elsewhere_is_waited_for(store, plain, root):
    """A holder on another machine may be dead: the lead is taken when its session ends."""
    node = hold_from_elsewhere(store, plain, root)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(store.take_lead, "a", "second")
        wait_for("it asks", lambda: plain.get(f"{root}/leads/a")[1].version == 0 and plain.exists(node))
        plain.delete(node)
        assert asking.result(DEADLINE_SECS).epoch == 1


def test_holder_elsewhere_is_refused_in_the_end(store, plain, root, monkeypatch):
    """A holder on another machine whose session outlasts the longest wait is alive: the refusal names it."""
    refuse_after(store, 0.5)
    hold_from_elsewhere(store, plain, root)
    with pytest.raises(AlreadyRunning, match="'elsewhere', process 17 on far-away"):
        store.take_lead("a", "second")


def test_holder_elsewhere_with_a_longer_session_is_waited_for(store, plain, root, monkeypatch):
    """A holder on another machine may have a longer session than whoever asks: as long as that it may be dead."""
    refuse_after(store, 0)
    hold_from_elsewhere(store, plain, root, SESSION_SECS + 1.0)
    started = time.monotonic()
    with pytest.raises(AlreadyRunning, match="far-away"):
        store.take_lead("a", "second")
    assert time.monotonic() - started >= 1.0


def refuse_after(store, secs):
    """Let whoever asks for a lead wait for so long beyond the session of a holder that may be dead."""
    store.session_secs_min, store.margin_secs = 0.0, secs - SESSION_SECS


def hold_from_elsewhere(store, plain, root, session_secs=0.0):
    holder = attrs.evolve(
        Holder.of_this_process("elsewhere", session_secs), pid=17, host="far-away", machine="another kernel"
    )
    node = f"{root}/leads/a/holder"
    plain.create(f"{root}/leads/a", b"0", makepath=True)
    plain.create(node, holder.to_bytes(), ephemeral=True)
    return node


def test_holder_that_cannot_be_read_is_refused(store, plain, root, monkeypatch):
    """A holder node of unknown content is somebody's all the same."""
    refuse_after(store, 0.1)
    plain.create(f"{root}/leads/a", b"0", makepath=True)
    plain.create(f"{root}/leads/a/holder", b"?", ephemeral=True)
    with pytest.raises(AlreadyRunning, match="'somebody'"):
        store.take_lead("a", "second")


def test_only_one_of_many_gets_the_lead(place):
    """Of stores that ask at once one gets the lead, and the epoch is counted once."""
    stores = [place.open() for _ in range(4)]

    def ask(store):
        try:
            return store.take_lead("a", "test").epoch
        except AlreadyRunning:
            return None

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(ask, stores), key=str) == [1, None, None, None]
    for store in stores:
        store.close()


def test_long_write_is_cut_below_the_limit(store):
    """Values that are together far longer than ZooKeeper's 1 MiB are written and read back."""
    lead = store.take_lead("a", "test")
    lead.write([Put(f"a/{number}/{'x' * 200}", bytes([number]) * (VALUE_BYTES_MAX // 2)) for number in range(8)])
    lengths = [len(store.read(f"a/{number}/{'x' * 200}")) for number in range(8)]
    assert lengths == [VALUE_BYTES_MAX // 2] * 8


def test_empty_folders_of_a_dead_leader_are_removed(store, plain, root):
    """What a leader that died between two steps has left of a tree is no child of anything."""
    store.take_lead("a", "first").write([Put("a/kept", b"v")])
    plain.create(f"{root}/values/a/left/over", b"", makepath=True)
    store._leads[0].release()
    store.take_lead("a", "second")
    assert store.children("a") == ["kept"]


@pytest.mark.slow
def test_writes_live_through_a_server_restart(tmp_path):
    """The server is killed and started again in the middle of writes: none is lost, none is out of order.

    On a busy machine a server that has just started may leave the first request for a connection without an answer for
    as long as a session lasts. The lead is lost by that, but no write: another try begins with a new server.
    """
    for attempt in range(5):
        with running_zookeeper(tmp_path / str(attempt), tick_time_ms=1_000) as server:
            store = ZooKeeperStore(server.hosts, session_timeout_secs=20)
            lead = store.take_lead("a", "test")
            half = threading.Event()

            def write_all(lead=lead, half=half):
                for number in range(300):
                    lead.write([Put(f"a/log/{number}", b"v"), Put("a/last", str(number).encode()), Delete("a/nothing")])
                    if number == 100:
                        half.set()

            with ThreadPoolExecutor(1) as pool:
                writing = pool.submit(write_all)
                assert half.wait(DEADLINE_SECS)
                server.kill()
                server.start()
                error = writing.exception(DEADLINE_SECS)
            assert error is None or isinstance(error, StopError)
            if error is not None:
                store.close()
                store = ZooKeeperStore(server.hosts)
            last, count = int(store.read("a/last")), len(store.children("a/log"))
            assert count == last + 1
            if error is None:
                assert (last, lead.is_held(), lead.epoch) == (299, True, 1)
            store.close()
        if error is None:
            return
    pytest.fail("no session lasted")


@pytest.mark.long
@pytest.mark.slow
def test_server_that_stays_away_stops_the_write(tmp_path):
    """With no server for longer than a session lasts, a write ends with an error that names the hosts."""
    with running_zookeeper(tmp_path / "server") as server:
        store = ZooKeeperStore(server.hosts, session_timeout_secs=0.5)
        lead = store.take_lead("a", "test")
        server.kill()
        with pytest.raises(StopError, match=server.hosts):
            lead.write([Put("a/x", b"v")])
        with pytest.raises(StopError, match=server.hosts):
            store.read("a/x")
        assert not lead.is_held()
        store.close()


class Wire:
    """A wire to the server that breaks at the next transaction: before the request, or before the answer."""

    def __init__(self, server) -> None:
        self.broken_at = []
        self._break_next = None
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.hosts = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def break_next(self, moment):
        self._break_next = moment

    def close(self):
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server.port))
                dropped_xids = set()
                for way, source, target in (("request", client, server), ("answer", server, client)):
                    arguments = (way, source, target, dropped_xids)
                    threading.Thread(target=self._carry, args=arguments, daemon=True).start()

    def _carry(self, way, source, target, dropped_xids):
        with contextlib.suppress(OSError, struct.error), source, target, source.makefile("rb") as frames:
            while True:
                (length,) = struct.unpack(">i", frames.read(4))
                frame = frames.read(length)
                xid, kind = struct.unpack(">ii", frame[:8])
                if xid in dropped_xids:
                    break
                if way == "request" and kind == Transaction.type:
                    if self._break_next == "request":
                        break
                    if self._break_next == "answer":
                        dropped_xids.add(xid)
                target.sendall(struct.pack(">i", length) + frame)
            self.broken_at.append(self._break_next)
            self._break_next = None
            for end in (source, target):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def wire(zookeeper):
    wire = Wire(zookeeper)
    yield wire
    wire.close()


@pytest.mark.parametrize("moment", ["request", "answer"])
def test_write_without_an_answer_is_made_once(wire, root, moment):
    """A write whose request, or whose answer, is lost with the connection is applied all the same."""
    store = ZooKeeperStore(wire.hosts, root, SESSION_SECS)
    lead = store.take_lead("a", "test")
    lead.write([Put("a/old/x", b"v")])
    for changes, values in (
        ([Put("a/new", b"1")], {"a/new": b"1", "a/old/x": b"v"}),
        ([Put("a/new", b"2"), Delete("a/old")], {"a/new": b"2", "a/old/x": None}),
        ([Delete("a/new"), Delete("a/old"), Put("a/new/y", b"3")], {"a/new": None, "a/new/y": b"3"}),
    ):
        wire.break_next(moment)
        lead.write(changes)
        assert {path: store.read(path) for path in values} == values
    assert wire.broken_at == [moment] * 3
    assert (lead.is_held(), store.children("a")) == (True, ["new"])
    store.close()


@pytest.mark.parametrize("moment", ["request", "answer"])
def test_taking_the_lead_without_an_answer_counts_once(wire, root, moment):
    """A lead whose answer was lost is recognised: not refused to itself, nor counted twice."""
    store = ZooKeeperStore(wire.hosts, root, SESSION_SECS)
    wire.break_next(moment)
    lead = store.take_lead("a", "test")
    lead.write([Put("a/x", b"v")])
    assert (wire.broken_at, lead.epoch, lead.is_held()) == ([moment], 1, True)
    wire.break_next(moment)
    lead.release()
    assert store.take_lead("a", "test").epoch == 2
    store.close()


def test_zombie_without_an_answer_is_told_that_it_may_be_written(zookeeper, wire, root):
    """A write whose answer is lost with the whole session ends the lead, and says that it may be there."""
    store = ZooKeeperStore(wire.hosts, root, SESSION_SECS)
    lead = store.take_lead("a", "test")
    client_id = store.session.client.client_id
    wire.break_next("answer")

    def expire_on_break(state):
        if state == KazooState.SUSPENDED:
            expire_id(zookeeper.hosts, client_id)

    store.session.client.add_listener(expire_on_break)
    with pytest.raises(LostLead, match=r"nothing was written, except perhaps one step"):
        lead.write([Put("a/x", b"v")])
    assert store.read("a/x") == b"v"
    store.close()


def test_connection_broken_under_each_write(store):
    """Connections that break before an answer lose no write and apply none in the wrong order."""
    lead = store.take_lead("a", "test")
    ended, goes_on = threading.Event(), threading.Event()
    broken = []

    def break_connections():
        while not ended.wait(0.02):
            goes_on.wait(DEADLINE_SECS)  # one break for each step: a slow machine would never get through
            connection = store.session.client._connection._socket
            if connection is not None:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
                goes_on.clear()
                broken.append(connection)

    with ThreadPoolExecutor(1) as pool:
        breaking = pool.submit(break_connections)
        wait_for("20 breaks", lambda: write_and_check(store, lead, goes_on.set) and len(broken) >= 20)
        ended.set()
        goes_on.set()
        breaking.result()
    assert (lead.is_held(), lead.epoch) == (True, 1)


def write_and_check(store, lead, goes_on):
    goes_on()
    lead.write([Put("a/tree/x/y", b"1"), Put("a/value", b"1")])
    goes_on()
    lead.write([Delete("a/tree"), Put("a/value", b"2"), Put("a/tree", b"3")])
    goes_on()
    assert (store.read("a/tree/x/y"), store.read("a/value"), store.read("a/tree")) == (None, b"2", b"3")
    goes_on()
    lead.write([Delete("a/tree")])
    assert store.children("a") == ["value"]
    return True


def test_no_server_is_said_so():
    """Hosts where nothing answers are named in the error, within the time of a session and a little more."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        hosts = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(StopError, match=f"{hosts} has not answered"):
            ZooKeeperStore(hosts, session_timeout_secs=0.2)


def test_closed_store_says_so(place):
    """Use after close() is an error at once."""
    store = place.open()
    lead = store.take_lead("a", "test")
    store.close()
    assert not lead.is_held()
    with pytest.raises(StopError, match="closed"):
        store.read("a/x")
    with pytest.raises(StopError):
        lead.write([Put("a/x", b"v")])
