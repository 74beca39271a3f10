"""A state's Delta table, inspected without opening the state; see :class:`txtopo.api.state.StateTable`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from state.delta.alteration import Alteration
from state.delta.log.damage import empty_version, state_failure, unsupported
from state.delta.log.data_files import DATA_FOLDER, DataFile, DataFolder, files_of, needed_in
from state.delta.log.entries import (
    LogEntry,
    complete_transactions,
    entries_from,
    kept_entries,
    standing,
    undone_to,
    version_after,
)
from state.delta.log.growth import Growth, columns_misfit, field_text, lacking, metadata_of
from state.delta.log.location import Location
from state.delta.log.ownership import (
    WORLD_ERRORS,
    Numbers,
    Owner,
    failing,
    not_empty,
    not_ours,
    vectors_misfit,
)
from state.delta.log.put import Change, tries, unknown
from state.delta.log.sync import sync_log
from state.delta.log.vectors import has_vectors
from state.delta.read.foreign import foreign_change, stale
from txtopo.api.state import CanBeRenamed, State, StateTable, TableDescription
from txtopo.api.values import ROWS_KINDS
from txtopo.errors import ConfigError
from txtopo.files.folder import Folder, Item

_ASIDE = ".before-repair-"


class DeltaStateTable(StateTable, CanBeRenamed):
    """A Delta table, inspected without a running topology and compared with its declaration."""

    def __init__(self, location: Location, declared: State, schema: pa.Schema, growth: Growth) -> None:
        self._location = location
        self._declared = declared
        self._partition_by = tuple(declared.partition_by)
        self._schema = schema
        self._growth = growth
        self._seen: tuple[DeltaTable, Item] | None = None
        """The handle of the last look, and the log entry of its version."""

    @property
    def address(self) -> str:
        """The table's path, or its address in an object store."""
        return self._location.address

    def describe(self) -> TableDescription | None:
        """Return a description of the table; None if the path is free; see :meth:`StateTable.describe`."""
        try:
            table = self._existing()
        except WORLD_ERRORS as error:
            advice = unsupported(error)
            problem = f"the table at {self.address} cannot be opened" + (f": {advice}" if advice is not None else "")
            raise state_failure(problem, error, self._location.root) from error
        if table is None:
            foreign = self._location.foreign_file()
            if foreign is not None:
                raise not_empty(self._location, foreign)
            return None
        owner = Owner.of(table)
        if owner is None:
            raise not_ours(self._location)
        alteration, numbers = self._alteration(table, owner), Numbers.of(table, owner.application)
        return TableDescription(
            topology_id=owner.topology_id,
            state=owner.state,
            incarnation=owner.incarnation,
            identity=str(table.metadata().id),
            last_txid=numbers.txid,
            epoch=numbers.epoch or 0,
            version=table.version(),
            misfit=self._misfit(table, owner) if alteration is None else None,
            lacks=self._lacking(table),
            turns=self._turn(table),
            damage=None if self._location.root is None else empty_version(self._location.root, table.version()),
            alteration=None if alteration is None else alteration.text,
        )

    def take_back(self, epoch: int) -> None:
        """Put a version that equals the last own one; see :meth:`StateTable.take_back`."""
        with failing(f"the table at {self.address} can't be as it was", self._location):
            for _ in tries(self._location):
                table = self._location.existing()
                owner = None if table is None else Owner.of(table)
                alteration = None if table is None or owner is None else self._alteration(table, owner)
                if owner is None or alteration is None:
                    return
                if alteration.take_back(self._location, owner.fence(epoch), self._partition_by):
                    return

    def rename(self, topology_id: str, name: str, epoch: int) -> None:
        """Put a version with the new owner, and the same files; see :meth:`CanBeRenamed.rename`."""
        with failing(f"the table at {self.address} can't be renamed", self._location):
            for _ in tries(self._location):
                table = self._location.handle()
                owner = Owner.of(table)
                if owner is None:
                    raise not_ours(self._location)
                if (owner.topology_id, owner.state) == (topology_id, name):
                    if self._location.root is not None:  # whoever put it may have died before the sync
                        sync_log(self._location.root)
                    return
                fence, now = owner.fence(epoch), owner.renamed(topology_id, name)
                fence.check(table)
                metadata = metadata_of(table)
                told = {
                    "name": name,
                    "description": now.description,
                    "configuration": now.among(metadata["configuration"]),
                }
                change = Change(is_of_rows=False, is_of_owner=True, metadata=[{"metaData": {**metadata, **told}}])
                if fence.put(self._location, table.version() + 1, change):
                    return

    def _alteration(self, table: DeltaTable, owner: Owner) -> Alteration | None:
        return Alteration.of(self._location, table, lambda handle: self._misfit(handle, owner))

    def foreign_change(self, since: int | None) -> str | None:
        """Describe a change by somebody else, or return None; see :meth:`StateTable.foreign_change`."""
        with failing(f"the log of {self.address} cannot be read", self._location):
            return foreign_change(self._location, self._newest().version(), since)

    def obstacle(self, txid: int, note: Any) -> str | None:
        """Describe why a prepared write can no longer be published; see :meth:`StateTable.obstacle`."""
        with failing(f"the table at {self.address} cannot be read", self._location):
            description = self.describe()
            if description is None:
                return "whose table is gone"
            if description.last_txid is not None and description.last_txid >= txid:  # it is visible
                return None
            files = files_of(self._location, self._newest(), self._partition_by)
            missing = DataFolder(self._location).missing(needed_in(note, files))
            if missing is not None:
                return f"which needs {missing}"
            if self._declared.kind in ROWS_KINDS:  # its rows are computed from no others
                return None
            reason = stale(self._location, description.version, description.last_txid, note)
            return None if reason is None else f"which was {reason}"

    def undone_to(self, epoch: int) -> int | None:
        """Return the lowest transaction to which a later epoch has rolled it back; see :meth:`StateTable.undone_to`."""
        return self._gone_back(
            epoch,
            lambda numbers: numbers.rolled_back_at,
            lambda entry: None if entry.restored is None else entry.txid or 0,
            standing,
        )

    def turned_to(self, epoch: int) -> int | None:
        """Return the lowest transaction to which the topology has gone back; see :meth:`StateTable.turned_to`."""
        return self._gone_back(epoch, lambda numbers: numbers.turned_at, lambda entry: entry.turn)

    def _gone_back(
        self,
        epoch: int,
        last_at: Callable[[Numbers], int | None],
        txid_of: Callable[[LogEntry], int | None],
        chosen: Callable[[Iterable[LogEntry]], Iterable[LogEntry]] = iter,
    ) -> int | None:
        with failing(f"the log of {self.address} cannot be read", self._location):
            table = self._newest()
            owner = Owner.of(table)
            if owner is None:
                raise not_ours(self._location)
            turn = last_at(Numbers.of(table, owner.application))
            return undone_to(
                chosen(kept_entries(self._location, table.version())), table.version(), epoch, turn, txid_of
            )

    def is_kept(self, txid: int | None) -> bool:
        """Whether the version of transaction ``txid`` is still in the log, with all of its files."""
        if not txid:
            return True
        return kept_version(self._location, self._newest().version(), txid, self._partition_by) is not None

    def kept(self, txids: Collection[int]) -> set[int]:
        """Return those of some transactions whose versions are still complete; see :meth:`StateTable.kept`."""
        return self.all_kept().intersection(txids)

    def all_kept(self) -> set[int]:
        """Return all transactions whose versions are still complete; see :meth:`StateTable.all_kept`."""
        table = self._newest()
        folder = DataFolder(self._location)

        def files_at(version: int) -> list[tuple[str, ...]]:
            handle = table if version == table.version() else self._location.handle(version)
            return [file.places for file in files_of(self._location, handle, self._partition_by).values()]

        return {0, *complete_transactions(self._location, table.version(), files_at, folder.presence())}

    def notes(self) -> Folder:
        """Return the folder of its data files, which vacuum skips; see :meth:`StateTable.notes`."""
        return self._location.below(DATA_FOLDER)

    def asides(self) -> list[int]:
        """Return the numbers of the folders to which this table was moved aside."""
        folder = self._location.folder
        pattern = re.compile(re.escape(folder.name + _ASIDE) + r"(\d+)")
        matches = [pattern.fullmatch(name) for name in folder.parent.folders()]
        return sorted(int(name[1]) for name in matches if name is not None)

    def set_aside(self, number: int) -> None:
        """Rename the table's folder; see :meth:`StateTable.set_aside`.

        In an object store its objects are copied, and then removed.
        """
        root, folder = self._location.root, self._location.folder
        aside = f"{folder.name}{_ASIDE}{number}"
        if root is not None and root.exists() and root.with_name(aside).exists():
            raise ConfigError(
                f"{root} cannot be moved to {root.with_name(aside)}, which already exists: move one of them away"
            )
        folder.parent.move(folder.name, aside)

    def _existing(self) -> DeltaTable | None:
        cached = self._cached_handle()
        table = self._location.existing() if cached is None else None
        return cached if table is None else self._remember(table)

    def _newest(self) -> DeltaTable:
        return self._cached_handle() or self._remember(self._location.handle())

    def _cached_handle(self) -> DeltaTable | None:
        """Return the last look's handle unless its entry is another since: a fresh one reads the whole log, twice."""
        table, entry = self._seen or (None, None)
        entries = [] if table is None else entries_from(self._location, table.version())
        if table is None or entries[:1] != [entry]:
            return None
        if len(entries) > 1:  # a marker, mostly
            self._seen = None
            try:
                table.update_incremental()
            except WORLD_ERRORS:  # as the writer does, see TableWriter.refresh
                return None
            self._remember(table)
        return table

    def _remember(self, table: DeltaTable) -> DeltaTable:
        entries = entries_from(self._location, table.version())
        self._seen = (table, entries[0]) if len(entries) == 1 else None
        return table

    def _misfit(self, table: DeltaTable, owner: Owner) -> str | None:
        if owner.kind is not self._declared.kind:
            return f"its kind is {owner.kind.value!r}, not {self._declared.kind.value!r}"
        feature = unknown(table.protocol(), table.metadata().configuration, table.schema().to_json())
        if feature is not None:
            return f"it has {feature}, which txtopo does not write"
        misfit = (
            None
            if self._declared.turns_vectors
            else vectors_misfit(table, with_vectors=self._declared.deletion_vectors)
        )
        return misfit or columns_misfit(table, self._schema, self._partition_by, self._growth)

    def _turn(self, table: DeltaTable) -> str:
        if has_vectors(table.metadata().configuration) == self._declared.deletion_vectors:
            return ""
        return "on" if self._declared.deletion_vectors else "off"

    def _lacking(self, table: DeltaTable) -> tuple[str, ...]:
        if self._growth is Growth.NEVER:
            return ()
        return tuple(map(field_text, lacking(table, self._schema, self._partition_by)))


def kept_version(
    location: Location, latest: int, txid: int, partition_by: Sequence[str]
) -> tuple[int, dict[str, DataFile]] | None:
    """Return the version that transaction ``txid`` wrote, and its files; None if they are not kept."""
    version = version_after(location, latest, txid)
    if version is None:
        return None
    try:
        files = files_of(location, location.handle(version), partition_by)
    except (DeltaError, FileNotFoundError):
        return None
    # A vacuum removes files of old versions that the log still has.
    return None if DataFolder(location).missing(files.values()) else (version, files)
