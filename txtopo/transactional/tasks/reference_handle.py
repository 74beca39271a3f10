"""A bolt's reference to a reference table, as its transaction sees it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pyarrow as pa

from txtopo.api.components.planned import Planned
from txtopo.api.reference import Reference, ReferenceTable
from txtopo.errors import StateAccessError
from txtopo.transactional.tasks.objects import Local, LocalReference

REFERENCE = "reference"
"""The role of a reference table among the objects that belong to a task."""


class ReferenceHandle(ReferenceTable, Local):
    """Loads the version that a transaction was planned with once something of it is used."""

    def __init__(self, name: str, reference: Reference, planned: Planned | None) -> None:
        self.local_reference = LocalReference(REFERENCE, name)
        self._name = name
        self._reference = reference
        self._planned = planned

    @functools.cached_property
    def _table(self) -> ReferenceTable:
        version = None if self._planned is None else self._planned.seen(self._name)
        if version is None:
            raise StateAccessError(
                f"the transaction was planned without a version of reference {self._name!r}: the topology had no such "
                "reference then, or there is no transaction here"
            )
        return self._reference.at(version)

    @property
    def version(self) -> int:
        """The version of the Delta table."""
        return self._table.version

    @property
    def rows(self) -> pa.Table:
        """All rows."""
        return self._table.rows

    def find(self, keys: pa.Table) -> pa.Array:
        """Return the number of the row with each key."""
        return self._table.find(keys)

    def take(self, numbers: pa.Array, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows with some numbers."""
        return self._table.take(numbers, columns)
