"""The messages of driver and workers on control channels, pickled, and the first message between two workers."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import attrs

Address = tuple[str, int]
"""A host and a port."""


@attrs.frozen
class Hello:
    """A worker has started: its channel's first message, with host and process id for people, and its address."""

    worker: int
    job: int
    process: str
    address: Address


@attrs.frozen
class Health:
    """The health of a worker."""

    is_done: bool
    """Whether its spouts are exhausted, with nothing pending."""
    is_idle: bool
    """Whether no tuple, ack or frame waits in it."""
    pending: int
    acked: int
    activity: int
    """A number that rises whenever the worker does something."""
    sent: Mapping[int, int]
    """By generation of another worker, the frames that were sent to it."""
    received: Mapping[int, int]
    """By generation of another worker, the frames that were received from it."""
    status: Any
    """What reports say about the worker."""
    cpu_secs: float = 0.0
    """Processor time that the process has taken since the worker began."""
    heard: int = 0
    """How often it was told whether its spouts are called, since its welcome."""


@attrs.frozen
class Heartbeat:
    """A worker lives.

    Args:
        health: its health when its loop last looked; None: the loop has not looked since the last heartbeat.
        busy_with: the task whose turn has lasted for seconds; empty if there is none.
        busy_secs: how long the pass under way has lasted.
    """

    health: Health | None
    busy_with: str = ""
    busy_secs: float = 0.0


@attrs.frozen
class WatcherHello:
    """A worker's watcher has started. The first message on a separate channel; its reports follow."""

    worker: int
    generation: int


@attrs.frozen
class Failed:
    """A worker ends by an error; its health is None if its loop never looked."""

    error: Exception
    health: Health | None


@attrs.frozen
class LinkBroken:
    """The channel from or to generation ``peer`` has ended, or can't be opened; nothing was heard of its death."""

    peer: int
    why: str


@attrs.frozen
class Stopped:
    """A worker ends because it was told to."""

    health: Health


@attrs.frozen
class Peer:
    """A worker, as the others see it; its address is None until it has started."""

    worker: int
    generation: int
    address: Address | None


@attrs.frozen
class Welcome:
    """The answer to a hello: the worker's generation, all other workers, and whether it starts active."""

    generation: int
    peers: tuple[Peer, ...]
    is_active: bool


@attrs.frozen
class PeerJoined:
    """A peer has started."""

    peer: Peer


@attrs.frozen
class PeerReplaced:
    """Generation ``dead`` of a peer has died; its successor has not started yet."""

    dead: int
    successor: Peer


@attrs.frozen
class SetActive:
    """Activate or deactivate the spouts."""

    is_active: bool


@attrs.frozen
class Stop:
    """End in good order."""


@attrs.frozen
class BodyMessage:
    """What a worker's body and the owner of the workers have to say to each other; it pickles."""

    message: Any = attrs.field(repr=False)


FromWorker = Hello | Heartbeat | Failed | LinkBroken | Stopped | BodyMessage
ToWorker = Welcome | PeerJoined | PeerReplaced | SetActive | Stop | BodyMessage


@attrs.frozen
class Introduction:
    """The first message between two workers: the generation that connects, and the one that it means to reach."""

    sender: int
    receiver: int


def dump(message: FromWorker | WatcherHello | ToWorker | Introduction) -> bytes:
    """Return a message as bytes."""
    return pickle.dumps(message, 5)


def load(data: bytes) -> Any:
    """Return the message that :func:`dump` dumped. Call it only behind a handshake: a pickle can run any code."""
    return pickle.loads(data)  # noqa: S301 - see the handshake
