"""Segments that wait in a file come out as they went in."""

from __future__ import annotations

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
    assert spilled._file.seek(0, 2) == 0
    spilled.close()


def test_nothing_waits() -> None:
    """Taking from an empty file is an error; closing one that was never used is none."""
    spilled = SpillFile()
    with pytest.raises(IndexError):
        spilled.take()
    spilled.close()
