"""Inspects a state's table without opening it.

Opening a table fences it, and creates it if it is missing. So the check at start-up and ``txtopo repair`` inspect it
first, and do not change a table that they refuse.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs


@attrs.frozen
class TableDescription:
    """The properties stored in a table."""

    topology_id: str
    """The topology that it was created for."""
    state: str
    """The state's name in that topology."""
    incarnation: str
    """The topology's incarnation that created it."""
    identity: str
    """An id that differs from that of any other table ever created at the same place."""
    last_txid: int | None
    """The txid of the last write; None before the first."""
    epoch: int
    """The newest epoch that has opened it; 0 if none has."""
    version: int
    """Its version, counted from 0."""
    misfit: str | None
    """How its columns or its kind differ from the topology's declaration, in words; None if they don't."""
    damage: str | None = None
    """A problem with its files that does not prevent reading it, in words; None if there is none."""


class StateTable(ABC):
    """The table of a state that outlives its process.

    *An implementation* must change nothing in any method but :meth:`set_aside`. *txtopo* guarantees to call
    :meth:`set_aside` only while it holds the lead and nobody has the state open.
    """

    @property
    @abstractmethod
    def address(self) -> str:
        """The table's path or URL, for messages."""

    @abstractmethod
    def look(self) -> TableDescription | None:
        """Return the table's description, read anew; None if there is no table.

        Raises:
            DivergenceError: something other than a table of a txtopo state is at this place.
            FailedException: the table cannot be reached.
        """

    @abstractmethod
    def foreign_change(self, since: int | None) -> str | None:
        """Describe changes by other writers; None if there are none.

        Args:
            since: the last version that the coordinator state records; this version and all later ones are checked.
                None, or a version above the table's, means the version of the coordinator's last write.
        """

    @abstractmethod
    def staged_obstacle(self, location: str) -> str | None:
        """Describe why a staged write can't be finished any more, as a relative clause; None if it can.

        Args:
            location: the staged write's location.
        """

    @abstractmethod
    def is_kept(self, txid: int | None) -> bool:
        """Return whether the version after the write of transaction ``txid`` (None: before any) is still complete."""

    @abstractmethod
    def asides(self) -> list[int]:
        """Return the numbers under which tables were set aside here before."""

    @abstractmethod
    def set_aside(self, number: int) -> None:
        """Move the table to a name that ends in ``.before-repair-<number>``.

        Does nothing if it is there already, or if there is no table.

        Raises:
            ConfigError: the table cannot be moved; the message explains how to do it by hand.
        """
