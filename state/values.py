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

from typing import Any, assert_never

import attrs

from txtopo.contracts.state import StateKind

__all__ = ["KeptValue", "NonTransactionalValue", "OpaqueValue", "TransactionalValue", "first_value"]


@attrs.frozen
class TransactionalValue:
    """A value and the last transaction in it; exact when a replay carries the same tuples.

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


KeptValue = TransactionalValue | OpaqueValue | NonTransactionalValue
"""What the states of this package keep for a key."""


def first_value(kind: StateKind, txid: int, value: Any) -> KeptValue:
    """Return what a state of ``kind`` keeps when transaction ``txid`` is the first to put ``value``."""
    match kind:
        case StateKind.TRANSACTIONAL:
            return TransactionalValue(txid, value)
        case StateKind.OPAQUE:
            return OpaqueValue(txid, value, None)
        case StateKind.NON_TRANSACTIONAL:
            return NonTransactionalValue(value)
        case _:
            assert_never(kind)
