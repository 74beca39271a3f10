"""The tables of a topology's states: how large they are, and their rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from state.delta.log.data_files import DATA_FOLDER, files_of
from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.ownership import Owner
from state.delta.log.vectors import has_vectors
from state.delta.read.history import look_up
from state.delta.read.points import ShownPoint, ShownPoints, TableVersions
from txtopo.api.values import KEYED_KINDS
from txtopo.columnar.conversion import python_rows
from txtopo.errors import DivergenceError, TxtopoError
from txtopo.files.folder import Folder
from txtopo.files.records import DAMAGE, in_camel_case
from txtopo.journal.ending import read_end, table_path
from txtopo.journal.folders import find_journal
from txtopo.text.secrecy import without_secrets
from txtopo.transactional.commit.gathering import REWRITTEN_BYTES_MIN


@attrs.frozen(field_transformer=in_camel_case)
class TablePoint:
    """A transaction as of which a table can be shown, and when it was written."""

    txid: int
    written_at: float | None = None


@attrs.frozen(field_transformer=in_camel_case)
class StateTable:
    """A state, and how large its table is; ``advice`` says what its use costs that need not be.

    ``files`` and ``bytes`` are those of its rows; ``disk_files`` and ``disk_bytes`` are of all that it keeps, of some
    time ago. It can be shown as of ``points``, and as of each commit group from ``all_since`` on.
    """

    name: str
    kind: str | None = None
    class_: str | None = None
    key: str | None = None
    value: str | None = None
    path: str = ""
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    version: int | None = None
    txid: int | None = None
    updated_at: float | None = None
    disk_files: int | None = None
    disk_bytes: int | None = None
    points: Sequence[TablePoint] = ()
    all_since: TablePoint | None = None
    advice: str = ""
    error: str | None = None


@attrs.frozen(field_transformer=in_camel_case)
class States:
    """The states of a topology; ``why`` some may be missing."""

    states: Sequence[StateTable] = ()
    is_live: bool = False
    why: str = ""


@attrs.frozen(field_transformer=in_camel_case)
class Rows:
    """Rows of a state as texts."""

    name: str
    txid: int | None = None
    columns: Sequence[str] = ()
    types: Sequence[str] = ()
    rows: Sequence[Sequence[str | None]] = ()
    found: int = 0
    total: int = 0
    is_cut: bool = False
    last_txid: int | None = None
    error: str | None = None


CELL_CHARACTERS_MAX = 1_000
"""A page of rows with large texts stays a page, and is not megabytes."""

KEPT_SECS = 30
"""For how long at least what a table keeps is not looked at again."""
KEPT_FILE_SECS = 0.001
"""The same for each of its files: to list one takes 4 µs of a core."""


@attrs.frozen
class Kept:
    """All that a table keeps: its files, with those of its log, and the transactions that it can be shown as of."""

    files: int
    bytes: int
    points: ShownPoints | None
    """None: it is of no state."""

    @classmethod
    def at(cls, path: str) -> Kept:
        """Open a table, and return what it keeps."""
        location = Location.resolve(path, None)
        return cls.of(location, location.handle())

    @classmethod
    def of(cls, location: Location, table: DeltaTable) -> Kept:
        """List the files of a table, and read the log's entries of its points; no rows are read."""
        owner = Owner.of(table)
        # Besides our own there may be files that others have put elsewhere: beside the log, and where their rows are.
        foreign = (file.path.rpartition("/")[0] for file in files_of(location, table).values())
        items = [item for below in {"", DATA_FOLDER, LOG_FOLDER, *foreign} for item in location.folder.list(below)]
        points = None if owner is None else TableVersions(location, table, owner).points()
        return cls(len(items), sum(item.size for item in items), points)


