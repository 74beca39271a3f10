"""A spout over files: text, CSV, JSON lines and Parquet, in byte ranges or row groups.

A transaction's metadata says what it holds, and how far the files have been taken with it::

    {"format": "text", "root": folder that the names are below,
     "ranges": [[name, start, end, size, mtime_ns], …],
     "position": [name, offset, mtime_ns],
     "taken": [number of files, digest of their names and sizes]}

The rules by which nothing is lost or doubled:

1. Files are taken in the order of their names. A file is written once, under another or a hidden name if
   that takes a while, and stays as long as the topology lives.
2. The files are listed when a run starts. New ones that sort after those taken come next. One that sorts
   before them, and any that changed or went, is found then and refused (:mod:`spouts.files_ranges`).
3. A file that changed between planning and emitting is refused, whichever attempt it is.
4. Ranges may be cut anywhere: readers move both ends to records' beginnings by the same rule
   (:mod:`spouts.files_lines`).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa

from spouts.files_csv import CsvFormat, CsvOptions
from spouts.files_format import FileFormat, FileRange
from spouts.files_json import JsonFormat
from spouts.files_listing import Listing, absolute_paths, list_files
from spouts.files_parquet import ParquetFormat
from spouts.files_ranges import Inventory, Place, Position, Taken, check_unchanged
from spouts.files_text import TextFormat
from txtopo.contracts.collector import OutputCollector
from txtopo.contracts.context import TopologyContext
from txtopo.contracts.fields import Fields
from txtopo.contracts.spout import Coordinator, Emitter, Metadata, TransactionalSpout
from txtopo.core.attempts import TransactionAttempt
from txtopo.errors import ConfigError, FailedException, InputError

FORMATS: Mapping[str, type[FileFormat]] = {
    kind.name: kind for kind in (TextFormat, CsvFormat, JsonFormat, ParquetFormat)
}
"""The formats by name."""

_SUFFIXES = {suffix: name for name, kind in FORMATS.items() for suffix in kind.suffixes}


class FilesTransactionalSpout(TransactionalSpout):
    """Emits the records of files, many small files or a part of a large one in a transaction.

    The files must be seen under the same absolute path by the driver and by all executors: on a cluster they
    lie on a shared file system. A file is complete when it gets its name, and stays as it is: write it
    beside, or under a name that begins with ``_`` or ``.``, and rename it.

    Args:
        path: a folder (all files below it), a file, a glob, or a list of these. Files and folders whose
            names begin with ``.`` or ``_`` are passed over.
        fields: the records' fields, without the attempt; ``Fields("line: string")`` for text. With types,
            as CSV, JSON and Parquet must have them, the records travel as Arrow columns.
        format: ``"text"``, ``"csv"``, ``"json"`` or ``"parquet"``; if None, what all files' endings agree
            on, and text otherwise.
        batch_bytes: how much a transaction holds, at most; a row group, or a CSV file with quoting, is never
            cut, however large.
        batch_files_max: how many files a transaction touches, at most.
        header: whether the first record of each CSV file names its columns; fields are then found by name.
        delimiter: what stands between the values of a CSV record.
        quote: what may stand around a CSV value, doubled within; None: nothing does, so that a record is a
            line, and large files are cut.

    Raises:
        FieldsError: the fields do not suit the format.
        ConfigError: another argument is wrong.
    """

    def __init__(  # noqa: PLR0913 - the options of a reader
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        fields: Fields | None = None,
        format: str | None = None,
        *,
        batch_bytes: int = 1024 * 1024,
        batch_files_max: int = 256,
        header: bool = True,
        delimiter: str = ",",
        quote: str | None = '"',
    ) -> None:
        for what, number in (("batch_bytes", batch_bytes), ("batch_files_max", batch_files_max)):
            if not isinstance(number, int) or number < 1:
                raise ConfigError(f"{what} is {number!r}; give a whole number, 1 or more")
        if format is not None and format not in FORMATS:
            raise ConfigError(f"format is {format!r}; the formats are {', '.join(FORMATS)}")
        self.paths = absolute_paths(path)
        self.values = (fields or Fields("line: string")).with_attempt().without_attempt()
        """The fields after the attempt."""
        self.output_fields = self.values.with_attempt()
        self.format = format
        self.batch_bytes = batch_bytes
        self.batch_files_max = batch_files_max
        self._fields = fields
        self._csv = CsvOptions(header, delimiter, quote)
        if format is not None:
            self.make_format(format)

    def make_format(self, name: str) -> FileFormat:
        """Return the format of that name, for this spout's fields.

        Raises:
            FieldsError: the fields do not suit it.
        """
        fields = Fields() if self._fields is None and name != TextFormat.name else self.values
        return CsvFormat(fields, self._csv) if name == CsvFormat.name else FORMATS[name](fields)

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """List the files, and return the coordinator of what is there.

        Raises:
            InputError: there are no files, or one of them cannot be read.
            FieldsError: the fields do not suit the format that the files' endings say.
        """
        del config
        listing = list_files(self.paths)
        name = self.format or _guess_format(listing)
        tasks = len(context.component_tasks(context.this_component_id))
        return _FilesCoordinator(self, Inventory(listing, self.make_format(name)), listing.root, name, tasks)

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        """Return the emitter of every n-th range, from ``this_task_index`` on, n being the spout's tasks."""
        del config
        tasks = len(context.component_tasks(context.this_component_id))
        return _FilesEmitter(self, context.this_task_index, tasks)

    def input_ranges(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, tuple[Any, Any]] | None:
        """Return where the transaction begins and ends in each file that it took from."""
        del previous_metadata
        told: dict[str, tuple[Any, Any]] = {}
        for piece in itertools.starmap(FileRange, metadata["ranges"]):
            start, _ = told.get(piece.name, (piece.start, piece.end))
            told[piece.name] = (start, piece.end)
        return told


