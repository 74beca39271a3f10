"""What a bolt must have so that it bounds the skew of event time between spouts."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any


class BoundsSkew(ABC):
    """A committer that keeps event times in a state, by which a spout waits while it is too far ahead of another."""

    skew_max: dt.timedelta | None = None
    """How far the event time of a source may be ahead of that of another one with input; None: by any time."""
    skew_state: str
    """The name of the state with the event times."""

    @abstractmethod
    def event_times(
        self, multi_get: Callable[[Sequence[Any]], Sequence[Any]], components: Collection[str]
    ) -> Mapping[str, int]:
        """Return the largest event time of each component that has brought one, in microseconds since 1970.

        Args:
            multi_get: reads the state as of the last committed transaction, as ``MapState.multi_get`` does.
            components: those that this bolt subscribes to.
        """
