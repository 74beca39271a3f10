"""When garbage is looked for."""

import gc
import weakref

import pytest

from txtopo.workers.garbage import collected_when_told, seldom_collected


@pytest.fixture(autouse=True)
def _as_before():
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # a test that ran a worker in this process has left the worker's
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_what_was_there_is_looked_through_afterwards():
    """A run leaves the collector as it was."""
    before = gc.get_threshold()
    with seldom_collected():
        assert gc.get_threshold() > before
        assert gc.get_freeze_count() > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_garbage_is_collected_when_it_is_asked_for():
    """Cycles stay until then, and the collector is afterwards as it was before."""
    with collected_when_told() as collect:
        assert not gc.isenabled()
        cycle = Cycle()
        gone = weakref.ref(cycle)
        del cycle
        assert gone() is not None
        collect()
        assert gone() is None
    assert (gc.isenabled(), gc.get_freeze_count()) == (True, 0)


class Cycle:
    def __init__(self) -> None:
        self.itself = self
