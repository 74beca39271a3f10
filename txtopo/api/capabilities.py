"""Optional capabilities of an opened state beyond keyed reads and writes, each a protocol.

A state that has the methods has the capability; it need not subclass anything here. Callers check with
``isinstance`` and fall back to another way if a capability is missing. ``txtopo.testing.conformance.state`` checks the
same way and tests the capabilities that a state has.
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
    """Makes writes durable before they are visible. If a topology has several states, each must have this."""

    def stage(self, txid: int, values: Writes) -> StagedWrite:
        """Make a write durable without making it visible."""

    def write_staged(self, staged: StagedWrite) -> None:
        """Make a staged write visible, as ``write()`` would; do nothing if it is visible already."""

    def discard_staged(self) -> None:
        """Remove all staged writes; txtopo calls this when no recovery can need them any more."""


@runtime_checkable
class FoldsRows(Protocol):
    """Folds the rows of a whole commit group at once, instead of key by key."""

    def reducible_rows(self, values: Reducible, reduction: Reduction) -> Reducible | None:
        """Return ``values`` as rows for :meth:`fold`; None if they must be folded key by key."""

    def fold(self, parts: Sequence[TransactionRows], reduction: Reduction) -> Writes | None:
        """Fold the rows of consecutive transactions into the durable values; return the write.

        Args:
            parts: the rows of each transaction, in txid order, as :meth:`reducible_rows` returned them.
            reduction: the function to fold with.

        Returns:
            The write; None if a result does not fit its field or a stored value already contains one of the
            transactions. The caller then folds key by key.
        """


@runtime_checkable
class TakesRows(Protocol):
    """Is a rows table: takes rows without keys, by appending them or replacing partitions."""

    def rows_to_write(self, rows: Rows, mode: RowsMode) -> pa.Table | RowsFile:
        """Return rows in the form that :meth:`write_rows` takes.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: the table cannot be written in this mode.
        """

    def write_rows(self, parts: Sequence[RowsToWrite]) -> Writes:
        """Return the write that puts the rows of several transactions into the table, in txid order.

        It leaves out the rows of transactions that the table already contains.

        Args:
            parts: the rows of each task of each transaction, in txid order, as :meth:`rows_to_write` returned them.

        Raises:
            FailedException: some of the work was lost; the caller may try again.
        """


@runtime_checkable
class UsesExecutors(Protocol):
    """Delegates work that is too large for the driver to executors."""

    def use_executors(self, executors: Executors, driver_rows_max: int) -> None:
        """Set the executors, and the maximum number of rows that the driver may fold itself."""


@runtime_checkable
class CanBeRepaired(Protocol):
    """Can return to an earlier transaction and adopt other writers' changes, for ``txtopo repair``."""

    def roll_back(self, txid: int | None) -> None:
        """Restore the table to its content after the write of transaction ``txid``, in one atomic step.

        Afterwards its last txid is ``txid``, or 0 if ``txid`` is None (before any write). Does nothing if the table
        is in that state already.

        Raises:
            StateAccessError: the table no longer keeps that version.
            LostLead: a newer epoch has opened the table; nothing was written.
        """

    def adopt(self) -> None:
        """Accept other writers' changes as this state's own, as of its last transaction.

        Raises:
            LostLead: a newer epoch has opened the table; nothing was written.
        """


def stages_writes(state: OpenedState) -> TypeGuard[StagesWrites]:
    """Return whether a state is a :class:`StagesWrites`. Cached, because ``isinstance`` takes 7 µs in every group."""
    return _has_capability(type(state), StagesWrites)


def folds_rows(state: OpenedState) -> TypeGuard[FoldsRows]:
    """Return whether a state is a :class:`FoldsRows`."""
    return _has_capability(type(state), FoldsRows)


def takes_rows(state: OpenedState) -> TypeGuard[TakesRows]:
    """Return whether a state is a :class:`TakesRows`."""
    return _has_capability(type(state), TakesRows)


def uses_executors(state: OpenedState) -> TypeGuard[UsesExecutors]:
    """Return whether a state is a :class:`UsesExecutors`."""
    return _has_capability(type(state), UsesExecutors)


@functools.cache
def _has_capability(kind: type[OpenedState], capability: type[object]) -> bool:
    return issubclass(kind, capability)
