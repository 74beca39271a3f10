"""The owner of workers, over real sockets: it gives their bodies work, and hears of each of them once."""

import queue
import threading
import time

import attrs
import pytest

from tests.waiting import DEADLINE_SECS
from tests.workers.holding import Idle
from txtopo.errors import UserCodeError
from txtopo.workers.control import ControlServer, JobStarter, Owner
from txtopo.workers.events import StopAsked, TellAsked
from txtopo.workers.handshake import Listener, new_secret
from txtopo.workers.process import Links, WorkerJob, run_worker
from txtopo.workers.supervisor import Supervisor

LARGE = bytes(range(256)) * (16 << 10)
"""Far more than a socket takes at once."""


class Echo(Idle):
    """Says what it hears; it fails at ``fail``."""

    def __init__(self, links: Links) -> None:
        self.tell = links.tell
        self.heard: list[bytes] = []

    def hear(self, data: bytes) -> None:
        self.heard.append(data)

    def run_pass(self) -> bool:
        if not self.heard:
            return False
        data = self.heard.pop(0)
        if data == b"fail":
            raise UserCodeError("a bug", component="echo")
        self.tell(data)
        return True

    def is_done(self) -> bool:
        return False


@attrs.define(eq=False)
class Echoing(JobStarter):
    """Runs workers that echo, in threads."""

    listener: Listener
    secret: bytes

    def start(self, worker, job, on_end) -> None:
        def run() -> None:
            place = WorkerJob(worker, job, self.secret, self.listener.address, None, 1 << 20)
            try:
                run_worker(place, lambda _welcome, links: Echo(links))
            except Exception as error:  # noqa: BLE001 - as Spark would report it
                on_end(error)
            else:
                on_end(None)

        threading.Thread(target=run, daemon=True).start()

    def cancel(self, worker, job) -> None: ...


class Noting(Owner):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.noted: queue.SimpleQueue[tuple] = queue.SimpleQueue()

    def joined(self, worker, generation) -> None:
        self.noted.put(("joined", worker, generation))

    def lost(self, worker, generation, error) -> bool:
        self.noted.put(("lost", worker, generation, error))
        return True

    def heard(self, worker, generation, data) -> None:
        self.noted.put(("told", worker, generation, data))

    def ticked(self) -> None: ...

    def ended(self, error) -> None:
        self.noted.put(("over", error))


def test_an_owner_and_its_worker() -> None:
    """Messages of any size go both ways in order; a death is told with its error, and excused; the successor works on."""
    secret, owner = new_secret(), Noting()
    listener = Listener("127.0.0.1", secret)
    supervisor = Supervisor(1, restarts_max=0, period_secs=60.0, is_active=True, now=time.monotonic(), is_owned=True)
    server = ControlServer(supervisor, Echoing(listener, secret), listener, owner=owner)
    server.start()
    assert owner.noted.get(timeout=DEADLINE_SECS) == ("joined", 0, 0)
    said = [b"first", LARGE, *(b"%d" % number for number in range(50)), LARGE, b"last"]
    for data in said:
        server.post(TellAsked(0, 0, data))
    assert [owner.noted.get(timeout=DEADLINE_SECS) for _ in said] == [("told", 0, 0, data) for data in said]
    server.post(TellAsked(0, 0, b"fail"))
    assert owner.noted.get(timeout=DEADLINE_SECS) == ("lost", 0, 0, "[component 'echo'] a bug")
    assert owner.noted.get(timeout=DEADLINE_SECS) == ("joined", 0, 1)
    server.post(TellAsked(0, 0, b"too late"))
    server.post(TellAsked(0, 1, b"again"))
    assert owner.noted.get(timeout=DEADLINE_SECS) == ("told", 0, 1, b"again")
    server.post(StopAsked(0.0))
    assert server.join(DEADLINE_SECS)
    assert owner.noted.get(timeout=DEADLINE_SECS) == ("over", None)


@pytest.mark.few(1)
@pytest.mark.parametrize("megabytes", [0, 1, 20])
def test_error_behind_large_messages(megabytes: int) -> None:
    """What a worker says last counts before the end of its job, however much it has said just before."""
    secret, owner = new_secret(), Noting()
    listener = Listener("127.0.0.1", secret)
    supervisor = Supervisor(1, restarts_max=0, period_secs=60.0, is_active=True, now=time.monotonic(), is_owned=True)
    server = ControlServer(supervisor, Echoing(listener, secret), listener, owner=owner)
    server.start()
    large = bytes(megabytes << 20)
    for generation in range(5):
        assert owner.noted.get(timeout=DEADLINE_SECS) == ("joined", 0, generation)
        server.post(TellAsked(0, generation, large))
        server.post(TellAsked(0, generation, b"fail"))
        assert owner.noted.get(timeout=DEADLINE_SECS) == ("told", 0, generation, large)
        assert owner.noted.get(timeout=DEADLINE_SECS) == ("lost", 0, generation, "[component 'echo'] a bug")
    server.post(StopAsked(0.0))
    assert server.join(DEADLINE_SECS)
