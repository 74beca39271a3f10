"""A spout over files: text, CSV, JSON lines and Parquet, in byte ranges or row groups.

A transaction's metadata says what it holds, and how far the files have been taken with it; see
:mod:`spouts.files.intake`. The rules by which nothing is lost or doubled:

1. A file is admitted under a number, durably, before it is taken, and files are taken in the order of their
   numbers (:mod:`spouts.files.taken_log`). So one place, number and offset, tells all that is taken.
2. The files are listed when a run starts, and admitted in the order of their names; or, with ``watch``, as they
   arrive.
3. A file that changed between planning and emitting is refused, whichever attempt it is.
4. Ranges may be cut anywhere: readers move both ends to records' beginnings by the same rule
   (:mod:`spouts.files.lines`).
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from spouts.files.bad_records import (
    BAD_RECORDS,
    BAD_RECORDS_FIELDS,
    BadRecords,
    DeadLetters,
    LineNumbers,
    checked_dead_letter,
)
from spouts.files.csv_format import CsvFormat, CsvOptions
from spouts.files.format import FileFormat, check_unchanged
from spouts.files.intake import Intake, ListingCoordinator
from spouts.files.json_format import JsonFormat
from spouts.files.listing import FileRange, absolute_paths, list_files
from spouts.files.parquet_format import ParquetFormat
from spouts.files.text_format import TextFormat
from spouts.files.watch import Patience, WatchingCoordinator
from txtopo.api.bolt import OutputFieldsDeclarer
from txtopo.api.collector import BatchOutputCollector
from txtopo.api.context import TopologyContext
from txtopo.api.fields import Fields
from txtopo.api.spout import Coordinator, Emitter, Metadata, SpoutTable, TransactionalSpout
from txtopo.attempts import TransactionAttempt
from txtopo.errors import ConfigError, FailedException, InputError

FORMATS: Mapping[str, type[FileFormat]] = {
    kind.name: kind for kind in (TextFormat, CsvFormat, JsonFormat, ParquetFormat)
}
"""The formats by name."""

_SUFFIXES = {suffix: name for name, kind in FORMATS.items() for suffix in kind.suffixes}


class FilesTransactionalSpout(TransactionalSpout):
    """Emits the records of files, many small files or a part of a large one in a transaction.

    The files must be seen under the same absolute path by the driver and by all executors: on a cluster they
    lie on a shared file system. Without ``watch``, a file is complete when it gets its name, and stays as it is and
    where it is: write it beside, or under a name that begins with ``_`` or ``.``, and rename it.

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
        watch: whether to take files as they arrive, in whatever order their names sort, without end: until
            ``run(…, until=…)``, SIGINT or SIGTERM. Then ``*.tmp``, ``*.crc`` and ``*._COPYING_`` are passed over, too;
            names that were taken may go, and one that comes back is a new file; and a file that changes after its
            transaction was committed is told of once, and not read again.
        settle_secs: with ``watch``, a file is complete when size and mtime have not changed for so long; 0 if
            all files are renamed into place.
        poll_secs: with ``watch``, how often the folders are looked at.
        now_secs: with ``watch``, tells the time; for tests.
        dead_letter: a Delta table for text, CSV and JSON records that do not fit the fields: file, offset, line, text
            and reason, each once with its transaction. None: the first of them stops the run, and is named.

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
        watch: bool = False,
        settle_secs: float = 2.0,
        poll_secs: float = 1.0,
        now_secs: Callable[[], float] = time.monotonic,
        dead_letter: str | os.PathLike[str] | None = None,
    ) -> None:
        for what, number in (("batch_bytes", batch_bytes), ("batch_files_max", batch_files_max)):
            if not isinstance(number, int) or number < 1:
                raise ConfigError(f"{what} is {number!r}; give a whole number, 1 or more")
        for what, secs in (("settle_secs", settle_secs), ("poll_secs", poll_secs)):
            if isinstance(secs, bool) or not isinstance(secs, int | float) or not 0 <= secs < float("inf"):
                raise ConfigError(f"{what} is {secs!r}; give a number of seconds, 0 or more")
        if format is not None and format not in FORMATS:
            raise ConfigError(f"format is {format!r}; the formats are {', '.join(FORMATS)}")
        self.paths = absolute_paths(path)
        self.values = (fields or Fields("line: string")).with_attempt().without_attempt()
        """The fields after the attempt."""
        self.output_fields = self.values.with_attempt()
        self.format = format
        self.batch_bytes = batch_bytes
        self.batch_files_max = batch_files_max
        self.watch = Patience(settle_secs, poll_secs, now_secs) if watch else None
        self.dead_letter = None if dead_letter is None else checked_dead_letter(dead_letter, self.paths)
        self._fields = fields
        self._csv = CsvOptions(header, delimiter, quote)
        if format is not None:
            self.make_format(format)

    def make_format(self, name: str) -> FileFormat:
        """Return the format of that name, for this spout's fields.

        Raises:
            FieldsError: the fields do not suit it.
            ConfigError: it has no bad records, and a table is given for them.
        """
        if self.dead_letter is not None and name == ParquetFormat.name:
            raise ConfigError("dead_letter is for the records of text, CSV and JSON files; leave it out for Parquet")
        fields = Fields() if self._fields is None and name != TextFormat.name else self.values
        return CsvFormat(fields, self._csv) if name == CsvFormat.name else FORMATS[name](fields)

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the records' stream, and with ``dead_letter`` that of bad records."""
        super().declare_output_fields(declarer)
        if self.dead_letter is not None:
            declarer.declare_stream(BAD_RECORDS, BAD_RECORDS_FIELDS.with_attempt())

    def own_tables(self) -> Mapping[str, SpoutTable]:
        """Return the table of bad records, if there is to be one."""
        if self.dead_letter is None:
            return {}
        # Only who keeps bad records waits for these to be imported, in each process.
        from committers import AppendCommitter  # noqa: PLC0415
        from state import DeltaRows  # noqa: PLC0415

        table = DeltaRows(self.dead_letter, BAD_RECORDS_FIELDS)
        return {BAD_RECORDS: SpoutTable(BAD_RECORDS, AppendCommitter, table)}

    def coordinator(self, config: Mapping[str, Any], context: TopologyContext) -> Coordinator:
        """List the files, and return the coordinator of what is there; or that of what arrives, with ``watch``.

        Raises:
            InputError: a path leads to nothing; without ``watch``, also if there are no files, or one of them cannot
                be read.
            FieldsError: the fields do not suit the format that the files' endings say.
        """
        del config
        intake = Intake(
            self.paths,
            self.make_format,
            _guess_format,
            self.format,
            self.batch_bytes,
            self.batch_files_max,
            tasks=len(context.component_tasks(context.this_component_id)),
        )
        if self.watch is None:
            return ListingCoordinator(intake, list_files(self.paths))
        return WatchingCoordinator(intake, self.watch, lambda: list_files(self.paths).files)

    def emitter(self, config: Mapping[str, Any], context: TopologyContext) -> Emitter:
        """Return the emitter of every n-th range, from ``this_task_index`` on, n being the spout's tasks."""
        del config
        tasks = len(context.component_tasks(context.this_component_id))
        return _FilesEmitter(self, context.this_task_index, tasks)

    def input_ranges(self, metadata: Metadata, previous_metadata: Metadata) -> Mapping[str, tuple[Any, Any]] | None:
        """Return where the transaction begins and ends in each file that it took from.

        With ``watch``, a name that went and came back is another file, so its number is told with it.
        """
        del previous_metadata
        told: dict[str, tuple[Any, Any]] = {}
        numbers = metadata.get("numbers") or [None] * len(metadata["ranges"])
        for piece, number in zip(itertools.starmap(FileRange, metadata["ranges"]), numbers, strict=True):
            name = piece.name if number is None else f"{piece.name} #{number}"
            start, _ = told.get(name, (piece.start, piece.end))
            told[name] = (start, piece.end)
        return told


