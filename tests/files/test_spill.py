"""Segments that wait in a file come out as they went in."""

import random

import pytest

from txtopo.files.spill import SpillFile


@pytest.mark.parametrize("seed", range(10))
def test_order(seed: int) -> None:
    """First in, first out, empty ones among them, however putting and taking take turns; the file shrinks when empty."""
    rng = random.Random(seed)
    spilled, waiting = SpillFile(), []
    for number in range(2_000):
        if rng.random() < 0.5:
            segment = rng.randbytes(rng.choice([0, 1, 100, 10_000]))
            waiting.append(segment)
            spilled.put(segment)
        elif waiting:
            assert spilled.take() == waiting.pop(0), number
        assert (len(spilled), spilled.bytes) == (len(waiting), sum(map(len, waiting)))
    while waiting:
        assert spilled.take() == waiting.pop(0)
    assert spilled.disk_bytes == 0
    spilled.close()


def test_disk_space_is_freed() -> None:
    """A queue that is never empty, as of a worker that is slow for days, takes no more disk than what waits needs."""
    spilled, bytes_max, files_max = SpillFile(10_000), 0, 0
    for _ in range(100):
        spilled.put(bytes(1_000))
    for number in range(5_000):
        spilled.put(bytes(1_000))
        spilled.take()
        bytes_max = max(bytes_max, spilled.disk_bytes)
        files_max = max(files_max, len(spilled._parts))
        assert spilled.bytes == 100_000, number
    assert bytes_max <= 100_000 + 2 * 12_500
    assert files_max <= 12
    spilled.close()
    assert (len(spilled), spilled.bytes, spilled.disk_bytes) == (0, 0, 0)


def test_nothing_waits() -> None:
    """Taking from an empty file is an error; closing one that was never used is none."""
    spilled = SpillFile()
    with pytest.raises(IndexError):
        spilled.take()
    spilled.close()
