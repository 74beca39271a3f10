"""Which deletion vectors the files of a version have, from the log itself: delta-rs does not say.

The newest checkpoint has those of all files at its version, and each later entry says which files it takes away and
adds. A file and its vector are one: what is removed with another vector than it has stays.

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Action Reconciliation" and "Checkpoints".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from state.delta.log.entries import entry_path
from state.delta.log.kept import checkpoint_until
from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.vectors import VECTORS_FEATURE, Vector, vector_in

_SIDECARS = f"{LOG_FOLDER}/_sidecars"
"""The folder of parts that a checkpoint names."""


def live_vectors(
    location: Location, table: DeltaTable, known: tuple[int, Mapping[str, Vector]] | None = None
) -> dict[str, Vector]:
    """Return the deletion vectors of the files of the handle's version, by path as in the log.

    Nothing is read of a table without the feature. ``known`` are an earlier version, or this one, and its vectors: only
    later entries are read then, if they are there.

    Raises:
        FileNotFoundError: a part of the log has gone meanwhile.
    """
    if VECTORS_FEATURE not in (table.protocol().reader_features or ()):
        return {}
    if known is not None:
        try:
            return _followed(location, known[0], table.version(), known[1])
        except FileNotFoundError:  # behind a checkpoint of somebody else
            pass
    version, files = checkpoint_until(location.folder, table.version())
    vectors = {path: vector for file in files for path, vector in _in_checkpoint(location, file)}
    return _followed(location, version, table.version(), vectors)


def _followed(location: Location, since: int, version: int, vectors: Mapping[str, Vector]) -> dict[str, Vector]:
    """Return the vectors of a version, given those of an earlier one."""
    live = {**vectors}
    for number in range(since + 1, version + 1):
        actions = _actions(location.folder.get(entry_path(number)))
        for removed in (action["remove"] for action in actions if "remove" in action):
            if live.get(removed["path"]) == vector_in(removed):
                live.pop(removed["path"], None)
        for added in (action["add"] for action in actions if "add" in action):
            live.pop(added["path"], None)
            live.update(_with_vector(added))
    return live


def _in_checkpoint(location: Location, path: str) -> Iterator[tuple[str, Vector]]:
    """Yield the files with a vector, and those vectors, in a file of a checkpoint and in the parts that it names."""
    content = location.folder.get(path)
    if path.endswith(".json"):
        actions = _actions(content)
        parts = [action["sidecar"]["path"] for action in actions if "sidecar" in action]
        files = [action["add"] for action in actions if "add" in action]
    else:
        rows = pq.ParquetFile(pa.BufferReader(content)).read(columns=["add.path", "add.deletionVector", "sidecar.path"])
        parts = _valid(rows, "sidecar", "path")["path"].to_pylist()
        files = _valid(rows, "add", "deletionVector").to_pylist()
    for added in files:
        yield from _with_vector(added).items()
    for part in parts:
        yield from _in_checkpoint(location, f"{_SIDECARS}/{part}")


def _valid(rows: pa.Table, kind: str, field: str) -> pa.Table:
    """Return the actions of a kind in a checkpoint that have a value in a field."""
    if kind not in rows.column_names or rows.schema.field(kind).type.get_field_index(field) < 0:
        return pa.table({field: pa.array([], pa.string())})
    actions = rows.select([kind]).flatten()
    actions = actions.rename_columns([name.removeprefix(f"{kind}.") for name in actions.column_names])
    return actions.filter(_has_value(actions[field]))


def _has_value(column: pa.ChunkedArray) -> Any:
    return pc.is_valid(pc.struct_field(column, 0) if pa.types.is_struct(column.type) else column)


def _actions(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines() if line.strip()]


def _with_vector(added: Mapping[str, Any]) -> dict[str, Vector]:
    """Return the vector of a file that an action adds by its path; nothing if it has none."""
    vector = vector_in(added)
    return {} if vector is None else {added["path"]: vector}
