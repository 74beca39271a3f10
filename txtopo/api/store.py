"""Stores: where a coordinator keeps its durable state.

A store is a small tree of byte values with atomic, durable, fenced writes. It holds metadata and txids, and of data the
rows of the group that was decided last at most, if they are few.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import attrs

VALUE_BYTES_MAX = 512 * 1024
"""The maximum length of a value; ZooKeeper's own limit is slightly below 1 MiB."""


@attrs.frozen
class Put:
    """Set the value at a path; its parents need not exist."""

    path: str
    value: bytes


@attrs.frozen
class Delete:
    """Remove the value at a path and everything below it; no error if there is none."""

    path: str


Change = Put | Delete


class Lead(ABC):
    """The right to write one topology's coordinator state, held by one process at a time.

    *An implementation* must refuse every write with a lost lead, even if its holder does not know of the loss yet.
    *txtopo* guarantees to take the lead before it reads anything that it acts on.
    """

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The epoch: 1 above that of the lead before, or a higher ``epoch_min`` that the caller asked for."""

    @abstractmethod
    def write(self, changes: Sequence[Change]) -> None:
        """Apply all changes in order, as one atomic step, durable on return.

        A store with a limit on the size of one step may split a longer list into several steps; each is atomic, and
        they are applied in order.

        Raises:
            LostLead: another process has taken the lead since; nothing of this step was written.
        """

    @abstractmethod
    def is_held(self) -> bool:
        """Return whether the lead is still held, as far as this process knows."""

    @abstractmethod
    def release(self) -> None:
        """Give up the lead, so that the next caller of ``take_lead`` gets it at once."""


class Store(ABC):
    """A tree of small byte values. Paths are ``"a/b/c"``, without a leading slash."""

    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """Return the value at ``path``, or None."""

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """Return the sorted names directly below ``path``; an empty list if there are none."""

    @abstractmethod
    def take_lead(self, topology_id: str, owner: str, epoch_min: int = 1) -> Lead:
        """Take the lead of a topology and raise its epoch by 1, or to ``epoch_min`` if that is higher.

        The lead may write only to paths below ``topology_id``.

        Args:
            topology_id: id of the topology, without a slash.
            owner: a readable name of this process, for the AlreadyRunning that another process gets.
            epoch_min: the lowest epoch to take: above the epochs in the tables, if the store was wiped.

        Raises:
            AlreadyRunning: a live process holds the lead; the message names its owner and pid.
        """

    @abstractmethod
    def close(self) -> None:
        """Close files or connections, and release leads that are still held."""
