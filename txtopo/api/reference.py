"""Reference tables: tables that a topology only reads, each transaction a version that is known when it is planned."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import attrs
import pyarrow as pa

from txtopo.api.dataset import Dataset

OTHER_TABLE_ADVICE = (
    "Put the former one back; or, if the new one is meant, run 'txtopo replan MODULE', which plans the transactions "
    "that are not committed again, or if there are none, set it under another name"
)
"""What to do about another table in place of the one that transactions have seen."""


@attrs.frozen
class SeenVersion:
    """The version of a reference table that a transaction sees."""

    name: str
    """The reference's, in the topology."""
    identity: str
    """The id of the Delta table, which another table under the same path does not have."""
    version: int
    instead_of: int | None = None
    """The version that the transaction was planned with first, which was gone; None: it was planned with this one."""

    @property
    def words(self) -> str:
        """What people read of it."""
        again = "" if self.instead_of is None else f", planned again: first it was version {self.instead_of}"
        return f"{self.name}: version {self.version}{again}"


class ReferenceTable(ABC):
    """A reference table as one transaction sees it; get it from ``context.reference(name)``.

    *txtopo* guarantees that every attempt of the transaction sees the same version of the table, in both phases, and in
    ``txtopo replay``. A process loads a version when something of it is used first.
    """

    @property
    @abstractmethod
    def version(self) -> int:
        """The version of the Delta table."""

    @property
    @abstractmethod
    def rows(self) -> pa.Table:
        """All rows, in any order."""

    @abstractmethod
    def find(self, keys: pa.Table) -> pa.Array:
        """Return the number of the row with each key, for :meth:`take`; null for keys that are not there.

        A key with a null in it is never there.

        Args:
            keys: a column for each key field of the reference, in their order and of their types; integers may have
                other sizes, decimals other scales. The names do not matter.

        Raises:
            FieldsError: there is another number of columns, or a value is none of the key field's type.
        """

    @abstractmethod
    def take(self, numbers: pa.Array, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows with some numbers, in their order; nulls for a number that is null.

        Args:
            numbers: those that :meth:`find` has returned.
            columns: the columns to return; None: all.
        """

    def look_up(self, keys: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the row with each key, in their order; nulls for a key that is not there. See :meth:`find`."""
        return self.take(self.find(keys), columns)


class Reference(ABC):
    """A table that a topology only reads, for ``builder.set_reference``."""

    address: str
    """Where it is."""
    key: tuple[str, ...]
    """The columns of its key."""
    refresh: dt.timedelta
    """How often to look for a newer version at most."""

    @property
    def dataset(self) -> Dataset:
        """The table as catalogs of lineage name it."""
        return Dataset.at(self.address)

    @abstractmethod
    def newest(self, name: str) -> SeenVersion:
        """Return the newest version, for transactions that begin now; called in the driver.

        Raises:
            ConfigError: there is no such table, or it can't be a reference.
            FailedException: it can't be read at the moment.
        """

    @abstractmethod
    def at(self, seen: SeenVersion) -> ReferenceTable:
        """Return a version; a process loads it once, however many tasks ask for it.

        Raises:
            InputError: the version is gone, or the table is another one.
            RuleError: it can't be a reference, or is too large.
            FailedException: it can't be read at the moment.
        """

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what was declared: a process loads rows by itself."""
        return self.__dict__
