"""Hashes that are the same in every process: of values, of Arrow columns, and of keys that executors share.

*stable_hash* is for fields groupings. Python salts the hashes of strings, so ``hash()`` would send a key to different
tasks in different processes. Equal values (1, 1.0, True, Decimal(1)) have equal hashes, as in a dictionary.

*hash_columns* returns the same hashes for whole Arrow columns, many times faster. A typed stream is routed by its
columns and an untyped one by its rows, and a bolt may subscribe to both; so both functions must send equal values to
the same task. Strings and bytes are hashed as one little-endian number modulo the Mersenne prime 2⁶¹ - 1, which is also
the modulus of Python's hashes of numbers. Modulo that prime, multiplication by a power of two is a rotation of 61
bits. So a whole column can be processed at once, 8 bytes per step.

*parts_of* returns which of 256 parts a key belongs to. A key has the same part in every process and on every machine,
because executors share the keys of a group by them (see :mod:`state.delta.keyed.ranges`).
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import functools
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.errors import FieldsError

_PRIME = (1 << 61) - 1
"""The modulus of hashes, and of Python's hashes of numbers."""

_LONG_BYTES = 512
"""Longer texts are hashed one by one: 3 us each at this length either way, but a text of 100 kB takes 0.5 ms instead of
360 ms, because each round over a column takes about 20 us however few texts are that long."""

_OF_NONE = 0
_OF_NOT_A_NUMBER = 0x7FF8
_TUPLE_SEED = 0x345678
_MASK = (1 << 64) - 1


