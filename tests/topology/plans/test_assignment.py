"""The assignment: which executors are in which worker, and where ackers are."""

from collections import Counter

import pytest

from tests.plain.topologies import Take, Words
from txtopo import TopologyBuilder
from txtopo.topology.plans.assignment import Assignment, assign


def assigned(workers: int, ackers: int | None, spouts: int = 1, bolts: int = 1, tasks: int | None = None) -> Assignment:
    builder = TopologyBuilder("topology")
    builder.set_spout("spout", Words(), spouts)
    declarer = builder.set_bolt("bolt", Take(), bolts).shuffle_grouping("spout")
    if tasks is not None:
        declarer.set_num_tasks(tasks)
    return assign(builder.build().plan, workers, ackers)


@pytest.mark.parametrize(
    ("workers", "ackers", "spouts", "homes"),
    [
        (1, None, 1, [0]),
        (1, 4, 1, [0, 0, 0, 0]),
        (4, None, 2, [0, 1]),
        (4, 1, 2, [0, 1]),
        (4, 3, 2, [0, 1, 0]),
        (2, 1, 5, [0, 1]),
        (4, 0, 2, []),
    ],
)
def test_ackers_are_where_spouts_are(workers, ackers, spouts, homes):
    """Each worker with spouts has an acker at least, no other has one; 0 means none at all."""
    assignment = assigned(workers, ackers, spouts)
    assert [assignment.worker_of[task] for task in assignment.acker_tasks] == homes
    assert assignment.is_acking == bool(homes)
    numbers = [number for worker in range(workers) for number in assignment.ackers_of(worker)]
    assert sorted(numbers) == list(range(len(homes)))


def test_executors_are_spread():
    """No worker has two executors more than another, also where each component has only one."""
    for spouts, bolts, workers in [(1, 1, 2), (3, 4, 2), (1, 5, 3), (2, 2, 2)]:
        assignment = assigned(workers, 0, spouts, bolts)
        counts = Counter(executor.worker for executor in assignment.executors)
        shares = [counts[worker] for worker in range(workers)]
        assert sum(shares) == spouts + bolts
        assert max(shares) - min(shares) <= 1


def test_tasks_of_an_executor_stay_together():
    """Tasks are shared out to executors in order and evenly; every task has its worker."""
    assignment = assigned(2, None, 1, bolts=3, tasks=8)
    bolts = [executor for executor in assignment.executors if executor.component == "bolt"]
    assert [executor.tasks for executor in bolts] == [(2, 3, 4), (5, 6, 7), (8, 9)]
    for executor in bolts:
        assert {assignment.worker_of[task] for task in executor.tasks} == {executor.worker}
    assert sorted(assignment.worker_of) == list(range(1, 11))
    assert assignment.acker_tasks == (10,)
