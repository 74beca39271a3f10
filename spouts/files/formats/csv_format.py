"""CSV files: records with delimited values, with or without quotes.

If values may be quoted, every quote before a newline decides whether it ends a record. So with a quote character a
file is one range, which one task reads as a whole. With ``quote=None`` each line is a record, and large files are cut
like text files.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from spouts.files.bad_records import MISFITS, TOO_LONG, BadRecords, Record, read_each
from spouts.files.formats.csv_records import QuotedBlock, QuotedRecords
from spouts.files.formats.format import ByteRangeFormat, Span, in_batches, typed_schema
from spouts.files.formats.lines import Lines, file_start, read_lines, records_of
from spouts.files.listing import FileRange, InputFile
from spouts.text_values import fitted, parsed_schema
from txtopo.api.data.fields import Fields
from txtopo.errors import ConfigError, FieldsError, InputError

_HEADER_SHOWN = 1000
"""The maximum length of a header in an error."""

_ROW = re.compile(r"Row #(\d+): | in row (\d+)$")

_HEXADECIMAL = r"^\s*0[xX]"

_NEITHER = r"(?i)^[^ine]*[1-9]"
"""A number that is neither infinite, nor none, nor zero."""


@attrs.frozen
class CsvOptions:
    """The dialect of a CSV file."""

    header: bool = True
    """Whether the first record of each file names the columns; fields are then found by name."""
    delimiter: str | None = None
    """The character between values; None: the format's own."""
    quote: str | None = '"'
    """The character that may enclose a value, doubled inside it; None: none, and each line is a record."""


