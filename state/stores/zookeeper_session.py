"""A session with ZooKeeper; the only wrapper of kazoo.

kazoo answers through asynchronous results and a state listener on its own thread. This file turns them into
calls that wait with a deadline, report the outcome of a transaction, and raise txtopo's errors.
"""

from __future__ import annotations

import contextlib
import math
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

from txtopo.errors import StopError, Unreachable

_RETRY_SECS = 0.05
"""The first pause before a server is tried again; each next one is twice as long."""
_RETRY_SECS_MAX = 1.0
"""The longest pause: a session lasts for some seconds, and must not expire during one."""
_PATIENCE_MARGIN_SECS = 2.0
"""How much longer than a session is waited for an answer: after that it has surely expired."""
_SLICE_SECS = 0.25
"""At most so much passes at once: more was a pause of the machine, which does not count."""

_OUTCOME_UNKNOWN = (ConnectionLoss, SessionExpiredError, SessionMovedError, OperationTimeoutError)
_NOT_AS_EXPECTED = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)


@attrs.frozen
class Applied:
    """A transaction was applied."""

    last: Any
    """The result of its last operation."""


@attrs.frozen
class ConditionFailed:
    """A transaction was not applied: a node exists, is missing, or has another version."""

    position: int
    """The first operation that failed, from 0."""


@attrs.frozen
class OutcomeUnknown:
    """The connection was lost before the answer came: the transaction may have been applied."""


Answer = Applied | ConditionFailed | OutcomeUnknown


@attrs.frozen
class _Watch:
    on_change: Callable[[], None]

    def __call__(self, _event: Any) -> None:
        self.on_change()


