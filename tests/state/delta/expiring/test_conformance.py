"""The state whose rows expire keeps the promises of the capability."""

import pytest

from state import DeltaExpiringRows
from txtopo.testing import EXPIRING_FIELDS, ExpiringRowsConformance


class TestDeltaExpiringRows(ExpiringRowsConformance):
    """The state in a Delta table, with upkeep after each write."""

    @pytest.fixture
    def declared(self, tmp_path):
        return DeltaExpiringRows(tmp_path / "t", EXPIRING_FIELDS, "ends", "word", upkeep_every_writes=1, files_max=2)