class _FilesCoordinator(Coordinator):
    def __init__(
        self, spout: FilesTransactionalSpout, inventory: Inventory, root: str, format_name: str, tasks: int
    ) -> None:
        self._spout = spout
        self._inventory = inventory
        self._root = root
        self._format_name = format_name
        self._tasks = tasks
        self._place = Place(0, 0)

    def resume(self, txid: int, metadata: Metadata) -> None:
        del txid
        self._place = self._place_after(metadata)

    def initialize_transaction(self, txid: int, previous_metadata: Metadata) -> Metadata:
        del txid
        plan = self._inventory.plan(
            self._place_after(previous_metadata),
            batch_bytes=self._spout.batch_bytes,
            files_max=self._spout.batch_files_max,
            tasks=self._tasks,
        )
        before = previous_metadata or {"position": None, "taken": None}
        ranges = plan.ranges if plan else ()
        metadata = {
            "format": self._format_name,
            "root": self._root,
            "ranges": [list(attrs.astuple(piece)) for piece in ranges],
            "position": list(attrs.astuple(plan.position)) if plan else before["position"],
            "taken": [plan.taken.count, f"{plan.taken.digest:032x}"] if plan else before["taken"],
        }
        self._place = self._place_after(metadata)
        return metadata

    def is_ready(self) -> bool:
        return not self.is_exhausted()

    def is_exhausted(self) -> bool:
        return self._inventory.is_at_end(self._place)

    def _place_after(self, metadata: Metadata) -> Place:
        if metadata is None or metadata["position"] is None:
            return Place(0, 0)
        if metadata["format"] != self._format_name:
            raise InputError(
                f"the files were read as {metadata['format']} before, and are {self._format_name} now; give "
                f"the spout format={metadata['format']!r}, or remove the files that do not belong here",
            )
        count, digest = metadata["taken"]
        return self._inventory.place(Position(*metadata["position"]), Taken(count, int(digest, 16)))


class _FilesEmitter(Emitter):
    def __init__(self, spout: FilesTransactionalSpout, task: int, tasks: int) -> None:
        self._spout = spout
        self._task = task
        self._tasks = tasks
        self._formats: dict[str, FileFormat] = {}

    def emit_batch(self, attempt: TransactionAttempt, metadata: Metadata, collector: OutputCollector) -> None:
        name = metadata["format"]
        if name not in self._formats:
            self._formats[name] = self._spout.make_format(name)
        for piece in itertools.starmap(FileRange, metadata["ranges"][self._task :: self._tasks]):
            path = str(Path(metadata["root"]) / piece.name)
            try:
                check_unchanged(path, piece)
                self._emit(attempt, self._formats[name], path, piece, collector)
                check_unchanged(path, piece)
            except (FileNotFoundError, PermissionError) as error:
                raise InputError(f"{path} cannot be read: {error.strerror}", cause=str(error)) from error
            except OSError as error:
                raise FailedException(f"{path} could not be read just now", cause=str(error)) from error

    def _emit(
        self,
        attempt: TransactionAttempt,
        files_format: FileFormat,
        path: str,
        piece: FileRange,
        collector: OutputCollector,
    ) -> None:
        with Path(path).open("rb") as handle:
            for batch in files_format.read(handle, path, piece):
                if self._spout.values.columnar:
                    collector.emit_batch(batch)
                else:
                    _emit_rows(attempt, batch, collector)


def _emit_rows(attempt: TransactionAttempt, batch: pa.RecordBatch, collector: OutputCollector) -> None:
    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        collector.emit((attempt, *row))


def _guess_format(listing: Listing) -> str:
    names = {_SUFFIXES.get(suffix, TextFormat.name) for suffix in listing.suffixes}
    return names.pop() if len(names) == 1 else TextFormat.name
