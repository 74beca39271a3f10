"""Encodes columns of Python values as bytes, for checksums and for a fast conversion to Arrow.

Joining strings or marshalling integers is 5x faster than a Python loop over the values, and the checksum of every
tuple needs it anyway. An Arrow column can then be built from the bytes without a loop over the values.
"""

from __future__ import annotations

import enum
import marshal
import re
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

_MARSHAL_VERSION = 2
"""The last version without references; with them, the bytes depend on which equal objects are identical."""

_MARSHALLED_LISTS = {
    b"i": (np.dtype([("code", "S1"), ("value", "<i4")]), np.int64, pa.int64()),
    b"g": (np.dtype([("code", "S1"), ("value", "<f8")]), np.float64, pa.float64()),
}
"""By the type code of 32-bit integers and of floats: their layout in a marshalled list, after the list's type code
and length, and their types in numpy and Arrow."""

_LIST_HEAD = 5
"""The size of that type code and length, in bytes."""

_TEXT_BYTES_MAX = 1 << 31
"""The limit of Arrow's 32-bit offsets into the bytes of a string column."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+>")


class Encoding(enum.Enum):
    """The encoding of a column."""

    TEXTS = enum.auto()
    """Strings in UTF-8, each followed by a zero byte; no string contains one."""
    MARSHALLED = enum.auto()
    """A list in Python's ``marshal`` format."""
    SHOWN = enum.auto()
    """The ``repr`` of the values, or strings that are not valid UTF-8; for checksums only."""


class ColumnBytes(NamedTuple):
    """A column's values as bytes: different values give different bytes."""

    form: Encoding
    content: bytes

    def to_array(self, count: int) -> pa.Array | None:
        """Return the Arrow column of ``count`` strings, 32-bit integers or floats; None for any other values."""
        if self.form is Encoding.TEXTS:
            return self._texts(count)
        return self._numbers(count) if self.form is Encoding.MARSHALLED else None

    def _texts(self, count: int) -> pa.Array | None:
        if len(self.content) >= _TEXT_BYTES_MAX:
            return None
        offsets = np.zeros(count + 1, dtype=np.int32)
        ends = np.flatnonzero(np.frombuffer(self.content, dtype=np.uint8) == 0)
        np.subtract(ends, np.arange(count), out=offsets[1:], casting="unsafe")
        texts = self.content.replace(b"\0", b"")
        return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(texts))

    def _numbers(self, count: int) -> pa.Array | None:
        code = self.content[_LIST_HEAD : _LIST_HEAD + 1]
        if code not in _MARSHALLED_LISTS:
            return None
        layout, wide, kind = _MARSHALLED_LISTS[code]
        if len(self.content) != _LIST_HEAD + count * layout.itemsize:
            return None
        items = np.frombuffer(self.content, dtype=layout, offset=_LIST_HEAD)
        if not (items["code"] == code).all():
            return None
        # Not by pa.array, which imports pandas: half a second of each process's start.
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(items["value"].astype(wide))])


def to_bytes(column: list[Any]) -> ColumnBytes | None:
    """Return the values of a column, at least one, as bytes; None if the bytes would depend on the process."""
    if type(column[0]) is str:  # most fields are strings, and joining them is 5x faster
        try:
            texts = "\0".join(column) + "\0"
        except TypeError:  # not all of them are strings
            pass
        else:  # a zero byte within a string would split it in two
            if texts.count("\0") == len(column):
                return _text_bytes(texts)
    try:
        return ColumnBytes(Encoding.MARSHALLED, marshal.dumps(column, _MARSHAL_VERSION))
    except ValueError:  # dates, decimals, the user's classes
        shown = repr(column)  # an address in it differs in each process
        return None if _ADDRESS.search(shown) else ColumnBytes(Encoding.SHOWN, shown.encode("utf-8", "surrogatepass"))


def _text_bytes(texts: str) -> ColumnBytes:
    try:
        return ColumnBytes(Encoding.TEXTS, texts.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        return ColumnBytes(Encoding.SHOWN, texts.encode("utf-8", "surrogatepass"))
