"""Stable hashes of whole Arrow columns: the same numbers as ``stable_hash`` of each value, many times faster.

A stream with types is routed by its columns and one without by its rows, and both may feed the same bolt. So
for each value both must come to the same task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txtopo.columnar.hashing import OF_NONE, PRIME, stable_hash

Hashes = npt.NDArray[np.uint64]

_BITS = 61
_WORD_BYTES = 8
_PRIME = np.uint64(PRIME)
_TUPLE_SEED = 0x345678
_LOW_BYTES = np.array([(1 << 8 * count) - 1 for count in range(_WORD_BYTES + 1)], dtype=np.uint64)
"""Masks that keep the first bytes of a little-endian word, by how many."""


def hash_columns(columns: Sequence[pa.Array]) -> Hashes:
    """Return the stable hash of each row's key.

    Args:
        columns: the key's columns, equally long. The key of one column is its value, that of several a tuple.

    Raises:
        FieldsError: a value's type has no stable hash.
    """
    if len(columns) == 1:
        return _hash_column(columns[0])
    combined = np.full(len(columns[0]) if columns else 0, _TUPLE_SEED, dtype=np.uint64)
    for column in columns:
        combined = _mix(combined ^ _hash_column(column))
    return combined


def _hash_column(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashes = _mix(_texts_modulo_prime(column))
    elif pa.types.is_integer(kind):
        hashes = _mix(_integers_modulo_prime(column))
    else:
        return _hash_distinct(column)
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = OF_NONE
    return hashes


def _hash_distinct(column: pa.Array) -> Hashes:
    """Hash each distinct value by itself, where the type has no faster way."""
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
    words_at: Any = np.ndarray((last - first + 1,), dtype="<u8", buffer=padded, strides=(1,))
    starts = offsets[:-1].astype(np.int64) - first
    left = np.diff(offsets).astype(np.int64)
    sums = np.zeros(count, dtype=np.uint64)
    rows: Any = slice(None)
    shift = 0
    while len(left):
        words = words_at[starts] & _LOW_BYTES[np.minimum(left, _WORD_BYTES)]
        sums[rows] = _reduced(sums[rows] + _rotated(_reduced(words), shift))
        going_on = np.flatnonzero(left > _WORD_BYTES)
        rows = going_on if isinstance(rows, slice) else rows[going_on]
        starts, left = starts[going_on] + _WORD_BYTES, left[going_on] - _WORD_BYTES
        shift = (shift + 8 * _WORD_BYTES) % _BITS
    return sums


def _integers_modulo_prime(column: pa.Array) -> Hashes:
    """Return Python's ``hash`` of each integer as 64 bits."""
    filled = column.fill_null(0) if column.null_count else column
    numbers = filled.to_numpy(zero_copy_only=False)
    is_negative = numbers < 0
    sizes = numbers.astype(np.uint64)
    np.negative(sizes, out=sizes, where=is_negative)
    hashes = _reduced(sizes)
    hashes[is_negative & (hashes == 1)] = 2  # Python keeps -1 for errors
    np.negative(hashes, out=hashes, where=is_negative)
    return hashes


def _reduced(numbers: Hashes) -> Hashes:
    """Return numbers modulo the prime."""
    folded = (numbers & _PRIME) + (numbers >> np.uint64(_BITS))
    return np.where(folded >= _PRIME, folded - _PRIME, folded)


def _rotated(numbers: Hashes, bits: int) -> Hashes:
    """Return numbers below the prime times two to the power of ``bits``, modulo the prime."""
    if bits == 0:
        return numbers
    return ((numbers << np.uint64(bits)) & _PRIME) | (numbers >> np.uint64(_BITS - bits))


def _mix(numbers: Hashes) -> Hashes:
    """Return what :func:`txtopo.columnar.hashing.mix` makes of each number."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
