"""What a bolt of txtopo's may be besides. Its class says so, since a user's bolt may have attributes of any name."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from txtopo.api.data.fields import Fields
from txtopo.api.state import State

Inputs = Mapping[tuple[str, str], Fields]
"""The fields of the streams that a bolt subscribes to, by component id and stream."""


class KeepsByKey(ABC):
    """A bolt that keeps something for each key, so one task must have all rows of a key."""

    @property
    @abstractmethod
    def grouped_by(self) -> Fields | Mapping[tuple[str, str], Sequence[Fields]]:
        """The fields of the key; or keys by stream, as (component, stream), if these have several."""


class DescribesFolds(KeepsByKey):
    """A bolt that makes by itself what it keeps for each key; of a class whose methods users write nobody can tell."""

    @property
    @abstractmethod
    def folds(self) -> Mapping[str, Mapping[str, str]]:
        """What each column of a state is made of, in words, by the state's name, as far as it is known."""


class ChecksTables(ABC):  # noqa: B024 - a class overrides what it checks
    """A bolt that says at ``build()`` what does not fit between it and its states.

    ``inputs`` are the fields by (component, stream), ``streams`` those of its own that somebody reads.
    """

    def table_mistakes(self, inputs: Inputs, states: Mapping[str, State]) -> Iterable[str]:
        """Return what is wrong with the tables that it writes."""
        del inputs, states
        return ()

    def output_mistakes(self, streams: Collection[str], states: Mapping[str, State]) -> Iterable[str]:
        """Return what is wrong with the streams that it emits."""
        del streams, states
        return ()


class DescribesSteps(ABC):
    """A bolt that does several steps, and tells them to people."""

    verbs: Sequence[str]


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
