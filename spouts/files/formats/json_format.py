"""JSON files: a record is a line with one object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from spouts.files.bad_records import MISFITS, BadRecords, Record, read_each
from spouts.files.formats.format import ByteRangeFormat, in_batches, typed_schema
from spouts.files.formats.lines import Lines, read_lines, records_of, utf8_fault, utf8_line_array
from spouts.files.listing import FileRange
from spouts.json_records import BLANKS, JsonRecords, count_objects, object_fault, suspect
from txtopo.api.data.fields import Fields


class JsonFormat(ByteRangeFormat):
    """JSON lines: one object per line, whose members are found by the fields' names.

    A missing member is null; extra members and blank lines are ignored. Values must have their field's type;
    timestamps and dates are ISO 8601 strings.

    Raises:
        FieldsError: a field has no type, or is a map.
    """

    name = "json"
    suffixes = (".json", ".jsonl", ".ndjson")

    def __init__(self, fields: Fields) -> None:
        super().__init__(fields)
        self._records = JsonRecords(typed_schema(fields, self.name))

    def read(self, handle: IO[bytes], piece: FileRange, bad: BadRecords) -> Iterator[pa.RecordBatch]:
        """Yield the objects; a line is a bad record if it is not one object or has a value of another type."""
        for lines in read_lines(handle, piece, bad):
            table = self._all_records(lines)
            for each in self._without_bad(lines, bad) if table is None else (table,):
                yield from in_batches(each.combine_chunks(), self.limits.batch_rows)

    def _all_records(self, lines: Lines) -> pa.Table | None:
        array = utf8_line_array(lines)
        objects = None if array is None else count_objects(array)
        if not objects:
            return self._records.schema.empty_table() if objects == 0 else None
        try:
            table = self._records.parse(lines.content)
        except MISFITS:
            return None
        return table if table.num_rows == objects else None

    def _without_bad(self, lines: Lines, bad: BadRecords) -> Iterator[pa.Table]:
        records = [record for record in records_of(lines) if record.content.strip(BLANKS)]
        return read_each(lines.offset, records, _fault, self._records.parse_each, suspect, bad)


def _fault(record: Record) -> str | None:
    """Return why a line cannot be an object; None if Arrow can decide."""
    return utf8_fault(record.content) or object_fault(record.content)
