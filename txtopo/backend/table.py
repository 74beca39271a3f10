"""A state's table as it lies there, looked at without opening it.

Opening a table fences it and makes it if need be. So the start-up check and ``txtopo repair`` look first, and
what they refuse they have not touched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs


@attrs.frozen
class TableDescription:
    """What a table says of itself."""

    topology_id: str
    """The topology that it was made for."""
    state: str
    """The state's name in that topology."""
    incarnation: str
    """The topology's incarnation that it was made in."""
    identity: str
    """An id that no other table made at the same place has."""
    last_txid: int | None
    """The txid of the last write; None before the first."""
    epoch: int
    """The newest epoch that has opened it; 0 if none has."""
    version: int
    """How many versions it has had, counted from 0."""
    misfit: str | None
    """In words how its columns or its kind differ from what the topology declares; None if they don't."""
    damage: str | None = None
    """In words what is wrong with its files, where it can be read all the same."""


class StateTable(ABC):
    """The table of a state that outlives its process.

    *An implementation* must change nothing by being asked. *txtopo* calls :meth:`set_aside`, the one deed here,
    while it holds the lead and nobody has the state open.
    """

    @property
    @abstractmethod
    def address(self) -> str:
        """Where it lies, for people."""

    @abstractmethod
    def look(self) -> TableDescription | None:
        """Return what the table says of itself, read afresh; None if nothing lies there.

        Raises:
            DivergenceError: something lies there that is no table of a txtopo state.
            FailedException: the table cannot be reached.
        """

    @abstractmethod
    def foreign_change(self, since: int | None) -> str | None:
        """Return in words what somebody else has changed, or None if nobody has.

        Args:
            since: the version that the coordinator knows as its own: all later ones are looked at, and whether
                that one is still its own. None, and a version that the table has not got to, stand for
                that of the coordinator's last write.
        """

    @abstractmethod
    def staged_obstacle(self, location: str) -> str | None:
        """Return in words why a staged write can't be finished any more; None if it can.

        Args:
            location: where it was staged.
        """

    @abstractmethod
    def is_kept(self, txid: int | None) -> bool:
        """Whether what the table held after the write of transaction ``txid`` (None: before any) is kept whole."""

    @abstractmethod
    def asides(self) -> list[int]:
        """Return the numbers under which tables were set aside here before."""

    @abstractmethod
    def set_aside(self, number: int) -> None:
        """Move the table out of the way, to a name that ends in ``.before-repair-<number>``.

        Does nothing if it is there already, or if there is no table.

        Raises:
            ConfigError: it cannot be moved; the message says how to do it by hand.
        """
