"""The outbox: what was sent is put into a frame for each worker, once."""

from __future__ import annotations

from txtopo.plain.tasks.outbox import ColumnsByTask, Outbox


def outbox(acker_workers: tuple[int, ...] = (0, 1)) -> Outbox:
    """Return the outbox of worker 0: task 1 is here, 2 and 3 are in worker 1, 4 in worker 2."""
    return Outbox({1: []}, {1: 0, 2: 1, 3: 1, 4: 2}, acker_workers)


def root(number: int, acker: int) -> int:
    return number << 16 | acker


def test_tuples_by_worker():
    """Tuples go to the worker of their task, in the order in which they were emitted, and only once."""
    box = outbox()
    columns = ColumnsByTask(box, 7)
    for task, word in [(2, "a"), (4, "b"), (2, "c"), (3, "d")]:
        columns[task].values.append((word,))
        columns[task].roots.append(0)
        columns[task].edges.append(0)
    frames = box.take_frames()
    found = {
        worker: [(each.source, each.task, each.values) for each in frame.tuples] for worker, frame in frames.items()
    }
    assert found == {1: [(7, 2, [("a",), ("c",)]), (7, 3, [("d",)])], 2: [(7, 4, [("b",)])]}
    assert (box.take_frames(), box.is_empty) == ({}, True)


def test_later_tuples_do_not_change_a_frame():
    """A frame that was taken stays as it is while more is emitted to the same task."""
    box = outbox()
    columns = ColumnsByTask(box, 7)[2]
    columns.values.append(("a",))
    frame = box.take_frames()[1]
    columns.values.append(("b",))
    assert frame.tuples[0].values == [("a",)]
    assert box.take_frames()[1].tuples[0].values == [("b",)]


def test_messages_by_acker():
    """Acks, failures and resets go to the worker of the root's acker; masks only where there are some."""
    box = outbox()
    box.acks.update({root(1, 0): 11, root(2, 1): 22, root(3, 1): 33})
    box.masks[root(3, 1)] = 4
    box.failed.append(root(4, 0))
    box.reset.append(root(5, 1))
    assert not box.is_empty
    frames = box.take_frames()
    assert frames[0].acks == ([root(1, 0)], [11], [0])
    assert frames[1].acks == ([root(2, 1), root(3, 1)], [22, 33], [0, 4])
    assert (frames[0].failed, frames[0].reset) == ([root(4, 0)], [])
    assert (frames[1].failed, frames[1].reset) == ([], [root(5, 1)])
    assert (box.take_frames(), box.is_empty) == ({}, True)


def test_all_ackers_in_one_worker():
    """Several ackers of one worker get one frame."""
    box = outbox((1, 1, 1))
    box.acks.update({root(1, 0): 11, root(2, 2): 22})
    box.masks[root(2, 2)] = 8
    ((worker, frame),) = box.take_frames().items()
    assert (worker, frame.acks) == (1, ([root(1, 0), root(2, 2)], [11, 22], [0, 8]))


def test_acks_of_a_root_are_one_message():
    """What collectors have put together of a root, the XOR of several acks, is one message."""
    box = outbox()
    for value in (0b101, 0b011):
        box.acks[root(1, 0)] = box.acks.get(root(1, 0), 0) ^ value
    assert box.take_frames()[0].acks == ([root(1, 0)], [0b110], [0])


def test_tuples_for_a_worker_that_has_died():
    """They are dropped, those for others stay."""
    box = outbox()
    columns = ColumnsByTask(box, 7)
    for task in (2, 3, 4):
        columns[task].values.append((task,))
        columns[task].roots.append(0)
        columns[task].edges.append(0)
    box.drop(1)
    columns[3].values.append((5,))
    found = {worker: [each.values for each in frame.tuples] for worker, frame in box.take_frames().items()}
    assert found == {1: [[(5,)]], 2: [[(4,)]]}
