"""Numbers of other types as keys."""

from decimal import Decimal

import pyarrow as pa

from txtopo.columnar.key_index import as_numbers


def test_the_widest_decimals() -> None:
    """Those of 38 digits before the point have room beside those of 38 behind it."""
    fractions = pa.array([Decimal(0), Decimal("0.1")], pa.decimal128(38, 38))
    assert as_numbers(fractions, pa.decimal128(38)).to_pylist() == [0, None]
    assert as_numbers(pa.array([0, 10**37], pa.decimal128(38)), pa.decimal128(38, 38)).to_pylist() == [0, None]
