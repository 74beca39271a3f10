"""Checkpoints as txtopo makes them: what is live, and the removals of files that still exist.

delta-rs' own also have the removals of files that are gone, for as long as the table's
``delta.deletedFileRetentionDuration``, a week by default. No reader needs them, nor does a vacuum: a removal only tells
it how long the file that is still there must stay. Where each second removes files, they would soon be gigabytes.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from state.delta.log.entries import entry_path
from state.delta.log.kept import checkpoint_until
from state.delta.log.location import LOG_FOLDER, Location
from state.delta.log.sync import CHECKPOINT, LAST_CHECKPOINT, sync_files
from state.delta.log.vectors import places_of, vector_in
from txtopo.files.folder import Folder

__all__ = ["Removal", "checkpoint_path", "make_checkpoint", "places_in", "removals_in"]

_IN_PARTS = re.compile(r"\.checkpoint(\.\d{10}\.\d{10})?\.parquet$")
"""The end of the path of a checkpoint that is all in it, or in several such files."""


@attrs.frozen
class Removal:
    """A file that a version no longer has: when it was removed, in milliseconds since 1970, and what it needed."""

    time_ms: int
    places: tuple[str, ...]


def checkpoint_path(version: int) -> str:
    """Return the path of the checkpoint that txtopo makes of a version, relative to the table's folder."""
    return f"{LOG_FOLDER}/{version:020d}{CHECKPOINT}.parquet"


def make_checkpoint(
    location: Location, version: int, is_there: Callable[[str], bool], *, is_newest: bool = True
) -> None:
    """Make a checkpoint of a version, durably, unless it has one.

    It is put whole: readers that have listed the log trust the sizes in the list, so a checkpoint never changes. Hence
    delta-rs makes it of a copy of the log. A crash before the put leaves none, and one after it leaves it unnamed.

    Args:
        location: the table.
        version: the version, which can be opened.
        is_there: says of a path in the table's folder whether a file was there once the version was made.
        is_newest: whether it is named to readers as the last one.
    """
    base, parts = checkpoint_until(location, version)
    if checkpoint_path(version) in parts:
        return
    if not all(part.endswith(".parquet") and _IN_PARTS.search(part) for part in parts):
        location.handle(version).create_checkpoint()  # somebody's that names its parts
        if location.root is not None:
            sync_files([location.root / checkpoint_path(version)])
        return
    folder = location.folder
    with tempfile.TemporaryDirectory(prefix="txtopo-checkpoint-") as copy:
        for path in (*parts, *(entry_path(each) for each in range(base + 1, version + 1))):
            place = Path(copy) / path
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(folder.get(path))
        DeltaTable(copy, version=version).create_checkpoint()
        named: dict[str, Any] = json.loads((Path(copy) / LOG_FOLDER / LAST_CHECKPOINT).read_bytes())
        rows = pq.ParquetFile(Path(copy) / checkpoint_path(version)).read()
    needed = rows.filter(pa.array(_are_needed(rows, is_there), pa.bool_()))
    sink = pa.BufferOutputStream()
    pq.write_table(needed, sink)
    content = memoryview(sink.getvalue()).cast("B")
    folder.put_if_absent(checkpoint_path(version), content)
    if is_newest:
        _name_last(folder, version, {**named, "size": needed.num_rows, "sizeInBytes": content.nbytes})


def _are_needed(rows: pa.Table, is_there: Callable[[str], bool]) -> list[bool]:
    """Return which rows of a checkpoint stay: those of no removal, or of one of a file or vector that still exists."""
    live = set(pc.struct_field(rows["add"], "path").to_pylist())
    # Two columns, and not whole rows: of these, Python makes 15 objects each, while commits wait for its lock.
    paths = pc.struct_field(rows["remove"], "path").to_pylist()
    vectors = pc.struct_field(rows["remove"], "deletionVector")
    descriptors = vectors.to_pylist() if vectors.length() > vectors.null_count else [None] * len(paths)

    def is_needed(path: str | None, descriptor: Mapping[str, Any] | None) -> bool:
        if path is None:
            return True
        if descriptor is None and "%" not in path:  # a place as it is: to look for more takes 10x as long
            return path not in live and is_there(path)
        place, *others = places_of(path, vector_in({"deletionVector": descriptor}))
        return any(map(is_there, others)) or (path not in live and is_there(place))

    return list(map(is_needed, paths, descriptors))


def _name_last(folder: Folder, version: int, told: Mapping[str, Any]) -> None:
    """Name the checkpoint of a version, just made, as the last one; ``told`` is what readers are told of it.

    If it is not the last one any more, the name is removed:

    1. A coordinator makes a checkpoint, and is paused before it names it.
    2. Others make later ones, and remove that one.
    3. It names it: readers that look for it there read nothing any more. Without a name, they list the log.
    """
    path = f"{LOG_FOLDER}/{LAST_CHECKPOINT}"
    folder.put(path, json.dumps(told).encode())
    names = [item.path.removeprefix(f"{LOG_FOLDER}/") for item in folder.list(LOG_FOLDER, f"{version:020d}")]
    checkpoints = [name for name in names if CHECKPOINT in name]
    if not checkpoints or any(not name.startswith(f"{version:020d}.") for name in checkpoints):
        folder.delete(path)


def places_in(location: Location, version: int) -> frozenset[str]:
    """Return the paths in the table's folder that a version needs, by its checkpoint."""
    return frozenset(place for added in _actions(location, version, "add", ()) for place in _places(added))


def removals_in(location: Location, version: int) -> list[Removal]:
    """Return the removals that the checkpoint of a version has."""
    removed = _actions(location, version, "remove", ("deletionTimestamp",))
    return [Removal(each.get("deletionTimestamp") or 0, _places(each)) for each in removed]


def _actions(location: Location, version: int, kind: str, columns: tuple[str, ...]) -> list[Mapping[str, Any]]:
    content = pa.BufferReader(location.folder.get(checkpoint_path(version)))
    names = [f"{kind}.{name}" for name in ("path", "deletionVector", *columns)]
    rows = pq.ParquetFile(content).read(columns=names)[kind].to_pylist()
    return [row for row in rows if row is not None and row["path"] is not None]


def _places(action: Mapping[str, Any]) -> tuple[str, ...]:
    return places_of(action["path"], vector_in(action))
