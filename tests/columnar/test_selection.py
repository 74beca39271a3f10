"""Rows are taken alike, however much text they have."""

import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st

from txtopo.columnar import selection
from txtopo.columnar.selection import rows_at

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("l", pa.list_(pa.string())),
    ]
)
ROW = st.tuples(
    st.integers(0, 9),
    st.none() | st.text(max_size=9),
    st.none() | st.binary(max_size=9),
    st.none() | st.lists(st.text(max_size=3), max_size=2),
)


@given(st.lists(ROW, max_size=30), st.data(), st.sampled_from([1, 50, 200]))
def test_in_portions_as_at_once(rows, data, portion) -> None:
    """Rows that are too many bytes to be taken at once are taken in portions, with the same columns."""
    table = pa.table(list(map(list, zip(*rows, strict=True))) or [[]] * 4, schema=SCHEMA)
    table = pa.concat_tables([table.slice(0, 7), table.slice(7)])
    positions = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1))) if rows else [], dtype=np.int64)
    with_limits = selection.BYTES_MAX, selection.PORTION_BYTES
    try:
        selection.BYTES_MAX, selection.PORTION_BYTES = 0, portion
        assert rows_at(table, positions).combine_chunks() == table.take(positions).combine_chunks()
    finally:
        selection.BYTES_MAX, selection.PORTION_BYTES = with_limits
