"""Values that Arrow's parsers have made of text: checked, since the parsers let some through that are not the text's.

A text fits a type without loss or is refused, as a Python value is (:mod:`txtopo.columnar.conversion`). A number for a
``double`` or ``float`` is the nearest one, but never infinite or zero if the text's is not.
"""

from __future__ import annotations

import pyarrow as pa

from txtopo.api.data.types import ddl_name
from txtopo.columnar.conversion import cast_array, has_years, misfit_in


def parsed_schema(schema: pa.Schema) -> pa.Schema:
    """Return the types to parse for a schema, from which :func:`fitted` gets its own: as exact, and with more range."""
    return pa.schema([(field.name, _parsed_type(field.type)) for field in schema])


def _parsed_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_float32(kind):
        return pa.float64()  # parsed as it is, 1e39 would be infinite
    if pa.types.is_list(kind):
        return pa.list_(_parsed_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _parsed_type(field.type)) for field in kind])
    return kind


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return parsed values in the types of a schema.

    Raises:
        pyarrow.ArrowInvalid: a number exceeds a ``float``, a decimal its precision, or a time the years 1 to 9999.
    """
    columns = []
    for field in schema:
        column = table[field.name]
        array = cast_array(column, field.type)
        if array is None:
            position = misfit_in(column, field.type).position
            shown = f"{column[position].as_py()!r:.200}"
            raise pa.ArrowInvalid(f"{shown} exceeds the range of {ddl_name(field.type)} in row {position}")
        if _holds_decimals(array.type):
            array.validate(full=True)  # the parsers check only the scale, and writing the value would cut it
        if not has_years(array):
            raise pa.ArrowInvalid(f"a {ddl_name(field.type)} in UTC has a year from 1 to 9999")
        columns.append(array)
    return pa.Table.from_arrays(columns, schema=schema)


def _holds_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_decimals(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_decimal(kind))
