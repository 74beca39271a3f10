"""What tests of several harnesses compare with."""

import pytest

from tests.harness.soak.changes.story import Undisturbed


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """A topology that nothing happens to."""
    undisturbed = Undisturbed(tmp_path_factory.mktemp("undisturbed"))
    undisturbed.run()
    return undisturbed
