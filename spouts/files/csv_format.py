"""CSV files: records with delimited values, with or without quotes.

If values may be quoted, every quote before a newline decides whether it ends a record. So with a quote character a
file is one range, which one task reads as a whole. With ``quote=None`` each line is a record, and large files are cut
like text files.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import attrs
import pyarrow as pa
import pyarrow.csv as pacsv

from spouts.files.bad_records import MISFITS, TOO_LONG, BadRecords, Record, read_each
from spouts.files.csv_records import QuotedRecords
from spouts.files.format import (
    RECORD_BYTES_MAX,
    ByteRangeFormat,
    Span,
    check_decimals,
    in_batches,
    misfit,
    path_of_handle,
    typed_schema,
)
from spouts.files.lines import CHUNK_BYTES, Lines, read_lines, records_of, without_mark
from spouts.files.listing import FileRange, InputFile
from txtopo.api.fields import Fields
from txtopo.errors import ConfigError, FieldsError, InputError

_ROW = re.compile(r"Row #(\d+): ")


@attrs.frozen
class CsvOptions:
    """The dialect of a CSV file."""

    header: bool = True
    """Whether the first record of each file names the columns; fields are then found by name."""
    delimiter: str = ","
    quote: str | None = '"'
    """The character that may enclose a value, doubled inside it; None: none, and each line is a record."""


class CsvFormat(ByteRangeFormat):
    """UTF-8 CSV. An empty value is null, or the empty string in a string field; blank lines are ignored.

    Raises:
        FieldsError: a field has no type, or a nested one.
        ConfigError: the delimiter or the quote is not one character.
    """

    name = "csv"
    suffixes = (".csv",)

    def __init__(self, fields: Fields, options: CsvOptions) -> None:
        super().__init__(fields)
        self.options = options
        self._schema = typed_schema(fields, self.name)
        nested = [field.name for field in self._schema if pa.types.is_nested(field.type)]
        if nested:
            raise FieldsError(f"field {nested[0]!r} has a nested type, which CSV cannot hold; use JSON or Parquet")
        for what, character in (("delimiter", options.delimiter), ("quote", options.quote)):
            if character is not None and (len(character) != 1 or not character.isascii() or character in "\r\n"):
                raise ConfigError(f"{what} is {character!r}; give one ASCII character")
        quote = options.quote
        self._quoted = QuotedRecords(options.delimiter, quote or '"')
        self._parse_options = pacsv.ParseOptions(
            delimiter=options.delimiter,
            quote_char=quote or False,
            double_quote=quote is not None,
            newlines_in_values=quote is not None,
        )
        self._convert_options = pacsv.ConvertOptions(
            column_types=self._schema,
            include_columns=self._schema.names,
            null_values=[""],
            strings_can_be_null=False,
        )

    def next_span(self, file: InputFile, start: int, bytes_max: int) -> Span | None:
        """Return the next bytes of a file without quotes, or the whole of a file with quotes."""
        if self.options.quote is None:
            return super().next_span(file, start, bytes_max)
        return Span(0, file.size, file.size) if start == 0 else None

    def cut(self, file: InputFile, span: Span, pieces: int) -> list[Span]:
        """Cut a byte range of a file without quotes evenly; keep a file with quotes whole."""
        return super().cut(file, span, pieces) if self.options.quote is None else [span]

    def read(self, handle: IO[bytes], piece: FileRange, bad: BadRecords) -> Iterator[pa.RecordBatch]:
        """Yield the records; a record is bad if it has another number of columns or a value of another type."""
        names = self._column_names(handle, bad.path)
        if self.options.quote is None:
            yield from self._read_lines(handle, piece, names, bad)
            return
        start = self._records_start(handle)
        if _has_records(handle, start):
            # Arrow's reader fails on a file with only a header or blank lines.
            yield from self._read_whole(handle, piece, names, start, bad)

    def _read_lines(
        self, handle: IO[bytes], piece: FileRange, names: Sequence[str], bad: BadRecords
    ) -> Iterator[pa.RecordBatch]:
        header_end = _header_end(handle, bad.path) if self.options.header else 0
        for lines in map(without_mark, read_lines(handle, piece, bad)):
            skipped = max(0, header_end - lines.offset)
            block = Lines(lines.offset + skipped, lines.content[skipped:])
            if not block.content.strip(b"\r\n"):
                continue
            try:
                tables: Iterable[pa.Table] = [self._parse(block.content, names)]
            except MISFITS:
                tables = self._without_bad(block.offset, records_of(block), names, bad)
            for table in tables:
                yield from in_batches(table)

    def _read_whole(
        self, handle: IO[bytes], piece: FileRange, names: Sequence[str], start: int, bad: BadRecords
    ) -> Iterator[pa.RecordBatch]:
        self._check_quotes(handle, bad)
        rows = 0
        try:
            reader = pacsv.open_csv(
                path_of_handle(handle, bad.path),
                read_options=pacsv.ReadOptions(
                    use_threads=False,
                    block_size=min(piece.size + 1, RECORD_BYTES_MAX),
                    column_names=None if self.options.header else list(names),
                ),
                parse_options=self._parse_options,
                convert_options=self._convert_options,
            )
            for batch in reader:
                yield from in_batches(check_decimals(pa.Table.from_batches([batch]).select(self._schema.names)))
                rows += batch.num_rows
        except MISFITS:  # there is a bad record, and all rows emitted so far come before it
            yield from self._read_records(handle, names, start, rows, bad)

    def _read_records(
        self, handle: IO[bytes], names: Sequence[str], start: int, rows_emitted: int, bad: BadRecords
    ) -> Iterator[pa.RecordBatch]:
        """Yield the good records of a file with quotes, except for the first ones, which were already emitted."""
        for block in self._quoted.read(handle, start, RECORD_BYTES_MAX):
            if block.is_open:
                raise self._open_quote(bad, block.offset, block.records[-1])
            for table in self._without_bad(block.offset, block.records, names, bad):
                emitted = min(rows_emitted, table.num_rows)
                rows_emitted -= emitted
                yield from in_batches(table.slice(emitted))

    def _without_bad(
        self, block_offset: int, block: Sequence[Record], names: Sequence[str], bad: BadRecords
    ) -> Iterator[pa.Table]:
        def parse(contents: Sequence[bytes]) -> pa.Table:
            return self._parse(b"\n".join(contents) + b"\n", names)

        records = [record for record in block if record.content.strip(b"\r")]
        return read_each(block_offset, records, _length_fault, parse, _suspect, bad)

    def _parse(self, content: bytes, names: Sequence[str]) -> pa.Table:
        if content.startswith(codecs.BOM_UTF8):
            # Arrow would remove it, but a byte order mark is one only at a file's beginning. A blank line protects it.
            content = b"\n" + content
        table = pacsv.read_csv(
            pa.BufferReader(content),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=len(content) + 1, column_names=list(names)),
            parse_options=self._parse_options,
            convert_options=self._convert_options,
        )
        return check_decimals(table.select(self._schema.names))

    def _column_names(self, handle: IO[bytes], path: str) -> list[str]:
        """Return a file's column names: from its header, or the names of the fields."""
        if not self.options.header:
            return list(self.fields.names)
        number, names = next(self._records(handle), (1, []))
        for name in self.fields.names:
            if names.count(name) != 1:
                found = "occurs twice" if name in names else "is not"
                raise misfit(path, number, f"column {name!r} {found} in the header {', '.join(names)}")
        return names

    def _records(self, handle: IO[bytes]) -> Iterator[tuple[int, list[str]]]:
        """Yield each record that is not blank, with the number of its first line."""
        handle.seek(0)
        text = io.TextIOWrapper(io.BufferedReader(_Lent(handle)), encoding="utf-8-sig", errors="replace", newline="")
        reader = csv.reader(
            text,
            delimiter=self.options.delimiter,
            quotechar=self.options.quote,
            quoting=csv.QUOTE_NONE if self.options.quote is None else csv.QUOTE_MINIMAL,
        )
        begins = 1
        with contextlib.suppress(csv.Error):  # Arrow's reader reports records that cannot be read here
            for record in reader:
                if record:
                    yield begins, record
                begins = reader.line_num + 1

    def _records_start(self, handle: IO[bytes]) -> int:
        """Return the offset of the first record of a file with quotes, after its header if it has one."""
        begin = _file_start(handle)
        if self.options.header:
            for block in self._quoted.read(handle, begin, RECORD_BYTES_MAX, records_max=1):
                return block.end
        return begin

    def _check_quotes(self, handle: IO[bytes], bad: BadRecords) -> None:
        """Refuse a file with an open quote, which swallows the rest of the file, or with an odd number of quotes."""
        begin = _file_start(handle)
        if self._quoted.are_in_pairs(handle, begin):
            return
        odd, count = None, 0
        for block in self._quoted.read(handle, begin, RECORD_BYTES_MAX):
            if block.is_open:
                raise self._open_quote(bad, block.offset, block.records[-1])
            for record in block.records:
                quotes = record.content.count((self.options.quote or "").encode())
                count += quotes
                if quotes % 2 and odd is None:
                    odd = (block.offset, record)
        if count % 2 and odd is not None:
            raise self._open_quote(bad, *odd)

    def _open_quote(self, bad: BadRecords, block_offset: int, record: Record) -> InputError:
        return InputError(
            f"{bad.place(block_offset, record)}: a quote {self.options.quote} of the record that begins here is never "
            "closed and swallows the following records; quote its value and double it, or give quote=None for files "
            "without quoting",
        )


