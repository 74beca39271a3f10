"""A ring of fixed-size records in a file: one process writes it, any process reads on in it.

File: 4096 bytes of header (a line of JSON, padded), then ``slots`` records of 128 bytes. Record number SEQ, from 1,
lies in slot ``(SEQ - 1) % slots`` and carries SEQ and a CRC, so a reader needs no pointer to the head: it reads on from
the last SEQ that it knows until a slot does not hold the next one. The CRC of a torn record is wrong, so a reader stops
before it and looks again.

The file is only for people, so nothing syncs it, and a write that fails is forgotten. It is written with ``pwrite`` and
never mapped: on a full disk a mapped page kills its process with SIGBUS. It is sparse: an empty ring takes one page.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import attrs

from txtopo.files.durable import removed_on_error, write_whole
from txtopo.files.records import DAMAGE, from_json, to_json

HEADER_BYTES = 4096
RECORD_BYTES = 128
BODY_BYTES = 112

TEXT = 1
"""The kind of the records that hold texts; all other kinds are the user's."""

TEXT_BYTES_MAX = 3 * BODY_BYTES
"""Longer texts are cut."""

_FORMAT = 1
_TEXTS_MAX = 1000
"""How many texts a writer remembers as written; then it forgets all, and writes again those that come again."""
_PREFIX = struct.Struct("<IBBHQ")
_CRC = struct.Struct("<I")
_READ_RECORDS = 512
"""64 KiB at a time."""
_RECORDS_A_SECOND = 4096
"""More than any run writes for long."""

assert _PREFIX.size + BODY_BYTES == RECORD_BYTES, "a record is its prefix and its body"


@attrs.frozen
class RingHeader:
    """Whose ring it is.

    ``base_us`` is when its first writer began, in microseconds since 1970; successors keep it. ``before`` is the last
    SEQ that its writer has taken over from earlier runs; all later records are its own.
    """

    slots: int
    incarnation: str
    epoch: int
    base_us: int
    format: int = _FORMAT
    before: int = 0

    def is_continued_by(self, later: RingHeader) -> bool:
        """Whether a later run of the same topology can go on with the records of this one."""
        return (self.format, self.slots, self.incarnation) == (later.format, later.slots, later.incarnation)


