"""Staged writes: rows that are durable beside a Delta table before they are visible in it.

A staged write is one Arrow file ``_txtopo/staged-<epoch>-<txid>.arrow`` in the table's folder or, if the data files are
already written, a note that lists them, ``….json``. The underscore hides it from readers and from vacuum, like the data
files (see :mod:`state.delta.log.data_files`). Notes of earlier versions name files beside the table's other files,
where a vacuum may have removed them. A staged write is written atomically.

Another writer may compact the table before a staged write is visible. Rows by key, and rows of a table of rows, do
not depend on the table's files; for files that replace others, see :mod:`state.delta.keyed.buckets`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
from deltalake import DeltaTable

from state.delta.log.data_files import (
    DATA_FOLDER,
    ROWS_MARK,
    WAITING_FOLDER,
    DataFile,
    DataFolder,
    files_of,
    moved_file,
)
from state.delta.log.entries import change_since
from state.delta.log.location import Location
from state.delta.log.sync import write_durably
from txtopo.durable import sync_path
from txtopo.errors import ConfigError, DivergenceError

__all__ = ["Staging", "staged_obstacle"]

@attrs.frozen
class StagedWrite:
    state: str
    txid: int
    location: str


_STAGED = re.compile(r"^staged-(\d+)-(\d+)\.(?:arrow|json)(\.draft)?$")


class Staging:
    """The staged writes of one state; ``epoch`` is that of the coordinator that stages.

    For a table in an object store, where txtopo cannot stage, staging and reading raise a ConfigError.
    """

    def __init__(self, state: str, epoch: int, location: Location) -> None:
        self._state = state
        self._epoch = epoch
        self._location = location

    def stage_rows(self, txid: int, rows: pa.Table) -> StagedWrite:
        """Make ``rows`` durable."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        return self._stage(txid, "arrow", sink.getvalue().to_pybytes())

    def stage_note(self, txid: int, note: Mapping[str, Any]) -> StagedWrite:
        """Make a JSON note about durable data files durable."""
        # The files' names must be durable before a durable note lists them.
        data = self._folder() / DATA_FOLDER
        if data.is_dir():
            sync_path(data)
        return self._stage(txid, "json", json.dumps(note).encode())

    def _stage(self, txid: int, form: str, content: bytes) -> StagedWrite:
        # A crash before this leaves data files that nobody refers to, and a crash in it a draft: upkeep and discard()
        # remove them. A crash after it leaves a staged write that no record names until the coordinator state has it.
        folder, name = self._folder(), f"{WAITING_FOLDER}/staged-{self._epoch}-{txid}.{form}"
        write_durably(folder / name, content)
        sync_path(folder)
        return StagedWrite(self._state, txid, name)

    def read(self, staged: StagedWrite) -> Any:
        """Return a staged write of any epoch: the rows, or the note.

        Raises:
            DivergenceError: the file is missing, and its transaction is not in the table.
        """
        path = self._folder() / staged.location
        assert _STAGED.match(path.name), f"{staged.location} is not the location of a staged write"
        try:
            return _content(path)
        except FileNotFoundError as error:
            raise DivergenceError(
                f"state {self._state!r}: transaction {staged.txid} must be finished from {path}, which is "
                "gone, and it is not in the table; restore the file, or start again from a new "
                "coordinator state and a new table",
                txid=staged.txid,
            ) from error

    def data_files(self) -> set[str]:
        """Return the data files that staged writes of any epoch will add to a local table."""
        notes = [json.loads(path.read_bytes()) for path in (self._folder() / WAITING_FOLDER).glob("staged-*.json")]
        return {file.path for note in notes for file in _data_files(note)}

    def discard(self) -> None:
        """Remove the staged writes of this epoch and of earlier ones, and rows that a killed driver gave to executors.

        Keep the staged writes of a newer coordinator.

        A crash in between leaves some of them, which the next call removes.
        """
        if self._location.folder is None:
            return
        for path in (self._location.folder / WAITING_FOLDER).glob("staged-*"):
            name = _STAGED.match(path.name)
            if name is not None and int(name[1]) <= self._epoch:
                path.unlink(missing_ok=True)
        for path in (self._location.folder / WAITING_FOLDER).glob(f"*{ROWS_MARK}-*.arrow"):
            path.unlink(missing_ok=True)

    def _folder(self) -> Path:
        if self._location.folder is None:
            raise ConfigError(
                f"state {self._state!r}: {self._location.address} is in an object store, where writes "
                "cannot be staged yet; a topology with several states needs them on a file system, so mount "
                "the store, or use one state",
            )
        return self._location.folder


def staged_obstacle(location: Location, table: DeltaTable, staged: str) -> str | None:
    """Describe why a staged write can no longer be made visible; return None if it can.

    The text is a relative clause about the staged write, whose path ``staged`` is relative to the table.
    """
    if location.folder is None or not (location.folder / staged).is_file():
        return "which is gone"
    path = location.folder / staged
    try:
        note = _content(path)
    except (OSError, pa.ArrowException, ValueError) as error:
        return f"which can't be read ({error})"
    if isinstance(note, pa.Table):
        return None
    folder = DataFolder(location)
    for file in _data_files(note):
        size = folder.size_of(file.path)
        if size != file.size:
            what = "is gone" if size is None else f"has {size} bytes and not {file.size}"
            return f"which needs the file {file.path}, but that {what}"
    # If other writers have only compacted the table since, the write can still be made: see state.delta.keyed.buckets.
    removed = [DataFile(**file) for file in note.get("removed", ())]
    change = change_since(location, table, note.get("version")) if moved_file(removed, files_of(table)) else None
    return None if change is None else f"which was computed before somebody else changed the table ({change})"


def _content(path: Path) -> Any:
    """Return the rows or the note in the file of a staged write."""
    if path.suffix == ".json":
        return json.loads(path.read_bytes())
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def _data_files(note: Mapping[str, Any]) -> list[DataFile]:
    """Return the data files in a note, of a keyed table or a table of rows."""
    return [DataFile(**file) for name in ("added", "files") for file in note.get(name, ())]
