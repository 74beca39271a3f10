"""A worker's peers: a channel to each that it sends to, one from each that it receives from, and who is congested.

Everything here runs in the worker's one thread, and never waits for a peer: what a peer does not take waits here.
"""

from __future__ import annotations

import contextlib
import selectors
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import assert_never

from txtopo.network.channel import Backlog, Channel, ChannelClosed
from txtopo.workers.meetings import Incoming, Meetings, Outgoing
from txtopo.workers.messages import Peer, Welcome
from txtopo.workers.roster import Arrival, Roster

_FRAME = b"f"
_CONGESTED = b"c"
_FREE = b"u"


class Peers:
    """Exchanges frames with the peers that the driver has announced, in channels that are registered in ``selector``.

    The registered data of a channel is what to call when it is ready. ``receive`` is called with each frame that has
    come, and ``wake``, in any thread, when :meth:`take_ready` has something to take.
    """

    def __init__(
        self,
        meetings: Meetings,
        selector: selectors.BaseSelector,
        watermark_bytes: int,
        receive: Callable[[bytes], None],
    ) -> None:
        self._meetings = meetings
        self._selector = selector
        self._watermark_bytes = watermark_bytes
        self._receive = receive
        self._roster = Roster()
        self._outgoing: dict[int, Channel] = {}
        self._unconnected: dict[int, Backlog] = {}
        """By worker, the messages that wait for its channel."""
        self._incoming: dict[int, Channel] = {}
        """By the incarnation of the sender."""
        self._early: list[Incoming] = []
        """Channels of incarnations that the driver has not announced yet."""
        self._is_congested = False

    @property
    def sent(self) -> Counter[int]:
        """By incarnation, how many frames were sent to it."""
        return self._roster.sent

    @property
    def received(self) -> Counter[int]:
        """By incarnation, how many frames were received from it."""
        return self._roster.received

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait to be sent."""
        unsent = sum(channel.unsent_bytes for channel in self._outgoing.values())
        return unsent + sum(waiting.bytes for waiting in self._unconnected.values())

    @property
    def is_congested(self) -> bool:
        """Whether too much waits here or at a peer."""
        return self._is_congested or bool(self._roster.congested)

    def welcome(self, welcome: Welcome) -> None:
        """Connect to the peers that the driver's welcome names."""
        self._roster.welcome(welcome.incarnation, welcome.peers)
        for peer in welcome.peers:
            self._meet(peer)

    def join(self, peer: Peer) -> None:
        """Connect to a peer if it has started, and read from it; the channel from it may have come early."""
        self._roster.join(peer)
        self._meet(peer)

    def replace(self, dead: int, successor: Peer) -> None:
        """Drop all that is meant for an incarnation that has died; what is sent from now on is for its successor.

        Nothing of the successor is read before :meth:`join`.
        """
        # Only the roster knows whose incarnation ``dead`` was, until it is replaced.
        for worker in [peer.worker for peer in self._roster if peer.incarnation == dead]:
            self._unconnected.pop(worker, Backlog()).close()
            if worker in self._outgoing:
                self._drop(self._outgoing.pop(worker))
        if dead in self._incoming:
            self._drop(self._incoming.pop(dead))
        self._roster.replace(dead, successor)

    def take_ready(self) -> None:
        """Take the channels on which peers have been met."""
        for ready in self._meetings.take():
            if isinstance(ready, Outgoing):
                self._take_outgoing(ready)
            else:
                self._take_incoming(ready)

    def send(self, worker: int, frame: bytes) -> None:
        """Send a frame to a worker; it waits here while that worker has no channel, or does not read."""
        # Counted before it leaves: until the receiver has counted it, too, the driver does not end the run.
        self._roster.sent[self._roster[worker].incarnation] += 1
        message = _FRAME + frame
        channel = self._outgoing.get(worker)
        if channel is None:
            if worker not in self._unconnected:
                self._unconnected[worker] = Backlog(self._unsent_memory_max())
            self._unconnected[worker].append(message)
        else:
            self._put(channel, message)

    def weigh(self, queued_bytes: int) -> None:
        """Tell the peers when more than the watermark waits here, and when no more than half of it does.

        Two bounds, because with one a worker at the watermark would tell all peers in every pass.
        """
        low = self._watermark_bytes // 2
        waiting = queued_bytes + self.unsent_bytes
        is_congested = waiting > (low if self._is_congested else self._watermark_bytes)
        if is_congested != self._is_congested:
            self._is_congested = is_congested
            for channel in self._outgoing.values():
                self._put(channel, _CONGESTED if is_congested else _FREE)

    def close(self) -> None:
        """Close all channels, and drop what waits."""
        self._meetings.close()
        for channel in (*self._outgoing.values(), *self._incoming.values()):
            channel.close()
        for incoming in self._early:
            incoming.channel.close()
        for waiting in self._unconnected.values():
            waiting.close()

    def _meet(self, peer: Peer) -> None:
        """Connect to a peer of the roster, and judge again the channels that came early."""
        if peer.address is not None:
            self._meetings.connect(peer, self._roster.incarnation)
        early, self._early = self._early, []
        for incoming in early:
            self._take_incoming(incoming)

    def _take_outgoing(self, ready: Outgoing) -> None:
        worker = ready.peer.worker
        if self._roster[worker] != ready.peer:  # it has died since
            ready.channel.close()
            return
        self._outgoing[worker] = ready.channel
        # If the peer closes this channel, it is gone or counts us as dead. The driver will say which.
        ready.channel.limit_memory(self._unsent_memory_max())
        waiting = self._unconnected.pop(worker, Backlog())
        while waiting:
            self._put(ready.channel, waiting.popleft())
        waiting.close()
        # weigh() has told only the peers that were connected then.
        if self._is_congested:
            self._put(ready.channel, _CONGESTED)

    def _take_incoming(self, incoming: Incoming) -> None:
        sender, channel = incoming.introduction.sender, incoming.channel
        match self._roster.judge(sender, incoming.introduction.receiver):
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
        try:
            messages = channel.receive()
        except ChannelClosed:  # not yet a death: the driver decides on that
            self._drop(channel)
            return
        for message in messages or ():
            kind = message[:1]
            if kind == _FRAME:
                self._roster.received[sender] += 1
                self._receive(message[1:])
            elif kind == _CONGESTED:
                self._roster.congested.add(sender)
            else:
                self._roster.congested.discard(sender)

    def _put(self, channel: Channel, message: bytes) -> None:
        try:
            channel.send(message)
        except ChannelClosed:
            return  # the peer has died, as the driver will say; the message is lost with it
        if channel.unsent_bytes:
            with contextlib.suppress(KeyError):  # it is registered already
                self._selector.register(channel, selectors.EVENT_WRITE, partial(self._flush, channel))

    def _flush(self, channel: Channel) -> None:
        try:
            if not channel.flush():
                return
        except ChannelClosed:  # nothing more can be sent; the driver will say that the peer has died
            pass
        self._unregister(channel)

    def _drop(self, channel: Channel) -> None:
        self._unregister(channel)
        channel.close()

    def _unregister(self, channel: Channel) -> None:
        with contextlib.suppress(KeyError, ValueError):  # not registered, or closed before
            self._selector.unregister(channel)

    def _unsent_memory_max(self) -> int:
        """Return how many bytes may wait in memory for one peer: all peers share the watermark."""
        return self._watermark_bytes // max(1, len(self._roster))
