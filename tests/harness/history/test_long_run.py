"""A long run is measured window by window, and what it is measured by is right."""

import threading
from pathlib import Path

import pytest

from state import read_table
from tests.harness.history.long_run import Calls, Window, broken, long_run


@pytest.mark.slow
def test_windows(tmp_path: Path) -> None:
    """Each has what the process and the folder had at its end; no thread or descriptor comes with transactions."""
    windows = long_run(tmp_path, 600, 200)
    assert [window.last for window in windows] == [200, 400, 600]
    assert sum(read_table(tmp_path / "sums")["n"].to_pylist()) == 601  # the last one ends the last window
    assert windows[2].threads <= windows[1].threads + 1
    assert windows[2].descriptors <= windows[1].descriptors + 2
    assert all(window.cost > 0 for window in windows)


def test_calls() -> None:
    """Calls are counted, of C's functions, too, in threads that begin meanwhile, and no more once the context ends."""
    with Calls() as calls:
        thread = threading.Thread(target=lambda: [len(str(number)) for number in range(100)])
        thread.start()
        thread.join()
    counted = calls.count
    assert len(str(counted)) > 0
    assert 100 <= counted == calls.count < 300


def test_what_is_too_much() -> None:
    """The last window is compared with the first by the cost of a transaction and by memory."""

    def window(last: int, cost: float, mib: float) -> Window:
        return Window(last, cost, mib, objects=10, threads=2, descriptors=3, files=4)

    first = window(10, 100.0, 200.0)
    assert broken([first, window(20, 104.0, 210.0)]) == []
    assert broken([first, window(20, 106.0, 240.0)]) == ["the cost of a transaction", "memory"]