class _FilesEmitter(Emitter):
    def __init__(self, spout: FilesTransactionalSpout, task: int, tasks: int) -> None:
        self._spout = spout
        self._task = task
        self._tasks = tasks
        self._formats: dict[str, FileFormat] = {}
        self._line_numbers = LineNumbers()

    def emit_batch(self, attempt: TransactionAttempt, metadata: Metadata, collector: BatchOutputCollector) -> None:
        name = metadata["format"]
        if name not in self._formats:
            self._formats[name] = self._spout.make_format(name)
        for piece in itertools.starmap(FileRange, metadata["ranges"][self._task :: self._tasks]):
            path = str(Path(metadata["root"]) / piece.name)
            try:
                check_unchanged(path, piece)
                self._emit(attempt, self._formats[name], path, piece, collector)
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
        collector: BatchOutputCollector,
    ) -> None:
        bad = self._bad_records(path, piece, collector)
        with Path(path).open("rb") as handle:
            check_unchanged(path, piece, handle)
            try:
                for batch in files_format.read(handle, piece, bad):
                    if self._spout.values.columnar:
                        collector.emit_batch(batch)
                    else:
                        _emit_rows(attempt, batch, collector)
                bad.finish()
            except InputError:
                check_unchanged(path, piece, handle)  # what is written while it is read is not the record's fault
                raise
            for seen in (handle, None):  # what was read, and what another attempt would find
                check_unchanged(path, piece, seen)

    def _bad_records(self, path: str, piece: FileRange, collector: BatchOutputCollector) -> BadRecords:
        if self._spout.dead_letter is None:
            return BadRecords(path, piece, self._line_numbers)
        return DeadLetters(
            path, piece, self._line_numbers, lambda batch: collector.emit_batch(batch, stream=BAD_RECORDS)
        )


def _emit_rows(attempt: TransactionAttempt, batch: pa.RecordBatch, collector: BatchOutputCollector) -> None:
    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        collector.emit((attempt, *row))


def _guess_format(suffixes: Iterable[str]) -> str:
    names = {_SUFFIXES.get(suffix, TextFormat.name) for suffix in suffixes}
    return names.pop() if len(names) == 1 else TextFormat.name
