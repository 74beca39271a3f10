"""For how long the next commit group gathers transactions, so that not too much is written again.

A large keyed table without deletion vectors writes whole files again for a few rows. Then the next group gathers more
transactions first, so that no more than :data:`REWRITTEN_BYTES_PER_SEC` are written again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from txtopo.api.state import OpenedState

logger = logging.getLogger("txtopo")

REWRITTEN_BYTES_MIN = 8 * 1024 * 1024
"""Up to so many rewritten bytes a group is cheap enough: about as much CPU as the job that processes it."""

REWRITTEN_BYTES_PER_SEC = 32 * 1024 * 1024
"""How much groups may rewrite on average: a quarter of what one core writes as Parquet."""

GATHER_MS_MAX = 10_000
"""The longest time for which a group gathers transactions."""


class Gathering:
    """For how long groups that write some states gather; it warns of each state once that makes them large."""

    def __init__(self, states: Mapping[str, OpenedState]) -> None:
        self._states = states
        self._told_of: set[str] = set()

    def after_write(self, names: Iterable[str]) -> int:
        """Return for how long to gather transactions for the next group, in ms, since one has written these states."""
        rewritten = {name: self._states[name].rewritten_bytes for name in names}
        large = {name: size for name, size in rewritten.items() if size > REWRITTEN_BYTES_MIN}
        gather_ms = min(GATHER_MS_MAX, sum(large.values()) * 1000 // REWRITTEN_BYTES_PER_SEC)
        for name in large.keys() - self._told_of:
            self._told_of.add(name)
            logger.warning(
                "state %r: a commit group writes %d MB again for the rows that it touches, so a group now gathers "
                "transactions for %.1f s, and answers come later; with deletion_vectors=True on the state, which "
                "'txtopo evolve' turns on, it costs what it touches",
                name,
                large[name] // 1_000_000,
                gather_ms / 1000,
            )
        return gather_ms
