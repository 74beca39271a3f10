"""Which epochs a worker knows of, whose frames it reads, how many it has exchanged with each, and where too much waits.

Pure.

The driver tells every worker of its peers, each in its own time. So a frame may arrive from an epoch that its receiver
has not been told of yet, and from one that has died since: the first waits, the second is dropped.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Sequence

from txtopo.plain.transport.messages import Peer


class Arrival(enum.Enum):
    """What becomes of frames that another epoch sends to this worker."""

    READ = "read"
    EARLY = "early"
    """The driver has not told of the sender yet: they wait."""
    STALE = "stale"
    """The sender was declared dead, or they were meant for a former epoch of this worker: they are dropped."""


class Roster:
    """The peers of one worker, as far as the driver has told it."""

    def __init__(self) -> None:
        self.epoch = -1
        """This worker's own epoch; -1 until it is welcomed."""
        self.sent: Counter[int] = Counter()
        """By epoch, how many frames it was sent."""
        self.received: Counter[int] = Counter()
        """By epoch, how many frames were received from it."""
        self.congested: set[int] = set()
        """The epochs that have said that too much waits for them."""
        self._peers: dict[int, Peer] = {}

    def __iter__(self) -> Iterator[Peer]:
        """Iterate over the peers."""
        return iter(self._peers.values())

    def __len__(self) -> int:
        """Return how many peers there are."""
        return len(self._peers)

    def __getitem__(self, worker: int) -> Peer:
        """Return the peer that another worker is now."""
        return self._peers[worker]

    @property
    def epochs(self) -> dict[int, int]:
        """By worker, the epoch that it is in, this one's own left out."""
        return {peer.worker: peer.epoch for peer in self}

    def welcome(self, epoch: int, peers: Sequence[Peer]) -> None:
        """Begin as ``epoch``."""
        self.epoch = epoch
        self._peers = {peer.worker: peer for peer in peers}

    def join(self, peer: Peer) -> None:
        """Take note of where a peer listens."""
        self._peers[peer.worker] = peer

    def replace(self, dead: int, successor: Peer) -> None:
        """Forget an epoch that has died, for its successor."""
        self.sent.pop(dead, None)
        self.received.pop(dead, None)
        self.congested.discard(dead)
        self._peers[successor.worker] = successor

    def judge(self, sender: int, receiver: int) -> Arrival:
        """Return what becomes of frames from epoch ``sender`` that are meant for epoch ``receiver``."""
        if self.epoch < 0:
            return Arrival.EARLY
        known = {peer.epoch for peer in self}
        if receiver != self.epoch:
            return Arrival.STALE
        if sender in known:
            return Arrival.READ
        # Epochs only rise: one above all that are known has begun, and one below has been replaced.
        return Arrival.EARLY if sender > max(known, default=-1) else Arrival.STALE
