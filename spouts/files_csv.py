"""CSV files: records of values between delimiters, with or without quotes.

Whether a newline ends a record depends, where values may be quoted, on every quote before it. So with a
quote character a file is one range and read by one task as a whole; with ``quote=None`` a record is a line,
and large files are cut as text files are.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import IO

import attrs
import pyarrow as pa
import pyarrow.csv as pacsv

from spouts.files_format import (
    RECORD_BYTES_MAX,
    ByteRangeFormat,
    FileRange,
    Span,
    in_batches,
    misfit,
    typed_schema,
)
from spouts.files_lines import CHUNK_BYTES, Lines, first_line, line_number, read_lines
from spouts.files_listing import InputFile
from txtopo.contracts.fields import Fields
from txtopo.errors import ConfigError, FieldsError, InputError

_ROW = re.compile(r"Row #(\d+): ")


@attrs.frozen
class CsvOptions:
    """How a CSV file is written."""

    header: bool = True
    """Whether the first record of each file names the columns; fields are then found by name."""
    delimiter: str = ","
    quote: str | None = '"'
    """What may stand around a value, doubled within; None: nothing, and a record is a line."""


class CsvFormat(ByteRangeFormat):
    """UTF-8 CSV. An empty value is null, or the empty string in a field of strings; blank lines do not count.

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

    def next_span(self, file: InputFile, start: int, bytes_max: int) -> Span | None:
        """Return the next bytes of a file without quotes, the whole of one with quotes."""
        if self.options.quote is None:
            return super().next_span(file, start, bytes_max)
        return Span(0, file.size, file.size) if start == 0 else None

    def cut(self, file: InputFile, span: Span, pieces: int) -> list[Span]:
        """Cut a byte range of a file without quotes evenly; leave a whole file as it is."""
        return super().cut(file, span, pieces) if self.options.quote is None else [span]

    def read(self, handle: IO[bytes], path: str, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield the records."""
        names = self._column_names(handle, path)
        if self.options.quote is None:
            yield from self._read_lines(handle, path, piece, names)
        elif len(list(itertools.islice(self._records(handle), 1 + self.options.header))) > self.options.header:
            # Arrow's reader takes a header alone, or nothing but blank lines, for a mistake.
            yield from self._read_whole(handle, path, piece, names)

    def _read_lines(
        self, handle: IO[bytes], path: str, piece: FileRange, names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        header_end = _header_end(handle, path) if self.options.header else 0
        for lines in read_lines(handle, path, piece):
            skipped = max(0, header_end - lines.offset)
            records = Lines(lines.offset + skipped, lines.content[skipped:])
            if not records.content.strip(b"\r\n"):
                continue
            try:
                table = self._parse_lines(records.content, names)
            except (pa.ArrowException, UnicodeDecodeError) as error:
                index = first_line(records, lambda line: self._does_not_fit(line, names))
                number = line_number(handle, records.offset, index)
                cause = _ROW.sub("", str(error))
                raise misfit(path, number, f"it does not fit {self.fields}", cause) from error
            yield from in_batches(table)

    def _read_whole(
        self, handle: IO[bytes], path: str, piece: FileRange, names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        self._check_quotes(handle, path)
        try:
            reader = pacsv.open_csv(
                path,
                read_options=pacsv.ReadOptions(
                    use_threads=False,
                    block_size=min(piece.size + 1, RECORD_BYTES_MAX),
                    column_names=None if self.options.header else list(names),
                ),
                parse_options=self._parse_options(),
                convert_options=self._convert_options(),
            )
            for batch in reader:
                yield from in_batches(batch.select(self._schema.names))
        except (pa.ArrowException, UnicodeDecodeError) as error:
            row = _ROW.search(str(error))
            number = self._line_of_record(handle, int(row.group(1))) if row else 1
            raise misfit(path, number, f"it does not fit {self.fields}", str(error)) from error

    def _parse_lines(self, content: bytes, names: Sequence[str]) -> pa.Table:
        table = pacsv.read_csv(
            io.BytesIO(content),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=len(content) + 1, column_names=list(names)),
            parse_options=self._parse_options(),
            convert_options=self._convert_options(),
        )
        return table.select(self._schema.names)

    def _does_not_fit(self, line: bytes, names: Sequence[str]) -> bool:
        try:
            self._parse_lines(line + b"\n", names)
        except (pa.ArrowException, UnicodeDecodeError):
            return bool(line.strip(b"\r"))
        return False

    def _parse_options(self) -> pacsv.ParseOptions:
        quote = self.options.quote
        return pacsv.ParseOptions(
            delimiter=self.options.delimiter,
            quote_char=quote or False,
            double_quote=quote is not None,
            newlines_in_values=quote is not None,
        )

    def _convert_options(self) -> pacsv.ConvertOptions:
        return pacsv.ConvertOptions(
            column_types=self._schema,
            include_columns=self._schema.names,
            null_values=[""],
            strings_can_be_null=False,
        )

    def _column_names(self, handle: IO[bytes], path: str) -> list[str]:
        """Return the names of a file's columns: those of its header, or the fields'.

        Raises:
            InputError: the header lacks a field, or names one twice.
        """
        if not self.options.header:
            return list(self.fields.names)
        number, names = next(self._records(handle), (1, []))
        for name in self.fields.names:
            if names.count(name) != 1:
                found = "is twice" if name in names else "is not"
                raise misfit(path, number, f"column {name!r} {found} in the header {', '.join(names)}")
        return names

    def _records(self, handle: IO[bytes]) -> Iterator[tuple[int, list[str]]]:
        """Yield each record that is not blank, with the line that it begins in."""
        handle.seek(0)
        text = io.TextIOWrapper(io.BufferedReader(_Lent(handle)), encoding="utf-8-sig", errors="replace", newline="")
        reader = csv.reader(
            text,
            delimiter=self.options.delimiter,
            quotechar=self.options.quote,
            quoting=csv.QUOTE_NONE if self.options.quote is None else csv.QUOTE_MINIMAL,
        )
        begins = 1
        with contextlib.suppress(csv.Error):  # what cannot be read here, Arrow's reader reports
            for record in reader:
                if record:
                    yield begins, record
                begins = reader.line_num + 1

    def _line_of_record(self, handle: IO[bytes], wanted: int) -> int:
        """Return the line that record ``wanted`` begins in, both counted from 1."""
        number = 1
        for record, (line, _) in enumerate(self._records(handle), start=1):
            number = line
            if record == wanted:
                break
        return number

    def _check_quotes(self, handle: IO[bytes], path: str) -> None:
        """Refuse a file with an odd number of quotes: one that stays open takes in the rest of the file."""
        assert self.options.quote is not None, "only files with quotes are read as a whole"
        quote = self.options.quote.encode()
        handle.seek(0)
        count = sum(chunk.count(quote) for chunk in iter(lambda: handle.read(CHUNK_BYTES), b""))
        if count % 2:
            raise InputError(
                f"{path} has {count} quotes {self.options.quote}, so that one of them is never closed; quote "
                "the value it is in and double it, or give quote=None for files without quoting",
            )


class _Lent(io.RawIOBase):
    """Lends a handle to a text wrapper, which would close what it is given."""

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
    """Return where the first line that is not blank ends."""
    handle.seek(0)
    line = b"\n"
    while line and not line.strip(b"\r\n"):
        line = handle.readline(RECORD_BYTES_MAX)
    if b"\r" in line.strip(b"\r\n"):
        raise misfit(path, 1, "lines must end with \\n or \\r\\n, not with \\r alone")
    return handle.tell()
