"""The log of a topology's coordinator state in an object store, and the copy that is made by reading it. Pure.

An entry holds one write; a base holds all values after an entry, so that a reader begins there. Both are one line of
JSON, then the values one after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from state.stores.holder import Holder
from state.stores.memory import apply_change
from txtopo.api.store import Change, Delete, Put
from txtopo.files.formats import COORDINATOR_STATE, Format, refuse_other
from txtopo.files.records import packed, unpacked
from txtopo.journal.tail import TAIL

_ENTRY_BYTES = 4096
"""What an entry counts as at least: to ask for one takes as long as to read this much more of another."""

_SINCE_BYTES = 256 * _ENTRY_BYTES
"""How long the entries after a small base may become. A large one is not replaced before they are as long again."""


@attrs.frozen
class Term:
    """Who may write: the lead that an entry was written under."""

    topology_id: str
    epoch: int
    holder: Holder
    is_over: bool = False
    """Whether the holder has released the lead."""


@attrs.frozen
class Entry:
    """One write."""

    term: Term
    changes: tuple[Change, ...] = ()

    def to_bytes(self, tail: int = 0) -> bytes:
        """Return the entry as it is stored; ``tail`` is the number of the entry that has set the journal's tail."""
        puts = [change for change in self.changes if isinstance(change, Put)]
        changes = [
            ["put", change.path, len(change.value)] if isinstance(change, Put) else ["delete", change.path]
            for change in self.changes
        ]
        return packed({**_head(self.term), "tail": tail, "changes": changes}, [put.value for put in puts])

    @property
    def sets_tail(self) -> bool:
        """Whether it sets or removes the journal's tail, see :mod:`txtopo.journal.tail`."""
        path = f"{self.term.topology_id}/{TAIL}"
        return any(f"{path}/".startswith(f"{change.path}/") for change in self.changes)

    @staticmethod
    def from_bytes(data: bytes) -> Entry:
        """Return the entry that :meth:`to_bytes` wrote."""
        head, content = _unpacked(data)
        changes: list[Change] = []
        at = 0
        for kind, path, *lengths in head["changes"]:
            if kind == "delete":
                changes.append(Delete(path))
            else:
                changes.append(Put(path, content[at : at + lengths[0]]))
                at += lengths[0]
        return Entry(_term(head), tuple(changes))


@attrs.frozen
class Base:
    """All values after entry ``number``."""

    number: int
    term: Term
    fences: tuple[int, ...]
    """The first entry of each lead up to there. They stay, see :mod:`state.stores.objects`."""
    values: Mapping[str, bytes]

    def to_bytes(self) -> bytes:
        """Return the base as it is stored."""
        values = [[path, len(value)] for path, value in self.values.items()]
        head = {**_head(self.term), "number": self.number, "fences": self.fences, "values": values}
        return packed(head, list(self.values.values()))

    @staticmethod
    def from_bytes(data: bytes) -> Base:
        """Return the base that :meth:`to_bytes` wrote."""
        head, content = _unpacked(data)
        values: dict[str, bytes] = {}
        at = 0
        for path, length in head["values"]:
            values[path] = content[at : at + length]
            at += length
        return Base(head["number"], _term(head), tuple(head["fences"]), values)


@attrs.define(eq=False)
class Replica:
    """The state of a topology after the entry ``number``; 0 is the state that nobody has written to."""

    number: int = 0
    term: Term | None = None
    fences: list[int] = attrs.field(factory=list)
    values: dict[str, bytes] = attrs.field(factory=dict)
    base_number: int = 0
    """The entry after which the base is that a reader begins with."""
    base_bytes: int = 0
    since_bytes: int = 0
    """The length of the entries since."""
    tail: int = 0
    """The entry since that has set the journal's tail last; 0: none has, the base has it."""

    @staticmethod
    def from_bytes(base: bytes) -> Replica:
        """Return the state of a stored base."""
        found = Base.from_bytes(base)
        return Replica(found.number, found.term, list(found.fences), dict(found.values), found.number, len(base))

    @property
    def is_far_from_its_base(self) -> bool:
        """Whether the base is to be replaced, so that a start reads less."""
        return self.since_bytes > _SINCE_BYTES + self.base_bytes

    @property
    def is_too_far_from_its_base(self) -> bool:
        """Whether writers are to wait until the base is replaced: the store is slower than they are."""
        return self.since_bytes > 2 * (_SINCE_BYTES + self.base_bytes)

    def next(self, entry: Entry) -> bytes:
        """Return the next entry as it is stored."""
        return entry.to_bytes(self.number + 1 if entry.sets_tail else self.tail)

    def apply(self, entry: Entry, length: int) -> None:
        """Apply the next entry, which has ``length`` bytes."""
        self.number += 1
        if entry.sets_tail:
            self.tail = self.number
        self.since_bytes += max(length, _ENTRY_BYTES)
        if self.term is None or self.term.epoch != entry.term.epoch:
            self.fences.append(self.number)
        self.term = entry.term
        for change in entry.changes:
            apply_change(self.values, change)

    def base(self) -> Base:
        """Return a base of the state as it is now."""
        assert self.term is not None, "somebody has written"
        return Base(self.number, self.term, tuple(self.fences), dict(self.values))


def _head(term: Term) -> dict[str, Any]:
    return {
        "format": COORDINATOR_STATE.number,
        "needs": COORDINATOR_STATE.needs,
        "topology": term.topology_id,
        "epoch": term.epoch,
        "holder": attrs.asdict(term.holder),
        "is_over": term.is_over,
    }


def _term(head: Mapping[str, Any]) -> Term:
    return Term(head["topology"], head["epoch"], Holder(**head["holder"]), head["is_over"])


def _unpacked(data: bytes) -> tuple[dict[str, Any], bytes]:
    head, content = unpacked(data)
    whose = f"the coordinator state of topology {head['topology']!r}"
    refuse_other(whose, Format(head["format"], head["needs"]), COORDINATOR_STATE)
    return head, content
