"""Hashes for fields groupings agree between processes, and with equality."""

from __future__ import annotations

import datetime
import decimal
import enum
import subprocess
import sys
import uuid

import numpy as np
import pytest

from txtopo.columnar.hashing import stable_hash
from txtopo.errors import FieldsError


class Colour(enum.Enum):
    RED = 1


def test_equal_values_hash_alike() -> None:
    """1, 1.0, True and Decimal(1) are one key, as in a dictionary."""
    assert stable_hash(1) == stable_hash(1.0) == stable_hash(True) == stable_hash(decimal.Decimal(1))
    assert stable_hash((1, "a")) == stable_hash([1.0, "a"])


def test_same_in_every_process() -> None:
    """A text hashes alike in processes with other hash seeds."""
    code = "from txtopo.columnar.hashing import stable_hash as h; print(h('kätzchen'), h((b'x', 3, None)))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert outputs == {f"{stable_hash('kätzchen')} {stable_hash((b'x', 3, None))}\n"}


def test_other_keys() -> None:
    """Dates, times, UUIDs, enums and instants in two time zones have hashes."""
    utc = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
    east = utc.astimezone(datetime.timezone(datetime.timedelta(hours=3)))
    assert stable_hash(utc) == stable_hash(east)
    keys = [Colour.RED, uuid.UUID(int=5), datetime.date(2026, 1, 1), datetime.timedelta(1)]
    assert len({stable_hash(key) for key in keys}) == 4


def test_keys_without_a_hash() -> None:
    """A key whose type has no dependable hash is refused by value and type."""
    with pytest.raises(FieldsError, match="set"):
        stable_hash({1})


def test_not_a_number() -> None:
    """What is not a number has one hash, though Python gives each such object its own."""
    nans = [float("nan"), float("inf") - float("inf"), decimal.Decimal("nan"), np.float32("nan")]
    assert {stable_hash(nan) for nan in nans} == {stable_hash(float("nan"))}


def test_numbers_of_numpy() -> None:
    """A number of numpy is the key that it equals."""
    assert stable_hash(np.int64(-1)) == stable_hash(np.float32(-1)) == stable_hash(-1)
    assert stable_hash(np.True_) == stable_hash(1)


def test_times_in_two_zones() -> None:
    """Times of day that are equal across zones are one key."""
    utc = datetime.time(12, tzinfo=datetime.UTC)
    east = datetime.time(15, tzinfo=datetime.timezone(datetime.timedelta(hours=3)))
    assert utc == east
    assert stable_hash(utc) == stable_hash(east)
