"""Hashes that are the same in every process, for fields groupings.

Python salts the hashes of texts, so ``hash()`` would send a key to other tasks in other processes. Values
that are equal (1, 1.0, True, Decimal(1)) hash alike, as a dictionary would have it.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import uuid
import zlib
from typing import Any

from txtopo.errors import FieldsError

_MASK = (1 << 64) - 1


def stable_hash(value: Any) -> int:
    """Return a 64-bit hash of a key that every process agrees on.

    Raises:
        FieldsError: the value's type has no such hash.
    """
    if isinstance(value, str):
        return mix(zlib.crc32(value.encode("utf-8", "surrogatepass")))
    if value is None:
        return 0
    if isinstance(value, (int, float, complex, decimal.Decimal, fractions.Fraction)):
        return mix(hash(value) & _MASK)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return mix(zlib.crc32(value) ^ 0x5BD1E995)
    if isinstance(value, (tuple, list)):
        combined = 0x345678
        for item in value:
            combined = mix(combined ^ stable_hash(item))
        return combined
    if isinstance(value, enum.Enum):
        return stable_hash(value.name)
    if isinstance(value, (dt.date, dt.time, dt.timedelta, uuid.UUID)):
        return stable_hash(_canonical(value))
    raise FieldsError(
        f"a fields grouping can't group by {value!r} ({type(value).__name__}); use a text, bytes, a number, "
        "a date or time, a UUID, an enum, None, or a tuple of these"
    )


def _canonical(value: Any) -> str:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).isoformat()
    return str(value)


def mix(number: int) -> int:
    """Return a well-spread 64-bit number (splitmix64's finaliser, Steele, Lea and Flood 2014)."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)
