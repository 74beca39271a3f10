"""What every table of rows says by its format: it has no keys, and takes rows that fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Never

import pyarrow as pa

from state.delta.rows.format import RowsFormat
from txtopo.api.reduction import Rows, RowsFile, RowsMode
from txtopo.api.state import Key, OpenedState
from txtopo.errors import StateAccessError

__all__ = ["KeylessRows", "fitted_rows", "no_keys"]


class KeylessRows(OpenedState):
    """An opened table of rows.

    Args:
        form: the format of its rows, which names the state.
    """

    def __init__(self, form: RowsFormat) -> None:
        self._form = form

    def make_value(self, txid: int, value: object) -> Never:  # noqa: ARG002 - refused
        """Refuse."""
        raise no_keys(self._form.state)

    def multi_get(self, keys: Sequence[Key]) -> Never:  # noqa: ARG002 - refused
        """Refuse."""
        raise no_keys(self._form.state)

    def rows_to_write(self, rows: Rows, mode: RowsMode) -> pa.Table | RowsFile:
        """Return rows with the table's fields.

        Raises:
            FieldsError: a value does not fit its field.
            StateAccessError: partitions are to be replaced, and it has none.
        """
        return fitted_rows(self._form, rows, mode)


def fitted_rows(form: RowsFormat, rows: Rows, mode: RowsMode) -> pa.Table | RowsFile:
    """Return rows as they go into a table.

    Raises:
        FieldsError: a value does not fit its field.
        StateAccessError: partitions are to be replaced, and there are none.
    """
    if mode is RowsMode.REPLACE and not form.partition_by:
        raise StateAccessError(
            f"state {form.state!r} has no partitions to replace; declare it with partition_by=(…), or append"
        )
    return form.fit(rows)


def no_keys(state: str) -> StateAccessError:
    """Return the error for who wants to read or write by key."""
    return StateAccessError(
        f"state {state!r} is a table of rows and has no keys; write it by append() or replace_partitions(), read it by "
        "snapshot(), or keep what you want to look up in a DeltaState"
    )
