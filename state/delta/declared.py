"""The common base of declared states in Delta tables, keyed ones and tables of rows."""

from __future__ import annotations

import copy
import os
from abc import abstractmethod
from collections.abc import Mapping
from typing import Self

import pyarrow as pa

from state.delta.forking import fork_table
from state.delta.log.data_files import Sizes
from state.delta.log.growth import Growth
from state.delta.log.location import Location, parent_of
from state.delta.log.ownership import Owner, failing
from state.delta.opened_table import OpenedDeltaTable
from state.delta.read.history import read_table
from state.delta.table import DeltaStateTable
from state.delta.upkeep.schedule import Upkeep
from state.delta.writer import TableWriter
from txtopo.api.state import CanBeForked, KeepsVersions, SchemaEvolution, State
from txtopo.errors import ConfigError


class DeclaredDeltaTable(State, CanBeForked, KeepsVersions):
    """A state in a Delta table."""

    sizes = Sizes()

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None,
        upkeep: Upkeep,
        schema_evolution: SchemaEvolution | None = None,
    ) -> None:
        if not os.fspath(path):
            name = type(self).__name__
            raise ConfigError(f"a {name} needs the path of its table; write {name}('out/counts', …)")
        self.path = os.fspath(path)
        self._storage = dict(storage_options) if storage_options is not None else None
        self._location()  # what delta-rs can't use is refused here, before a run has made anything
        self.upkeep = upkeep
        """When it is looked after, and how long what is kept is kept."""
        if schema_evolution not in {None, "add"}:
            raise ConfigError(f"schema_evolution is {schema_evolution!r}; it can only be 'add', or be left out")
        self.schema_evolution = schema_evolution

    @property
    def address(self) -> str | None:
        """The table's path, or its address in an object store."""
        return self.path

    @property
    def home(self) -> str | None:
        """The place that the table's folder is in."""
        return parent_of(self.path)

    @property
    def storage_options(self) -> Mapping[str, str] | None:
        """The options of the table's object store; None: from the environment."""
        return self._storage

    def in_store(self, options: Mapping[str, str] | None) -> Self:
        """Return this state with options of its object store, unless it has some; see :meth:`State.in_store`."""
        if self._storage is not None or not options:
            return self
        moved = copy.copy(self)
        vars(moved).update(_storage=dict(options))
        return moved

    def snapshot(self, txid: int | None = None) -> pa.Table:
        """Return all rows (key fields, value fields, txid) as of transaction ``txid`` or the latest.

        Transactions that were written together can only be seen together: this returns the nearest kept version before.

        Raises:
            ConfigError: there is no table yet.
            StateAccessError: the table has not reached the transaction yet, or no longer keeps that version.
        """
        return read_table(self.path, txid, nearest=True, storage_options=self._storage)

    def _location(self) -> Location:
        return Location.resolve(self.path, self._storage)

    def open(self, topology_id: str, name: str, incarnation: str, epoch: int) -> OpenedDeltaTable:
        """Open the table, creating it if it does not exist, and write the marker of ``epoch``; see :meth:`State.open`.

        Raises:
            FailedException: the table cannot be reached.
        """
        owner = Owner(topology_id, name, incarnation, self.kind, self.expires)  # which refuses some names
        location = self._location()
        with failing(f"state {name!r}: the table at {location.address} cannot be opened", location):
            # The owner first: nothing is written to the table of another topology.
            with_vectors = None if self.turns_vectors else self.deletion_vectors
            table = owner.take(location, self._schema(), self.partition_by, self._growth, with_vectors=with_vectors)
            fence = (Owner.of(table) or owner).fence(epoch)
            writer = TableWriter.open(location, table, fence, self.partition_by)
        return self._opened(writer)

    def moved(self, path: str) -> Self:
        """Return this state with its table at another path; see :meth:`CanBeForked.moved`."""
        elsewhere = copy.copy(self)
        vars(elsewhere).update(path=path)
        return elsewhere

    def fork(self, origin: str, txid: int, topology_id: str, name: str, incarnation: str, epoch: int) -> None:  # noqa: PLR0913, PLR0917 - those of open(), and what to make it from
        """Make the table as another one was after a transaction; see :meth:`CanBeForked.fork`.

        Raises:
            FailedException: one of the tables cannot be reached.
        """
        location = Location.resolve(origin, self._storage)
        owner = Owner(topology_id, name, incarnation, self.kind, self.expires)
        with failing(f"state {name!r}: the table at {location.address} cannot be forked", location):
            fork_table(location, txid, self._location(), owner, epoch)

    def table(self) -> DeltaStateTable:
        """Return the table, which can be inspected without opening it."""
        return DeltaStateTable(self._location(), self, self._schema(), self._growth)

    @property
    def _growth(self) -> Growth:
        """When the table gets the columns that it lacks."""
        return Growth.ASKED if self.schema_evolution is None else Growth.OPENED

    @abstractmethod
    def _schema(self) -> pa.Schema:
        """Return the columns of the table."""

    @abstractmethod
    def _opened(self, writer: TableWriter) -> OpenedDeltaTable:
        """Return the opened state, whose table is already fenced."""
