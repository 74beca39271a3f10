"""What driver and workers say to each other on control channels, pickled; and the first word between two workers."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import attrs

Address = tuple[str, int]
"""A host and a port."""


@attrs.frozen
class Hello:
    """A worker has started. The first message on its channel.

    Args:
        worker: its number.
        job: the job that it was started by.
        process: the host and process id, for people.
        address: where other workers reach it.
    """

    worker: int
    job: int
    process: str
    address: Address


@attrs.frozen
class Health:
    """How a worker is.

    Args:
        is_done: whether its spouts are exhausted, with nothing pending.
        is_idle: whether no tuple, ack or frame waits in it.
        pending: its pending roots.
        acked: how many of its roots were acked.
        activity: a number that rises whenever it does something.
        sent: frames sent to each incarnation of another worker.
        received: frames received from each.
        status: what reports tell of it.
        cpu_secs: processor time that the process has taken since the worker began.
    """

    is_done: bool
    is_idle: bool
    pending: int
    acked: int
    activity: int
    sent: Mapping[int, int]
    received: Mapping[int, int]
    status: Any
    cpu_secs: float = 0.0


@attrs.frozen
class Heartbeat:
    """A worker lives.

    Args:
        health: how it was when its loop last looked; None: it has not looked since the last heartbeat.
        busy_with: which task has had its turn for seconds; empty if none has.
        busy_secs: for how long.
    """

    health: Health | None
    busy_with: str = ""
    busy_secs: float = 0.0


@attrs.frozen
class WatcherHello:
    """A worker's watcher has started. The first message on a channel of its own; its reports follow."""

    worker: int
    incarnation: int


@attrs.frozen
class Failed:
    """A worker ends by an error.

    Args:
        error: the error.
        health: how it was when its loop last looked; None if it never did.
    """

    error: Exception
    health: Health | None


@attrs.frozen
class Stopped:
    """A worker ends because it was told to."""

    health: Health


@attrs.frozen
class Peer:
    """Another worker, as a worker is told of it.

    Args:
        worker: its number.
        incarnation: its incarnation.
        address: where it listens; None until it has started.
    """

    worker: int
    incarnation: int
    address: Address | None


@attrs.frozen
class Welcome:
    """The answer to a hello.

    Args:
        incarnation: which incarnation the worker is.
        peers: all others.
        is_active: whether it works from the beginning.
    """

    incarnation: int
    peers: tuple[Peer, ...]
    is_active: bool


@attrs.frozen
class PeerJoined:
    """A peer has started."""

    peer: Peer


@attrs.frozen
class PeerReplaced:
    """A peer has died; its successor has not started yet.

    Args:
        dead: the incarnation that died.
        successor: the peer as it will be.
    """

    dead: int
    successor: Peer


@attrs.frozen
class SetActive:
    """Call the spouts, or pause."""

    is_active: bool


@attrs.frozen
class Stop:
    """End in good order."""


FromWorker = Hello | Heartbeat | Failed | Stopped
ToWorker = Welcome | PeerJoined | PeerReplaced | SetActive | Stop


@attrs.frozen
class Introduction:
    """The first message between two workers: who has connected, and whom it thinks it has reached."""

    sender: int
    receiver: int


def dump(message: FromWorker | WatcherHello | ToWorker | Introduction) -> bytes:
    """Return a message as bytes."""
    return pickle.dumps(message, 5)


def load(data: bytes) -> Any:
    """Return the message that :func:`dump` made bytes of; only of a side that has shown the run's secret."""
    return pickle.loads(data)  # noqa: S301 - see the handshake
