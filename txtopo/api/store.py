"""Stores: where a coordinator keeps the little that must outlive it.

A store is a small tree of byte values with atomic, durable, fenced writes. It holds metadata and txids,
never data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import attrs

VALUE_BYTES_MAX = 512 * 1024
"""The longest value a store takes; ZooKeeper's own limit is a little under 1 MiB."""


@attrs.frozen
class Put:
    """Set the value at a path, whose parents need not exist."""

    path: str
    value: bytes


@attrs.frozen
class Delete:
    """Remove the value at a path and all below it, if there is one."""

    path: str


Change = Put | Delete


class Lead(ABC):
    """The right to write one topology's coordinator state, held by one process at a time.

    *An implementation* must refuse every write of a lead that has been lost, whatever its holder believes.
    *txtopo* guarantees to take the lead before it reads anything it will act upon.
    """

    @property
    @abstractmethod
    def epoch(self) -> int:
        """Higher than that of any lead taken before: by one, unless a higher one was asked for."""

    @abstractmethod
    def write(self, changes: Sequence[Change]) -> None:
        """Apply all changes in order, as one atomic step, durable on return.

        A store with a limit on the size of one step may cut a longer list into several steps; each is
        atomic, and they are applied in order.

        Raises:
            LostLead: another process has taken the lead since; nothing was written (of this step).
        """

    @abstractmethod
    def is_held(self) -> bool:
        """Whether the lead is still held, as far as is known here."""

    @abstractmethod
    def release(self) -> None:
        """Give the lead up; the next one to ask gets it at once."""


class Store(ABC):
    """A tree of small byte values. Paths are ``"a/b/c"``, without a leading slash."""

    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """Return the value at ``path``, or None."""

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """Return the sorted names directly below ``path``; empty where there are none."""

    @abstractmethod
    def take_lead(self, topology_id: str, owner: str, epoch_min: int = 1) -> Lead:
        """Take the lead of a topology, counting its epoch up by one, or up to ``epoch_min`` if that is higher.

        The paths that the lead may write are those below ``topology_id``.

        Args:
            topology_id: id of the topology, without a slash.
            owner: what names this process to people, for the refusal another one gets.
            epoch_min: the least epoch to begin with: above what tables know, if the store was wiped.

        Raises:
            AlreadyRunning: a live process holds it; the message names it by owner and pid.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of files or connections. Leads that were not released are released."""
