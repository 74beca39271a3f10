"""What an opened state may do besides reading and writing values by key: each capability a protocol of its own.

A state that has the methods has the capability; it need not subclass anything here. Whoever needs one asks by
``isinstance``, and goes another way where it is missing. ``txtopo.testing.conformance.state`` asks, too, and tests what
a state has.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Protocol, TypeGuard, runtime_checkable

import pyarrow as pa

from txtopo.api.reduction import Reducible, Reduction, Rows, RowsFile, RowsMode, RowsToWrite, TransactionRows
from txtopo.api.state import Executors, OpenedState, StagedWrite, Writes


@runtime_checkable
class StagesWrites(Protocol):
    """Makes writes durable before they are visible. Each state of a topology with several needs it."""

    def stage(self, txid: int, values: Writes) -> StagedWrite:
        """Make a write durable without making it visible."""

    def write_staged(self, staged: StagedWrite) -> None:
        """Make a staged write visible: as ``write()``, and doing nothing if it is visible already."""

    def discard_staged(self) -> None:
        """Remove what is staged: called when no recovery can need it any more."""


@runtime_checkable
class FoldsRows(Protocol):
    """Folds the rows of a whole commit group at once, instead of key by key."""

    def reducible_rows(self, values: Reducible, reduction: Reduction) -> Reducible | None:
        """Return ``values`` as rows that :meth:`fold` takes; None if they must go key by key."""

    def fold(self, parts: Sequence[TransactionRows], reduction: Reduction) -> Writes | None:
        """Return what is to be kept after the rows of some transactions were folded into what is durable.

        Args:
            parts: what each transaction folds, in txid order; rows of :meth:`reducible_rows`.
            reduction: how.

        Returns:
            The writes; None if a result does not fit, or a transaction is in a value already: go key by key.
        """


@runtime_checkable
class TakesRows(Protocol):
    """Is a table of rows: takes rows without keys, by append and by replacing partitions."""

    def rows_to_write(self, rows: Rows, mode: RowsMode) -> pa.Table | RowsFile:
        """Return rows as :meth:`write_rows` takes them.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: it cannot be written in that way.
        """

    def write_rows(self, parts: Sequence[RowsToWrite]) -> Writes:
        """Return the write that puts the rows of some transactions into the table, in txid order.

        Rows of transactions that are in the table already are left out.

        Args:
            parts: what each task of each transaction puts, in txid order; rows of :meth:`rows_to_write`.

        Raises:
            FailedException: some of the work was lost; it may be tried again.
        """


@runtime_checkable
class UsesExecutors(Protocol):
    """Has executors do what is too much for the driver."""

    def use_executors(self, executors: Executors, driver_rows_max: int) -> None:
        """Take note of the executors, and of how many rows at most the driver may fold itself."""


@runtime_checkable
class CanBeRepaired(Protocol):
    """Goes back to an earlier transaction, and accepts what somebody else has changed: for ``txtopo repair``."""

    def roll_back(self, txid: int | None) -> None:
        """Make the table again what it was after the write of transaction ``txid``, in one atomic step.

        Its last txid is ``txid`` then, or 0 for None: before any write. Does nothing if all is so already.

        Raises:
            StateAccessError: what it held then is not kept.
            LostLead: a newer epoch has opened it; nothing was written.
        """

    def adopt(self) -> None:
        """Take what somebody else has changed for this state's own, as of its last transaction.

        Raises:
            LostLead: a newer epoch has opened it; nothing was written.
        """


def stages_writes(state: OpenedState) -> TypeGuard[StagesWrites]:
    """Whether a state is a :class:`StagesWrites`, as ``isinstance`` says: which takes 7 µs, and each group asks."""
    return _has_capability(type(state), StagesWrites)


def uses_executors(state: OpenedState) -> TypeGuard[UsesExecutors]:
    """Whether a state is a :class:`UsesExecutors`, as ``isinstance`` says."""
    return _has_capability(type(state), UsesExecutors)


@functools.cache
def _has_capability(kind: type[OpenedState], capability: type[object]) -> bool:
    return issubclass(kind, capability)
