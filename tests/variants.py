"""Which variants of a slow test the whole suite runs, and which ones ``make long`` runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def variants(*values: Any, long: Iterable[Any] = ()) -> list[Any]:
    """Return a test's parameters.

    Args:
        values: those that the whole suite runs; each a tuple, if the test has several parameters.
        long: those that run only if asked for.
    """
    parts = (value if isinstance(value, tuple) else (value,) for value in long)
    return [*values, *(pytest.param(*part, marks=pytest.mark.long) for part in parts)]
