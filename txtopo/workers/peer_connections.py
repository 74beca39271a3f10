"""How workers meet: threads connect and do the handshakes, and a worker's loop takes the channels that are ready."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable

import attrs

from txtopo.network.channel import Channel, ChannelClosed
from txtopo.workers import handshake
from txtopo.workers.handshake import Listener
from txtopo.workers.messages import Introduction, Peer, dump, load

logger = logging.getLogger(__name__)

REACH_SECS = 30.0
"""How long a worker tries to reach a peer that is announced and not dead."""

_RETRY_SECS = 0.2
"""The pause before a peer is tried again that does not listen yet."""


@attrs.frozen
class Incoming:
    """A channel that a peer has opened to this worker."""

    introduction: Introduction
    channel: Channel


@attrs.frozen
class Outgoing:
    """A channel that this worker has opened to a peer."""

    peer: Peer
    channel: Channel


@attrs.frozen
class UnreachablePeer:
    """A peer that could not be reached for ``REACH_SECS``."""

    peer: Peer
    why: str


class PeerConnections:
    """Accepts connections of peers, and connects to peers, in threads. They call ``wake`` when a channel is ready."""

    def __init__(self, host: str, secret: bytes, wake: Callable[[], None]) -> None:
        self._secret = secret
        self._wake = wake
        self._ready: queue.SimpleQueue[Incoming | Outgoing | UnreachablePeer] = queue.SimpleQueue()
        self._is_closed = threading.Event()
        self._dead: set[int] = set()
        """The generations that are not to be reached any more."""
        self._listener = Listener(host, secret, is_introduced=True)
        self.address = self._listener.address
        """Where peers reach this worker."""
        self._listener.start(self._introduce)

    def connect(self, peer: Peer, generation: int) -> None:
        """Start to connect to a peer, as this worker's ``generation``."""
        thread = threading.Thread(target=self._connect, args=(peer, generation), name="txtopo-connect", daemon=True)
        thread.start()

    def give_up(self, dead: int) -> None:
        """Connect to a generation no longer: it has died."""
        self._dead.add(dead)

    def take(self) -> list[Incoming | Outgoing | UnreachablePeer]:
        """Remove and return the channels that are ready, and the peers that can't be reached."""
        connected = []
        with contextlib.suppress(queue.Empty):
            while True:
                connected.append(self._ready.get_nowait())
        return connected

    def close(self) -> None:
        """Stop listening and connecting."""
        self._is_closed.set()
        self._listener.close()

    def _introduce(self, connection: socket.socket, introduction: bytes) -> None:
        self._ready.put(Incoming(load(introduction), Channel(connection)))
        self._wake()

    def _connect(self, peer: Peer, generation: int) -> None:
        assert peer.address is not None, "a peer that has started"
        end = time.monotonic() + REACH_SECS
        while not self._is_closed.is_set() and peer.generation not in self._dead:
            try:
                channel = Channel(handshake.connect(peer.address, self._secret))
                channel.send(dump(Introduction(generation, peer.generation)))
            except (OSError, ChannelClosed, handshake.HandshakeError) as error:
                logger.debug("no connection to worker %d yet: %s", peer.worker, error)
                # The driver has announced the peer, so it listens, or it has died; only the driver knows.
                if time.monotonic() > end:
                    host, port = peer.address
                    self._ready.put(UnreachablePeer(peer, f"{host}:{port} can't be reached: {error}"))
                    self._wake()
                    return
                self._is_closed.wait(_RETRY_SECS)
                continue
            self._ready.put(Outgoing(peer, channel))
            self._wake()
            return
