"""Sums of rows are exact up to the ends of their types, whatever their signs and their order."""

from decimal import Decimal

import pyarrow as pa
import pytest

from txtopo.api.reduction import Reduction
from txtopo.columnar.reducing import reduced

LARGE = 1 << 62
TEN = Decimal(10) ** 37


@pytest.mark.parametrize(
    ("kind", "values", "total"),
    [
        (pa.int64(), [-LARGE, -LARGE], -2 * LARGE),
        (pa.int64(), [-LARGE, -1, -LARGE], None),
        (pa.int64(), [LARGE, LARGE - 1], 2 * LARGE - 1),
        (pa.int64(), [LARGE, LARGE], None),
        (pa.int64(), [LARGE, LARGE, -LARGE, -LARGE, -1], -1),
        (pa.int64(), [0, None, -LARGE, -LARGE, -LARGE], None),
        (pa.decimal128(38, 0), [-9 * TEN, -9 * TEN, 9 * TEN], -9 * TEN),
        (pa.decimal128(38, 0), [-9 * TEN, -1 * TEN], None),
        (pa.decimal128(38, 0), [9 * TEN, TEN], None),
    ],
)
def test_sums_at_the_ends_of_a_type(kind, values, total):
    """One that fits is found though others on the way don't, and one that does not fit is none."""
    for order in (values, values[::-1]):
        made = reduced(pa.table({"k": ["a"] * len(values), "n": pa.array(order, kind)}), ["k"], {"n": Reduction.SUM})
        assert (None if made is None else made["n"].to_pylist()) == (None if total is None else [total])
