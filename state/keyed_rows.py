"""The base of opened keyed states: everything that depends only on the format of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from state.delta.schema import RowFormat
from state.values import KeptValue, bulk_rules, first_value
from txtopo.api.copying import Copying, copying_of_value
from txtopo.api.reduction import Reducible
from txtopo.api.state import BulkRules, Key, KeyedWrites, OpenedState, pairs_of
from txtopo.columnar.rows_file import in_memory

__all__ = ["KeyedRows"]


class KeyedRows(OpenedState):
    """An opened state that has a row for each key.

    Args:
        rows: the format of its rows.
    """

    def __init__(self, rows: RowFormat) -> None:
        self._rows = rows
        self._copying = copying_of_value(rows.value)

    def make_value(self, txid: int, value: object) -> KeptValue:
        """Return the value to keep when transaction ``txid`` is the first to put ``value`` for a key."""
        return first_value(self._rows.kind, txid, value)

    @property
    def copying(self) -> Copying | None:
        """How its values are copied before bolts receive them; None: they are immutable."""
        return self._copying

    @property
    def bulk(self) -> BulkRules | None:
        """The rules of its kind for many keys at once, if it has any."""
        return bulk_rules(self._rows.kind)

    def pairs(self, rows: Reducible) -> Iterable[tuple[Key, Any]]:
        """Return the key and value of each row to reduce."""
        return pairs_of(in_memory(rows), len(self._rows.key))

    def check(self, txid: int, values: KeyedWrites, new_keys: Sequence[Key] | None = None) -> None:  # noqa: ARG002
        """Raise a ``FieldsError`` if a key or value does not fit."""
        self._rows.check(values, new_keys)
