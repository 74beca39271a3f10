"""A spout over files: text, CSV, JSON lines and Parquet, in byte ranges or row groups.

A transaction's metadata holds its ranges, and the place up to which files have been taken; see
:mod:`spouts.files.coordinator`. These rules ensure that nothing is lost or read twice:

1. A file durably gets a number before it is taken (it is *admitted*), and files are taken in the order of their
   numbers (:mod:`spouts.files.taken_log`). So one place, number and offset, describes everything that is taken.
2. The files are listed when a run starts and admitted in the order of their names or, with ``watch``, as they
   arrive.
3. If a file changes between planning and emitting, it is refused at every attempt.
4. Ranges may be cut anywhere: readers move both ends to the beginning of a record by the same rule
   (:mod:`spouts.files.formats.lines`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import IO, Any, Self

import pyarrow as pa

from spouts.bad_records import BAD_RECORDS, WithBadRecords
from spouts.files.bad_records import (
    BAD_RECORDS_FIELDS,
    BadRecords,
    BadRecordsTable,
    LineNumbers,
    checked_dead_letter,
)
from spouts.files.bucket import Bucket
from spouts.files.coordinator import FilesOptions, ListingCoordinator
from spouts.files.file_system import DISK, FileSystem
from spouts.files.formats.csv_format import CsvFormat, CsvOptions, TsvFormat
from spouts.files.formats.format import FileFormat
from spouts.files.formats.json_format import JsonFormat
from spouts.files.formats.parquet_format import ParquetFormat
from spouts.files.formats.text_format import TextFormat
from spouts.files.limits import ReadLimits
from spouts.files.listing import FileRange, absolute_paths, folder_of_all
from spouts.files.packed import unpacked
from spouts.files.ranges import path_of
from spouts.files.watch import WatchingCoordinator, WatchTimes
from txtopo.api.arguments import check_positive, check_secs, checked_arguments
from txtopo.api.components.collector import BatchOutputCollector
from txtopo.api.components.context import TopologyContext
from txtopo.api.components.spout import Coordinator, Emitter, Metadata, TransactionalSpout
from txtopo.api.data.fields import Fields
from txtopo.api.dataset import Dataset
from txtopo.attempts import TransactionAttempt
from txtopo.errors import ConfigError, InputError, SourceFailure
from txtopo.files.places import is_address

FORMATS: Mapping[str, type[FileFormat]] = {
    kind.name: kind for kind in (TextFormat, CsvFormat, TsvFormat, JsonFormat, ParquetFormat)
}
"""The formats by name."""

_SUFFIXES_SHOWN = 8

_OPENED_AHEAD = 8
"""How many files of a bucket are asked for while one is read."""

_SUFFIXES = {suffix: name for name, kind in FORMATS.items() for suffix in kind.suffixes}


class FilesTransactionalSpout(WithBadRecords, TransactionalSpout):
    """Emits the records of files; a transaction holds many small files or a part of a large one.

    *You* must make the files available under the same absolute path to the driver and to all executors: on a cluster,
    on a shared file system, or in a bucket. Without ``watch``, a file must be complete when it gets its name, and must
    not be changed or moved afterwards: write it elsewhere, or under a name that begins with ``_`` or ``.``, and rename
    it. An object of a bucket is complete when it appears.

    *txtopo* guarantees that each record belongs to exactly one transaction, over any number of runs.

    Args:
        path: a folder (all files below it), a file, a glob, or a list of these; or such addresses in one bucket, as
            ``s3://bucket/in/*.csv``. Files and folders whose names begin with ``.`` or ``_`` are skipped.
        fields: the records' fields, without the attempt; ``Fields("line: string")`` for text. If they have types,
            which CSV, JSON and Parquet require, the records travel as Arrow columns.
        format: ``"text"``, ``"csv"``, ``"tsv"``, ``"json"`` or ``"parquet"``. If None, the format of the files'
            suffixes, which must agree unless the field is text's.
        batch_bytes: the maximum number of bytes in a transaction, as they are stored. A row group, a compressed file
            (``.gz``, ``.bz2``, ``.zst``) or a CSV file with quoting is never split, however large.
        batch_files_max: the maximum number of files in a transaction.
        header: whether the first record of each CSV file names its columns; fields are then found by name.
        delimiter: the character between the values of a CSV record. None: a comma, or a tab in the format ``"tsv"``.
        quote: the character that may enclose a CSV value, doubled inside it. None: values are never quoted, so that
            each line is a record and large files are split.
        watch: whether to take files as they arrive, whatever the order of their names. The run then ends only by
            ``run(…, until=…)``, SIGINT or SIGTERM. ``*.tmp``, ``*.crc`` and ``*._COPYING_`` are skipped too. Files of
            committed transactions may be removed; a name that comes back is a new file. If a file changes after its
            transaction was committed, txtopo warns once and does not read it again.
        settle_secs: with ``watch``, a file is complete when its size and mtime have not changed for this many seconds;
            0 if all files are renamed into place.
        poll_secs: with ``watch``, the seconds between two listings of the folders.
        now_secs: with ``watch``, the clock, in seconds; for tests.
        dead_letter: a Delta table for text, CSV and JSON records that do not fit the fields: file, offset, line, text
            and reason, each exactly once. None: the first such record stops the run with an error that names it.
        storage_options: options for the object store, as those of tables have them. None: from the environment.

    Raises:
        FieldsError: the fields do not suit the format.
        ConfigError: another argument is wrong.
    """

    bad_records_fields = BAD_RECORDS_FIELDS
    read_limits = ReadLimits()

    @checked_arguments
    def __init__(  # noqa: PLR0913 - the options of a reader
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        fields: Fields | None = None,
        format: str | None = None,
        *,
        batch_bytes: int = 1024 * 1024,
        batch_files_max: int = 256,
        header: bool = True,
        delimiter: str | None = None,
        quote: str | None = '"',
        watch: bool = False,
        settle_secs: float = 2.0,
        poll_secs: float = 1.0,
        now_secs: Callable[[], float] = time.monotonic,
        dead_letter: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        for what, number in (("batch_bytes", batch_bytes), ("batch_files_max", batch_files_max)):
            check_positive(what, number)
        for what, secs in (("settle_secs", settle_secs), ("poll_secs", poll_secs)):
            check_secs(what, secs)
        if format is not None and format not in FORMATS:
            raise ConfigError(f"format is {format!r}; the formats are {', '.join(FORMATS)}")
        self.paths = absolute_paths(path)
        self.files: FileSystem = Bucket(tuple((storage_options or {}).items())) if is_address(self.paths[0]) else DISK
        """Where they are."""
        self.values = (fields or Fields("line: string")).with_attempt().without_attempt()
        """The fields after the attempt."""
        self.output_fields = self.values.with_attempt()
        self.format = format
        self.batch_bytes = batch_bytes
        self.batch_files_max = batch_files_max
        spent_secs = time.thread_time if self.files is DISK else now_secs
        self.watch = WatchTimes(settle_secs, poll_secs, now_secs, spent_secs) if watch else None
        self.dead_letter = None if dead_letter is None else checked_dead_letter(dead_letter, self.paths)
        self._fields = fields
        self._csv = CsvOptions(header, delimiter, quote)
        if format is not None:
            self.make_format(format)

    def with_dead_letter(self, path: str) -> Self:
        """Return this spout with a table of bad records.

        Raises:
            ConfigError: it has one already, would read the table as input, or reads Parquet, which has no bad records.
        """
        spout = super().with_dead_letter(checked_dead_letter(path, self.paths))
        if self.format is not None:
            spout.make_format(self.format)
        return spout

    def make_format(self, name: str) -> FileFormat:
        """Return the format of a name for this spout's fields.

        Raises:
            FieldsError: the fields do not suit the format.
            ConfigError: ``dead_letter`` is given for Parquet, which has no bad records.
        """
        if self.dead_letter is not None and name == ParquetFormat.name:
            raise ConfigError("dead_letter works for text, CSV and JSON files only; leave it out for Parquet")
        fields = Fields() if self._fields is None and name != TextFormat.name else self.values
        kind = FORMATS[name]
        file_format = kind(fields, self._csv) if issubclass(kind, CsvFormat) else kind(fields)
        file_format.files, file_format.limits = self.files, self.read_limits
        return file_format

    def _guess_format(self, suffixes: Iterable[str]) -> str:
        """Return the format of the files with some suffixes; raise InputError if they are of several, unless text."""
        ordered = sorted(suffixes)
        names = {_SUFFIXES.get(suffix, TextFormat.name) for suffix in ordered}
        if len(names) == 1:
            return names.pop()
        if TextFormat.suits(self.values):
            return TextFormat.name
        shown = ", ".join(suffix or "none" for suffix in ordered[:_SUFFIXES_SHOWN])
        raise InputError(
            f"the files' suffixes are of several formats ({shown}): give a path to those of one, such as "
            f"{self.paths[0]}/*{next(suffix for suffix in ordered if suffix in _SUFFIXES)}, or format=… if all have it"
        )

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """Return the coordinator: of the files listed now or, with ``watch``, of arriving files.

        Raises:
            InputError: a path does not exist; without ``watch``, also if there are no files or one cannot be read.
            FieldsError: the fields do not suit the format of the files' suffixes.
        """
        del config
        options = FilesOptions(
            self.paths,
            self.make_format,
            self._guess_format,
            self.format,
            self.batch_bytes,
            self.batch_files_max,
            tasks=len(context.component_tasks(context.this_component_id)),
            files=self.files,
        )
        if self.watch is None:
            return ListingCoordinator(options, self.files.list_files(self.paths))
        return WatchingCoordinator(options, self.watch, lambda: self.files.list_files(self.paths).files)

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        """Return the emitter of every n-th range from ``this_task_index`` on, where n is the number of tasks."""
        del config
        tasks = len(context.component_tasks(context.this_component_id))
        return _FilesEmitter(self, context.this_task_index, tasks)

    def datasets(self, partitions: Collection[str]) -> Mapping[str, Dataset]:
        """Return the folder with all files, or the only file."""
        del partitions
        return {"": Dataset.at(folder_of_all(self.paths))}

    def input_ranges(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, tuple[Any, Any]] | None:
        """Return the start and end of the transaction's share of each of its files, by name.

        With ``watch``, a name that was removed and came back is another file, so the file's number is appended.
        """
        del previous_metadata
        shares: dict[str, tuple[Any, Any]] = {}
        numbers = metadata.get("numbers") or [None] * len(metadata["ranges"])
        for piece, number in zip(itertools.starmap(FileRange, metadata["ranges"]), numbers, strict=True):
            name = piece.name if number is None else f"{piece.name} #{number}"
            start, _ = shares.get(name, (piece.start, piece.end))
            shares[name] = (start, piece.end)
        return shares

    def input_skipped(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, list[tuple[int, int]]]:
        """Return the shares of files that ``txtopo forgo`` goes on without, by name."""
        del previous_metadata
        shares: dict[str, list[tuple[int, int]]] = {}
        for name, start, end in metadata.get("skipped", ()):
            shares.setdefault(name, []).append((start, end))
        return shares


class _FilesEmitter(Emitter):
    def __init__(self, spout: FilesTransactionalSpout, task: int, tasks: int) -> None:
        self._spout = spout
        self._task = task
        self._tasks = tasks
        self._formats: dict[str, FileFormat] = {}
        self._line_numbers = LineNumbers(spout.files)

    def emit_batch(self, attempt: TransactionAttempt, metadata: Metadata, collector: BatchOutputCollector) -> None:
        name = metadata["format"]
        if name not in self._formats:
            self._formats[name] = self._spout.make_format(name)
        waiting = [
            (path_of(metadata["root"], piece.name), piece)
            for piece in itertools.starmap(FileRange, metadata["ranges"][self._task :: self._tasks])
        ]
        opened: deque[Callable[[], IO[bytes]]] = deque()
        for index, (path, piece) in enumerate(waiting):
            while len(opened) <= _OPENED_AHEAD and index + len(opened) < len(waiting):
                opened.append(self._spout.files.opening(*waiting[index + len(opened)]))
            try:
                with opened.popleft()() as handle:
                    self._emit(attempt, self._formats[name], path, piece, handle, collector)
            except (FileNotFoundError, PermissionError) as error:
                raise InputError(f"{path} cannot be read: {error.strerror}", cause=str(error)) from error
            except OSError as error:
                raise SourceFailure(f"{path} could not be read", cause=str(error)) from error

    def _emit(  # noqa: PLR0913, PLR0917 - what it emits, of what, to where
        self,
        attempt: TransactionAttempt,
        files_format: FileFormat,
        path: str,
        piece: FileRange,
        handle: IO[bytes],
        collector: BatchOutputCollector,
    ) -> None:
        bad = self._bad_records(path, piece, collector)
        with contextlib.closing(self._line_numbers):
            try:
                for batch in files_format.read(unpacked(handle, path, self._spout.read_limits.chunk_bytes), piece, bad):
                    if self._spout.values.columnar:
                        collector.emit_batch(batch)
                    else:
                        _emit_rows(attempt, batch, collector)
                bad.finish()
            except InputError:
                self._spout.files.check_unchanged(path, piece, handle)  # a change explains a bad record better
                raise
            self._spout.files.check_unchanged(path, piece, handle)

    def _bad_records(self, path: str, piece: FileRange, collector: BatchOutputCollector) -> BadRecords:
        if self._spout.dead_letter is None:
            return BadRecords(path, piece, self._line_numbers, self._spout.read_limits)
        return BadRecordsTable(
            path,
            piece,
            self._line_numbers,
            self._spout.read_limits,
            lambda batch: collector.emit_batch(batch, stream=BAD_RECORDS),
        )


def _emit_rows(attempt: TransactionAttempt, batch: pa.RecordBatch, collector: BatchOutputCollector) -> None:
    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        collector.emit((attempt, *row))
