"""A worker's peers: a channel to each that it sends to, one from each that it receives from, and who is congested.

Everything here runs in the worker's one thread, and never waits for a peer: what a peer does not take waits here.
"""

from __future__ import annotations

import selectors
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import assert_never

from txtopo.network.channel import Backlog, Channel, ChannelClosed
from txtopo.workers.messages import Peer, Welcome
from txtopo.workers.peer_connections import Incoming, Outgoing, PeerConnections, UnreachablePeer
from txtopo.workers.peer_directory import Arrival, PeerDirectory

_FRAME = b"f"
_CONGESTED = b"c"
_FREE = b"u"
_READ_AND_WRITE = selectors.EVENT_READ | selectors.EVENT_WRITE


class Peers:
    """Exchanges frames with the peers that the driver has announced, in channels that are registered in ``selector``.

    The registered data of a channel is what to call when it is ready. ``receive`` is called with each frame that has
    come, and ``wake``, in any thread, when :meth:`take_ready` has something to take. ``broken`` is called with the
    generation of a peer that has no channel any more, and why, unless the driver has said that it is dead: what was on
    its way is lost, so one of the two ends must start again, and the driver decides which.
    """

    def __init__(
        self,
        connections: PeerConnections,
        selector: selectors.BaseSelector,
        watermark_bytes: int,
        receive: Callable[[bytes], None],
        broken: Callable[[int, str], None],
    ) -> None:
        self._connections = connections
        self._selector = selector
        self._watermark_bytes = watermark_bytes
        self._receive = receive
        self._broken = broken
        self._directory = PeerDirectory()
        self._outgoing: dict[int, Channel] = {}
        self._unconnected: dict[int, Backlog] = {}
        """By worker, the messages that wait for its channel."""
        self._incoming: dict[int, Channel] = {}
        """By the generation of the sender."""
        self._early: list[Incoming] = []
        """Channels of generations that the driver has not announced yet."""
        self._is_congested = False

    @property
    def sent(self) -> Counter[int]:
        """By generation, how many frames were sent to it."""
        return self._directory.sent

    @property
    def received(self) -> Counter[int]:
        """By generation, how many frames were received from it."""
        return self._directory.received

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait to be sent."""
        unsent = sum(channel.unsent_bytes for channel in self._outgoing.values())
        return unsent + sum(waiting.bytes for waiting in self._unconnected.values())

    @property
    def is_congested(self) -> bool:
        """Whether too much waits here or at a peer."""
        return self._is_congested or bool(self._directory.congested)

    def welcome(self, welcome: Welcome) -> None:
        """Connect to the peers that the driver's welcome names."""
        self._directory.welcome(welcome.generation, welcome.peers)
        for peer in welcome.peers:
            self._meet(peer)

    def join(self, peer: Peer) -> None:
        """Connect to a peer if it has started, and read from it; the channel from it may have come early."""
        self._directory.join(peer)
        self._meet(peer)

    def replace(self, dead: int, successor: Peer) -> None:
        """Drop all for a dead generation; what is sent from now on waits for its successor's :meth:`join`."""
        # Only the directory knows whose generation ``dead`` was, until it is replaced.
        for worker in [peer.worker for peer in self._directory if peer.generation == dead]:
            self._unconnected.pop(worker, Backlog()).close()
            if worker in self._outgoing:
                self._drop(self._outgoing.pop(worker))
        if dead in self._incoming:
            self._drop(self._incoming.pop(dead))
        self._connections.give_up(dead)
        self._directory.replace(dead, successor)

    def take_ready(self) -> None:
        """Take the channels on which peers have been met."""
        for ready in self._connections.take():
            match ready:
                case Outgoing():
                    self._take_outgoing(ready)
                case Incoming():
                    self._take_incoming(ready)
                case UnreachablePeer(peer, why):
                    self._tell_broken(peer.generation, why)
                case _:
                    assert_never(ready)

    def send(self, worker: int, frame: bytes) -> None:
        """Send a frame to a worker; it waits here while that worker has no channel, or does not read."""
        # Counted before it leaves: until the receiver has counted it, too, the driver does not end the run.
        self._directory.sent[self._directory[worker].generation] += 1
        message = _FRAME + frame
        channel = self._outgoing.get(worker)
        if channel is None:
            if worker not in self._unconnected:
                self._unconnected[worker] = Backlog(self._unsent_memory_max())
            self._unconnected[worker].append(message)
        else:
            self._put(worker, channel, message)

    def weigh(self, queued_bytes: int) -> None:
        """Tell the peers when more than the watermark waits here, and when no more than half of it does.

        Two bounds, because with one a worker at the watermark would tell all peers in every pass.
        """
        low = self._watermark_bytes // 2
        waiting = queued_bytes + self.unsent_bytes
        is_congested = waiting > (low if self._is_congested else self._watermark_bytes)
        if is_congested != self._is_congested:
            self._is_congested = is_congested
            for worker, channel in list(self._outgoing.items()):
                self._put(worker, channel, _CONGESTED if is_congested else _FREE)

    def close(self) -> None:
        """Close all channels, and drop what waits."""
        self._connections.close()
        for channel in (*self._outgoing.values(), *self._incoming.values()):
            channel.close()
        for incoming in self._early:
            incoming.channel.close()
        for waiting in self._unconnected.values():
            waiting.close()

    def _meet(self, peer: Peer) -> None:
        if peer.address is not None:
            self._connections.connect(peer, self._directory.generation)
        early, self._early = self._early, []
        for incoming in early:
            self._take_incoming(incoming)

    def _take_outgoing(self, ready: Outgoing) -> None:
        worker = ready.peer.worker
        if self._directory[worker] != ready.peer:  # it has died since
            ready.channel.close()
            return
        channel = self._outgoing[worker] = ready.channel
        channel.limit_memory(self._unsent_memory_max())
        # The peer says nothing here: the channel is only ever readable at its end.
        self._selector.register(channel, selectors.EVENT_READ, partial(self._serve, worker, channel))
        waiting = self._unconnected.pop(worker, Backlog())
        while waiting and worker in self._outgoing:
            self._put(worker, channel, waiting.popleft())
        waiting.close()
        # weigh() has told only the peers that were connected then.
        if self._is_congested and worker in self._outgoing:
            self._put(worker, channel, _CONGESTED)

    def _take_incoming(self, incoming: Incoming) -> None:
        sender, channel = incoming.introduction.sender, incoming.channel
        match self._directory.judge(sender, incoming.introduction.receiver):
            case Arrival.READ:
                self._incoming[sender] = channel
                self._selector.register(channel, selectors.EVENT_READ, partial(self._hear, sender, channel))
            case Arrival.EARLY:  # not registered: its frames wait in the socket until _meet judges it again
                self._early.append(incoming)
            case Arrival.STALE:
                channel.close()
            case verdict:
                assert_never(verdict)

    def _hear(self, sender: int, channel: Channel) -> None:
        if self._incoming.get(sender) is not channel:  # as in _serve()
            return
        try:
            messages = channel.receive()
        except ChannelClosed as error:
            self._drop(self._incoming.pop(sender))
            self._tell_broken(sender, str(error))
            return
        for message in messages or ():
            kind = message[:1]
            if kind == _FRAME:
                self._directory.received[sender] += 1
                self._receive(message[1:])
            elif kind == _CONGESTED:
                self._directory.congested.add(sender)
            else:
                self._directory.congested.discard(sender)

    def _put(self, worker: int, channel: Channel, message: bytes) -> None:
        try:
            channel.send(message)
        except ChannelClosed as error:  # the message is lost with the channel
            self._lose(worker, channel, error)
            return
        if channel.unsent_bytes:
            self._selector.modify(channel, _READ_AND_WRITE, partial(self._serve, worker, channel))

    def _serve(self, worker: int, channel: Channel) -> None:
        if self._outgoing.get(worker) is not channel:  # dropped by what was ready just before
            return
        try:
            is_all_sent = channel.flush()
            channel.receive()
        except ChannelClosed as error:
            self._lose(worker, channel, error)
            return
        if is_all_sent:
            self._selector.modify(channel, selectors.EVENT_READ, partial(self._serve, worker, channel))

    def _lose(self, worker: int, channel: Channel, error: ChannelClosed) -> None:
        del self._outgoing[worker]
        self._drop(channel)
        self._tell_broken(self._directory[worker].generation, str(error))

    def _tell_broken(self, generation: int, why: str) -> None:
        if self._directory.lose(generation):
            self._broken(generation, why)

    def _drop(self, channel: Channel) -> None:
        self._selector.unregister(channel)
        channel.close()

    def _unsent_memory_max(self) -> int:
        """Return how many bytes may wait in memory for one peer: all peers share the watermark."""
        return self._watermark_bytes // max(1, len(self._directory))