class RingWriter:
    """Writes a ring. ``put`` packs, ``flush`` writes: one system call, or two where the ring ends.

    Args:
        path: of the new file; a crash while it is made leaves a draft beside it.
        header: as the file's; it takes over ``base_us`` and the records of ``former`` if that can be continued.
        former: the ring of an earlier run, or None.
    """

    def __init__(self, path: Path, header: RingHeader, former: Path | None = None) -> None:
        # A ring that continues none begins above all earlier ones, so nobody takes one's numbers for another's.
        self.seq = int(time.time()) * _RECORDS_A_SECOND
        self._slots = header.slots
        self._texts: dict[str, int] = {}
        self._parts = bytearray()
        records = b""
        header_found = None if former is None else read_header(former)
        if former is not None and header_found is not None and header_found.is_continued_by(header):
            header = attrs.evolve(header, base_us=header_found.base_us)
            records = former.read_bytes()[HEADER_BYTES:]
            self.seq = max((seq for seq, _ in whole_records(records)), default=self.seq)
            records = records.rstrip(b"\0")
        self.header = header = attrs.evolve(header, before=self.seq)
        self._written = self.seq
        draft = path.with_name(f".draft-{path.name}")
        with removed_on_error(draft):
            self._file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            os.pwrite(self._file, json.dumps(to_json(header)).encode().ljust(HEADER_BYTES), 0)
            os.ftruncate(self._file, HEADER_BYTES + header.slots * RECORD_BYTES)
            os.pwrite(self._file, records, HEADER_BYTES)
            draft.replace(path)

    def put(self, kind: int, small: int, number: int, body: bytes) -> None:
        """Add a record: a kind, a number below 256, one below 65,536, and 112 bytes."""
        self.seq += 1
        record = _PREFIX.pack(0, kind, small, number, self.seq) + body
        self._parts += _CRC.pack(zlib.crc32(record))
        self._parts += record[4:]

    def text(self, text: str) -> int:
        """Return the SEQ of a text, 0 for an empty one; write it (again) if no young half of the ring holds it."""
        seq = self._texts.get(text, 0)
        if not text or (seq and self.seq - seq < self._slots // 2):
            return seq
        if len(self._texts) >= _TEXTS_MAX:
            self._texts.clear()
        data = text.encode(errors="replace")[:TEXT_BYTES_MAX]
        chunks = [data[at : at + BODY_BYTES] for at in range(0, len(data), BODY_BYTES)]
        self._texts[text] = first = self.seq + 1
        for pieces_left, chunk in zip(range(len(chunks) - 1, -1, -1), chunks, strict=True):
            self.put(TEXT, pieces_left, len(chunk), chunk.ljust(BODY_BYTES, b"\0"))
        return first

    def flush(self) -> None:
        """Write what was put. Raises OSError if the disk is full or gone; the records are then lost."""
        parts, self._parts = self._parts, bytearray()
        flushed, self._written = self._written, self.seq
        if not parts:
            return
        skipped = max(0, self.seq - flushed - self._slots)  # more than the ring holds: only the last ones
        view = memoryview(parts)[skipped * RECORD_BYTES :]
        start = (flushed + skipped) % self._slots
        room = (self._slots - start) * RECORD_BYTES
        os.pwrite(self._file, view[:room], HEADER_BYTES + start * RECORD_BYTES)
        if len(view) > room:
            os.pwrite(self._file, view[room:], HEADER_BYTES)

    def close(self) -> None:
        """Write what was put, and close the file."""
        try:
            self.flush()
        finally:
            os.close(self._file)


class RingReader:
    """Reads on in a ring. A reader opens one file; if another one replaces it, open that with another reader.

    Raises:
        OSError: the file can't be opened.
        ValueError: it is not a ring of this version.
    """

    def __init__(self, path: Path) -> None:
        header = read_header(path)
        if header is None:
            raise ValueError(f"{path} is not a timeline of this version of txtopo")
        self.header = header
        self.seq = 0
        """The last record that was returned."""
        self._torn = 0
        """The record before which the last look stopped although there were later ones."""
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> tuple[list[bytes], bool]:
        """Return the records after the last ones returned, in order; and whether some before them are lost."""
        records: list[bytes] = []
        while self.seq:
            seq_before, slots = self.seq, self.header.slots
            start = seq_before % slots
            data = self._at(start, min(_READ_RECORDS, slots - start))
            later = 0
            for at, seq, record in _placed(data):
                expected = seq_before + 1 + at
                if seq >= expected + slots:  # the writer has come round
                    return self._all_records(), True
                if seq == self.seq + 1:
                    records.append(record)
                    self.seq = seq
                elif seq == expected:
                    later = seq
                    break
            if later:  # a torn record before it: the writer is at it, or died at it, or its disk was full
                is_again, self._torn = self._torn == self.seq, self.seq
                return (self._all_records(), True) if is_again else (records, False)
            if self.seq - seq_before < len(data) // RECORD_BYTES:
                return records, False
        return self._all_records(), False

    def _all_records(self) -> list[bytes]:
        records = sorted(whole_records(self._at(0, self.header.slots)))
        # Without a gap up to the newest: a torn record in the middle hides those before it, which nobody misses.
        intact: list[bytes] = []
        before = 0
        for seq, record in records:
            if seq != before + 1:
                intact.clear()
            intact.append(record)
            before = seq
        self.seq = before
        return intact

    def _at(self, slot: int, count: int) -> bytes:
        return os.pread(self._file, count * RECORD_BYTES, HEADER_BYTES + slot * RECORD_BYTES)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_header(path: Path) -> RingHeader | None:
    """Return the header of a ring; None if the file is not a ring of this version, or not there."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(HEADER_BYTES))
        return from_json(content, RingHeader) if content["format"] == _FORMAT else None
    except (OSError, *DAMAGE):
        return None


def keep_own(path: Path) -> None:
    """Make a ring as small as the records that its last writer has added; nobody can go on with it then."""
    header = read_header(path)
    if header is None:
        return
    own_records = {
        seq: record for seq, record in whole_records(path.read_bytes()[HEADER_BYTES:]) if seq > header.before
    }
    slots = 1 + max(own_records, default=0) - min(own_records, default=0)
    data = bytearray(slots * RECORD_BYTES)
    for seq, record in own_records.items():
        at = (seq - 1) % slots * RECORD_BYTES
        data[at : at + RECORD_BYTES] = record
    small = json.dumps(to_json(attrs.evolve(header, slots=slots))).encode().ljust(HEADER_BYTES)
    write_whole(path, small + data, 0o600)


def whole_records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the SEQ and the bytes of each record that is whole; pass over torn ones and empty slots."""
    for _, seq, record in _placed(data):
        yield seq, record


def _placed(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    crc32, zero = zlib.crc32, bytes(4)
    for at in range(len(data) // RECORD_BYTES):
        record = data[at * RECORD_BYTES : (at + 1) * RECORD_BYTES]
        (crc,) = _CRC.unpack_from(record)
        if crc and crc == crc32(record[4:], crc32(zero)):
            yield at, int.from_bytes(record[8:16], "little"), record


def texts_in(records: list[bytes], texts: dict[int, str]) -> None:
    """Add the texts among records to ``texts``, by the SEQ of their first record."""
    first, data = 0, b""
    for record in records:
        _, kind, pieces_left, length, seq = _PREFIX.unpack_from(record)
        if kind != TEXT:
            continue
        if not data:
            first = seq
        data += record[_PREFIX.size : _PREFIX.size + length]
        if not pieces_left:
            texts[first], data = data.decode(errors="replace"), b""
