"""The values that the three kinds of keyed state keep, and Trident's rules for replays. Pure.

In Trident a transaction may be replayed after its write became durable, if its coordinator died before it could record
that. The data kept beside a value distinguishes such a replay from a new transaction. In txtopo a group that is decided
never runs again, so every kind is exact with every spout, and the rules hold for those who call a state by themselves:

- *transactional* keeps the txid. The replay has the same tuples, so the value stays as it is.
- *opaque* keeps the txid and the previous value. The replay may have other tuples, so the value is computed again from
  the previous one.
- *non-transactional* keeps nothing, so a replay counts twice.

Source: Storm's ``TransactionalMap``, ``OpaqueMap`` and ``NonTransactionalMap``.
"""

from __future__ import annotations

import enum
import itertools
import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, assert_never

import attrs

from txtopo.api.data.copying import Copy
from txtopo.errors import StateAccessError

Key = Hashable
"""A key: one value, or a tuple of values if the state has several key fields."""


class StateKind(enum.Enum):
    """What a state stores with each value, as in Trident."""

    TRANSACTIONAL = "transactional"
    """(txid, value)."""
    OPAQUE = "opaque"
    """(txid, value, previous): readers see the value before the last transaction that touched a key, too."""
    NON_TRANSACTIONAL = "non-transactional"
    """(value): readers do not see which transaction touched a key last."""
    ROWS = "rows"
    """Rows without keys, each with the txid of its transaction. Only rows tables have this kind."""
    EXPIRING = "expiring"
    """Rows without keys that are taken out again when they expire."""


KEYED_KINDS = (StateKind.TRANSACTIONAL, StateKind.OPAQUE, StateKind.NON_TRANSACTIONAL)
"""The kinds of keyed states."""

ROWS_KINDS = (StateKind.ROWS, StateKind.EXPIRING)
"""The kinds of rows tables."""


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

    def value_before(self, txid: int) -> Any:
        """Return the value that transaction ``txid`` starts from; check :meth:`is_applied` first."""
        return self.value

    def written(self, txid: int, value: Any) -> TransactionalValue:
        """Return the value to keep after transaction ``txid`` has put ``value``."""
        return TransactionalValue(txid, value)

    def copied(self, copy: Copy) -> TransactionalValue:
        """Return a copy whose value was passed through ``copy``."""
        return TransactionalValue(self.txid, copy(self.value))


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

    def is_applied(self, txid: int) -> bool:
        """Return False, because a replay cannot be recognised."""
        return False

    def value_before(self, txid: int) -> Any:
        """Return the value."""
        return self.value

    def written(self, txid: int, value: Any) -> NonTransactionalValue:
        """Return the value to keep after any transaction has put ``value``."""
        return NonTransactionalValue(value)

    def copied(self, copy: Copy) -> NonTransactionalValue:
        """Return a copy whose value was passed through ``copy``."""
        return NonTransactionalValue(copy(self.value))


StateValue = TransactionalValue | OpaqueValue | NonTransactionalValue
"""What a keyed state stores for a key. Immutable."""

_CLASSES = (TransactionalValue, OpaqueValue, NonTransactionalValue)


def is_stored_value(value: object) -> bool:
    """Return whether a bolt passes a whole stored value, as ``get`` returned it, and not a bare one."""
    return isinstance(value, _CLASSES)


_TXID, _VALUE = operator.itemgetter(0), operator.itemgetter(1)

_new_tuple: Callable[[type[TransactionalValue], tuple[int, Any]], TransactionalValue] = tuple.__new__


def stored_value(kind: StateKind, txid: int, value: Any, previous: Any = None) -> StateValue:
    """Return what a state stores for a key after transaction ``txid``; only opaque states store ``previous``."""
    match kind:
        case StateKind.TRANSACTIONAL:
            return _new_tuple(TransactionalValue, (txid, value))
        case StateKind.OPAQUE:
            return OpaqueValue(txid, value, previous)
        case StateKind.NON_TRANSACTIONAL:
            return NonTransactionalValue(value)
        case StateKind.ROWS | StateKind.EXPIRING:
            raise StateAccessError("a table of rows keeps no values by key")
        case _:
            assert_never(kind)


def stored_values(
    kind: StateKind, txids: Iterable[int], values: Iterable[Any], previous: Iterable[Any]
) -> Sequence[StateValue]:
    """Return :func:`stored_value` of each txid, value and (if the kind is opaque) previous value."""
    if kind is StateKind.TRANSACTIONAL:  # without a Python-level call per value
        new: Any = tuple.__new__
        return list(map(new, itertools.repeat(TransactionalValue), zip(txids, values, strict=False)))
    if kind is StateKind.OPAQUE:
        return list(map(OpaqueValue, txids, values, previous))
    return list(map(NonTransactionalValue, values))


def values_before(txid: int, stored: Sequence[StateValue | None]) -> Sequence[Any] | None:
    """Return the value that transaction ``txid`` starts from, for each stored value (or None).

    Returns None if one of the values contains the transaction already.
    """
    known: list[Any] = [each for each in stored if each is not None]
    if not known:
        return stored
    if type(known[0]) is TransactionalValue:  # then all of them are
        if max(map(_TXID, known)) >= txid:
            return None
        if len(known) == len(stored):
            return list(map(_VALUE, known))
        return [None if each is None else each.value for each in stored]  # a method each takes twice as long
    if any(each.is_applied(txid) for each in known):
        return None
    return [None if each is None else each.value_before(txid) for each in stored]
