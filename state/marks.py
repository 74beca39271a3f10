"""The mark of a state in another system: whose it is, the epoch that has opened it last, and its last transaction.

It is written in the same transaction of that system as the rows, so that both are there or neither.
"""

from __future__ import annotations

import json
import uuid
from abc import abstractmethod
from typing import Any

import attrs

from txtopo.api.state import StateTable, TableDescription
from txtopo.errors import DivergenceError, LostLead


@attrs.frozen
class Owner:
    """The state that rows are of."""

    topology_id: str
    state: str
    incarnation: str


@attrs.frozen
class Turns:
    """The epochs that have rolled a state back, and those at which its topology has gone back, each with where to."""

    undone: tuple[tuple[int, int], ...] = ()
    turned: tuple[tuple[int, int], ...] = ()

    def undone_to(self, epoch: int) -> int | None:
        """Return the lowest transaction that the state was rolled back to after an epoch; None if it was not."""
        return min((txid for later, txid in self.undone if later > epoch), default=None)

    def turned_to(self, epoch: int) -> int | None:
        """Return the lowest transaction that the topology went back to after an epoch; None if it did not."""
        return min((txid for later, txid in self.turned if later > epoch), default=None)

    def to_json(self) -> str:
        """Return them as text."""
        return json.dumps(attrs.asdict(self))

    @staticmethod
    def of_json(text: str) -> Turns:
        """Return what :meth:`to_json` has written."""
        return Turns(**{name: tuple(map(tuple, pairs)) for name, pairs in json.loads(text).items()})


@attrs.frozen
class Mark:
    """What another system says of one state."""

    owner: Owner
    identity: str
    kind: str
    epoch: int
    txid: int | None
    turns: Turns = Turns()

    @staticmethod
    def new(owner: Owner, kind: str, epoch: int) -> Mark:
        """Return the mark of a state that is made now."""
        return Mark(owner, uuid.uuid4().hex, kind, epoch, None)

    @staticmethod
    def of_row(row: dict[str, Any]) -> Mark:
        """Return what :meth:`to_row` has made a row of."""
        owner = Owner(row["topology"], row["state"], row["incarnation"])
        return Mark(owner, row["identity"], row["kind"], row["epoch"], row["txid"], Turns.of_json(row["turns"]))

    def to_row(self) -> dict[str, Any]:
        """Return it as texts and numbers by name."""
        return {
            "topology": self.owner.topology_id,
            "state": self.owner.state,
            "incarnation": self.owner.incarnation,
            "identity": self.identity,
            "kind": self.kind,
            "turns": self.turns.to_json(),
            "epoch": self.epoch,
            "txid": self.txid,
        }

    def described(self, misfit: str | None = None) -> TableDescription:
        """Return the description of the table; ``misfit`` says what of it the state can't use."""
        owner, txid = self.owner, self.txid
        return TableDescription(
            owner.topology_id, owner.state, owner.incarnation, self.identity, txid, self.epoch, txid or 0, misfit
        )

    def rolled_back(self, txid: int, epoch: int) -> Mark:
        """Return the mark after its rows were rolled back to a transaction."""
        return attrs.evolve(self, txid=txid, turns=attrs.evolve(self.turns, undone=(*self.turns.undone, (epoch, txid))))

    def turned(self, txid: int, epoch: int) -> Mark:
        """Return the mark after its topology has gone back to a transaction."""
        return attrs.evolve(self, turns=attrs.evolve(self.turns, turned=(*self.turns.turned, (epoch, txid))))

    def check_epoch(self, epoch: int, address: str) -> None:
        """Raise LostLead if a newer epoch than this one has opened the state."""
        if self.epoch > epoch:
            raise LostLead(
                f"{address}, of state {self.owner.state!r} of topology {self.owner.topology_id!r}, was opened by a "
                f"coordinator of epoch {self.epoch}; this one has epoch {epoch} and writes nothing more"
            )

    def check_owner(self, owner: Owner, address: str) -> None:
        """Raise DivergenceError if it is of another state, topology or incarnation."""
        if self.owner != owner:
            whose = f"state {self.owner.state!r} of topology {self.owner.topology_id!r}"
            raise DivergenceError(
                f"{address} belongs to {whose}, incarnation {self.owner.incarnation}, and is at transaction "
                f"{self.txid}; this is state {owner.state!r} of topology {owner.topology_id!r}, incarnation "
                f"{owner.incarnation}: give the state a place of its own",
                txid=self.txid,
            )

    def check_seen(self, txid_seen: int | None, address: str) -> None:
        """Raise DivergenceError if it is behind a transaction that was acknowledged.

        A server that took over from a failed one may lack what that one has acknowledged. To write on would leave a gap
        that nobody finds.
        """
        if (self.txid or 0) < (txid_seen or 0):
            raise DivergenceError(
                f"{address} is at transaction {self.txid or 0}, but the server had acknowledged {txid_seen}: it was "
                "restored, or a replica took over that did not have everything. Restore it, or run 'txtopo repair'",
                txid=self.txid,
            )


class MarkedTable(StateTable):
    """A table in another system, of which a mark tells what happened to it."""

    @abstractmethod
    def mark(self) -> Mark | None:
        """Return the table's mark; None if there is none."""

    def foreign_change(self, since: int | None) -> None:
        """Return None: the mark does not say what others have written."""
        del since

    def obstacle(self, txid: int, note: Any) -> None:
        """Return None: the rows are in the note."""
        del txid, note

    def undone_to(self, epoch: int) -> int | None:
        """Return where a later epoch has rolled the table back to; see :meth:`StateTable.undone_to`."""
        mark = self.mark()
        return None if mark is None else mark.turns.undone_to(epoch)

    def turned_to(self, epoch: int) -> int | None:
        """Return where the topology has gone back to later; see :meth:`StateTable.turned_to`."""
        mark = self.mark()
        return None if mark is None else mark.turns.turned_to(epoch)
