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
class Vitals:
    """How a worker is, as far as supervision cares.

    Args:
        is_done: whether it needs nothing more: all it had to do is done.
        is_idle: whether nothing waits in it.
        pending: how much of what it began is not finished.
        activity: a number that rises whenever it does something.
        sent: frames sent to each other epoch, since that became a peer.
        received: frames received from each.
        body: what the body says of itself.
        cpu_secs: processor time that the process has taken since the worker began.
    """

    is_done: bool
    is_idle: bool
    pending: int
    activity: int
    sent: Mapping[int, int]
    received: Mapping[int, int]
    body: Any
    cpu_secs: float = 0.0


@attrs.frozen
class Beat:
    """A worker lives.

    Args:
        vitals: how it was when its loop last looked.
        busy_with: what its loop is in, if it has been in it for a while.
        busy_secs: for how long.
    """

    vitals: Vitals | None
    busy_with: str = ""
    busy_secs: float = 0.0


@attrs.frozen
class Watching:
    """A worker's watcher has begun. The first message on a channel of its own; what follows are its reports.

    Args:
        worker: the worker's number.
        epoch: its epoch.
    """

    worker: int
    epoch: int


@attrs.frozen
class Erred:
    """A worker ends by an error.

    Args:
        error: the error.
        vitals: how it was when its loop last looked.
    """

    error: Exception
    vitals: Vitals | None


@attrs.frozen
class Bye:
    """A worker ends as it was told to.

    Args:
        vitals: how it was at its end.
    """

    vitals: Vitals


@attrs.frozen
class Peer:
    """Another worker, as a worker is told of it.

    Args:
        worker: its number.
        epoch: its epoch.
        address: where it listens; None: it has not started yet.
    """

    worker: int
    epoch: int
    address: Address | None


@attrs.frozen
class Welcome:
    """The answer to a hello.

    Args:
        epoch: which epoch the worker is.
        peers: all others.
        is_active: whether it works from the beginning.
    """

    epoch: int
    peers: tuple[Peer, ...]
    is_active: bool


@attrs.frozen
class PeerJoined:
    """A peer has started."""

    peer: Peer


@attrs.frozen
class PeerReplaced:
    """A peer has died; what follows it has not started yet.

    Args:
        dead: the epoch that died.
        successor: the peer that follows.
    """

    dead: int
    successor: Peer


@attrs.frozen
class SetActive:
    """Go on, or pause."""

    is_active: bool


@attrs.frozen
class Stop:
    """End in good order."""


ToDriver = Hello | Beat | Watching | Erred | Bye
ToWorker = Welcome | PeerJoined | PeerReplaced | SetActive | Stop


@attrs.frozen
class Introduction:
    """The first message between two workers: who has connected, and whom it thinks it has reached."""

    sender: int
    receiver: int


def dump(message: ToDriver | ToWorker | Introduction) -> bytes:
    """Return a message as bytes."""
    return pickle.dumps(message, 5)


def load(data: bytes) -> Any:
    """Return the message that :func:`dump` made bytes of; only of a side that has shown the run's secret."""
    return pickle.loads(data)  # noqa: S301 - see the handshake
