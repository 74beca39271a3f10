"""The limits."""

from __future__ import annotations

import attrs
import pytest

from txtopo.testing.scenario import limits


def test_limits_do_not_change() -> None:
    """A coordinator's bounds are the same for its whole incarnation."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        limits().pending_max = 5  # type: ignore[misc]
