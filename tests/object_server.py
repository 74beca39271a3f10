"""A bucket in a process of its own that keeps the time of a test, counts the requests that it gets, and makes faults.

It is a process of its own: the client's library waits for answers without letting other threads of Python go on.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from txtopo.files.objects import forget_clients
from txtopo.servers.bucket import Answer, BucketHandler, Objects, bucket_server

KINDS = ("PUT", "GET", "HEAD", "LIST", "DELETE")

_FAULTS = {
    "lost": None,
    "throttled": Answer.error(503, "SlowDown"),
    "broken": Answer.error(500, "InternalError"),
    "denied": Answer.error(403, "AccessDenied"),
    "expired": Answer.error(400, "ExpiredToken"),
    "full": Answer.error(403, "QuotaExceeded"),
}
"""What is answered instead, by the name of a fault; ``lost``: nothing, and the request was carried out."""


@attrs.frozen(eq=False)
class ObjectStore:
    """The store, as tests see it: its clock, and what was asked."""

    options: dict[str, str]
    """Those of a table at ``s3://bucket/...``."""
    _clock: Any
    _counts: Any
    _orders: _Orders

    def lose_answers(self, each: int) -> None:
        """Cut the connection instead of answering each so-many-th PUT, which is carried out; 0: answer all."""
        self.fail("lost", each, kinds="PUT")

    def fail(self, fault: str, each: int = 1, *, kinds: str = "PUT GET HEAD LIST DELETE", below: str = "") -> None:
        """Answer each so-many-th request of some kinds by a fault; 0: none.

        Args:
            fault: see ``_FAULTS``.
            each: counted over these requests.
            kinds: with spaces between them.
            below: only for names with this in them.
        """
        self._orders.update(fault=fault, each=each, kinds=kinds.split(), below=below)

    def ignore_conditions(self, *, are_ignored: bool) -> None:
        """Carry out a PUT whatever If-Match and If-None-Match say, as a store that does not know them."""
        self._orders.update(ignores=are_ignored)

    def list_late(self, secs: float) -> None:
        """Leave what was put within the last seconds out of listings."""
        self._orders.update(late_secs=secs)

    def set_clock(self, secs: float) -> None:
        """Set the time of what is put from now on, in seconds since 1970; before, it is that of the machine."""
        self._clock.value = secs

    def limit_puts(self, secs: float) -> None:
        """Refuse a PUT of a name that was put within the last seconds, as Google's store does."""
        self._orders.update(between_secs=secs)

    def set_latency(self, secs: float) -> None:
        """Answer each request so much later, also several at a time."""
        self._orders.update(latency_secs=secs)

    def asked(self) -> list[str]:
        """Return the requests since the last call: the kind and the name in its bucket, of a listing the prefix."""
        return list(self._orders.update())

    def requests(self) -> Counter[str]:
        """Return the number of requests so far, by kind."""
        return Counter(dict(zip(KINDS, self._counts, strict=True)))

    @contextlib.contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Yield a counter that has the requests of the block once that has ended."""
        before, found = self.requests(), Counter[str]()
        yield found
        found.update(self.requests() - before)


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Start an empty store, and end it."""
    spawning = multiprocessing.get_context("spawn")
    clock, counts, port = spawning.Value("d", 0.0), spawning.Array("i", len(KINDS)), spawning.SimpleQueue()
    orders = spawning.SimpleQueue()
    process = spawning.Process(target=_serve, args=(clock, counts, orders, port), daemon=True)
    process.start()
    options = port.get()
    forget_clients()  # those that have the address of an earlier server from the environment
    try:
        yield ObjectStore(options, clock, counts, _Orders(orders, port))
    finally:
        process.kill()
        process.join()


@attrs.frozen(eq=False)
class _Orders:
    """Sends what is to be done to the server, and waits until it does."""

    _orders: Any
    _done: Any

    def update(self, **what: Any) -> Any:
        """Set what is given; return what the server was asked for since the last time."""
        self._orders.put(what)
        return self._done.get()


def _serve(clock: Any, counts: Any, orders: Any, port: Any) -> None:
    faults: dict[str, Any] = {"each": 0, "ignores": False, "late_secs": 0.0, "latency_secs": 0.0, "between_secs": 0.0}
    objects = _LateObjects(now_secs=lambda: clock.value or time.time())
    objects.faults = faults
    counted = type(
        "Counted", (_Handler,), {"counts": counts, "faults": faults, "seen": Counter(), "asked": [], "put_secs": {}}
    )
    with bucket_server(objects, handler=counted) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port.put(server.options)
        while True:
            faults.update(orders.get())
            counted.seen.clear()
            with counts.get_lock():
                asked = counted.asked[:]
                counted.asked.clear()
            port.put(asked)


class _LateObjects(Objects):
    """Leaves what is new out of listings."""

    faults: dict[str, Any]

    def _listed(self) -> dict[str, Any]:
        late_secs, now_secs = self.faults["late_secs"], self._now_secs()
        return {
            key: each for key, each in super()._listed().items() if not 0 <= now_secs - each.modified_secs < late_secs
        }


class _Handler(BucketHandler):
    counts: Any
    faults: dict[str, Any]
    seen: Counter[str]
    asked: list[str]
    put_secs: dict[str, float]

    def answer_to(self, kind: str, serve: Callable[[], Answer]) -> Answer | None:
        time.sleep(self.faults["latency_secs"])
        with self.counts.get_lock():
            self.counts[KINDS.index(kind)] += 1
            name = self._query.get("prefix", "") if kind == "LIST" else self._key.partition("/")[2]
            self.asked.append(f"{kind} {name}")
            is_faulty = self._is_faulty(kind)
            is_too_soon = kind == "PUT" and self._is_too_soon()
        if is_too_soon:
            return Answer.error(429, "SlowDown")
        if not is_faulty:
            return serve()
        fault = self.faults["fault"]
        if fault == "lost":
            serve()
        return _FAULTS[fault]

    def _is_too_soon(self) -> bool:
        now_secs, key = time.monotonic(), self._key
        if now_secs - self.put_secs.get(key, -math.inf) < self.faults["between_secs"]:
            self.asked.append(f"REFUSED {key.partition('/')[2]}")
            return True
        self.put_secs[key] = now_secs
        return False

    def _is_faulty(self, kind: str) -> bool:
        faults = self.faults
        if not faults["each"] or kind not in faults["kinds"] or faults["below"] not in self.path:
            return False
        self.seen["all"] += 1
        return self.seen["all"] % faults["each"] == 0

    def _put_if_it_may(self, content: bytes) -> str | None:
        if self.faults["ignores"]:
            return self.objects.put(self._key, content)
        return super()._put_if_it_may(content)
