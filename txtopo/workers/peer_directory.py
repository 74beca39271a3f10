"""What a worker knows of its peers: whose frames it reads, how many were exchanged, and who is congested. Pure.

Workers hear the driver's news at different times. So a frame may arrive from an incarnation that its receiver does not
know yet, and from one that has died since: the first waits, the second is dropped.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Sequence

from txtopo.workers.messages import Peer


class Arrival(enum.Enum):
    """What happens to frames that another incarnation sends to this worker."""

    READ = "read"
    EARLY = "early"
    """They wait: the driver has not announced the sender yet."""
    STALE = "stale"
    """They are dropped: the sender is dead, or they are for an earlier incarnation of this worker."""


class PeerDirectory:
    """The peers of one worker that the driver has announced."""

    def __init__(self) -> None:
        self.incarnation = -1
        """This worker's incarnation; -1 until it is welcomed."""
        self.sent: Counter[int] = Counter()
        """By incarnation, how many frames were sent to it."""
        self.received: Counter[int] = Counter()
        """By incarnation, how many frames were received from it."""
        self.congested: set[int] = set()
        """The incarnations that are above their watermark."""
        self._peers: dict[int, Peer] = {}

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def __len__(self) -> int:
        return len(self._peers)

    def __getitem__(self, worker: int) -> Peer:
        return self._peers[worker]

    @property
    def incarnations(self) -> dict[int, int]:
        """By worker, the incarnation of each peer."""
        return {peer.worker: peer.incarnation for peer in self}

    def welcome(self, incarnation: int, peers: Sequence[Peer]) -> None:
        """Start as ``incarnation``, with these peers."""
        self.incarnation = incarnation
        self._peers = {peer.worker: peer for peer in peers}

    def join(self, peer: Peer) -> None:
        """Record where a peer listens."""
        self._peers[peer.worker] = peer

    def replace(self, dead: int, successor: Peer) -> None:
        """Replace an incarnation that has died by its successor."""
        # A worker that died congested can't take that back: the spouts here would pause forever.
        self.sent.pop(dead, None)
        self.received.pop(dead, None)
        self.congested.discard(dead)
        self._peers[successor.worker] = successor

    def lose(self, incarnation: int) -> bool:
        """Record that a channel from or to an incarnation has ended; return whether the driver must be told.

        It is, unless it has announced the death of that incarnation, which is the usual cause.
        """
        # It can't take its congestion back: as in replace().
        self.congested.discard(incarnation)
        return any(peer.incarnation == incarnation for peer in self)

    def judge(self, sender: int, receiver: int) -> Arrival:
        """Return what happens to frames from incarnation ``sender`` for incarnation ``receiver``."""
        if self.incarnation < 0:  # before the welcome, nobody is known
            return Arrival.EARLY
        alive = {peer.incarnation for peer in self}
        if receiver != self.incarnation:
            return Arrival.STALE
        if sender in alive:
            return Arrival.READ
        # Numbers only rise: a sender above all known ones is new, and any other one was replaced.
        return Arrival.EARLY if sender > max(alive, default=-1) else Arrival.STALE
