"""ZooKeeper's own log of transactions: which session wrote what, whatever anybody believes.

A log file is a header of 16 bytes, then records of a checksum, a length, a transaction, and the letter B; zeros
fill the rest. A transaction is a header (session, cxid, zxid, time, type) and a body; that of a multi is a list
of types and bodies. One that was refused is logged as well, with the type of an error, or as a multi of errors.
"""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Iterator

import attrs

_FILE_HEADER_BYTES = 16
_RECORD = struct.Struct(">qi")
_TRANSACTION = struct.Struct(">qiqqi")
_PAIR = struct.Struct(">ii")
_COUNT = struct.Struct(">i")

_ERROR, _CLOSE_SESSION, _CREATE_SESSION, _MULTI = -1, -11, -10, 14


@attrs.frozen
class Logged:
    """A transaction in the log."""

    zxid: int
    session: int
    type: int
    is_applied: bool

    @property
    def is_write(self) -> bool:
        """Whether it changed a node, other than by the beginning or end of a session."""
        return self.is_applied and self.type not in {_CLOSE_SESSION, _CREATE_SESSION}

    @property
    def is_session_end(self) -> bool:
        """Whether it ended a session, and removed its ephemeral nodes."""
        return self.type == _CLOSE_SESSION


def logged_in(data: pathlib.Path) -> list[Logged]:
    """Return all transactions in the log of the server whose data lies in a folder."""
    files = sorted((data / "version-2").glob("log.*"), key=lambda path: int(path.suffix[1:], 16))
    return [logged for path in files for logged in _read(path.read_bytes())]


def writing_sessions(data: pathlib.Path, after_zxid: int) -> set[int]:
    """Return the sessions that changed anything after a transaction."""
    return {each.session for each in logged_in(data) if each.is_write and each.zxid > after_zxid}


def _read(content: bytes) -> Iterator[Logged]:
    position = _FILE_HEADER_BYTES
    while position + _RECORD.size <= len(content):
        _, length = _RECORD.unpack_from(content, position)
        if length == 0:
            return
        start = position + _RECORD.size
        session, _, zxid, _, kind = _TRANSACTION.unpack_from(content, start)
        body = content[start + _TRANSACTION.size : start + length]
        refused = kind == _ERROR or (kind == _MULTI and _ERROR in _types_in(body))
        yield Logged(zxid, session, kind, is_applied=not refused)
        assert content[start + length : start + length + 1] == b"B", "a record ends with the letter B"
        position = start + length + 1


def _types_in(body: bytes) -> set[int]:
    """Return the types in the body of a multi."""
    (count,) = _COUNT.unpack_from(body)
    position = _COUNT.size
    types = set()
    for _ in range(count):
        kind, length = _PAIR.unpack_from(body, position)
        types.add(kind)
        position += _PAIR.size + max(0, length)
    return types
