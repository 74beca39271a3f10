"""What the tests of stores share."""

from __future__ import annotations

import itertools

import pytest

pytest.register_assert_rewrite("txtopo.testing.stores")

_ROOTS = itertools.count(1)


@pytest.fixture
def root() -> str:
    """A root node that no other test uses."""
    return f"/state-{next(_ROOTS)}"
