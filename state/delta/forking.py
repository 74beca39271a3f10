"""A fork's table: a new table whose first version has the files that another table had after a transaction.

Version 0 is one log entry: the protocol, a new table id, the new owner, the files, and the application transactions of
the fork. Until that entry is put there is no table, only files that nothing names; so a fork's table is whole or is not
there.

The files get a second name, by a hard link, or are copied where there are no links, as in an object store, or the place
is another one. Data files never change, and a vacuum of either table removes only that table's name of a file. So
neither table can take a file from the other.
"""

from __future__ import annotations

from pathlib import Path

import attrs
import pyarrow as pa

from state.delta.log.data_files import DATA_FOLDER, DataFolder, with_stats
from state.delta.log.entries import entry_path
from state.delta.log.growth import protocol_of
from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.ownership import Numbers, Owner, not_empty, not_ours
from state.delta.log.put import Change
from state.delta.log.vectors import has_vectors
from state.delta.table import kept_version
from txtopo.errors import StateAccessError
from txtopo.failpoints import reach
from txtopo.files.durable import make_folder


def fork_table(origin: Location, txid: int, place: Location, owner: Owner, epoch: int) -> None:
    """Make a new table that is as ``origin`` was after the write of a transaction.

    A crash leaves files that no log names; the caller removes the folder.

    Args:
        origin: the table of a state; others may write to it meanwhile.
        txid: the transaction, with which a write to it was made.
        place: a free folder.
        owner: the owner of the new table, which keeps the kind and the expiry of ``origin``.
        epoch: the epoch of whoever makes it.

    Raises:
        StateAccessError: ``origin`` no longer keeps that version.
        DivergenceError: ``origin`` is no table of a state, or the folder is not free.
    """
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
    origin_version = kept_version(origin, latest.version(), txid, partition_by)
    if origin_version is None:
        raise _gone(origin, txid)
    version, files = origin_version
    table = origin.handle(version)
    kept_files, is_marked = list(with_stats(table, files)), has_vectors(latest.metadata().configuration)
    if place.root is not None:
        make_folder(place.root / DATA_FOLDER)
    try:
        shared = (file for file in kept_files if is_marked or file.vector is None)
        place.folder.take(sorted({path for file in shared for path in file.places}), origin.folder)
        if not is_marked:  # deletion vectors have been turned off since
            schema = pa.schema(table.schema())
            kept_files = DataFolder(origin).without_vectors(kept_files, schema, DataFolder(place))
    except FileNotFoundError as error:  # a vacuum was faster
        raise _gone(origin, txid) from error
    numbers, metadata = Numbers.of(table, found.application), latest.metadata()
    # The columns of the version, and the properties of the newest one.
    actions = owner.first_actions(
        protocol_of(latest), table.schema(), metadata.partition_columns, metadata.configuration
    )
    expired_until = numbers.taken_until if found.expires else None
    change = Change(kept_files, taken=expired_until, ttl=numbers.ttl, metadata=actions, is_first=True, txid=txid)
    if place.root is not None:
        make_folder(place.root / LOG_FOLDER)
    reach("fork.shared")
    if not owner.fence(epoch).put(place, 0, change):
        raise not_empty(place, Path(entry_path(0)))


def _gone(origin: Location, txid: int) -> StateAccessError:
    return StateAccessError(
        f"the table at {origin.address} no longer keeps its version of transaction {txid}", txid=txid
    )
