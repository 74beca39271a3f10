"""The ackers of a worker: each root has one, whichever way a message comes."""

import pytest

from txtopo.plain.trees.acker import ACKER_BITS, ROTATIONS, Outcome
from txtopo.plain.trees.ackers import Ackers

TIMEOUT_SECS = 30.0


def ackers_of(*numbers: int) -> Ackers:
    """Return ackers in generation 3, beside 2; the generations 0 and 1 are dead."""
    return Ackers(numbers, {2, 3}, TIMEOUT_SECS, 0.0)


def roots_of(*numbers: int) -> list[int]:
    """Return three roots for each of these ackers, mixed."""
    return [drawn << ACKER_BITS | number for drawn in range(1, 4) for number in numbers]


def outcomes(ackers: Ackers) -> dict[int, Outcome]:
    settled = ackers.take_settled()
    assert all(each.spout_task == 7 for each in settled)
    return {root: each.outcome for each in settled for root in each.roots}


@pytest.mark.parametrize("numbers", [(5,), (2, 5), (0, 2, 5)])
def test_each_root_is_told_of_once(numbers):
    """Acks, failures and resets find the acker that has the init, among one or several."""
    ackers, roots = ackers_of(*numbers), roots_of(*numbers)
    ackers.init({root: (root + 1, 0) for root in roots}, 7)
    assert (len(ackers), ackers.untold) == (len(roots), 0)
    acked, failed, reset = roots[::3], roots[1::3], roots[2::3]
    ackers.ack(acked, [root + 1 for root in acked], [0] * len(acked))
    ackers.fail(failed)
    ackers.reset(reset)
    assert ackers.untold == len(roots)
    assert outcomes(ackers) == {
        **dict.fromkeys(acked, Outcome.ACKED),
        **dict.fromkeys(failed, Outcome.FAILED),
        **dict.fromkeys(reset, Outcome.RESET),
    }
    ackers.forget(reset)
    assert (len(ackers), outcomes(ackers)) == (0, {})
    assert ackers.messages == len(roots) + len(failed) + len(reset), "acks are counted by the bolts"


def test_dead_generations():
    """A tree that has touched one fails: one that died before these ackers began, and one that dies later."""
    ackers, (early, late, other) = ackers_of(5), roots_of(5)
    ackers.init({early: (1, 1 << 1), late: (1, 1 << 2), other: (1, 1 << 3)}, 7)
    assert outcomes(ackers) == {early: Outcome.FAILED}
    ackers.worker_died(2)
    assert outcomes(ackers) == {late: Outcome.FAILED}


def test_a_rotation_for_each_timeout():
    """What comes for roots that are not tracked is dropped after some timeouts, however often the worker looks."""
    ackers, roots = ackers_of(2, 5), roots_of(2, 5)
    ackers.fail(roots)
    for number in range(10 * ROTATIONS):
        assert len(ackers) == len(roots)
        ackers.rotate_if_due(number * TIMEOUT_SECS / 10)
    ackers.rotate_if_due(ROTATIONS * TIMEOUT_SECS)
    assert len(ackers) == 0


def test_no_ackers():
    """A worker without spouts has none, and nothing is told to them."""
    ackers = Ackers((), {0}, TIMEOUT_SECS, 0.0)
    ackers.init({}, 7)
    ackers.ack([], [], [])
    ackers.rotate_if_due(TIMEOUT_SECS)
    assert (len(ackers), ackers.tree_bytes_max(), ackers.take_settled()) == (0, 0, [])
