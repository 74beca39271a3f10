"""Parquet that Spark has written with its default settings is read whole: all types, codecs and partitions' folders."""

import datetime as dt
from decimal import Decimal

import pytest

from spouts.files.spout import FilesTransactionalSpout
from tests.spouts.reading import read
from txtopo.api.data.fields import Fields

MOMENT = dt.datetime(2024, 2, 3, 4, 5, 6, 789_012, tzinfo=dt.UTC)
FIRST, LAST = dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC)

ROW = {
    "b: boolean": True,
    "i8: tinyint": -128,
    "i16: smallint": 32767,
    "i32: int": -(2**31),
    "i64: bigint": 2**63 - 1,
    "f32: float": 1.5,
    "f64: double": 0.1,
    "m9: decimal(9,2)": Decimal("-1234567.89"),
    "m18: decimal(18,4)": Decimal("12345678901234.5678"),
    "m38: decimal(38,18)": Decimal("12345678901234567890.123456789012345678"),
    "text: string": "ä\u2028",
    "bytes: binary": b"\x00\xff",
    "day: date": dt.date(1999, 12, 31),
    "at: timestamp": MOMENT,
    "first: timestamp": FIRST,
    "last: timestamp": LAST,
    "local: timestamp_ntz": MOMENT.replace(tzinfo=None),
    "times: array<timestamp>": [MOMENT, None, LAST],
    "inner: struct<at: timestamp, n: int>": {"at": MOMENT, "n": None},
    "deep: array<struct<at: array<timestamp>, local: timestamp_ntz>>": [
        {"at": [MOMENT], "local": MOMENT.replace(tzinfo=None)}
    ],
}


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_every_type_of_spark(spark, tmp_path, codec):
    """Timestamps are INT96 there. A null is a null, and the partitions' folders are read like any others."""
    fields = Fields(*ROW)
    rows = [(number, *ROW.values()) for number in range(3)] + [(3, *[None] * len(ROW))]
    frame = spark.createDataFrame(rows, "part: int, " + ", ".join(ROW))
    frame.write.option("compression", codec).partitionBy("part").parquet(str(tmp_path / "out"))
    found = read(FilesTransactionalSpout(tmp_path / "out", fields))
    assert found == [tuple(row[1:]) for row in rows]
