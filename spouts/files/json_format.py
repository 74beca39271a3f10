"""JSON files: a record is a line with one object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from spouts.files.bad_records import MISFITS, BadRecords, Record, read_each
from spouts.files.format import ByteRangeFormat, check_decimals, in_batches, typed_schema
from spouts.files.lines import Lines, read_lines, records_of, utf8_fault, utf8_line_array, without_mark
from spouts.files.listing import FileRange
from txtopo.api.fields import Fields
from txtopo.errors import FieldsError

_BLANKS = " \t\r"
"""The characters within a line that Arrow treats as blank."""

_ROW = re.compile(r" in row (\d+)$")
_VALUE = re.compile(r"couldn't parse: ?(.+)$|\): (\S+) requires|'(.+)'")


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
        self._schema = typed_schema(fields, self.name)
        # Arrow parses dates only from numbers of days, so they are parsed as strings and then cast.
        read_schema = pa.schema([(field.name, _read_type(field.type)) for field in self._schema])
        self._parse_options = pajson.ParseOptions(
            explicit_schema=read_schema, newlines_in_values=False, unexpected_field_behavior="ignore"
        )

    def read(self, handle: IO[bytes], piece: FileRange, bad: BadRecords) -> Iterator[pa.RecordBatch]:
        """Yield the objects; a line is a bad record if it is not one object or has a value of another type."""
        for lines in map(without_mark, read_lines(handle, piece, bad)):
            table = self._whole(lines)
            for each in self._without_bad(lines, bad) if table is None else (table,):
                yield from in_batches(each.combine_chunks())

    def _whole(self, lines: Lines) -> pa.Table | None:
        """Return the objects of a block; None if it has a bad record."""
        array = utf8_line_array(lines)
        records = None if array is None else _count_objects(array)
        if not records:
            return self._schema.empty_table() if records == 0 else None
        try:
            table = self._parse(lines.content)
        except MISFITS:
            return None
        return table if table.num_rows == records else None

    def _without_bad(self, lines: Lines, bad: BadRecords) -> Iterator[pa.Table]:
        records = [record for record in records_of(lines) if record.content.strip(_BLANKS.encode())]
        return read_each(lines.offset, records, _object_fault, self._parse_each, _suspect, bad)

    def _parse_each(self, records: Sequence[bytes]) -> pa.Table:
        table = self._parse(b"\n".join(records))
        if table.num_rows != len(records):
            raise pa.ArrowInvalid("several objects in a line")
        return table

    def _parse(self, content: bytes) -> pa.Table:
        table = pajson.read_json(
            pa.BufferReader(content),
            read_options=pajson.ReadOptions(use_threads=False, block_size=len(content) + 1),
            parse_options=self._parse_options,
        )
        return check_decimals(table.select(self._schema.names).cast(self._schema))


def _count_objects(array: pa.Array) -> int | None:
    """Return the number of lines that are not blank; None if one of them does not begin and end like an object.

    This check is needed because Arrow's parser ignores line ends, and a bare ``null`` crashes the process.
    """
    is_object = pc.and_(pc.starts_with(array, "{"), pc.ends_with(array, "}"))
    records = pc.sum(is_object).as_py() or 0
    if records == len(array):
        return len(array)
    for index in pc.indices_nonzero(pc.invert(is_object)).to_pylist():
        line = array[index].as_py().strip(_BLANKS)
        if not line:
            continue
        if not (line.startswith("{") and line.endswith("}")):
            return None
        records += 1
    return int(records)


def _object_fault(record: Record) -> str | None:
    """Return why a line cannot be an object; None if Arrow can decide."""
    line = record.content.strip(_BLANKS.encode())
    is_object = line.startswith(b"{") and line.endswith(b"}")
    return utf8_fault(record.content) or (None if is_object else "each line must be one JSON object")


def _suspect(message: str, records: Sequence[bytes]) -> int | None:
    """Return the index of the record that Arrow's error is probably about: by its row, its value or its syntax."""
    row = _ROW.search(message)
    if row is not None:
        return int(row.group(1)) if int(row.group(1)) < len(records) else None
    value = _VALUE.search(message)
    if value is not None:
        text = next(group for group in value.groups() if group is not None).encode()
        return next((index for index, record in enumerate(records) if text in record), None)
    return next((index for index, record in enumerate(records) if not _is_json(record)), None)


def _is_json(record: bytes) -> bool:
    try:
        json.loads(record)
    except (ValueError, RecursionError):
        return False
    return True


def _read_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_read_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _read_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        raise FieldsError("maps cannot be read from JSON; use a struct, or an array of structs")
    return kind
