"""The values that the three kinds of state keep, and Trident's rules for replays. Pure.

A transaction may be replayed after its write became durable, if its coordinator died before it could record that. The
data kept beside a value distinguishes such a replay from a new transaction:

- *transactional* keeps the txid. The replay has the same tuples, so the value stays as it is.
- *opaque* keeps the txid and the previous value. The replay may have other tuples, so the value is computed again from
  the previous one.
- *non-transactional* keeps nothing, so a replay counts twice.

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
    """A value and its last transaction; exact if a replay has the same tuples.

    It is a named tuple, because one is made for every key that a transaction touches: that takes 80 ns in bulk, and
    350 ns with an attrs class.

    Args:
        txid: the last transaction that touched the value.
        value: the value after that transaction.
    """

    txid: int
    value: Any

    def is_applied(self, txid: int) -> bool:
        """Whether this value already includes transaction ``txid`` or a later one."""
        return self.txid >= txid

    def value_before(self, txid: int) -> Any:  # noqa: ARG002  the protocol's signature
        """Return the value that transaction ``txid`` starts from; check :meth:`is_applied` first."""
        return self.value

    def written(self, txid: int, value: Any) -> TransactionalValue:
        """Return the value to keep after transaction ``txid`` has put ``value``."""
        return TransactionalValue(txid, value)

    def copied(self, copy: Copy) -> TransactionalValue:
        """Return a copy whose value was passed through ``copy``."""
        return TransactionalValue(self.txid, copy(self.value))


class TransactionalRules:
    """The rules of transactional values, for many keys at once."""

    def befores(self, txid: int, stored: Sequence[TransactionalValue | None]) -> Sequence[Any] | None:
        """Return the value that each key starts from; None if one already includes ``txid`` or a later one."""
        known = list(filter(None, stored))
        if known and max(map(_TXID, known)) >= txid:
            return None
        if len(known) == len(stored):
            return list(map(_VALUE, known))
        return [None if each is None else each[1] for each in stored]


_TXID, _VALUE = operator.itemgetter(0), operator.itemgetter(1)


def transactional_values(txids: Iterable[int], values: Iterable[Any]) -> list[TransactionalValue]:
    """Return a kept value for each pair of txid and value, without a Python-level call per value."""
    new: Any = tuple.__new__
    return list(map(new, itertools.repeat(TransactionalValue), zip(txids, values, strict=False)))


@attrs.frozen
class OpaqueValue:
    """A value, its last transaction and its previous value; exact even if a replay has other tuples.

    Args:
        txid: the last transaction that touched the value.
        value: the value after that transaction.
        previous: the value before that transaction; None if there was none.
    """

    txid: int
    value: Any
    previous: Any

    def is_applied(self, txid: int) -> bool:
        """Whether this value includes a transaction later than ``txid``.

        Transaction ``txid`` itself does not count, because its replay computes the value again from :attr:`previous`.
        """
        return self.txid > txid

    def value_before(self, txid: int) -> Any:
        """Return the value that transaction ``txid`` starts from; check :meth:`is_applied` first."""
        return self.previous if self.txid == txid else self.value

    def written(self, txid: int, value: Any) -> OpaqueValue:
        """Return the value to keep after transaction ``txid`` has put ``value``.

        A value that includes a later transaction is unchanged.
        """
        if self.txid > txid:
            return self
        return OpaqueValue(txid, value, self.value_before(txid))

    def copied(self, copy: Copy) -> OpaqueValue:
        """Return a copy whose values were passed through ``copy``."""
        return OpaqueValue(self.txid, copy(self.value), copy(self.previous))


@attrs.frozen
class NonTransactionalValue:
    """A value without a txid: a replay counts twice.

    Args:
        value: the value that was last put.
    """

    value: Any

    def is_applied(self, txid: int) -> bool:  # noqa: ARG002  the protocol's signature
        """Return False, because a replay cannot be recognised."""
        return False

    def value_before(self, txid: int) -> Any:  # noqa: ARG002  the protocol's signature
        """Return the value."""
        return self.value

    def written(self, txid: int, value: Any) -> NonTransactionalValue:  # noqa: ARG002  the protocol's signature
        """Return the value to keep after any transaction has put ``value``."""
        return NonTransactionalValue(value)

    def copied(self, copy: Copy) -> NonTransactionalValue:
        """Return a copy whose value was passed through ``copy``."""
        return NonTransactionalValue(copy(self.value))


KeptValue = TransactionalValue | OpaqueValue | NonTransactionalValue
"""A value that a state of this package keeps for a key."""


_new_tuple: Callable[[type[TransactionalValue], tuple[int, Any]], TransactionalValue] = tuple.__new__


def first_value(kind: StateKind, txid: int, value: Any) -> KeptValue:
    """Return the value that a state of ``kind`` keeps when transaction ``txid`` is the first to put ``value``."""
    if kind is StateKind.TRANSACTIONAL:  # a fast path, because bolts that use get() by hand need one per key
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
    """Return the rules of a kind for many keys at once; None if each value must be asked."""
    return TransactionalRules() if kind is StateKind.TRANSACTIONAL else None
