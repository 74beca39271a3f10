"""A worker's channels to its peers: one to each that it sends to, one from each that it receives from.

Connections are made, and the other side's handshake is waited for, in threads of their own: the loop never waits for
a peer. It gets channels that are ready.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
from collections.abc import Callable

import attrs

from txtopo.workers import handshake
from txtopo.workers.channel import Channel
from txtopo.workers.messages import Address, Introduction, Peer, dump, load

logger = logging.getLogger(__name__)

_BACKLOG = 128
_RETRY_SECS = 0.2


@attrs.frozen
class Incoming:
    """A channel that another worker has opened to this one."""

    introduction: Introduction
    channel: Channel


@attrs.frozen
class Outgoing:
    """A channel that this worker has opened to a peer."""

    peer: Peer
    channel: Channel


class Meetings:
    """Accepts connections of peers and makes connections to them, in threads.

    Args:
        host: where to listen.
        secret: the run's.
        wake: is called, in any thread, when there is something to take.
    """

    def __init__(self, host: str, secret: bytes, wake: Callable[[], None]) -> None:
        self._secret = secret
        self._wake = wake
        self._ready: queue.SimpleQueue[Incoming | Outgoing] = queue.SimpleQueue()
        self._is_closed = threading.Event()
        self._listener = socket.create_server((host, 0), backlog=_BACKLOG)
        self.address: Address = (host, self._listener.getsockname()[1])
        """Where peers reach this worker."""
        threading.Thread(target=self._accept, name="txtopo-accept", daemon=True).start()

    def connect(self, peer: Peer, epoch: int) -> None:
        """Begin to connect to a peer; the channel is ready some time later, or never if the peer has died meanwhile.

        Args:
            peer: the peer, with its address.
            epoch: which this worker is.
        """
        thread = threading.Thread(target=self._connect, args=(peer, epoch), name="txtopo-connect", daemon=True)
        thread.start()

    def take(self) -> list[Incoming | Outgoing]:
        """Return the channels that have become ready."""
        taken = []
        with contextlib.suppress(queue.Empty):
            while True:
                taken.append(self._ready.get_nowait())
        return taken

    def close(self) -> None:
        """Stop listening, and trying."""
        self._is_closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept() up
        self._listener.close()

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._meet, args=(connection,), name="txtopo-meet", daemon=True).start()

    def _meet(self, connection: socket.socket) -> None:
        try:
            handshake.accept(connection, self._secret)
            introduction = load(_read(connection, int.from_bytes(_read(connection, 4), "big")))
        except (OSError, handshake.HandshakeError) as error:
            logger.warning("%s", error)
            connection.close()
            return
        self._ready.put(Incoming(introduction, Channel(connection)))
        self._wake()

    def _connect(self, peer: Peer, epoch: int) -> None:
        assert peer.address is not None, "a peer that has started"
        while not self._is_closed.is_set():
            try:
                connection = handshake.connect(peer.address, self._secret)
            except (OSError, handshake.HandshakeError) as error:
                logger.debug("no connection to worker %d yet: %s", peer.worker, error)
                self._is_closed.wait(_RETRY_SECS)
                continue
            channel = Channel(connection)
            channel.send(dump(Introduction(epoch, peer.epoch)))
            self._ready.put(Outgoing(peer, channel))
            self._wake()
            return


def _read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the connection was closed before its introduction")
        data += part
    return data
