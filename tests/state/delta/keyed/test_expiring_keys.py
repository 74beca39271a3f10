"""The keyed state whose keys expire keeps the promises of the capability."""

import pytest

from state import DeltaState
from txtopo.testing import EXPIRING_KEY, EXPIRING_VALUE, ExpiringKeysConformance


@pytest.mark.parametrize("vectors", [False, True], ids=["files", "vectors"])
class TestDeltaState(ExpiringKeysConformance):
    """The state in a Delta table, with upkeep after each write, with deletion vectors and without."""

    @pytest.fixture
    def declare(self, tmp_path, vectors):
        return lambda ttl: DeltaState(
            tmp_path / "t",
            EXPIRING_KEY,
            EXPIRING_VALUE,
            ttl=ttl,
            clock="clock",
            deletion_vectors=vectors,
            upkeep_every_writes=1,
        )
