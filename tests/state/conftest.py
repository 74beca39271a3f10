"""What the tests of stores share."""

import itertools
from pathlib import Path

import pytest

pytest.register_assert_rewrite("txtopo.testing.conformance.store")

_ROOTS = itertools.count(1)


@pytest.fixture
def root() -> str:
    """A root node that no other test uses."""
    return f"/state-{next(_ROOTS)}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a table may be made."""
    return tmp_path / "counts"