class CsvFormat(ByteRangeFormat):
    """UTF-8 CSV. An empty value is null, or the empty string in a string field; blank lines are ignored.

    Raises:
        FieldsError: a field has no type, or a nested one.
        ConfigError: the delimiter or the quote is not one character.
    """

    name = "csv"
    suffixes: tuple[str, ...] = (".csv",)
    delimiter = ","

    def __init__(self, fields: Fields, options: CsvOptions) -> None:
        super().__init__(fields)
        self.options = options
        self._schema = typed_schema(fields, self.name)
        nested = [field.name for field in self._schema if pa.types.is_nested(field.type)]
        if nested:
            raise FieldsError(f"field {nested[0]!r} has a nested type, which CSV cannot hold; use JSON or Parquet")
        delimiter = self.delimiter if options.delimiter is None else options.delimiter
        quote = options.quote
        for what, character in (("delimiter", delimiter), ("quote", quote)):
            if character is not None and not _is_one_character(character):
                raise ConfigError(f"{what} is {character!r}; give one ASCII character")
        if delimiter == quote:
            raise ConfigError(f"delimiter and quote are both {quote!r}; give two different ones")
        self._quoted = QuotedRecords(delimiter, quote or '"')
        self._parse_options = pacsv.ParseOptions(
            delimiter=delimiter,
            quote_char=quote or False,
            double_quote=quote is not None,
            newlines_in_values=quote is not None,
        )
        self._parsed = parsed_schema(self._schema)
        self._integers = [field.name for field in self._parsed if pa.types.is_integer(field.type)]
        self._floats = [field.name for field in self._parsed if pa.types.is_floating(field.type)]

    def next_span(self, file: InputFile, start: int, bytes_max: int) -> Span | None:
        """Return the next bytes of a file without quotes, or the whole of a file with quotes or a compressed one."""
        if self.options.quote is None:
            return super().next_span(file, start, bytes_max)
        self._check_whole(file.path, start % file.size)
        return Span(0, file.size, file.size) if start == 0 else None

    def cut(self, file: InputFile, span: Span, pieces: int) -> list[Span]:
        """Cut a byte range of a file without quotes evenly; keep a file with quotes whole."""
        return super().cut(file, span, pieces) if self.options.quote is None else [span]

    def read(self, handle: IO[bytes], piece: FileRange, bad: BadRecords) -> Iterator[pa.RecordBatch]:
        """Yield the records; a record is bad if it has another number of columns or a value of another type."""
        is_quoted = self.options.quote is not None
        if is_quoted:
            self._check_whole(bad.path, piece.start or piece.end % piece.size)
        are_in_pairs = is_quoted and self._check_quotes(handle, bad)
        header = self._header(handle, bad)
        if header is None:
            return
        names, start = header
        blocks: Iterable[Lines | QuotedBlock]
        if not is_quoted:
            blocks = _after(start, read_lines(handle, piece, bad))
        elif are_in_pairs:
            blocks = self._quoted.blocks(handle, start, self.limits)
        else:
            handle.seek(start)
            blocks = self._quoted.read(handle, start, self.limits)
        for block in blocks:
            for table in self._tables(block, names, bad):
                yield from in_batches(table, self.limits.batch_rows)

    @staticmethod
    def _check_whole(path: str, cut: int) -> None:
        """Refuse a file that a run without quotes has cut: where records begin in the rest is unknown with quotes."""
        if cut:
            raise InputError(
                f"{path} was taken up to byte {cut} by a run with quote=None, and is not read with quotes from there; "
                "give the spout quote=None until all of the file is committed"
            )

    def _tables(self, block: Lines | QuotedBlock, names: Sequence[str], bad: BadRecords) -> Iterator[pa.Table]:
        table = self._all_records(block, names) if isinstance(block, Lines) else None
        if table is not None:
            yield table
            return
        for offset, records in self._records_of(block):
            yield from self._without_bad(offset, records, names, bad)

    def _all_records(self, lines: Lines, names: Sequence[str]) -> pa.Table | None:
        """Return the records of a block; None if one of them is bad."""
        if not lines.content.strip(b"\r\n"):
            return self._schema.empty_table()
        try:
            return self._parse(lines.content, names)
        except MISFITS:
            return None

    def _records_of(self, block: Lines | QuotedBlock) -> Iterator[tuple[int, Sequence[Record]]]:
        if isinstance(block, QuotedBlock):
            yield block.offset, block.records
        elif self.options.quote is None:
            yield block.offset, records_of(block)
        else:
            for part in self._quoted.read(io.BytesIO(block.content), block.offset, self.limits):
                yield part.offset, part.records

    def _without_bad(
        self, block_offset: int, block: Sequence[Record], names: Sequence[str], bad: BadRecords
    ) -> Iterator[pa.Table]:
        def parse(contents: Sequence[bytes]) -> pa.Table:
            return self._parse(b"\n".join(contents) + b"\n", names)

        records = [record for record in block if record.content.strip(b"\r")]
        return read_each(block_offset, records, self._length_fault, parse, _suspect, bad)

    def _length_fault(self, record: Record) -> str | None:
        """Return the reason if a record is too long; None if Arrow can decide."""
        return TOO_LONG.format(self.limits.record_bytes) if record.is_too_long else None

    def _parse(self, content: bytes, names: Sequence[str]) -> pa.Table:
        if content.startswith(codecs.BOM_UTF8):
            # Arrow would remove it, but a byte order mark is one only at a file's beginning. A blank line protects it.
            content = b"\n" + content
        table = self._columns(content, names, self._parsed)
        self._check_numbers(content, names, table)
        return fitted(table, self._schema)

    def _columns(self, content: bytes, names: Sequence[str], schema: pa.Schema) -> pa.Table:
        return pacsv.read_csv(
            pa.BufferReader(content),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=len(content) + 1, column_names=list(names)),
            parse_options=self._parse_options,
            convert_options=pacsv.ConvertOptions(
                column_types=schema, include_columns=schema.names, null_values=[""], strings_can_be_null=False
            ),
        )

    def _check_numbers(self, content: bytes, names: Sequence[str], table: pa.Table) -> None:
        """Raise ArrowInvalid for a number that Arrow has read as another one: 0x10 as 16, 1e400 as infinity."""
        doubtful = {name: _infinite_or_zero(table[name]) for name in self._floats}
        doubtful = {name: is_doubtful for name, is_doubtful in doubtful.items() if pc.any(is_doubtful).as_py()}
        if b"0x" in content or b"0X" in content:
            doubtful.update(dict.fromkeys(self._integers))
        if not doubtful:
            return
        texts = self._columns(content, names, pa.schema([(name, pa.string()) for name in doubtful]))
        for name, is_doubtful in doubtful.items():
            if is_doubtful is None:
                is_wrong = pc.match_substring_regex(texts[name], _HEXADECIMAL)
            else:
                is_wrong = pc.and_(is_doubtful, pc.match_substring_regex(texts[name], _NEITHER))
            row = pc.index(is_wrong, value=True).as_py()
            if row >= 0:
                raise pa.ArrowInvalid(
                    f"In CSV column #{names.index(name)}: Row #{row + 1}: CSV conversion error to "
                    f"{self._parsed.field(name).type}: invalid value '{texts[name][row].as_py()}'"
                )

    def _header(self, handle: IO[bytes], bad: BadRecords) -> tuple[Sequence[str], int] | None:
        """Return a file's column names and where its records begin; None if there is no header, and so nothing."""
        begin = file_start(handle, bad.path)
        if not self.options.header:
            return list(self.fields.names), begin
        first = (self._first_line if self.options.quote is None else self._first_record)(handle, begin)
        if first is None:
            return None
        record, end = first
        place = bad.place(begin, record)
        if record.is_too_long:
            raise InputError(f"{place}: the header: {self._length_fault(record)}")
        if self.options.quote is None and b"\r" in record.content:
            raise InputError(f"{place}: lines must end with \\n or \\r\\n, not with \\r alone")
        names = self._names_in(record.content)
        for name in self.fields.names:
            if names.count(name) != 1:
                problem = "occurs twice" if name in names else "is not"
                shown = ", ".join(names)
                header_text = "header, which is not UTF-8," if "\ufffd" in shown else "header"
                raise InputError(
                    f"{place}: column {name!r} {problem} in the {header_text} {shown[:_HEADER_SHOWN]}; fix the file "
                    "or the spout's fields"
                )
        return names, end

    def _first_line(self, handle: IO[bytes], begin: int) -> tuple[Record, int] | None:
        handle.seek(begin)
        number = 0
        while line := handle.readline(self.limits.record_bytes + len(b"\r\n")):
            content = line.removesuffix(b"\n").removesuffix(b"\r")
            if content:
                kept = content if len(content) <= self.limits.record_bytes else content[: self.limits.kept_bytes]
                return Record(begin, number, kept, len(content)), begin + len(line)
            begin, number = begin + len(line), number + 1
        return None

    def _first_record(self, handle: IO[bytes], begin: int) -> tuple[Record, int] | None:
        handle.seek(begin)
        block = next(self._quoted.read(handle, begin, self.limits, records_max=1), None)
        return None if block is None else (block.records[0], block.end)

    def _names_in(self, header: bytes) -> list[str]:
        content = header.decode(errors="replace").encode() + b"\n"
        table = pacsv.read_csv(
            pa.BufferReader(content),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=len(content) + 1),
            parse_options=self._parse_options,
        )
        return list(table.column_names)

    def _check_quotes(self, handle: IO[bytes], bad: BadRecords) -> bool:
        """Refuse a file with an open quote or an odd number of quotes; return whether all quotes are in pairs."""
        begin = file_start(handle, bad.path)
        if self._quoted.are_in_pairs(handle, begin, self.limits):
            return True
        odd, count = None, 0
        handle.seek(begin)
        for block in self._quoted.read(handle, begin, self.limits):
            if block.is_open:
                raise self._open_quote(bad, block.offset, block.records[-1])
            for record in block.records:
                quotes = record.content.count((self.options.quote or "").encode())
                count += quotes
                if quotes % 2 and odd is None:
                    odd = (block.offset, record)
        if count % 2 and odd is not None:
            raise self._open_quote(bad, *odd)
        return False

    def _open_quote(self, bad: BadRecords, block_offset: int, record: Record) -> InputError:
        return InputError(
            f"{bad.place(block_offset, record)}: a quote {self.options.quote} of the record that begins here is never "
            "closed and swallows the following records; quote its value and double it, or give quote=None for files "
            "without quoting",
        )


class TsvFormat(CsvFormat):
    """CSV whose values are separated by tabs."""

    name = "tsv"
    suffixes = (".tsv", ".tab")
    delimiter = "\t"


def _is_one_character(value: object) -> bool:
    return isinstance(value, str) and len(value) == 1 and value.isascii() and value not in "\r\n"


def _after(start: int, blocks: Iterable[Lines]) -> Iterator[Lines]:
    """Yield the lines that begin at or after an offset, which is that of a line."""
    for lines in blocks:
        skipped = max(0, start - lines.offset)
        yield Lines(lines.offset + skipped, lines.content[skipped:]) if skipped else lines


def _infinite_or_zero(column: Any) -> Any:
    return pc.or_(pc.is_inf(column), pc.equal(column, 0.0))


def _suspect(message: str, records: Sequence[bytes]) -> int | None:
    """Return the index of the record that Arrow's error is probably about: by its row."""
    row = _ROW.search(message)
    if row is None:
        return None
    index = int(row.group(2)) if row.group(1) is None else int(row.group(1)) - 1
    return index if index < len(records) else None
