"""What all states have in a commit group: the state during the group, and one transaction's view of it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from txtopo.api.data.copying import Copying, copying_of_value
from txtopo.api.data.fields import Fields
from txtopo.api.map_state import pairs_of
from txtopo.api.state import OpenedState
from txtopo.api.values import Key, StateValue
from txtopo.api.writes import Reducible, Writes
from txtopo.columnar.progress_probe import current_probe
from txtopo.columnar.rows_file import in_memory
from txtopo.errors import FailedException, StateAccessError, StateFailure, TxtopoError
from txtopo.transactional.tasks.state_handle import StateView


class Writing:
    """Whether the writes of a group are being made, beside the commit phases of the next one. This one: none are."""

    @property
    def is_over(self) -> bool:
        """Whether all that earlier groups have put is in the states."""
        return True

    def wait(self) -> None:
        """Return once it is over: until then nobody but who makes the writes may use a state."""


class GroupState(ABC):
    """One state during one commit group: what the group's finished transactions have written, and the durable state."""

    def __init__(self, opened: OpenedState, writing: Writing | None = None) -> None:
        self.declared = opened.declared
        self._opened = opened
        self._writing = writing or Writing()
        self.failure: TxtopoError | None = None
        """Why the group's writes can't be made. If it is a RuleError, its txid is at fault."""
        self.probe = current_probe()
        """Reports progress, since a call with many keys may take long."""

    @property
    def opened(self) -> OpenedState:
        """The state, once the group before is in it."""
        self._writing.wait()
        return self._opened

    @abstractmethod
    def begin(self, txid: int) -> TransactionView:
        """Return the view of transaction ``txid``, which begins now: those before it have finished."""

    @abstractmethod
    def writes(self) -> Writes:
        """Return the group's writes, which may be empty.

        Raises:
            RuleError: :attr:`failure`: a transaction that has finished is at fault.
        """

    def multi_get(self, keys: Sequence[Key]) -> list[StateValue | None]:
        """Return the durable value of each key; raise if the state has no keys."""
        try:
            return self.opened.multi_get(keys)
        except FailedException as error:
            raise_as_of_state(error)

    def snapshot(self, txid: int | None) -> pa.Table:
        """Return all durable rows, now or as of a transaction."""
        try:
            return self.opened.snapshot(txid)
        except FailedException as error:
            raise_as_of_state(error)


class TransactionView(StateView):
    """One transaction's view of a state in its commit group; callers hold ``lock`` if other threads may use it."""

    def __init__(self, group: GroupState, txid: int) -> None:
        self.lock = threading.RLock()
        self.txid = txid
        self.probe = group.probe
        self._group = group
        self._is_over = False

    @property
    def copying(self) -> Copying | None:
        """How to copy the state's values; None if they are immutable. This view itself does not copy."""
        return copying_of_value(self._group.declared.value)

    @property
    def key_fields(self) -> Fields:
        """The fields of the state's key."""
        return self._group.declared.key

    @property
    def _named(self) -> object:
        """The declared state, which errors name."""
        return self._group.declared

    @abstractmethod
    def check(self, component: str | None = None) -> None:
        """Check the values since the last check, as of ``component``; raise FieldsError if one does not fit."""

    @abstractmethod
    def finish(self) -> None:
        """Merge this transaction's writes into the group's."""

    def discard(self) -> None:
        """End without a trace: only :meth:`finish` hands this transaction's writes to the group."""
        with self.lock:
            self._is_over = True

    def pairs(self, rows: Reducible) -> Iterable[tuple[Key, Any]]:
        """Return (key, value) pairs of rows to fold."""
        return pairs_of(in_memory(rows), len(self._group.declared.key))

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all durable rows, without those of this commit group."""
        self._check_running()
        return self._group.snapshot(txid)

    def _check_running(self) -> None:
        if self._is_over:
            raise StateAccessError(
                f"a state was used after the commit phase of transaction {self.txid}; "
                "call context.state() in each prepare()"
            )


def raise_as_of_state(error: FailedException) -> NoReturn:
    """Raise a state's FailedException as StateFailure, which is retried a few times and then stops the run."""
    # As a failure of the transaction, it would replay that transaction without end.
    if isinstance(error, StateFailure):
        raise error
    raise StateFailure(error.message, cause=error.cause) from error