class AwakeDeadline:
    """A deadline, ``secs`` for all waits together, that only counts time in which this process runs.

    1. A process is stopped (SIGSTOP, a machine that sleeps) while it waits.
    2. It wakes up long after any deadline, and only now receives the server's answer or the end of the session.

    So waits are divided into slices, and a slice never costs more than its intended length.
    """

    def __init__(self, secs: float) -> None:
        self._left_secs = secs

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self._left_secs <= 0

    def answer(self, sent: Any) -> Any:
        """Return the answer of an asynchronous result of kazoo.

        Raises:
            KazooTimeoutError: it did not arrive in time.
            KazooException: the answer is an error.
        """
        while True:
            with self._slice() as slice_secs:
                try:
                    return sent.get(timeout=slice_secs)
                except KazooTimeoutError:
                    if self._left_secs <= slice_secs:
                        raise

    def wait(self, event: threading.Event, secs: float) -> None:
        """Wait for an event, for at most ``secs`` and at most one slice."""
        with self._slice() as slice_secs:
            event.wait(min(secs, slice_secs))

    @contextlib.contextmanager
    def _slice(self) -> Iterator[float]:
        slice_secs = max(0.0, min(_SLICE_SECS, self._left_secs))
        started = time.monotonic()
        try:
            yield slice_secs
        finally:
            self._left_secs -= min(time.monotonic() - started, slice_secs)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Waits for the connection without a file descriptor of its own.

    kazoo's takes one for each wait: a process that can open no more files would lose its session, and its lead.
    """

    def select(self, readers: Sequence[Any], writers: Sequence[Any], _errors: Any, timeout: float | None = None) -> Any:
        """Return the readers and the writers that are ready."""
        with contextlib.suppress(ValueError):  # it takes only the first 1,024 descriptors
            return select.select(readers, writers, [], timeout)
        # Second, for it takes no more of them than the process may open: a limit of 1 would break the connection.
        polled = select.poll()
        for reader in readers:
            polled.register(reader, select.POLLIN)
        for writer in writers:
            polled.register(writer, select.POLLOUT)
        ready = {number for number, _ in polled.poll(None if timeout is None else math.ceil(timeout * 1000))}
        return (
            [reader for reader in readers if reader.fileno() in ready],
            [w for w in writers if w.fileno() in ready],
            [],
        )


class ZooKeeperSession:
    """A connection that is restored when it breaks, with a new session if the old one has expired.

    Args:
        hosts: ``"host:port,host:port"``.
        timeout_secs: the time that a session outlives its connection, in seconds.
        credentials: ``"user:password"``: the session logs in by digest, and only this user may read and write the nodes
            that it creates; None: anybody may.

    Raises:
        Unreachable: no server can be reached.
    """

    def __init__(self, hosts: str, timeout_secs: float, credentials: str | None = None) -> None:
        self.hosts = hosts
        self.timeout_secs = timeout_secs
        self.patience_secs = timeout_secs + _PATIENCE_MARGIN_SECS
        """How long to wait for an answer: a little longer than a session lasts without a connection."""
        self.sessions_lost = 0
        """The number of sessions that have ended so far."""
        self._suspended_since: float | None = None
        self._closed = threading.Event()
        self._listeners: list[Callable[[], None]] = []
        user, _, password = (credentials or "").partition(":")
        self.client = KazooClient(
            hosts=hosts,
            timeout=timeout_secs,
            handler=_Handler(),
            # Without end: the deadline bounds each request, and is_cut_off() says when the session must be over.
            connection_retry=KazooRetry(max_tries=-1, delay=_RETRY_SECS, max_delay=_RETRY_SECS_MAX),
            default_acl=[make_digest_acl(user, password, all=True)] if credentials else None,
            auth_data=[("digest", credentials)] if credentials else None,
        )
        self.client.add_listener(self._on_state)
        try:
            self.client.start(timeout=self.patience_secs)
        except KazooTimeoutError as error:
            self.client.close()
            raise self._unreachable() from error

    def close(self) -> None:
        """End the session, which removes all its ephemeral nodes."""
        self._closed.set()
        self.client.stop()
        self.client.close()

    @property
    def is_connected(self) -> bool:
        """Whether the connection stands, as far as is known; False the moment that it is found broken."""
        return self._suspended_since is None and not self._closed.is_set()

    @property
    def session_id(self) -> int | None:
        """The id of the session, by which ephemeral nodes go; None while there is none."""
        client_id = self.client.client_id
        return None if client_id is None else int(client_id[0])

    @property
    def cut_off_secs(self) -> float:
        """The time since the connection broke; 0 while it stands."""
        since = self._suspended_since
        return 0.0 if since is None else time.monotonic() - since

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever the connection breaks or is restored; on kazoo's thread, so it must not wait."""
        self._listeners.append(listener)

    def is_cut_off(self) -> bool:
        """Whether the connection has been lost for so long that the session must be over."""
        since = self._suspended_since
        return since is not None and time.monotonic() - since > self.timeout_secs

    def data(self, node: str) -> tuple[bytes, Any] | None:
        """Return a node's data and kazoo's ``ZnodeStat``; None if it does not exist."""
        try:
            data, stat = self._ask(partial(self.client.get_async, node))
        except NoNodeError:
            return None
        return data, stat

    def children(self, node: str) -> list[str]:
        """Return the names of a node's children; empty if it does not exist."""
        return self.children_of_all([node])[0]

    def stats_of_all(self, nodes: Sequence[str]) -> list[Any]:
        """Return kazoo's ``ZnodeStat`` of each node, None for those that do not exist."""
        requests = [partial(self.client.exists_async, node) for node in nodes]
        return self._ask_all(requests)

    def children_of_all(self, nodes: Sequence[str]) -> list[list[str]]:
        """Return the names of the children of each node, empty for those that do not exist."""
        requests = [partial(self.client.get_children_async, node) for node in nodes]
        return [names or [] for names in self._ask_all(requests)]

    def data_of_all(self, nodes: Sequence[str]) -> list[tuple[bytes, Any] | None]:
        """Return data and ``ZnodeStat`` of each node, None for those that do not exist."""
        return self._ask_all([partial(self.client.get_async, node) for node in nodes])

    def watch_children_of_all(self, nodes: Sequence[str], on_change: Callable[[], None]) -> list[list[str]]:
        """Return the names of the children of each node; call ``on_change`` once when any change, on kazoo's thread."""
        watch = _Watch(on_change)
        requests = [partial(self.client.get_children_async, node, watch=watch) for node in nodes]
        return [names or [] for names in self._ask_all(requests)]

    def watch_data_of_all(self, nodes: Sequence[str], on_change: Callable[[], None]) -> None:
        """Call ``on_change`` once when one of the nodes is changed or removed, on kazoo's thread."""
        watch = _Watch(on_change)
        self._ask_all([partial(self.client.get_async, node, watch=watch) for node in nodes])

    def watched_data(self, node: str, on_change: Callable[[], None]) -> tuple[bytes, Any] | None:
        """Return data and ``ZnodeStat`` of a node; call ``on_change`` once when they change, on kazoo's thread."""
        try:
            data, stat = self._ask(partial(self.client.get_async, node, watch=_Watch(on_change)))
        except NoNodeError:
            return None
        return data, stat

    def make(self, node: str, data: bytes) -> None:
        """Create a node and its parents, unless it exists."""
        try:
            self._ask(partial(self.client.create_async, node, data, makepath=True))
        except NodeExistsError:
            return

    def wait_until_gone(self, node: str, secs: float) -> None:
        """Wait until a node is removed, ``secs`` have passed, or the connection breaks."""
        is_gone = threading.Event()
        if self._ask(partial(self.client.exists_async, node, watch=lambda _: is_gone.set())) is not None:
            is_gone.wait(secs)

    def deadline(self) -> AwakeDeadline:
        """Return the deadline for one request, including its retries."""
        return AwakeDeadline(self.patience_secs)

    def commit(self, transaction: Any, deadline: AwakeDeadline) -> Answer:
        """Send a kazoo transaction, made by ``client.transaction()``, and wait for its answer.

        Raises:
            StopError: no answer came in time (the transaction may have been applied), or the server refuses for a
                reason that a retry would not change.
        """
        self._check_open()
        try:
            results = deadline.answer(transaction.commit_async())
        except _OUTCOME_UNKNOWN:
            # The caller sends it again: not at once, and not after close(), which ends the pause.
            deadline.wait(self._closed, _RETRY_SECS)
            return OutcomeUnknown()
        except KazooTimeoutError as error:
            raise self._unreachable() from error
        for position, result in enumerate(results):
            if isinstance(result, _NOT_AS_EXPECTED):
                return ConditionFailed(position)
            # The operations before the one that failed answer RolledBackError.
            if isinstance(result, KazooException) and not isinstance(result, RolledBackError):
                raise StopError(
                    f"ZooKeeper at {self.hosts} refuses to write: {result!r}; check its permissions and quotas"
                )
        return Applied(results[-1])

    def _ask(self, request: Callable[[], Any], sent: Any = None) -> Any:
        """Return an idempotent request's answer, maybe ``sent`` to kazoo; send it again if the connection breaks."""
        deadline = self.deadline()
        while True:
            self._check_open()
            try:
                return deadline.answer(sent if sent is not None else request())
            except _OUTCOME_UNKNOWN as error:
                if deadline.is_over:
                    raise self._unreachable() from error
                deadline.wait(self._closed, _RETRY_SECS)
                sent = None
            except KazooTimeoutError as error:
                raise self._unreachable() from error
            except (NoAuthError, AuthFailedError) as error:
                raise StopError(
                    f"ZooKeeper at {self.hosts} refuses access: its nodes belong to somebody with other credentials"
                ) from error

    def _ask_all(self, requests: Sequence[Callable[[], Any]]) -> list[Any]:
        """Return the answers to several concurrent requests; None if the node does not exist."""
        self._check_open()
        # All are sent before the first answer is awaited: together they take one round trip.
        sent = [request() for request in requests]
        answers = []
        for request, first in zip(requests, sent, strict=True):
            try:
                answers.append(self._ask(request, first))
            except NoNodeError:
                answers.append(None)
        return answers

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise StopError("the store is closed: use it only before close()")

    def _on_state(self, state: Any) -> None:
        # Called on kazoo's own thread, so nothing here may wait. A break begins with SUSPENDED. LOST may follow, once a
        # server says that the session is over: its ephemeral nodes are gone by then. It is counted before the listeners
        # are called, which compare the count. It does not begin the break again, whose length others act on.
        if state == KazooState.LOST:
            self.sessions_lost += 1
        if state == KazooState.CONNECTED:
            self._suspended_since = None
        elif self._suspended_since is None:
            self._suspended_since = time.monotonic()
        for listener in self._listeners:
            listener()

    def _unreachable(self) -> Unreachable:
        return Unreachable(
            f"ZooKeeper at {self.hosts} has not answered for {self.patience_secs:g} s: "
            "check that it runs and that the hosts and ports are right, then start again"
        )
