"""Suggestions: the known name that an unknown one resembles."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[object], cutoff: float = 0.6) -> str:
    """Return the end of a sentence about an unknown name, with the nearest known one; empty if none is near.

    Args:
        name: the unknown name.
        known: the known ones; of two that are equally near, the first is suggested.
        cutoff: how much they must have in common, from 0 to 1, as in :func:`difflib.get_close_matches`.
    """
    close = difflib.get_close_matches(str(name), list(map(str, known)), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]!r}?" if close else ""
