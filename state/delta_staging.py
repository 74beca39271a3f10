"""Staged writes: rows that are durable, beside a Delta table, before they are visible in it.

A staged write is one Arrow file ``_txtopo/staged-<epoch>-<txid>.arrow`` in the table's folder, or, where the
executors have written the data files already, a note of those, ``….json``. The underscore hides it from readers
and from vacuum. It is written whole or not at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa

from state.delta_buckets import DataFile, FileWrites
from state.delta_location import Location
from state.delta_sync import sync_folder, write_durably
from txtopo.contracts.reduction import RowWrites
from txtopo.contracts.state import StagedWrite
from txtopo.errors import ConfigError, DivergenceError

__all__ = ["Staging"]

_FOLDER = "_txtopo"
_STAGED = re.compile(r"^staged-(\d+)-(\d+)\.(?:arrow|json)(\.draft)?$")


class Staging:
    """The staged writes of one state.

    Args:
        state: its name.
        epoch: the epoch of the coordinator that stages.
        location: where its table lies.
    """

    def __init__(self, state: str, epoch: int, location: Location) -> None:
        self._state = state
        self._epoch = epoch
        self._location = location

    def stage(self, txid: int, rows: pa.Table) -> StagedWrite:
        """Make ``rows`` durable.

        Raises:
            ConfigError: the table lies in an object store, where txtopo cannot stage.
        """
        name = f"{_FOLDER}/staged-{self._epoch}-{txid}.arrow"
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        folder = self._folder()
        write_durably(folder / name, sink.getvalue().to_pybytes())
        sync_folder(folder)
        return StagedWrite(self._state, txid, name)

    def stage_files(self, txid: int, writes: FileWrites) -> StagedWrite:
        """Note files that are in the table's folder already."""
        note = {
            "added": [attrs.asdict(file) for file in writes.added],
            "removed": [attrs.asdict(file) for file in writes.removed],
            "touched": len(writes),
            "first_txid": writes.first_txid,
        }
        return self.stage_note(txid, note)

    def stage_note(self, txid: int, note: Mapping[str, Any]) -> StagedWrite:
        """Make a note durable, which tells of data files that are durable already; it is JSON."""
        name = f"{_FOLDER}/staged-{self._epoch}-{txid}.json"
        folder = self._folder()
        sync_folder(folder)
        write_durably(folder / name, json.dumps(note).encode())
        sync_folder(folder)
        return StagedWrite(self._state, txid, name)

    def read(self, staged: StagedWrite, read_writes: Callable[[pa.Table], Mapping[Any, Any]]) -> RowWrites | FileWrites:
        """Return a staged write, of whichever epoch.

        Args:
            staged: where it lies.
            read_writes: makes the mapping of rows.

        Raises:
            DivergenceError: it is not there, and its transaction is not in the table.
        """
        path = self._path(staged)
        if path.suffix == ".json":
            note = self.read_note(staged)
            added, removed = ([DataFile(**file) for file in note[name]] for name in ("added", "removed"))
            return FileWrites(str(self._folder()), added, removed, note["touched"], note["first_txid"], read_writes)
        try:
            with pa.OSFile(str(path)) as file:
                return RowWrites(pa.ipc.open_file(file).read_all(), read_writes)
        except FileNotFoundError as error:
            raise self._gone(staged, path) from error

    def read_note(self, staged: StagedWrite) -> Any:
        """Return what :meth:`stage_note` noted, in whichever epoch.

        Raises:
            DivergenceError: it is not there, and its transaction is not in the table.
        """
        path = self._path(staged)
        try:
            return json.loads(path.read_bytes())
        except FileNotFoundError as error:
            raise self._gone(staged, path) from error

    def discard(self) -> None:
        """Remove the staged writes of this epoch and of those before; a newer coordinator's stay."""
        if self._location.folder is None:
            return
        for path in (self._location.folder / _FOLDER).glob("staged-*"):
            name = _STAGED.match(path.name)
            if name is not None and int(name[1]) <= self._epoch:
                path.unlink(missing_ok=True)

    def _path(self, staged: StagedWrite) -> Path:
        path = self._folder() / staged.location
        assert _STAGED.match(path.name), f"{staged.location} is not the location of a staged write"
        return path

    def _gone(self, staged: StagedWrite, path: Path) -> DivergenceError:
        return DivergenceError(
            f"state {self._state!r}: transaction {staged.txid} is to be finished from {path}, which is "
            "gone, and it is not in the table; put the file back, or start again from a new "
            "coordinator state and a new table",
            txid=staged.txid,
        )

    def _folder(self) -> Path:
        if self._location.folder is None:
            raise ConfigError(
                f"state {self._state!r}: {self._location.address} lies in an object store, where writes "
                "cannot be staged yet; a topology with several states needs them on a file system, so mount "
                "the store, or use one state",
            )
        return self._location.folder
