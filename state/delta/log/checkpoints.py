"""Checkpoints as txtopo makes them: what is live, and the removals of files that still exist.

delta-rs' own also have the removals of files that are gone, for as long as the table's
``delta.deletedFileRetentionDuration``, a week by default. No reader needs them, nor does a vacuum: a removal only tells
it how long the file that is still there must stay. Where each second removes files, they would soon be gigabytes.

The one before and the entries since then make the next one, as the protocol says; delta-rs makes the first one, and
each that has more in it than a table of txtopo. Source: "Action Reconciliation" of
https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
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

_IN_PARTS = re.compile(r"\.checkpoint(\.\d{10}\.\d{10})?\.parquet$")
"""The end of the path of a checkpoint that is all in it, or in several such files."""

_KINDS = ("add", "remove", "metaData", "protocol", "txn")
"""The kinds of actions of which a checkpoint is brought on without delta-rs, each of them a column."""

_PARSED = "_parsed"
"""The end of the name of a field that has another one once more, in other types."""


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
    base, parts = checkpoint_until(location.folder, version)
    if checkpoint_path(version) in parts:
        return
    if not all(part.endswith(".parquet") and _IN_PARTS.search(part) for part in parts):
        location.handle(version).create_checkpoint()  # somebody's that names its parts
        if location.root is not None:
            sync_files([location.root / checkpoint_path(version)])
        return
    folder = location.folder
    entries = [folder.get(entry_path(number)) for number in range(base + 1, version + 1)]
    checkpoint = _brought_on(folder.get(parts[0]), entries) if len(parts) == 1 else None
    rows = _by_delta_rs(folder, parts, base + 1, entries) if checkpoint is None else checkpoint
    needed = rows.filter(pa.array(_are_needed(rows, is_there), pa.bool_()))
    sink = pa.BufferOutputStream()
    pq.write_table(needed, sink)
    content = memoryview(sink.getvalue()).cast("B")
    folder.put_if_absent(checkpoint_path(version), content)
    if is_newest:
        files = needed.num_rows - needed["add"].null_count
        sizes = {"size": needed.num_rows, "sizeInBytes": content.nbytes, "numOfAddFiles": files}
        _name_last(folder, version, {"version": version, **sizes})


def _by_delta_rs(folder: Folder, parts: Iterable[str], first: int, entries: Iterable[bytes]) -> pa.Table:
    """Return the rows of a checkpoint that delta-rs makes of another one and the entries of versions from one on."""
    with tempfile.TemporaryDirectory(prefix="txtopo-checkpoint-") as copy:
        log = Path(copy) / LOG_FOLDER
        log.mkdir()
        for path in parts:
            (Path(copy) / path).parent.mkdir(exist_ok=True)  # a part may be in a separate folder
            (Path(copy) / path).write_bytes(folder.get(path))
        version = first - 1
        for version, entry in enumerate(entries, first):
            (Path(copy) / entry_path(version)).write_bytes(entry)
        DeltaTable(copy, version=version).create_checkpoint()
        return pq.ParquetFile(Path(copy) / checkpoint_path(version)).read()


def _brought_on(checkpoint: bytes, entries: Iterable[bytes]) -> pa.Table | None:
    """Return the rows of a checkpoint some entries later; None if there is more in it than a table of txtopo has.

    1,500 removals and 80 entries take 10 ms of a processor, and delta-rs 50: where each second makes five versions of
    three tables with small rows, that was a fifth of all that a group takes.
    """
    before = pq.ParquetFile(pa.BufferReader(checkpoint)).read()
    if not {*_KINDS} <= {*before.column_names} or not all(_is_known(before, name) for name in before.column_names):
        return None
    latest: dict[tuple[Any, ...], tuple[str, Mapping[str, Any]]] = {}
    try:
        for line in (line for entry in entries for line in entry.splitlines()):
            for kind, action in json.loads(line).items():
                if kind in _KINDS:
                    _check_whole(before.schema.field(kind).type, action)
                    key = _key_of(kind, action)
                    latest.pop(key, None)
                    latest[key] = kind, action
                elif kind != "commitInfo":
                    return None
        later = pa.Table.from_pylist([{kind: action} for kind, action in reversed(latest.values())], before.schema)
    except (ValueError, KeyError, TypeError, AttributeError):  # those of Arrow are among them
        return None
    # The newest first, as delta-rs has them.
    return pa.concat_tables([later, before.filter(pa.array(_are_latest(before, latest), pa.bool_()))])


def _is_known(rows: pa.Table, name: str) -> bool:
    if name not in _KINDS:
        return bool(rows[name].null_count == rows.num_rows)
    return not any(field.name.endswith(_PARSED) for field in rows.schema.field(name).type)


def _check_whole(kind: pa.StructType, action: Mapping[str, Any]) -> None:
    """Raise a KeyError if an action has a field that its column lacks, or lacks one that must be there."""
    for field in kind:
        value = action.get(field.name)
        if value is None and not field.nullable:
            raise KeyError(field.name)
        if value is not None and pa.types.is_struct(field.type):
            _check_whole(field.type, value)
    if not {*action} <= {field.name for field in kind}:
        raise KeyError


def _key_of(kind: str, action: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what an action has in common with those that the last one of them replaces."""
    if kind in {"add", "remove"}:
        vector = vector_in(action)
        return action["path"], vector and (vector.storage_type, vector.path, vector.offset)
    return kind, action["appId"] if kind == "txn" else None


def _are_latest(rows: pa.Table, later: Collection[tuple[Any, ...]]) -> list[bool]:
    """Return which rows of a checkpoint no later action replaces."""
    touched, are_latest = {key[0] for key in later}, [True] * rows.num_rows
    for kind in _KINDS:
        column = rows[kind]
        # Not whole rows but of those that may be replaced: of each, Python makes 15 objects.
        names = pc.struct_field(column, "path").to_pylist() if kind in {"add", "remove"} else [kind] * rows.num_rows
        for at in pc.indices_nonzero(column.is_valid()).to_pylist():
            if names[at] in touched:
                are_latest[at] = _key_of(kind, column[at].as_py()) not in later
    return are_latest


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
        place, *more_places = places_of(path, vector_in({"deletionVector": descriptor}))
        return any(map(is_there, more_places)) or (path not in live and is_there(place))

    return list(map(is_needed, paths, descriptors))


def _name_last(folder: Folder, version: int, content: Mapping[str, Any]) -> None:
    """Name the checkpoint of a version, just made, as the last one; ``content`` is what readers are told of it.

    If it is not the last one any more, the name is removed:

    1. A coordinator makes a checkpoint, and is paused before it names it.
    2. Others make later ones, and remove that one.
    3. It names it: readers that look for it there read nothing any more. Without a name, they list the log.
    """
    path = f"{LOG_FOLDER}/{LAST_CHECKPOINT}"
    folder.put(path, json.dumps(content).encode())
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
