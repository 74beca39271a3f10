"""What the tests that were Storm's own share."""

import itertools

import pytest

_ROOTS = itertools.count(1)


@pytest.fixture
def root() -> str:
    """A root node that no other test uses."""
    return f"/storm-{next(_ROOTS)}"
