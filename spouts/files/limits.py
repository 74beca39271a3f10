"""How much of a file is read, held and handed on at a time."""

from __future__ import annotations

import attrs


@attrs.frozen
class ReadLimits:
    """The limits of a reader of files. What it holds at a time is a few times these, however large a file is."""

    batch_rows: int = 65_536
    """The maximum number of rows in an emitted record batch."""
    record_bytes: int = 16 * 1024 * 1024
    """The maximum length of a record of a text, CSV or JSON file, in bytes, without its line end or byte order mark."""
    chunk_bytes: int = 1024 * 1024
    """The number of bytes to read, or to unpack, at a time."""
    text_bytes: int = 64 * 1024
    """The maximum length of a bad record's text in the table."""
    bad_rows: int = 4096
    """The number of records that are checked at a time in a block with bad ones, and of bad ones that wait to be
    emitted."""
    names_bytes: int = 128 * 1024
    """The limit for the bytes of file names in one transaction's metadata; the last name may exceed it."""
    range_bytes: int = 4 * 1024
    """The minimum size of a piece into which a range is cut."""

    @property
    def kept_bytes(self) -> int:
        """The bytes kept of a record that is too long: one more than its text shows whether a character ends there."""
        return min(self.text_bytes + 1, self.record_bytes)
