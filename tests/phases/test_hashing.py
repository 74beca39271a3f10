"""Hashes for fields groupings agree between processes, and with equality."""

from __future__ import annotations

import datetime
import decimal
import enum
import subprocess
import sys
import uuid

import pytest

from txtopo.errors import FieldsError
from txtopo.phases.hashing import stable_hash


class Colour(enum.Enum):
    RED = 1


def test_equal_values_hash_alike() -> None:
    """1, 1.0, True and Decimal(1) are one key, as in a dictionary."""
    assert stable_hash(1) == stable_hash(1.0) == stable_hash(True) == stable_hash(decimal.Decimal(1))
    assert stable_hash((1, "a")) == stable_hash([1.0, "a"])


def test_same_in_every_process() -> None:
    """A text hashes alike in processes with other hash seeds."""
    code = "from txtopo.phases.hashing import stable_hash as h; print(h('kätzchen'), h((b'x', 3, None)))"
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
