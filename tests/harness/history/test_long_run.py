"""A long run is measured window by window, and what it is measured by is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from state import read_table
from tests.harness.history.long_run import Window, broken, long_run


@pytest.mark.slow
def test_windows(tmp_path: Path) -> None:
    """Each has what the process and the folder had at its end; no thread or descriptor comes with transactions."""
    windows = long_run(tmp_path, 600, 200)
    assert [each.last for each in windows] == [200, 400, 600]
    assert sum(read_table(tmp_path / "sums")["n"].to_pylist()) == 601  # the last one ends the last window
    assert windows[2].threads <= windows[1].threads + 1
    assert windows[2].descriptors <= windows[1].descriptors + 2
    assert all(each.cpu_us > 0 for each in windows)


def test_what_is_too_much() -> None:
    """The last window is compared with the first by the processor time of a transaction and by memory."""

    def window(last: int, cpu_us: float, mib: float) -> Window:
        return Window(last, cpu_us, mib, objects=10, threads=2, descriptors=3, files=4)

    first = window(10, 100.0, 200.0)
    assert broken([first, window(20, 104.0, 210.0)]) == []
    assert broken([first, window(20, 106.0, 240.0)]) == ["the cost of a transaction", "memory"]
