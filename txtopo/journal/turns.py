"""Turns: an equal txid is the same transaction only in the same timeline.

A rewind or a repair that goes back makes a *turn*: transactions after it begin anew, with the same txids, perhaps other
input and other code. So what was restored from a backup may be at a txid that fits, and yet be of a timeline that a
turn has undone:

1. At epoch 3 the topology is at transaction 8, and its coordinator state is backed up.
2. At epoch 4 a rewind goes to 5, and at epoch 5 other transactions 6 to 8 are committed.
3. The backup is restored. Tables and coordinator state are at 8, and the coordinator state's metadata says where the
   *former* transaction 8 ended: the next one would lose or double what lies between the two.

A topology or a state that is *renamed* stays in its timeline, and so do its transactions; what was recorded before is
read by the names since.

A table knows the turns, with those that rolled it back, and the newest epoch that has opened it. Coordinator state and
journal know their last epoch and their turns, each with the tables that it opened. So both ways can be told: a table
with a turn of a later epoch, and a table that a turn of theirs should have opened.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from txtopo.api.state import StateTable, TableDescription


@attrs.frozen
class Turn:
    """A rewind or a repair, after which transactions began anew."""

    epoch: int
    """The epoch that made it."""
    txid: int
    """The last transaction that stayed."""
    tables: tuple[str, ...]
    """The identities of the tables that it opened."""


@attrs.frozen
class Rename:
    """Other names for a topology or for some of its states."""

    txid: int
    """The last transaction that was committed under the former ones."""
    former: str
    """The topology's id before."""
    topology: str
    """Its id since; the same if it stays."""
    states: Mapping[str, str]
    """By the new name of each renamed state, the one before."""

    @property
    def is_of_id(self) -> bool:
        """Whether the topology gets another id."""
        return self.former != self.topology

    @property
    def since(self) -> dict[str, str]:
        """By the former name of each renamed state, the one since."""
        return {former: name for name, former in self.states.items()}

    @property
    def text(self) -> str:
        """It in words."""
        of_id = [f"topology {self.former!r} became {self.topology!r}"] if self.is_of_id else []
        return ", ".join([*of_id, *(f"state {former!r} became {name!r}" for name, former in self.states.items())])


@attrs.frozen
class Timeline:
    """What coordinator state or a journal has gone through."""

    epoch: int = 0
    """The last epoch that it knows of."""
    turns: tuple[Turn, ...] = ()
    """By rising epoch and txid: a turn that goes back further hides the earlier ones."""
    renames: tuple[Rename, ...] = ()
    """Oldest first; no turn takes one back."""

    def after(self, turn: Turn) -> Timeline:
        """Return this timeline after a further turn."""
        return Timeline(turn.epoch, (*(each for each in self.turns if each.txid < turn.txid), turn), self.renames)

    def shared_until(self, table: StateTable, description: TableDescription, txid: int, last_txid: int) -> int | None:
        """Return the last transaction up to which a table has the same past; None if it has up to ``txid``.

        ``last_txid`` is the last one up to ``txid``, of this timeline, that has written to the table.
        """
        undone = [
            turn.txid for turn in self.turns if turn.epoch > description.epoch and description.identity in turn.tables
        ]
        ends = [
            (table.turned_to(self.epoch), txid),
            *((end, last_txid) for end in (table.undone_to(self.epoch), *undone)),
        ]
        return min((end for end, last in ends if end is not None and last > end), default=None)


UNKNOWN = Timeline()
"""That of what has gone through no epoch yet."""
