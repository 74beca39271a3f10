"""The bound on the skew of event time between spouts: one that is too far ahead of another waits for it.

It is Flink's watermark alignment, cut into transactions: it only decides what is *planned*. The event times are those
that the clock's state has as of the last commit group, so it holds right after a restart, too; and the spouts that
waited are recorded with the transaction, so every attempt and every replay knows it.

A spout waits for another one only while that has input. So one that is idle, exhausted or away holds up nobody, and of
several that have input the slowest never waits: some transaction can always begin.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Collection, Mapping

from txtopo.api.abilities import BoundsSkew
from txtopo.api.state import OpenedState
from txtopo.errors import FailedException
from txtopo.topology.plans.plan import Plan

logger = logging.getLogger("txtopo")


class Skew:
    """Says which spouts wait; :meth:`update` is for the thread that commits, :meth:`ahead` for the one that plans."""

    def __init__(self, plan: Plan) -> None:
        bound = plan.bounds_skew
        self._clock: BoundsSkew | None = None if bound is None else bound.component
        self._spouts: dict[str, str] = {}
        """The spout of each component with event times."""
        if bound is not None:
            for edge in plan.inputs(bound.id):
                (self._spouts[edge.source],) = plan.spouts_above(edge.source)
        self._times: Mapping[str, int] = {}
        """The event time of each spout that has brought one; replaced as a whole, because two threads look at it."""

    def update(self, states: Mapping[str, OpenedState], states_written: Collection[str]) -> None:
        """Take in how far the spouts have come, if a commit group has written it."""
        if self._clock is None or self._clock.skew_state not in states_written:
            return
        times: dict[str, int] = {}
        try:
            event_times = self._clock.event_times(states[self._clock.skew_state].multi_get, self._spouts)
        except FailedException as error:  # the group is committed, and after the next one it is asked again
            logger.debug("the event times of the spouts can't be read: %s", error)
            return
        for component, time in event_times.items():
            spout = self._spouts[component]
            times[spout] = max(time, times.get(spout, time))
        self._times = times

    def ahead(self, ready: Collection[str]) -> frozenset[str]:
        """Return which of the spouts that have input wait for another one of them."""
        if self._clock is None or self._clock.skew_max is None:
            return frozenset()
        times = {spout: time for spout, time in self._times.items() if spout in ready}
        limit = min(times.values(), default=0) + self._clock.skew_max // dt.timedelta(microseconds=1)
        return frozenset(spout for spout, time in times.items() if time > limit)
