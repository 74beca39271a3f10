"""The ring: what a reader sees of what a writer writes, whatever happens to either."""

import errno
import os

import pytest

from txtopo.engine.timeline.ring import (
    BODY_BYTES,
    HEADER_BYTES,
    RECORD_BYTES,
    RingHeader,
    RingReader,
    RingWriter,
    keep_own,
    texts_in,
)

SLOTS = 64
DATA = 9


def header(epoch=1, incarnation="a"):
    return RingHeader(SLOTS, incarnation, epoch, 1_000)


def put(writer, *numbers):
    for number in numbers:
        writer.put(DATA, 0, number, bytes(BODY_BYTES))
    writer.flush()


def numbers_of(read):
    records, _ = read
    return [int.from_bytes(record[6:8], "little") for record in records if record[4] == DATA]


def test_reads_on(tmp_path):
    """A reader gets each record once, in order, across the end of the ring."""
    writer = RingWriter(tmp_path / "ring", header())
    reader = RingReader(tmp_path / "ring")
    assert reader.read() == ([], False)
    for first in range(0, 4 * SLOTS, 24):
        put(writer, *range(first, first + 24))
        assert numbers_of(reader.read()) == list(range(first, first + 24))
    assert reader.read() == ([], False)


def test_overtaken_reader(tmp_path):
    """A reader that slept for a lap learns that it has lost records, and gets those that are there."""
    writer = RingWriter(tmp_path / "ring", header())
    reader = RingReader(tmp_path / "ring")
    put(writer, 1)
    reader.read()
    put(writer, *range(100, 100 + 2 * SLOTS))
    records, is_lost = reader.read()
    assert is_lost
    assert numbers_of((records, None)) == list(range(100 + SLOTS, 100 + 2 * SLOTS))


def test_torn_record(tmp_path):
    """A reader stops before a record that is being written, and gets it once it is whole."""
    path = tmp_path / "ring"
    writer = RingWriter(path, header())
    reader = RingReader(path)
    put(writer, 1)
    reader.read()
    put(writer, 2, 3)
    slot = (writer.seq - 2) % SLOTS
    whole = path.read_bytes()
    at = HEADER_BYTES + slot * RECORD_BYTES + 40
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"torn")
    assert numbers_of(reader.read()) == []
    path.write_bytes(whole)
    assert numbers_of(reader.read()) == [2, 3]


def test_record_that_stays_torn(tmp_path):
    """One that its writer has never finished holds nobody up."""
    path = tmp_path / "ring"
    writer = RingWriter(path, header())
    reader = RingReader(path)
    put(writer, 1)
    reader.read()
    put(writer, 2, 3)
    with path.open("r+b") as file:
        file.seek(HEADER_BYTES + (writer.seq - 2) % SLOTS * RECORD_BYTES + 40)
        file.write(b"torn")
    reader.read()
    records, is_lost = reader.read()
    assert is_lost
    assert numbers_of((records, None)) == [3]


@pytest.mark.parametrize("count", [0, 1, SLOTS - 1, SLOTS, 3 * SLOTS + 5])
def test_own_records(tmp_path, count):
    """A ring that nobody goes on with keeps what its own writer has added, in no more room than that takes."""
    put(RingWriter(tmp_path / "1", header()), 1, 2)
    writer = RingWriter(tmp_path / "2", header(epoch=2), tmp_path / "1")
    put(writer, *range(100, 100 + count))
    keep_own(tmp_path / "2")
    reader = RingReader(tmp_path / "2")
    assert numbers_of(reader.read()) == list(range(100, 100 + count))[-SLOTS:]
    assert reader.read() == ([], False)
    assert (tmp_path / "2").stat().st_size == HEADER_BYTES + RECORD_BYTES * min(max(count, 1), SLOTS)


def test_own_records_of_a_damaged_ring(tmp_path):
    """It stays as it is."""
    (tmp_path / "1").write_bytes(b"\0" * 5000)
    keep_own(tmp_path / "1")
    assert (tmp_path / "1").read_bytes() == b"\0" * 5000


def test_texts(tmp_path):
    """A text is written once while the ring holds it, again when it may be gone, and cut if it is too long."""
    writer = RingWriter(tmp_path / "ring", header())
    reader = RingReader(tmp_path / "ring")
    seqs = []
    for _ in range(3):
        seqs += [writer.text("short"), writer.text("¼" * 1_000)]
        put(writer, *range(SLOTS // 4))
        texts: dict[int, str] = {}
        texts_in(reader.read()[0], texts)
        assert texts.get(seqs[-2], "short") == "short"
    assert seqs[:2] == seqs[2:4]
    assert seqs[4] > seqs[0]
    assert writer.text("") == 0


def test_successor(tmp_path):
    """A run goes on in a copy of the last one's ring, and what that one still writes reaches nobody."""
    first = RingWriter(tmp_path / "1", header())
    put(first, 1, 2)
    second = RingWriter(tmp_path / "2", header(epoch=2), tmp_path / "1")
    assert second.header.base_us == 1_000
    put(first, 99)
    put(second, 3)
    assert numbers_of(RingReader(tmp_path / "2").read()) == [1, 2, 3]


@pytest.mark.parametrize("former", ["other incarnation", "damaged", "missing"])
def test_nothing_to_go_on_with(tmp_path, former):
    """What can't be continued is left; its numbers never occur again."""
    old = RingWriter(tmp_path / "1", RingHeader(SLOTS, "b", 1, 1))
    put(old, 1)
    if former == "damaged":
        (tmp_path / "1").write_bytes(b"\0" * 5000)
    elif former == "missing":
        (tmp_path / "1").unlink()
    new = RingWriter(tmp_path / "2", header(), tmp_path / "1")
    put(new, 5)
    assert numbers_of(RingReader(tmp_path / "2").read()) == [5]


def test_full_disk(tmp_path, monkeypatch):
    """What could not be written is lost; what follows is read."""
    writer = RingWriter(tmp_path / "ring", header())
    reader = RingReader(tmp_path / "ring")
    put(writer, 1)
    reader.read()

    def refuse(*_):
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", refuse)
        with pytest.raises(OSError, match="no space"):
            put(writer, 2)
    put(writer, 3)
    reader.read()
    assert numbers_of(reader.read()) == [3]
