"""Values as the three kinds of state keep them, and Trident's rules for replays. Pure.

A transaction may come again after its write became durable: its coordinator died before it could note
that. What is kept beside a value tells such a replay from a new transaction:

- *transactional* keeps the txid. The replay carries the same tuples, so there is nothing to add again.
- *opaque* keeps the txid and the value before it. The replay may carry other tuples, so the value is made
  again from the one before.
- *non-transactional* keeps nothing, and a replay counts twice.

Source: Storm's ``TransactionalMap``, ``OpaqueMap`` and ``NonTransactionalMap``.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, assert_never

import attrs

from txtopo.api.copying import Copy
from txtopo.api.state import BulkRules, StateKind
from txtopo.errors import StateAccessError

__all__ = [
    "KeptValue",
    "NonTransactionalValue",
    "OpaqueValue",
    "TransactionalRules",
    "TransactionalValue",
    "bulk_rules",
    "first_value",
    "transactional_values",
]


class TransactionalValue(NamedTuple):
    """A value and the last transaction in it; exact when a replay carries the same tuples.

    A named tuple, for it is made for every key that a transaction touches: 80 ns in bulk, an attrs class 350.

    Args:
        txid: the last transaction that touched the value.
        value: what it is since then.
    """

    txid: int
    value: Any

    def is_applied(self, txid: int) -> bool:
        """Whether transaction ``txid``, or a later one, is in this value already."""
        return self.txid >= txid

    def value_before(self, txid: int) -> Any:  # noqa: ARG002  the protocol's signature
        """Return the value that transaction ``txid`` starts from; ask :meth:`is_applied` first."""
        return self.value

    def written(self, txid: int, value: Any) -> TransactionalValue:
        """Return what is kept after transaction ``txid`` has put ``value``."""
        return TransactionalValue(txid, value)

    def copied(self, copy: Copy) -> TransactionalValue:
        """Return the same with a copy of the value."""
        return TransactionalValue(self.txid, copy(self.value))


class TransactionalRules:
    """The rules of transactional values, for many keys at once."""

    def befores(self, txid: int, stored: Sequence[TransactionalValue | None]) -> Sequence[Any] | None:
        """Return the value each key starts from; None if ``txid``, or a later one, is in one of them already."""
        known = list(filter(None, stored))
        if known and max(map(_TXID, known)) >= txid:
            return None
        if len(known) == len(stored):
            return list(map(_VALUE, known))
        return [None if each is None else each[1] for each in stored]


_TXID, _VALUE = operator.itemgetter(0), operator.itemgetter(1)


def transactional_values(txids: Iterable[int], values: Iterable[Any]) -> list[TransactionalValue]:
    """Return a value for each txid and value, without a call of Python for each."""
    new: Any = tuple.__new__
    return list(map(new, itertools.repeat(TransactionalValue), zip(txids, values, strict=False)))


@attrs.frozen
class OpaqueValue:
    """A value, the last transaction in it and the value before that; exact even if a replay differs.

    Args:
        txid: the last transaction that touched the value.
        value: what it is since then.
        previous: what it was before; None where there was nothing.
    """

    txid: int
    value: Any
    previous: Any

    def is_applied(self, txid: int) -> bool:
        """Whether a transaction later than ``txid`` is in this value.

        Transaction ``txid`` itself is never in the way: its replay makes the value again from
        :attr:`previous`.
        """
        return self.txid > txid

    def value_before(self, txid: int) -> Any:
        """Return the value that transaction ``txid`` starts from; ask :meth:`is_applied` first."""
        return self.previous if self.txid == txid else self.value

    def written(self, txid: int, value: Any) -> OpaqueValue:
        """Return what is kept after transaction ``txid`` has put ``value``.

        A value with a later transaction in it stays what it is.
        """
        if self.txid > txid:
            return self
        return OpaqueValue(txid, value, self.value_before(txid))

    def copied(self, copy: Copy) -> OpaqueValue:
        """Return the same with a copy of either value."""
        return OpaqueValue(self.txid, copy(self.value), copy(self.previous))


@attrs.frozen
class NonTransactionalValue:
    """A value with nothing beside it: a replay counts twice.

    Args:
        value: what the last write put.
    """

    value: Any

    def is_applied(self, txid: int) -> bool:  # noqa: ARG002  the protocol's signature
        """Return False: nothing tells a replay."""
        return False

    def value_before(self, txid: int) -> Any:  # noqa: ARG002  the protocol's signature
        """Return the value."""
        return self.value

    def written(self, txid: int, value: Any) -> NonTransactionalValue:  # noqa: ARG002  the protocol's signature
        """Return what is kept after any transaction has put ``value``."""
        return NonTransactionalValue(value)

    def copied(self, copy: Copy) -> NonTransactionalValue:
        """Return the same with a copy of the value."""
        return NonTransactionalValue(copy(self.value))


KeptValue = TransactionalValue | OpaqueValue | NonTransactionalValue
"""What the states of this package keep for a key."""


_new_tuple: Callable[[type[TransactionalValue], tuple[int, Any]], TransactionalValue] = tuple.__new__


def first_value(kind: StateKind, txid: int, value: Any) -> KeptValue:
    """Return what a state of ``kind`` keeps when transaction ``txid`` is the first to put ``value``."""
    if kind is StateKind.TRANSACTIONAL:  # quickly, for bolts that get() by hand ask for one a key
        return _new_tuple(TransactionalValue, (txid, value))
    match kind:
        case StateKind.OPAQUE:
            return OpaqueValue(txid, value, None)
        case StateKind.NON_TRANSACTIONAL:
            return NonTransactionalValue(value)
        case StateKind.ROWS:
            raise StateAccessError("a table of rows keeps no values by key")
        case _:
            assert_never(kind)


def bulk_rules(kind: StateKind) -> BulkRules | None:
    """Return the rules of a kind for many keys at once; None where each value is to be asked."""
    return TransactionalRules() if kind is StateKind.TRANSACTIONAL else None
