"""How workers meet: threads connect and do the handshakes, and a worker's loop takes the channels that are ready."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
from collections.abc import Callable

import attrs

from txtopo.network.channel import Channel, ChannelClosed
from txtopo.workers import handshake
from txtopo.workers.handshake import Listener
from txtopo.workers.messages import Introduction, Peer, dump, load

logger = logging.getLogger(__name__)

_RETRY_SECS = 0.2


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


class Meetings:
    """Accepts connections of peers, and connects to peers, in threads. They call ``wake`` when a channel is ready."""

    def __init__(self, host: str, secret: bytes, wake: Callable[[], None]) -> None:
        self._secret = secret
        self._wake = wake
        self._ready: queue.SimpleQueue[Incoming | Outgoing] = queue.SimpleQueue()
        self._is_closed = threading.Event()
        self._listener = Listener(host, secret, is_introduced=True)
        self.address = self._listener.address
        """Where peers reach this worker."""
        self._listener.start(self._introduce)

    def connect(self, peer: Peer, incarnation: int) -> None:
        """Start to connect to a peer, as this worker's ``incarnation``. If the peer has died, no channel follows."""
        thread = threading.Thread(target=self._connect, args=(peer, incarnation), name="txtopo-connect", daemon=True)
        thread.start()

    def take(self) -> list[Incoming | Outgoing]:
        """Remove and return the channels that are ready."""
        taken = []
        with contextlib.suppress(queue.Empty):
            while True:
                taken.append(self._ready.get_nowait())
        return taken

    def close(self) -> None:
        """Stop listening and connecting."""
        self._is_closed.set()
        self._listener.close()

    def _introduce(self, connection: socket.socket, introduction: bytes) -> None:
        self._ready.put(Incoming(load(introduction), Channel(connection)))
        self._wake()

    def _connect(self, peer: Peer, incarnation: int) -> None:
        assert peer.address is not None, "a peer that has started"
        while not self._is_closed.is_set():
            try:
                channel = Channel(handshake.connect(peer.address, self._secret))
                channel.send(dump(Introduction(incarnation, peer.incarnation)))
            except (OSError, ChannelClosed, handshake.HandshakeError) as error:
                logger.debug("no connection to worker %d yet: %s", peer.worker, error)
                # The driver has announced the peer, so it listens, or it has died; only the driver knows.
                self._is_closed.wait(_RETRY_SECS)
                continue
            self._ready.put(Outgoing(peer, channel))
            self._wake()
            return
