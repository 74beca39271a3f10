"""The words for points: the transactions that can be gone back to, or shown."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from txtopo.api.components.planned import NEVER, Planned

POINTS_SHOWN = 10
"""Of more commit groups in a row only the ends are listed."""


def planned_point(txid: int, planned: Planned) -> str:
    """Return a transaction, with the time at which it was planned."""
    return str(txid) if planned == NEVER else f"{txid}, planned {planned.at:%Y-%m-%d %H:%M:%S} UTC"


def point_lines(ends: Iterable[tuple[str, bool]]) -> Iterator[str]:
    """Yield the points among the ends of commit groups, each in words and with whether it is one; of many only some."""
    for is_point, run in itertools.groupby(ends, lambda end: end[1]):
        named = [each for each, _ in run] if is_point else []
        few = named if len(named) <= POINTS_SHOWN else named[:1]
        yield from (f"  {each}" for each in few)
        if len(few) < len(named):
            yield f"  and each of {len(named) - 2:,} commit groups up to"
            yield f"  {named[-1]}"
