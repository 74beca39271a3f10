"""Which values of two columns are the same."""

import decimal

import pyarrow as pa
import pytest

from txtopo.columnar.equality import same_rows

NAN = float("nan")
ROW = pa.struct([("n", pa.int64()), ("x", pa.float64())])
D = decimal.Decimal


@pytest.mark.parametrize(
    ("kind", "one", "other", "same"),
    [
        (pa.int64(), [1, None, None, 2], [1, None, 1, 3], [True, True, False, False]),
        (pa.float64(), [NAN, NAN, 0.0, None], [NAN, 1.0, -0.0, NAN], [True, False, True, False]),
        (pa.decimal128(38, 2), [D("9" * 36 + ".99")] * 2, [D("9" * 36 + ".99"), D("9" * 36 + ".98")], [True, False]),
        (
            pa.list_(pa.int64()),
            [[], None, [1, 2], [1, None], [1], [3, 4], [5]],
            [None, None, [1, 2], [1, None], [1, 1], [3, 5], [5]],
            [False, True, True, True, False, False, True],
        ),
        (
            ROW,
            [{"n": 1, "x": NAN}, None, {"n": None, "x": 1.0}, {"n": 1, "x": 1.0}],
            [{"n": 1, "x": NAN}, {"n": None, "x": None}, {"n": None, "x": 1.0}, {"n": 2, "x": 1.0}],
            [True, False, True, False],
        ),
        (
            pa.list_(ROW),
            [[{"n": 1, "x": NAN}], [{"n": 1, "x": 2.0}, None], [], [{"n": 7, "x": 0.0}]],
            [[{"n": 1, "x": NAN}], [{"n": 1, "x": 2.0}, None], [], [{"n": 8, "x": 0.0}]],
            [True, True, True, False],
        ),
        (pa.list_(pa.int64()), [], [], []),
        (
            pa.map_(pa.string(), pa.float64()),
            [{"a": 1.0}, {"a": NAN}, None, {}, {"a": 1.0, "b": None}, {"a": 1.0}],
            [{"a": 1.0}, {"a": NAN}, None, None, {"a": 1.0, "b": None}, {"b": 1.0}],
            [True, True, True, False, True, False],
        ),
    ],
)
def test_same_rows(kind, one, other, same) -> None:
    """Nulls are the same as nulls, NaN as NaN, and lists, maps and structs if all in them is; also of slices."""
    if pa.types.is_map(kind):
        one, other = ([None if value is None else [*value.items()] for value in values] for values in (one, other))
    whole = [
        pa.chunked_array([pa.array([*values[:1], *values], kind)]).slice(len(values[:1])) for values in (one, other)
    ]
    assert same_rows(*(pa.table({"x": each}) for each in whole)).tolist() == same


def test_several_columns() -> None:
    """A row is the same if each of its values is."""
    assert same_rows(pa.table({"a": [1, 1], "b": [2, 2]}), pa.table({"a": [1, 1], "b": [2, 3]})).tolist() == [
        True,
        False,
    ]
