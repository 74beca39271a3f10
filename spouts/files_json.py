"""JSON files: a record is a line that holds one object."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from spouts.files_format import ByteRangeFormat, FileRange, in_batches, misfit, typed_schema
from spouts.files_lines import Lines, first_line, line_number, read_lines, utf8_line_array
from txtopo.contracts.fields import Fields
from txtopo.errors import FieldsError


class JsonFormat(ByteRangeFormat):
    """JSON lines: one object a line, its members picked by the fields' names.

    A member that is missing is null, further members are passed over, and so are blank lines. Values must
    have their field's type; timestamps and dates are ISO 8601 strings.

    Raises:
        FieldsError: a field has no type, or is a map.
    """

    name = "json"
    suffixes = (".json", ".jsonl", ".ndjson")

    def __init__(self, fields: Fields) -> None:
        super().__init__(fields)
        self._schema = typed_schema(fields, self.name)
        # Arrow reads dates as numbers of days only: they are read as strings, and cast.
        self._read_schema = pa.schema([(field.name, _read_type(field.type)) for field in self._schema])

    def read(self, handle: IO[bytes], path: str, piece: FileRange) -> Iterator[pa.RecordBatch]:
        """Yield the objects."""
        for lines in read_lines(handle, path, piece):
            records = self._count_records(lines, handle, path)
            if not records:
                continue
            try:
                table = self._parse(lines.content)
            except (pa.ArrowException, UnicodeDecodeError) as error:
                raise self._misfit(lines, handle, path, str(error)) from error
            if table.num_rows != records:
                raise self._misfit(lines, handle, path, "several objects in a line")
            yield from in_batches(table.combine_chunks())

    def _parse(self, content: bytes) -> pa.Table:
        table = pajson.read_json(
            io.BytesIO(content),
            read_options=pajson.ReadOptions(use_threads=False, block_size=len(content) + 1),
            parse_options=pajson.ParseOptions(
                explicit_schema=self._read_schema,
                newlines_in_values=False,
                unexpected_field_behavior="ignore",
            ),
        )
        return table.select(self._schema.names).cast(self._schema)

    def _count_records(self, lines: Lines, handle: IO[bytes], path: str) -> int:
        """Return the number of lines that are not blank; each must begin and end as an object does.

        Arrow's parser does not look at line ends, and a bare ``null`` ends the whole process.
        """
        array = utf8_line_array(lines, handle, path)
        is_object = pc.and_(pc.starts_with(array, "{"), pc.ends_with(array, "}"))
        records = pc.sum(is_object).as_py() or 0
        if records == len(array):
            return len(array)
        for index in pc.indices_nonzero(pc.invert(is_object)).to_pylist():
            line = array[index].as_py().strip()
            if not line:
                continue
            if not (line.startswith("{") and line.endswith("}")):
                number = line_number(handle, lines.offset, index)
                raise misfit(path, number, f"each line must be one JSON object, not {line[:80]}")
            records += 1
        return int(records)

    def _misfit(self, lines: Lines, handle: IO[bytes], path: str, cause: str) -> Exception:
        index = first_line(lines, self._does_not_fit)
        line = lines.content.split(b"\n")[index].decode(errors="replace")
        number = line_number(handle, lines.offset, index)
        return misfit(path, number, f"it does not fit {self.fields}: {line[:200]}", cause)

    def _does_not_fit(self, line: bytes) -> bool:
        if not line.strip():
            return False
        try:
            return bool(self._parse(line).num_rows != 1)
        except (pa.ArrowException, UnicodeDecodeError):
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
