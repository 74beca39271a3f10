"""Tuples of a stream without types as columns, for a bolt that takes columns and combines rows with equal keys.

Such a bolt says which fields are the key and which is the value. Where their values are texts and whole numbers
and nothing else, columns say the same as tuples, and nothing has to be done tuple by tuple.
"""

from __future__ import annotations

import pyarrow as pa

from txtopo.api.reduction import Combiner
from txtopo.attempts import TransactionAttempt
from txtopo.columnar.chunks import Chunk


def combinable_columns(chunk: Chunk, combiner: Combiner, attempt: TransactionAttempt) -> pa.RecordBatch | None:
    """Return the key and value fields of a chunk of rows as columns; None if they would not say the same.

    Args:
        chunk: the tuples.
        combiner: which fields are the key, and which the value.
        attempt: whose tuples they are.
    """
    fields, positions = combiner.fields, chunk.source.positions
    if len(set(fields)) < len(fields) or not set(fields) <= positions.keys():
        return None
    first = chunk.rows(attempt)[0]
    *keys, value = (type(first[positions[name]]) for name in fields)
    if value is not int or not {str, int}.issuperset(keys):  # seen before anything is made of all the others
        return None
    arrays = [_to_array(chunk, positions[name] - 1) for name in fields]
    if any(array is None for array in arrays):
        return None
    return pa.RecordBatch.from_arrays(arrays, names=list(fields))


def _to_array(chunk: Chunk, position: int) -> pa.Array | None:
    """Return a column of texts, or of whole numbers of 64 bits; None if there is another value among them."""
    encoded, values = chunk.column_as_bytes(position), chunk.columns()[position]
    array = None if encoded is None else encoded.to_array(len(values))
    if array is not None or set(map(type, values)) != {int}:
        return array
    try:
        return pa.array(values, pa.int64())
    except (pa.ArrowException, OverflowError):  # more than 64 bits
        return None
