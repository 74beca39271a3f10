"""A fork's table: a new table whose first version has the files that another table had after a transaction.

Version 0 is one log entry: the protocol, a new table id, the new owner, the files, and the application transactions of
the fork. Until that entry is put there is no table, only files that nothing names; so a fork's table is whole or is not
there.

The files get a second name, by a hard link, or are copied where the file system has none or is another one. Data files
never change, and a vacuum of either table removes only that table's name of a file. So neither table can take a file
from the other.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

import attrs
import pyarrow as pa
from deltalake import DeltaTable

from state.delta.log.data_files import DATA_FOLDER, DataFile, DataFolder, with_stats
from state.delta.log.entries import entry_path
from state.delta.log.growth import protocol_of
from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.ownership import Owner, not_empty, not_ours
from state.delta.log.put import Change, entry_of
from state.delta.log.sync import sync_files
from state.delta.log.vectors import has_vectors
from state.delta.table import kept_version
from txtopo.errors import ConfigError, StateAccessError
from txtopo.failpoints import reach
from txtopo.files.durable import make_folder

__all__ = ["fork_table"]

_NOT_LINKED = {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
"""Why a file has to be copied: it would be on another file system, or the file system has no further link to it."""


def fork_table(origin: Location, txid: int, place: Location, owner: Owner, epoch: int) -> None:
    """Make a new table that is as ``origin`` was after the write of a transaction.

    A crash leaves files that no log names; the caller removes the folder.

    Args:
        origin: the table of a state; others may write to it meanwhile.
        txid: the transaction, with which a write to it was made.
        place: a free local folder.
        owner: the owner of the new table, which keeps the kind and the expiry of ``origin``.
        epoch: the epoch of whoever makes it.

    Raises:
        ConfigError: one of the tables is in an object store.
        StateAccessError: ``origin`` no longer keeps that version.
        DivergenceError: ``origin`` is no table of a state, or the folder is not free.
    """
    if origin.root is None or place.root is None:
        raise ConfigError(
            f"the table at {origin.address if origin.root is None else place.address} is in an object store, and only "
            "tables in folders can be forked"
        )
    foreign = place.foreign_file()
    if foreign is not None:
        raise not_empty(place, foreign)
    latest = origin.existing()
    found = None if latest is None else Owner.of(latest)
    if latest is None or found is None:
        raise not_ours(origin)
    # The table is labelled as what it is: a state that is declared otherwise by now is refused when it is opened.
    owner = attrs.evolve(owner, kind=found.kind, expires=found.expires)
    partition_by = latest.metadata().partition_columns
    kept = kept_version(origin, latest.version(), txid, partition_by)
    if kept is None:
        raise _gone(origin, txid)
    version, files = kept
    table = origin.handle(version)
    kept_files, is_marked = list(with_stats(table, files)), has_vectors(latest.metadata().configuration)
    make_folder(place.root / DATA_FOLDER)
    try:
        _share(origin.root, place.root, (file for file in kept_files if is_marked or file.vector is None))
        if not is_marked:  # deletion vectors have been turned off since
            schema = pa.schema(table.schema())
            kept_files = DataFolder(origin).without_vectors(kept_files, schema, DataFolder(place))
    except FileNotFoundError as error:  # a vacuum was faster
        raise _gone(origin, txid) from error
    fence = found.fence(epoch)
    taken = fence.taken_until(table) if found.expires else None
    change = Change(kept_files, taken=taken, ttl=fence.ttl(table))
    make_folder(place.root / LOG_FOLDER)
    reach("fork.shared")
    if not place.folder.put_if_absent(entry_path(0), _first_entry((table, latest), change, owner, txid, epoch)):
        raise not_empty(place, place.root / entry_path(0))


def _share(origin: Path, place: Path, files: Iterable[DataFile]) -> None:
    """Give each file a name in another folder too, durably."""
    made = []
    for path in {path for file in files for path in file.places}:
        target = place / path
        make_folder(target.parent)
        try:
            os.link(origin / path, target)
        except OSError as error:
            if error.errno not in _NOT_LINKED:
                raise
            shutil.copyfile(origin / path, target)
        made.append(target)
    sync_files(made)


def _first_entry(versions: tuple[DeltaTable, DeltaTable], change: Change, owner: Owner, txid: int, epoch: int) -> bytes:
    """Return the entry of a table with the columns of the first of two versions, and the properties of the second."""
    table, latest = versions
    metadata, now_ms = latest.metadata(), int(time.time() * 1000)
    actions = owner.first_actions(
        protocol_of(latest), table.schema(), metadata.partition_columns, metadata.configuration
    )
    fence = owner.fence(epoch)
    change = attrs.evolve(change, metadata=actions, is_first=True)
    applications = fence.applications(txid, taken=change.taken, ttl=change.ttl)
    return entry_of(change, fence.notes(txid), applications, now_ms)


def _gone(origin: Location, txid: int) -> StateAccessError:
    return StateAccessError(
        f"the table at {origin.address} no longer keeps its version of transaction {txid}", txid=txid
    )
