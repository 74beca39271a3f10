"""Columns of Python values as bytes: a checksum is made of them, and an Arrow column where they hold no more than one.

Joining texts, or marshalling numbers, takes a fifth of what looking at each value does, and is done for the checksum
of every tuple. What the bytes then say of the column takes no look at a value at all.
"""

from __future__ import annotations

import enum
import marshal
import re
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

_MARSHAL_VERSION = 2
"""The last one without references, whose bytes depend on which equal objects are one."""

_MARSHALLED_LIST = np.dtype([("code", "S1"), ("value", "<i4")])
"""How whole numbers of 32 bits lie behind a marshalled list's own code and length."""

_LIST_HEAD = 5
"""Bytes of that code and length."""

_TEXT_BYTES_MAX = 1 << 31
"""A column's texts are found by 32 bits."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+>")


class Form(enum.Enum):
    """What the bytes of a column are."""

    TEXTS = enum.auto()
    """Texts in UTF-8, each with a zero behind it that stands nowhere else."""
    MARSHALLED = enum.auto()
    """A list as Python's own modules hold it."""
    SHOWN = enum.auto()
    """What nothing is made of again."""


class ColumnBytes(NamedTuple):
    """A column's values as bytes, which differ where values do."""

    form: Form
    content: bytes

    def to_array(self, count: int) -> pa.Array | None:
        """Return the Arrow column of ``count`` texts, or whole numbers of 32 bits; None for all else."""
        if self.form is Form.TEXTS:
            return self._texts(count)
        return self._numbers(count) if self.form is Form.MARSHALLED else None

    def _texts(self, count: int) -> pa.Array | None:
        if len(self.content) >= _TEXT_BYTES_MAX:
            return None
        offsets = np.zeros(count + 1, dtype=np.int32)
        ends = np.flatnonzero(np.frombuffer(self.content, dtype=np.uint8) == 0)
        np.subtract(ends, np.arange(count), out=offsets[1:], casting="unsafe")
        texts = self.content.replace(b"\0", b"")
        return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(texts))

    def _numbers(self, count: int) -> pa.Array | None:
        if len(self.content) != _LIST_HEAD + count * _MARSHALLED_LIST.itemsize:
            return None
        items = np.frombuffer(self.content, dtype=_MARSHALLED_LIST, offset=_LIST_HEAD)
        return pa.array(items["value"].astype(np.int64)) if (items["code"] == b"i").all() else None


def to_bytes(column: list[Any]) -> ColumnBytes | None:
    """Return a column's values as bytes; None if not every process agrees on them.

    Args:
        column: some values, at least one.
    """
    if type(column[0]) is str:  # most fields are texts: joining them takes a fifth of the time
        try:
            texts = "\0".join(column) + "\0"
        except TypeError:
            pass
        else:
            if texts.count("\0") == len(column):
                return _text_bytes(texts)
    try:
        return ColumnBytes(Form.MARSHALLED, marshal.dumps(column, _MARSHAL_VERSION))
    except ValueError:  # dates, decimals, the user's own classes
        shown = repr(column)
        return None if _ADDRESS.search(shown) else ColumnBytes(Form.SHOWN, shown.encode("utf-8", "surrogatepass"))


def _text_bytes(texts: str) -> ColumnBytes:
    try:
        return ColumnBytes(Form.TEXTS, texts.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        return ColumnBytes(Form.SHOWN, texts.encode("utf-8", "surrogatepass"))
