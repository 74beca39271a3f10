"""How many transactions are left, as the spouts' coordinators tell."""

import pytest

from spouts import FilesTransactionalSpout, MemoryTransactionalSpout
from txtopo import Fields
from txtopo.testing.context import PlainContext


def remaining_at_each(spout):
    coordinator = spout.coordinator({}, PlainContext())
    coordinator.resume(0, None)
    metadata, told = None, [coordinator.remaining(None)]
    while not coordinator.is_exhausted():
        metadata = coordinator.initialize_transaction(len(told), metadata)
        told.append(coordinator.remaining(metadata))
    return told


@pytest.mark.parametrize(("rows", "take"), [({0: range(10), 1: range(3)}, 4), ([], 4), ([1] * 8, 4)])
def test_rows_in_memory(rows, take):
    """The number is exact: the longest partition decides."""
    data = {name: list(row) for name, row in rows.items()} if isinstance(rows, dict) else rows
    told = remaining_at_each(MemoryTransactionalSpout(data, Fields("n"), take))
    assert told == list(range(len(told)))[::-1]


def test_a_file_of_several_transactions(tmp_path):
    """What is taken of it does not count."""
    (tmp_path / "a.txt").write_text("a line of text\n" * 100)
    assert remaining_at_each(FilesTransactionalSpout(tmp_path, batch_bytes=500)) == [3, 2, 1, 0]


@pytest.mark.parametrize("options", [{"batch_bytes": 1000}, {"batch_files_max": 3}])
def test_files(tmp_path, options):
    """The number falls to 0 at the end, and is near the truth before."""
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text("a line of text\n" * 100)
    told = remaining_at_each(FilesTransactionalSpout(tmp_path, **options))
    truth = list(range(len(told)))[::-1]
    assert told[-1] == 0
    assert all(abs(number - exact) <= 1 for number, exact in zip(told, truth, strict=True))
    assert told == sorted(told, reverse=True)
