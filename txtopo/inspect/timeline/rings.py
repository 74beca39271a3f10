"""One ring of a timeline in memory, as rows of an array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np

from txtopo.engine.timeline.records import epochs_in, path_of
from txtopo.engine.timeline.ring import RECORD_BYTES, RingReader, texts_in

_PREFIX = [("crc", "<u4"), ("kind", "u1"), ("small", "u1"), ("number", "<u2"), ("seq", "<u8")]
EVENTS = np.dtype(
    [
        *_PREFIX,
        ("txid", "<u8"),
        ("epoch", "<u4"),
        ("job", "<u4"),
        ("group", "<u4"),
        ("count", "<u4"),
        ("name", "<u8"),
        ("text", "<u8"),
        ("times", "<i8", (8,)),
        ("spare", "<u8"),
    ]
)
SAMPLES = np.dtype([*_PREFIX, ("at", "<i8"), ("name", "<u8"), ("numbers", "<f8", (12,))])

assert EVENTS.itemsize == SAMPLES.itemsize == RECORD_BYTES, "a record is a row"

Rows = Any
"""An array of :data:`EVENTS` or :data:`SAMPLES`."""


@attrs.define(eq=False)
class Ring:
    """One ring of a topology, as far as it was read; it follows the topology's runs from file to file.

    ``file`` is ``records`` or ``samples``; of more than ``texts_max`` texts, those are forgotten that it lacks now.
    """

    folder: Path
    file: str
    kind: Any
    texts_max: int = 2_000
    epoch: int = 0
    base_us: int = 0
    before: int = 0
    """The last SEQ that is not of the last run."""
    texts: dict[int, str] = attrs.field(factory=dict)
    _reader: RingReader | None = None
    _buffer: Rows = None
    """Room for twice the rows of the ring: rows are added at the end, and moved to the front when it is full."""
    _used: int = 0
    _start: int = 0

    @property
    def rows(self) -> Rows:
        """All rows, in the order of their SEQ and without a gap; valid until the next look."""
        return np.empty(0, self.kind) if self._buffer is None else self._buffer[self._start : self._used]

    @property
    def head(self) -> int:
        """The SEQ of the last row, 0 if there is none."""
        return self._reader.seq if self._reader is not None else 0

    @property
    def first(self) -> int:
        """The SEQ of the first row, 0 if there is none."""
        return int(self._buffer["seq"][self._start]) if self._used > self._start else 0

    def after(self, seq: int) -> Rows:
        """Return the rows after one."""
        return self.rows[max(0, seq + 1 - self.first) :] if self.first else self.rows

    def read_on(self) -> tuple[Rows, bool]:
        """Read on; return the new rows, and whether all earlier ones are to be forgotten."""
        epoch = next(iter(epochs_in(self.folder)), 0)
        is_new = (epoch != self.epoch or self._reader is None) and self._open(epoch)
        if self._reader is None:
            return self.rows, False
        records, is_lost = self._reader.read()
        slots = self._reader.header.slots
        if is_new or is_lost or self._buffer is None:
            self.texts.clear()
            self._buffer = np.empty(2 * slots, self.kind)
            self._start = self._used = 0
        count = len(records)
        if count:
            texts_in(records, self.texts)
            if self._used + count > 2 * slots:
                kept = self.rows[count - slots :].copy() if count < slots else self.rows[:0]
                self._buffer[: len(kept)] = kept
                self._used = len(kept)
            self._buffer[self._used : self._used + count] = np.frombuffer(b"".join(records), self.kind)
            self._used += count
            self._start = max(0, self._used - slots)
            if len(self.texts) > self.texts_max:
                self.texts = {seq: text for seq, text in self.texts.items() if seq >= self.first}
        return self._buffer[self._used - count : self._used], is_new or is_lost

    def _open(self, epoch: int) -> bool:
        try:
            reader = RingReader(path_of(self.folder, epoch, self.file))
        except (
            OSError,
            ValueError,
        ):  # removed by a later run, whose files are seen at the next look; or another version
            return False
        if self._reader is not None:
            self._reader.close()
        self._reader, self.epoch = reader, epoch
        self.base_us, self.before = reader.header.base_us, reader.header.before
        return True

    def text(self, seq: int) -> str:
        """Return a text, empty for 0 or one that the ring no longer has."""
        return self.texts.get(int(seq), "")

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._reader.close()
