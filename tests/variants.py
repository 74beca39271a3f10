"""Which variants of a test the fast suite runs, which ones the whole suite, and which ones ``make long``."""

from collections.abc import Iterable
from typing import Any

import pytest


def variants(*values: Any, slow: Iterable[Any] = (), long: Iterable[Any] = ()) -> list[Any]:
    """Return a test's parameters.

    Args:
        values: those that the fast suite runs, if the test is not slow itself; each a tuple, if the test has several
            parameters.
        slow: those that only the whole suite runs.
        long: those that run only if asked for.
    """
    return [*values, *_marked(slow, pytest.mark.slow), *_marked(long, pytest.mark.long)]


def _marked(values: Iterable[Any], mark: pytest.MarkDecorator) -> list[Any]:
    parts = (value if isinstance(value, tuple) else (value,) for value in values)
    return [pytest.param(*part, marks=mark) for part in parts]
