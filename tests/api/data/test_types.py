"""Types of fields, as texts in Spark's DDL."""

from __future__ import annotations

import pyarrow as pa
import pytest

from txtopo.api.data.types import parse_type
from txtopo.errors import FieldsError


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("decimal", pa.decimal128(10, 0)),
        ("decimal(12)", pa.decimal128(12, 0)),
        ("map<string, decimal(38, 38)>", pa.map_(pa.string(), pa.decimal128(38, 38))),
    ],
)
def test_decimals(text: str, kind: pa.DataType) -> None:
    """A decimal has Spark's default precision and scale, or those that are given, anywhere in a type."""
    assert parse_type(text) == kind


@pytest.mark.parametrize(
    "text",
    ["decimal(", "decimal()", "decimal(10 foo)", "decimal(10,x)", "decimal(10,2,1)", "decimal(39)", "decimal(5,6)"],
)
def test_decimals_that_are_none(text: str) -> None:
    """What Spark refuses is refused by an error that quotes it."""
    with pytest.raises(FieldsError, match="is no"):
        parse_type(text)
