"""The coordinator's own durable state: a few small values in a store.

========================  ===================================================================
``<topology>/life``       the incarnation: drawn when the state was begun; tables remember it
``<topology>/spout``      whether the spout is a repeatable or an opaque one
``<topology>/committed``  the last committed txid, its metadata, and each state's table and txid
``<topology>/metadata/N`` the metadata of transaction N, begun and not yet committed
``<topology>/group``      the commit group whose writes are under way, if one is
``<topology>/repair``     what a repair is about to do, while it does it
``…/before-repair-N/…``   what the N-th repair has replaced
``<topology>/recovered``  the epoch that recovered last
``<topology>/source/…``   what the spout's coordinator keeps itself
``<topology>/pace``       how much of a job's time a transaction took, in microseconds; written with the commits
========================  ===================================================================

A group is written down before its first Delta write and struck out after the last, in the same step that
counts it as committed. So whatever a crash leaves behind can be seen in the tables: a group none of whose
writes landed never was; one with a write that landed is finished from what was staged.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from txtopo.api.state import StagedWrite
from txtopo.api.store import VALUE_BYTES_MAX, Change, Delete, Lead, Put, Store
from txtopo.core.events import TransactionMetadata
from txtopo.errors import DivergenceError, RuleError
from txtopo.records import from_json, to_json

_INCARNATION, _SPOUT, _COMMITTED, _METADATA, _GROUP = "life", "spout", "committed", "metadata", "group"
_REPAIR = "repair"
_ASIDE = "before-repair-"
_RECOVERED = "recovered"
_SOURCE = "source"
_TRANSACTION_TIME = "pace"


@attrs.frozen
class StateMark:
    """What the coordinator state knows of a state's table: which it is, and the last txid written to it."""

    identity: str
    txid: int | None
    version: int | None = None
    """The version of the table that this coordinator made last; None if it was not noted."""


@attrs.frozen
class CommittedMark:
    """The last committed transaction."""

    txid: int = 0
    metadata: Any = None
    states: Mapping[str, StateMark] = attrs.field(factory=dict)


@attrs.frozen
class GroupMark:
    """A commit group whose writes are under way."""

    first: int
    last: int
    states: tuple[str, ...]
    """The states it writes, in the order it writes them."""
    staged: tuple[StagedWrite, ...]
    """What a group with several states has staged; empty for one state."""
    metadata: Any
    """The metadata of its last transaction."""


