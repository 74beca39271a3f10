"""What others have changed of a table itself, so that txtopo can't write to it any more, and how that is taken back.

Somebody who turns on deletion vectors, a change data feed, column mapping or row tracking, or adds a column or a
constraint, makes a table to which txtopo could only write wrong rows. So it is refused, and a repair takes the change
back: it puts one version that equals the last one of txtopo in rows, columns, properties and features. Delta calls that
RESTORE, and lets it lower the protocol.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Action Reconciliation" and "Deletion Vectors".
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
from deltalake import DeltaTable

from state.delta.log.data_files import DataFile, DataFolder, files_of, with_stats
from state.delta.log.entries import actions_of, log_entries
from state.delta.log.growth import metadata_of, protocol_of
from state.delta.log.location import Location
from state.delta.log.ownership import Fence
from state.delta.log.put import Change
from state.delta.log.vectors import vector_in
from txtopo.errors import StateAccessError


@attrs.frozen
class Alteration:
    """A change of a table itself by somebody else, which can be taken back."""

    text: str
    """What of the table txtopo can't write to, in words."""
    head: int
    """The version in which it was found."""
    former: DeltaTable
    """A handle of the version before it."""

    @staticmethod
    def of(location: Location, table: DeltaTable, misfit: Callable[[DeltaTable], str | None]) -> Alteration | None:
        """Return the alteration of a table since its last transaction; None if it has none that can be taken back.

        Args:
            location: where the table is.
            table: a handle of its newest version.
            misfit: says why txtopo can't write to the table of a handle; None if it can.
        """
        text = misfit(table)
        before = None if text is None else _before_others(location, table.version())
        former = None if before is None else location.handle(before)
        if text is None or former is None or misfit(former) is not None:
            return None
        is_whole = DataFolder(location).missing(files_of(location, former).values()) is None
        return Alteration(text, table.version(), former) if is_whole else None

    def take_back(self, location: Location, fence: Fence, partition_by: tuple[str, ...]) -> bool:
        """Put a version that equals the one before; return False if somebody else was faster.

        A crash before the put leaves the table as it was, and one after it a table that can be opened.
        """
        table = location.handle()
        fence.check(table)
        former_files = files_of(location, self.former, partition_by)
        touched, removed = self._moved(location, former_files)
        missing = DataFolder(location).missing(former_files.values())
        if missing is not None:
            raise StateAccessError(f"the table at {location.address} can't be as it was: it needs {missing}")
        again = {path: file for path, file in former_files.items() if path in touched}
        change = Change(
            list(with_stats(self.former, again)) if again else (),
            removed,
            metadata=[
                {"protocol": protocol_of(self.former)},
                {"metaData": metadata_of(self.former)},
            ],
            txid=table.transaction_version(fence.owner.application) or 0,
            restored=self.former.version(),
        )
        return fence.put(location, self.head + 1, change)

    def _moved(self, location: Location, former_files: dict[str, DataFile]) -> tuple[set[str], list[DataFile]]:
        """Return what others have moved since: the paths touched, and the files to remove."""
        touched: set[str] = set()
        live: dict[str, DataFile] = {}
        for version in range(self.former.version() + 1, self.head + 1):
            for removed in actions_of(location, version, "remove"):
                touched.add(removed["path"])
                live.pop(removed["path"], None)
            for added in actions_of(location, version, "add"):
                touched.add(added["path"])
                live[added["path"]] = DataFile(
                    added["path"], added["size"], 0, partition=added["partitionValues"], vector=vector_in(added)
                )
        return touched, [file for file in live.values() if not file.is_in(former_files)]


def _before_others(location: Location, latest: int) -> int | None:
    """Return the version before the first one of somebody else since the last transaction; None if it is not known."""
    first: int | None = None
    for entry in log_entries(location, latest):
        if entry.txid is not None or entry.version == 0:
            return None if first is None else first - 1
        if not entry.is_harmless:
            first = entry.version
    return None