def stable_hash(value: Any) -> int:
    """Return a 64-bit hash of a key, the same in every process; raise FieldsError if the value's type has none."""
    if isinstance(value, str):
        return mix(int.from_bytes(value.encode("utf-8", "surrogatepass"), "little") % _PRIME)
    if value is None:
        return _OF_NONE
    if isinstance(value, (int, float, complex, decimal.Decimal, fractions.Fraction, np.number, np.bool_)):
        is_number = value == value  # noqa: PLR0124 - False for NaN, whose hash() depends on the object
        return mix(hash(value) & _MASK) if is_number else mix(_OF_NOT_A_NUMBER)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return mix(int.from_bytes(value, "little") % _PRIME)
    if isinstance(value, (tuple, list)):
        combined = _TUPLE_SEED
        for item in value:
            combined = mix(combined ^ stable_hash(item))
        return combined
    if isinstance(value, (dt.date, dt.time, dt.timedelta, uuid.UUID)):
        return stable_hash(_canonical(value))
    if isinstance(value, enum.Enum):
        return stable_hash(value.name)
    raise FieldsError(
        f"a fields grouping can't group by {value!r} ({type(value).__name__}); use a string, bytes, a number, "
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
    """Return a well-mixed 64-bit number (splitmix64's finaliser, Steele, Lea and Flood 2014)."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


PARTS = 256
"""The number of parts."""

_FNV_PRIME = 0x100000001B3
"""FNV's 64-bit prime: a key's text is hashed as a number in this base."""

_PORTION_ROWS = 1_000_000
"""How many texts are hashed at a time: a round has some arrays of 8 bytes for each."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Hashes = npt.NDArray[np.uint64]

_BITS = 61
_WORD_BYTES = 8
_PRIME_64 = np.uint64(_PRIME)
_LOW_BYTES = np.array([(1 << 8 * count) - 1 for count in range(_WORD_BYTES + 1)], dtype=np.uint64)
"""Masks that keep the first n bytes of a little-endian word, by n."""


def hash_columns(columns: Sequence[pa.Array]) -> Hashes:
    """Return the stable hash of each row's key, given the key's columns, of equal length.

    With one column a key is its value, with several a tuple.

    Raises:
        FieldsError: a value's type has no stable hash.
    """
    if len(columns) == 1:
        return _hash_column(columns[0])
    combined = np.full(len(columns[0]) if columns else 0, _TUPLE_SEED, dtype=np.uint64)
    for column in columns:
        combined = mix_columns(combined ^ _hash_column(column))
    return combined


def _hash_column(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashes = mix_columns(_texts_modulo_prime(column))
    elif pa.types.is_integer(kind):
        hashes = mix_columns(_integers_modulo_prime(column))
    else:
        return _hash_distinct(column)
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _OF_NONE
    return hashes


def _hash_distinct(column: pa.Array) -> Hashes:
    """Return the hashes of a column whose type has no faster way, hashing each distinct value once."""
    try:
        encoded = column.dictionary_encode(null_encoding="encode")
    except pa.ArrowNotImplementedError:  # nested types
        return np.array([stable_hash(value) for value in column.to_pylist()], dtype=np.uint64)
    hashes = np.array([stable_hash(value) for value in encoded.dictionary.to_pylist()], dtype=np.uint64)
    indices: npt.NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False)
    return hashes[indices]


def _texts_modulo_prime(column: pa.Array) -> Hashes:
    """Return the bytes of each value as one little-endian number modulo the prime."""
    _, offsets_buffer, content = column.buffers()
    count = len(column)
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[column.offset : column.offset + count + 1]
    first, last = (int(offsets[0]), int(offsets[-1])) if count else (0, 0)
    padded = np.zeros(last - first + _WORD_BYTES, dtype=np.uint8)
    if last > first:
        padded[: last - first] = np.frombuffer(content, dtype=np.uint8)[first:last]
    # The 8 bytes from each byte on; the padding lets the last bytes have 8, too.
    words_at: Any = np.ndarray((last - first + 1,), dtype="<u8", buffer=padded, strides=(1,))
    starts = offsets[:-1].astype(np.int64) - first
    bytes_left = np.diff(offsets).astype(np.int64)
    sums = np.zeros(count, dtype=np.uint64)
    for row in np.flatnonzero(bytes_left > _LONG_BYTES):
        sums[row] = int.from_bytes(padded[starts[row] : starts[row] + bytes_left[row]].tobytes(), "little") % _PRIME
    short = np.flatnonzero(bytes_left <= _LONG_BYTES)
    rows: Any = slice(None) if len(short) == count else short
    starts, bytes_left = starts[rows], bytes_left[rows]
    shift = 0
    while len(bytes_left):  # each round adds the next 8 bytes of all values that are long enough
        words = words_at[starts] & _LOW_BYTES[np.minimum(bytes_left, _WORD_BYTES)]
        sums[rows] = _reduced(sums[rows] + _rotated(_reduced(words), shift))
        unfinished = np.flatnonzero(bytes_left > _WORD_BYTES)
        rows = unfinished if isinstance(rows, slice) else rows[unfinished]
        starts, bytes_left = starts[unfinished] + _WORD_BYTES, bytes_left[unfinished] - _WORD_BYTES
        shift = (shift + 8 * _WORD_BYTES) % _BITS
    return sums


def _integers_modulo_prime(column: pa.Array) -> Hashes:
    filled = column.fill_null(0) if column.null_count else column
    numbers = filled.to_numpy(zero_copy_only=False)
    is_negative = numbers < 0
    sizes = numbers.astype(np.uint64)
    np.negative(sizes, out=sizes, where=is_negative)
    hashes = _reduced(sizes)
    hashes[is_negative & (hashes == 1)] = 2  # as in Python, where -1 means an error and hash(-1) is -2
    np.negative(hashes, out=hashes, where=is_negative)
    return hashes


def _reduced(numbers: Hashes) -> Hashes:
    folded = (numbers & _PRIME_64) + (numbers >> np.uint64(_BITS))
    return np.where(folded >= _PRIME_64, folded - _PRIME_64, folded)


def _rotated(numbers: Hashes, bits: int) -> Hashes:
    """Return ``numbers * 2**bits`` modulo the prime; the numbers must be below the prime."""
    if bits == 0:
        return numbers
    return ((numbers << np.uint64(bits)) & _PRIME_64) | (numbers >> np.uint64(_BITS - bits))


def mix_columns(numbers: Hashes) -> Hashes:
    """Apply :func:`mix` to each number."""
    mixed = numbers + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def parts_of(keys: pa.Table) -> Any:
    """Return the part of each row's key, as an array of uint8. The key columns have no nulls."""
    combined = np.zeros(keys.num_rows, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in keys.columns:
            hashes = [text_hashes(chunk) for chunk in portions_of(column, _PORTION_ROWS)]
            combined = combined * np.uint64(31) + (np.concatenate(hashes) if hashes else combined)
        combined = (combined ^ (combined >> np.uint64(31))) * _GOLDEN
    return (combined >> np.uint64(56)).astype(np.uint8)


def portions_of(column: Any, rows: int) -> Iterator[Any]:
    """Yield a column as arrays of ``rows`` rows; the last one may be shorter."""
    for start in range(0, len(column), rows):
        portion = column.slice(start, rows)
        yield pa.concat_arrays(portion.chunks) if isinstance(portion, pa.ChunkedArray) else portion


def text_hashes(array: Any) -> Hashes:
    """Return a hash for each value: its length plus its text's bytes as digits in base ``_FNV_PRIME``, modulo 2^64."""
    if not (pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
        array = pc.cast(array, pa.string())
    array = pa.concat_arrays([array])  # at offset 0
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(
        np.int64
    )
    lengths = np.diff(offsets)
    hashes = lengths.astype(np.uint64)
    first, end = int(offsets[0]), int(offsets[-1])
    if end > first:
        data = np.frombuffer(data_buffer, dtype=np.uint8)[first:end].astype(np.uint64)
        places = np.arange(end - first) - np.repeat(offsets[:-1] - first, lengths)
        digits = data * _powers(int(lengths.max()))[places]
        is_filled = lengths > 0
        hashes[is_filled] += np.add.reduceat(digits, (offsets[:-1] - first)[is_filled])
    return hashes


@functools.lru_cache(maxsize=8)
def _powers(length: int) -> Hashes:
    with np.errstate(over="ignore"):
        return np.cumprod(np.full(length, _FNV_PRIME, dtype=np.uint64), dtype=np.uint64)
