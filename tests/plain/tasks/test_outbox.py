"""The outbox of a worker: what it hands out belongs together, and of what was dropped nothing is left."""

import pytest

from txtopo.plain.tasks.outbox import ColumnsByTask, Outbox
from txtopo.plain.trees.acker import ACKER_BITS

REMOTE, FAR = 2, 3
WORKER_OF = {REMOTE: 1, FAR: 2}


def put(columns: ColumnsByTask, task: int, number: int) -> None:
    """Put a tuple as collectors do."""
    columns[task].values.append((number,))
    columns[task].roots.append(number * 10)
    columns[task].edges.append(number * 100)


def taken(outbox: Outbox) -> dict[int, list[tuple[list, list, list]]]:
    """Take all frames; return their tuples by worker."""
    return {
        worker: [(each.values, each.roots, each.edges) for each in frame.tuples]
        for worker, frame in outbox.take_frames().items()
    }


def test_what_is_dropped_leaves_nothing() -> None:
    """The successor of a dead worker gets new tuples with their own roots and edges; others keep what is theirs."""
    outbox = Outbox({}, WORKER_OF, (0,))
    columns = ColumnsByTask(outbox, 0)
    put(columns, REMOTE, 1)
    put(columns, FAR, 2)
    outbox.drop(1)
    put(columns, REMOTE, 3)
    assert taken(outbox) == {1: [([(3,)], [30], [300])], 2: [([(2,)], [20], [200])]}
    assert outbox.is_empty


@pytest.mark.parametrize("ackers", [(0,), (0, 1, 2)])
def test_what_is_taken_leaves_nothing(ackers: tuple[int, ...]) -> None:
    """Neither tuples nor acks, masks, failures or resets are sent twice, with one acker as with several."""
    outbox = Outbox({}, WORKER_OF, ackers)
    columns = ColumnsByTask(outbox, 0)
    for number in (1, 2):
        root = number << ACKER_BITS
        put(columns, REMOTE, number)
        outbox.acks[root] = 7
        outbox.failed.append(root)
        outbox.reset.append(root)
        if number == 1:
            outbox.masks[root] = 5
        frames = outbox.take_frames()
        assert [each.values for each in frames[1].tuples] == [[(number,)]]
        assert frames[0].acks == ([root], [7], [5 if number == 1 else 0])
        assert (frames[0].failed, frames[0].reset) == ([root], [root])
        assert outbox.is_empty
        assert not outbox.masks
