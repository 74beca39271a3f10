"""What a worker knows of its peers: whose frames it reads, how many were exchanged, and who is congested. Pure.

Workers hear the driver's news at different times. So a frame may arrive from a generation that its receiver does not
know yet, and from one that has died since: the first waits, the second is dropped.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Sequence

from txtopo.workers.messages import Peer


class Arrival(enum.Enum):
    """What happens to frames that another generation sends to this worker."""

    READ = "read"
    EARLY = "early"
    """They wait: the driver has not announced the sender yet."""
    STALE = "stale"
    """They are dropped: the sender is dead, or they are for an earlier generation of this worker."""


class PeerDirectory:
    """The peers of one worker that the driver has announced."""

    def __init__(self) -> None:
        self.generation = -1
        """This worker's generation; -1 until it is welcomed."""
        self.sent: Counter[int] = Counter()
        """By generation, how many frames were sent to it."""
        self.received: Counter[int] = Counter()
        """By generation, how many frames were received from it."""
        self.congested: set[int] = set()
        """The generations that are above their watermark."""
        self._peers: dict[int, Peer] = {}

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def __len__(self) -> int:
        return len(self._peers)

    def __getitem__(self, worker: int) -> Peer:
        return self._peers[worker]

    @property
    def generations(self) -> dict[int, int]:
        """By worker, the generation of each peer."""
        return {peer.worker: peer.generation for peer in self}

    def welcome(self, generation: int, peers: Sequence[Peer]) -> None:
        """Start as ``generation``, with these peers."""
        self.generation = generation
        self._peers = {peer.worker: peer for peer in peers}

    def join(self, peer: Peer) -> None:
        """Record where a peer listens."""
        self._peers[peer.worker] = peer

    def replace(self, dead: int, successor: Peer) -> None:
        """Replace a generation that has died by its successor."""
        # A worker that died congested can't take that back: the spouts here would pause forever.
        self.sent.pop(dead, None)
        self.received.pop(dead, None)
        self.congested.discard(dead)
        self._peers[successor.worker] = successor

    def lose(self, generation: int) -> bool:
        """Record that a channel from or to a generation has ended; return whether the driver must be told.

        It is, unless it has announced the death of that generation, which is the usual cause.
        """
        # It can't take its congestion back: as in replace().
        self.congested.discard(generation)
        return any(peer.generation == generation for peer in self)

    def judge(self, sender: int, receiver: int) -> Arrival:
        """Return what happens to frames from generation ``sender`` for generation ``receiver``."""
        if self.generation < 0:  # before the welcome, nobody is known
            return Arrival.EARLY
        alive = {peer.generation for peer in self}
        if receiver != self.generation:
            return Arrival.STALE
        if sender in alive:
            return Arrival.READ
        # Numbers only rise: a sender above all known ones is new, and any other one was replaced.
        return Arrival.EARLY if sender > max(alive, default=-1) else Arrival.STALE