class _Lent(io.RawIOBase):
    """Wraps a handle for a text wrapper, which closes what it wraps."""

    def __init__(self, handle: IO[bytes]) -> None:
        super().__init__()
        self._handle = handle

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._handle.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _header_end(handle: IO[bytes], path: str) -> int:
    """Return the end of the first line that is not blank."""
    handle.seek(0)
    line = b"\n"
    while line and not line.strip(b"\r\n"):
        line = handle.readline(RECORD_BYTES_MAX)
    if b"\r" in line.strip(b"\r\n"):
        raise misfit(path, 1, "lines must end with \\n or \\r\\n, not with \\r alone")
    return handle.tell()


def _file_start(handle: IO[bytes]) -> int:
    """Return the offset after a file's byte order mark, if it has one."""
    handle.seek(0)
    return len(codecs.BOM_UTF8) if handle.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0


def _has_records(handle: IO[bytes], start: int) -> bool:
    """Whether there is a line that is not blank after an offset."""
    handle.seek(start)
    return any(chunk.strip(b"\r\n") for chunk in iter(lambda: handle.read(CHUNK_BYTES), b""))


def _length_fault(record: Record) -> str | None:
    """Return the reason if a record is too long; None if Arrow can decide."""
    return TOO_LONG.format(RECORD_BYTES_MAX) if record.is_too_long else None


def _suspect(message: str, records: Sequence[bytes]) -> int | None:
    """Return the index of the record that Arrow's error is probably about: by its row."""
    row = _ROW.search(message)
    index = int(row.group(1)) - 1 if row is not None else len(records)
    return index if index < len(records) else None
