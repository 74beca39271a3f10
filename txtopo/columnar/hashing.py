"""Hashes that are the same in every process, for fields groupings.

Python salts the hashes of texts, so ``hash()`` would send a key to other tasks in other processes. Values
that are equal (1, 1.0, True, Decimal(1)) hash alike, as a dictionary would have it.

Texts and bytes are read as one little-endian number modulo the Mersenne prime 2⁶¹ - 1, which is also the
modulus of Python's own hashes of numbers. Modulo that prime, multiplying by a power of two is a rotation of 61
bits. So eight bytes at a time can be folded in for a whole Arrow column at once: see
:mod:`txtopo.columnar.column_hashing`, which must agree with this module.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import uuid
from typing import Any

import numpy as np

from txtopo.errors import FieldsError

PRIME = (1 << 61) - 1
"""The modulus of hashes, and of Python's own hashes of numbers."""

OF_NONE = 0
_OF_NOT_A_NUMBER = 0x7FF8
_MASK = (1 << 64) - 1


def stable_hash(value: Any) -> int:
    """Return a 64-bit hash of a key that every process agrees on.

    Raises:
        FieldsError: the value's type has no such hash.
    """
    if isinstance(value, str):
        return mix(int.from_bytes(value.encode("utf-8", "surrogatepass"), "little") % PRIME)
    if value is None:
        return OF_NONE
    if isinstance(value, (int, float, complex, decimal.Decimal, fractions.Fraction, np.number, np.bool_)):
        is_number = value == value  # noqa: PLR0124 - Python's hash of what is none depends on the object
        return mix(hash(value) & _MASK) if is_number else mix(_OF_NOT_A_NUMBER)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return mix(int.from_bytes(value, "little") % PRIME)
    if isinstance(value, (tuple, list)):
        combined = 0x345678
        for item in value:
            combined = mix(combined ^ stable_hash(item))
        return combined
    if isinstance(value, (dt.date, dt.time, dt.timedelta, uuid.UUID)):
        return stable_hash(_canonical(value))
    if isinstance(value, enum.Enum):
        return stable_hash(value.name)
    raise FieldsError(
        f"a fields grouping can't group by {value!r} ({type(value).__name__}); use a text, bytes, a number, "
        "a date or time, a UUID, an enum, None, or a tuple of these"
    )


def _canonical(value: Any) -> str:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).isoformat()
    if isinstance(value, dt.time):
        offset = value.utcoffset()
        if offset is not None:
            clock = dt.timedelta(
                hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
            )
            return f"{clock - offset} UTC"
    return str(value)


def mix(number: int) -> int:
    """Return a well-spread 64-bit number (splitmix64's finaliser, Steele, Lea and Flood 2014)."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)
