"""Text files: a record is a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from spouts.files_format import ByteRangeFormat, FileRange, in_batches
from spouts.files_lines import read_lines, utf8_line_array
from txtopo.contracts.fields import Fields
from txtopo.errors import FieldsError


class TextFormat(ByteRangeFormat):
    r"""UTF-8 lines, ended by ``\n``; a ``\r`` before it is kept off. An empty line is a record too.

    Raises:
        FieldsError: the fields are not one field of strings.
    """

    name = "text"
    suffixes = (".txt", ".text", ".log")

    def __init__(self, fields: Fields) -> None:
        super().__init__(fields)
        if len(fields) != 1 or fields.types[0] not in {None, pa.string()}:
            raise FieldsError(f"a text spout has one field, as Fields('line: string'), not {fields}")
        self._schema = pa.schema([(fields.names[0], pa.string())])

    def read(self, handle: IO[bytes], path: str, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield the lines."""
        for lines in read_lines(handle, path, piece):
            array = utf8_line_array(lines, handle, path)
            yield from in_batches(pa.RecordBatch.from_arrays([array], schema=self._schema))
