"""Readings: what components count and measure in the commit phase, for metrics, reports and ``txtopo explain``."""

from __future__ import annotations

import datetime as dt
from enum import Enum

import attrs

from txtopo.api.data.utc import EPOCH


class ReadingKind(Enum):
    """What the value of a reading is."""

    COUNT = "count"
    GAUGE = "gauge"
    TIME = "time"
    """Seconds since 1970, UTC."""


@attrs.frozen
class Reading:
    """A value that a component has counted or measured, about ``of`` if it is about a part of its input."""

    component: str
    name: str
    kind: ReadingKind
    value: float
    of: str = ""


@attrs.define(eq=False)
class Readings:
    """The readings of a transaction, or of all committed ones so far."""

    _counts: dict[tuple[str, str], int] = attrs.field(factory=dict)
    _gauges: dict[tuple[str, str, str], float | dt.datetime] = attrs.field(factory=dict)

    def count(self, component: str, name: str, by: int) -> None:
        """Add to a count."""
        self._counts[component, name] = self._counts.get((component, name), 0) + by

    def gauge(self, component: str, name: str, value: float | dt.datetime, of: str) -> None:
        """Set a gauge."""
        self._gauges[component, name, of] = value

    def add(self, later: Readings) -> None:
        """Add the readings of the next transaction."""
        for (component, name), by in later._counts.items():
            self.count(component, name, by)
        self._gauges.update(later._gauges)

    def listed(self) -> tuple[Reading, ...]:
        """Return the readings in order; any thread may call it."""
        counts = [Reading(*key, ReadingKind.COUNT, value) for key, value in self._counts.copy().items()]
        gauges = [_gauge(*key, value) for key, value in self._gauges.copy().items()]
        return tuple(sorted((*counts, *gauges), key=lambda reading: (reading.component, reading.of, reading.name)))


def _gauge(component: str, name: str, of: str, value: float | dt.datetime) -> Reading:
    if isinstance(value, dt.datetime):
        return Reading(component, name, ReadingKind.TIME, (value - EPOCH).total_seconds(), of)
    return Reading(component, name, ReadingKind.GAUGE, value, of)
