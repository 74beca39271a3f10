"""Text files: a record is a line."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from spouts.files.bad_records import BadRecords
from spouts.files.formats.format import ByteRangeFormat, in_batches
from spouts.files.formats.lines import Lines, read_lines, records_of, utf8_fault, utf8_line_array
from spouts.files.listing import FileRange
from txtopo.api.data.fields import Fields
from txtopo.errors import FieldsError, InputError


class TextFormat(ByteRangeFormat):
    r"""UTF-8 lines that end with ``\n``; a ``\r`` before it is removed. An empty line is a record too.

    A byte order mark at a file's beginning is no part of its first line. A file without ``\n`` that has
    several ``\r`` is refused.

    Raises:
        FieldsError: the fields are not one field of strings.
    """

    name = "text"
    suffixes = (".txt", ".text", ".log")

    def __init__(self, fields: Fields) -> None:
        super().__init__(fields)
        if not self.suits(fields):
            raise FieldsError(
                f"a text spout has one string field, such as Fields('line: string'), not {fields}; if the files are no "
                "text, say what they are, as in format='csv'"
            )
        self._schema = pa.schema([(fields.names[0], pa.string())])

    @staticmethod
    def suits(fields: Fields) -> bool:
        """Whether the fields are those of a text."""
        return len(fields) == 1 and fields.types[0] in {None, pa.string()}

    def read(self, handle: IO[bytes], piece: FileRange, bad: BadRecords) -> Iterator[pa.RecordBatch]:
        """Yield the lines; one not of UTF-8 is bad; InputError if all is one line with carriage returns."""
        for number, lines in enumerate(read_lines(handle, piece, bad)):
            is_first = not number and not piece.start and lines.offset <= len(codecs.BOM_UTF8)
            if is_first and b"\n" not in lines.content and lines.content.count(b"\r") > 1:
                raise InputError(f"{bad.path}: lines must end with \\n or \\r\\n, not with \\r alone")
            array = utf8_line_array(lines)
            if array is None:
                array = _without_bad(lines, bad)
            batch = pa.RecordBatch.from_arrays([array], schema=self._schema)
            yield from in_batches(batch, self.limits.batch_rows)


def _without_bad(lines: Lines, bad: BadRecords) -> pa.Array:
    records = records_of(lines)
    faults = {index: fault for index, record in enumerate(records) if (fault := utf8_fault(record.content))}
    bad.add_all(lines.offset, records, faults)
    return pa.array(
        [record.content.decode() for index, record in enumerate(records) if index not in faults], pa.string()
    )