@attrs.define(eq=False)
class KeptTables:
    """What tables keep, as of a moment before: to list their files takes a part of the time, however many there are."""

    _clock: Callable[[], float] = time.monotonic
    _known: dict[str, tuple[float, Kept]] = attrs.field(factory=dict)
    """By address, until when it holds."""

    def of(self, location: Location, table: DeltaTable) -> Kept:
        """Return what a table keeps, of which a handle is there."""
        until, found = self._known.get(location.address, (0.0, None))
        if found is None or until < self._clock():
            found = Kept.of(location, table)
            self._known[location.address] = self._clock() + max(KEPT_SECS, found.files * KEPT_FILE_SECS), found
        return found


def states(
    metadata_dir: Folder, topology_id: str, described: Mapping[str, Any], kept: KeptTables
) -> tuple[list[StateTable], str]:
    """Return a topology's states with the size of their tables, and why a damaged journal can't add former ones."""
    end, why = None, ""
    try:
        end = read_end(find_journal(metadata_dir, topology_id))
    except DivergenceError as error:
        why = without_secrets(error.message)
    paths = {} if end is None else {name: table_path(metadata_dir, table) for name, table in end.header.tables.items()}
    found = []
    for name in dict.fromkeys([*described, *paths]):
        declaration = described.get(name, {})
        path = paths.get(name) or declaration.get("path") or ""
        declared = {field: declaration.get(field) for field in ("kind", "key", "value")}
        table = StateTable(name, class_=declaration.get("class"), path=without_secrets(path), **declared)
        found.append(_measured(table, path, kept) if path else table)
    return found, why


def _measured(state: StateTable, path: str, kept_tables: KeptTables) -> StateTable:
    try:
        location = Location.resolve(path, None)
        table = location.handle()
        owner, files = Owner.of(table), files_of(location, table).values()
        kept, size = kept_tables.of(location, table), sum(file.size for file in files)
        changed = pc.max(pa.table(table.get_add_actions())["modification_time"]).as_py() if files else None
        return attrs.evolve(
            state,
            rows=sum(file.live for file in files) if all(file.stats for file in files) else None,
            files=len(files),
            bytes=size,
            version=table.version(),
            txid=None if owner is None else table.transaction_version(owner.application),
            updated_at=None if changed is None else changed / 1000,
            disk_files=kept.files,
            disk_bytes=kept.bytes,
            points=[] if kept.points is None else [_point(point) for point in kept.points.points],
            all_since=None if kept.points is None else _point(kept.points.since),
            advice=_advice(table, owner, size),
        )
    except Exception as error:  # noqa: BLE001 - delta-rs raises many kinds; the other states can be shown
        return attrs.evolve(state, error=without_secrets(str(error)))


def _point(point: ShownPoint) -> TablePoint:
    return TablePoint(point.txid, None if point.written_ms is None else point.written_ms / 1000)


def _advice(table: DeltaTable, owner: Owner | None, size: int) -> str:
    is_keyed = owner is not None and owner.kind in KEYED_KINDS
    if not is_keyed or size <= REWRITTEN_BYTES_MIN or has_vectors(table.metadata().configuration):
        return ""
    return (
        f"a commit group writes up to {size // 1_000_000} MB again for the rows that it touches, so groups gather "
        "transactions and answers come later; with deletion_vectors=True on the state, which 'txtopo evolve' turns on, "
        "it costs what it touches"
    )


def rows(name: str, path: str, keys: Sequence[str], txid: int | None, limit: int) -> Rows:
    """Return rows of a state's table as texts: those of a key, or the first ones, now or as of a transaction."""
    try:
        found = look_up(path, keys, txid, limit)
    except (TxtopoError, *DAMAGE) as error:  # an entry of the log may be damaged
        return Rows(name, txid, error=without_secrets(str(error)))
    return Rows(
        name,
        txid,
        columns=found.first.column_names,
        types=[str(field.type) for field in found.first.schema],
        rows=[[_text(value) for value in row.values()] for row in python_rows(found.first)],
        found=found.found,
        total=found.total,
        is_cut=found.found > found.first.num_rows,
        last_txid=found.last_txid,
    )


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = str(value)
    return text if len(text) <= CELL_CHARACTERS_MAX else f"{text[:CELL_CHARACTERS_MAX]} …"
