"""Rolling a Delta table back: its next version is an older one again.

``restore`` of delta-rs would do it without copying, but it neither keeps to the fence nor carries
transactions. So the old version is streamed into the next one, as compaction does it.
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from state.delta.log.fence import NO_HOOKS, Fence
from state.delta.log.location import Location
from state.delta.table import kept_handle
from txtopo.errors import StateAccessError

__all__ = ["roll_back"]


def roll_back(location: Location, table: DeltaTable, fence: Fence, txid: int | None) -> None:
    """Write the version after the handle's, with the rows that transaction ``txid`` left; None: with none.

    Raises:
        StateAccessError: what it left is not kept.
        deltalake.exceptions.CommitFailedError: another writer took that version.
    """
    old = kept_handle(location, table, txid) if txid else None
    if txid and old is None:
        raise StateAccessError(f"what the table at {location.address} held then is not kept any more", txid=txid)
    empty = pa.schema(table.schema()).empty_table()
    write_deltalake(
        table,
        empty if old is None else old.scan(),
        mode="overwrite",
        commit_properties=fence.properties(txid or 0, rolled_back_at=table.version() + 1),
        post_commithook_properties=NO_HOOKS,
    )