class CoordinatorState:
    """Reads and writes one topology's coordinator state.

    Args:
        store: where it is kept.
        lead: the right to write it.
        topology_id: whose state it is.
    """

    def __init__(self, store: Store, lead: Lead, topology_id: str) -> None:
        self._store = store
        self._lead = lead
        self.topology_id = topology_id
        self._known_incarnation: str | None = self._read(_INCARNATION)
        self._spout: str | None = self._read(_SPOUT)
        self.incarnation = self._known_incarnation or uuid.uuid4().hex
        self._kept_us = self._learnt_us = self.transaction_us()

    @property
    def epoch(self) -> int:
        """The epoch of the lead."""
        return self._lead.epoch

    @property
    def is_begun(self) -> bool:
        """Whether there is coordinator state; otherwise its incarnation is only drawn, and not yet kept."""
        return self._known_incarnation is not None

    @property
    def source_path(self) -> str:
        """The path that the spout's coordinator may write below."""
        return self._path(_SOURCE)

    def begin(self) -> None:
        """Keep the incarnation and the kind of the spout, if they are not kept yet: before the first table is made."""
        drawn = {_INCARNATION: self.incarnation, _SPOUT: self._spout}
        new = {name: value for name, value in drawn.items() if value is not None and self._read(name) is None}
        if new:
            self._lead.write([Put(self._path(name), _encode(value)) for name, value in new.items()])
        self._known_incarnation = self.incarnation

    def committed(self) -> CommittedMark:
        """Return the last committed transaction."""
        value = self._read(_COMMITTED)
        return CommittedMark() if value is None else from_json(value, CommittedMark)

    def begun(self, committed: int) -> tuple[TransactionMetadata, ...]:
        """Return the transactions that were begun and are not committed, in order.

        Raises:
            DivergenceError: one of them is missing.
        """
        begun = []
        for name in self._store.children(self._path(_METADATA)):
            txid = int(name)
            if txid > committed:
                begun.append(TransactionMetadata(txid, self._read(f"{_METADATA}/{name}")))
        for expected, transaction in enumerate(begun, committed + 1):
            if transaction.txid != expected:
                raise DivergenceError(
                    f"the metadata of transaction {expected} is missing, that of {transaction.txid} is there; "
                    f"the coordinator state of {self.topology_id!r} is damaged: restore it together with the tables"
                )
        return tuple(begun)

    def group(self) -> GroupMark | None:
        """Return the commit group that was under way, or None."""
        value = self._read(_GROUP)
        return None if value is None else from_json(value, GroupMark)

    def save_metadata(self, begun: Sequence[TransactionMetadata]) -> None:
        """Make the metadata of begun transactions durable."""
        self._lead.write([Put(self._metadata_path(each.txid), _encode(each.metadata)) for each in begun])

    def begin_group(self, mark: GroupMark) -> None:
        """Write down that a group's writes are about to begin."""
        self._lead.write([Put(self._path(_GROUP), _encode(to_json(mark)))])

    def confirm_recovery(self) -> None:
        """Write that this epoch has recovered, which it can only while it leads: so what it has read is true."""
        self._lead.write([Put(self._path(_RECOVERED), _encode(self.epoch))])

    def drop_group(self) -> None:
        """Strike out a group none of whose writes landed."""
        self._lead.write([Delete(self._path(_GROUP))])

    def commit(self, mark: CommittedMark, first: int) -> None:
        """Count the transactions from ``first`` to that of ``mark`` as committed, and forget their metadata."""
        changes: list[Change] = [
            Put(self._path(_COMMITTED), _encode(to_json(mark))),
            Delete(self._path(_GROUP)),
        ]
        changes += [Delete(self._metadata_path(txid)) for txid in range(first, mark.txid + 1)]
        self._write_with_transaction_time(changes)

    def transaction_us(self) -> int | None:
        """Return how much of a job's time a transaction took, as far as it was kept."""
        value = self._read(_TRANSACTION_TIME)
        return value if isinstance(value, int) and value > 0 else None

    def note_transaction_us(self, transaction_us: int | None) -> None:
        """Learn that from the run; it is kept with the next commit, which costs no step of its own."""
        self._learnt_us = transaction_us

    def save_transaction_us(self) -> None:
        """Keep what was learnt since the last commit, if anything was."""
        self._write_with_transaction_time([])

    def _write_with_transaction_time(self, changes: list[Change]) -> None:
        learnt_us = self._learnt_us
        if learnt_us is not None and learnt_us != self._kept_us:
            changes.append(Put(self._path(_TRANSACTION_TIME), _encode(learnt_us)))
        if changes:
            self._lead.write(changes)
            self._kept_us = learnt_us

    def confirm_lead(self) -> None:
        """Find out whether the lead is still held.

        Raises:
            LostLead: it is not.
        """
        self._lead.write([])

    def check_spout(self, kind: str) -> None:
        """Refuse a spout of another kind than the one whose metadata is kept here.

        Args:
            kind: ``repeatable`` or ``opaque``.

        Raises:
            DivergenceError: it was the other kind before.
        """
        if self._spout is None:
            self._spout = kind
        elif self._spout != kind:
            raise DivergenceError(
                f"topology {self.topology_id!r} has run with a spout that is {self._spout} up to transaction "
                f"{self.committed().txid}; this one is {kind}, whose metadata means something else. Go on with the "
                "former spout, or give the topology another id and new tables"
            )

    def repair(self) -> Any:
        """Return what a repair that was cut short has written down, None if none was."""
        return self._read(_REPAIR)

    def begin_repair(self, plan: Any) -> None:
        """Write down what a repair is about to do; no run begins until it is done."""
        self._lead.write([Put(self._path(_REPAIR), _encode(plan))])

    def end_repair(self, mark: CommittedMark) -> None:
        """Count a repair as done that has left what is begun and under way as it was."""
        self._lead.write([Put(self._path(_COMMITTED), _encode(to_json(mark))), Delete(self._path(_REPAIR))])

    def rewrite(self, incarnation: str, spout: str, mark: CommittedMark, number: int) -> None:
        """Replace the coordinator state; what was there is kept aside. Ends a repair.

        Args:
            incarnation: the incarnation of the tables.
            spout: ``repeatable`` or ``opaque``.
            mark: what is committed from now on.
            number: what is set aside goes below ``before-repair-<number>``.
        """
        names = (_INCARNATION, _SPOUT, _COMMITTED, _GROUP, _METADATA)
        changes: list[Change] = [
            *self._set_aside_changes(names, number),
            Put(self._path(_INCARNATION), _encode(incarnation)),
        ]
        changes += [Put(self._path(_SPOUT), _encode(spout)), Put(self._path(_COMMITTED), _encode(to_json(mark)))]
        self._lead.write([*changes, Delete(self._path(_REPAIR))])

    def set_aside(self, number: int) -> None:
        """Move all coordinator state below ``before-repair-<number>``. Ends a repair."""
        names = [name for name in self._store.children(self.topology_id) if not name.startswith(_ASIDE)]
        changes = self._set_aside_changes([name for name in names if name != _REPAIR], number)
        self._lead.write([*changes, Delete(self._path(_REPAIR))])

    def asides(self) -> list[int]:
        """Return the numbers under which coordinator state was set aside before."""
        names = self._store.children(self.topology_id)
        return sorted(int(name.removeprefix(_ASIDE)) for name in names if name.startswith(_ASIDE))

    def _set_aside_changes(self, names: Sequence[str], number: int) -> list[Change]:
        """Return copies of all values below some names first, and then their removal."""
        copies: list[Change] = []
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            value = self._store.read(self._path(name))
            aside = self._path(f"{_ASIDE}{number}/{name}")
            if value is not None and self._store.read(aside) is None:
                copies.append(Put(aside, value))
            waiting += [f"{name}/{child}" for child in self._store.children(self._path(name))]
        return [*copies, *(Delete(self._path(name)) for name in names)]

    def _path(self, name: str) -> str:
        return f"{self.topology_id}/{name}"

    def _metadata_path(self, txid: int) -> str:
        return self._path(f"{_METADATA}/{txid:020d}")

    def _read(self, name: str) -> Any:
        value = self._store.read(self._path(name))
        return None if value is None else json.loads(str(value, "utf-8"))


def as_json(metadata: Any) -> Any:
    """Return metadata as every later attempt will see it: encoded and decoded.

    Raises:
        RuleError: it is not JSON, or too large to keep.
    """
    return json.loads(_encode(metadata))


_ENCODER = json.JSONEncoder(separators=(",", ":"))
"""Made once: json.dumps() would make one for each value."""


def _encode(value: Any) -> bytes:
    try:
        encoded = _ENCODER.encode(value).encode()
    except (TypeError, ValueError) as error:
        raise RuleError(f"metadata must be JSON ({error}); return numbers, texts, lists and dictionaries") from error
    if len(encoded) > VALUE_BYTES_MAX:
        raise RuleError(
            f"metadata of {len(encoded)} bytes is more than the {VALUE_BYTES_MAX} that a store takes; "
            "keep offsets in it, not data"
        )
    return encoded
