"""JSON objects as Arrow columns: many at a time, so that each bad one can be found and named on its own."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from spouts.text_values import fitted, parsed_schema
from txtopo.errors import FieldsError

BLANKS = b" \t\r"
"""The characters within a line that Arrow treats as blank."""

_ROW = re.compile(r" in row (\d+)$")
_VALUE = re.compile(r"couldn't parse: ?(.+)$|\): (\S+) requires|'(.+)'")

_ZEROS = b"0" * 300
_SMALL = re.compile(rb"[eE]-\d{3}|0{300}")
"""What a number that is not zero has if a double would be."""

_LARGE = re.compile(rb"\d{309}")
"""What a number without an exponent has if a double would be infinite."""

_NONZERO = re.compile("[^eE]*[1-9]")


class JsonRecords:
    """Parses JSON objects, one a line, into the columns of a schema, which must not have maps.

    A missing member is null; extra members and blank lines are ignored. Values must have their column's type;
    timestamps and dates are ISO 8601 strings, with a zone for ``timestamp`` and without one for ``timestamp_ntz``.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._parsed = parsed_schema(schema)
        # Arrow parses dates only from numbers of days, and timestamps with or without a zone for either type. So both
        # are parsed as strings and then cast.
        read_schema = pa.schema([(field.name, _read_type(field.type)) for field in self._parsed])
        self._options = pajson.ParseOptions(
            explicit_schema=read_schema, newlines_in_values=False, unexpected_field_behavior="ignore"
        )

    def parse(self, content: bytes) -> pa.Table:
        """Return the objects in some lines; raises one of ``MISFITS`` if a value does not fit.

        Call :func:`count_objects` before: some lines that are no objects crash Arrow's parser.
        """
        table = pajson.read_json(
            pa.BufferReader(content),
            read_options=pajson.ReadOptions(use_threads=False, block_size=len(content) + 1),
            parse_options=self._options,
        )
        _check_small(content)
        if any(map(_has_infinite, table.columns)):
            _check_range(content, _LARGE)
        return fitted(table.select(self.schema.names).cast(self._parsed), self.schema)

    def parse_each(self, records: Sequence[bytes]) -> pa.Table:
        """Return one object for each record; raises one of ``MISFITS`` if a record is not one object that fits."""
        table = self.parse(b"\n".join(records))
        if table.num_rows != len(records):
            raise pa.ArrowInvalid("several objects in a line")
        return table


def count_objects(array: pa.Array) -> int | None:
    """Return the number of lines that are not blank; None if one of them does not begin and end like an object.

    This check is needed because Arrow's parser ignores line ends, and a bare ``null`` crashes the process.
    """
    is_object = pc.and_(pc.starts_with(array, "{"), pc.ends_with(array, "}"))
    objects = pc.sum(is_object).as_py() or 0
    if objects == len(array):
        return len(array)
    for index in pc.indices_nonzero(pc.invert(is_object)).to_pylist():
        line = array[index].as_py().strip(BLANKS.decode())
        if not line:
            continue
        if not (line.startswith("{") and line.endswith("}")):
            return None
        objects += 1
    return int(objects)


def object_fault(content: bytes) -> str | None:
    """Return why a line cannot be an object; None if Arrow can decide."""
    line = content.strip(BLANKS)
    is_object = line.startswith(b"{") and line.endswith(b"}")
    return None if is_object else "each line must be one JSON object"


def suspect(message: str, records: Sequence[bytes]) -> int | None:
    """Return the index of the record that Arrow's error is probably about: by its row, its value or its syntax."""
    row = _ROW.search(message)
    if row is not None:
        return int(row.group(1)) if int(row.group(1)) < len(records) else None
    value = _VALUE.search(message)
    if value is not None:
        text = next(group for group in value.groups() if group is not None).encode()
        return next((index for index, record in enumerate(records) if text in record), None)
    return next((index for index, record in enumerate(records) if not is_json(record)), None)


def is_json(record: bytes) -> bool:
    """Return whether a record is any JSON value."""
    try:
        json.loads(record)
    except (ValueError, RecursionError):  # the latter for thousands of nested arrays
        return False
    return True


def _check_small(content: bytes) -> None:
    """Raise ArrowInvalid for a number that a double would keep as zero: of one that it can't keep, Arrow does so."""
    if b"e-" not in content and b"E-" not in content and _ZEROS not in content:
        return
    _check_range(content, _SMALL)


def _check_range(content: bytes, doubtful: re.Pattern[bytes]) -> None:
    """Raise ArrowInvalid for the first number of doubtful lines that a double would keep as zero or as infinity."""
    if doubtful.search(content) is None:
        return
    for row, line in enumerate(content.split(b"\n")):
        values: list[str] = []
        if doubtful.search(line) is None:
            continue
        with contextlib.suppress(ValueError, RecursionError):  # as in is_json
            json.loads(line, parse_float=values.append, parse_int=values.append)
        for text in values:
            if math.isinf(float(text)) or (float(text) == 0 and _NONZERO.match(text)):
                size = "large" if float(text) else "small"
                raise pa.ArrowInvalid(f"JSON parse error: Number too {size} to be stored in double. in row {row}")


def _has_infinite(column: pa.ChunkedArray | pa.Array) -> bool:
    """Whether a column, at any depth, has an infinite number: Arrow reads one of 400 digits as such."""
    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.is_inf(column)).as_py())
    if pa.types.is_struct(column.type):
        return any(map(_has_infinite, column.flatten()))
    if pa.types.is_list(column.type):
        return _has_infinite(pc.list_flatten(column))
    return False


def _read_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_read_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _read_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        raise FieldsError("maps cannot be read from JSON; use a struct, or an array of structs")
    return kind
