"""Keys that expire: what a transaction sees of a key depends on its time, and on the watermark of a clock.

A key has expired for transaction N if its time plus the time to live is at or before the watermark after transaction
N-1. So it depends neither on the order of the components in N nor on how transactions are grouped, and a replay finds
the same keys expired. The time up to which keys have expired never falls, even if the time to live is made longer.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import attrs

from txtopo.api.data.fields import Fields
from txtopo.api.data.utc import MICROS_MIN, MICROSECOND, datetime_at, micros_at
from txtopo.errors import ConfigError

CLOCK_KEY = ""
"""The key of the row in a clock's state that has the watermark."""

CLOCK_FIELD = "watermark"
"""The value field of a clock's state with the watermark."""

_FOR_EVER = (1 << 63) - 1
"""The microseconds that a table can have on record."""


@attrs.frozen
class Expiry:
    """Tells which values have expired for one transaction.

    Args:
        until: the time up to which values have expired.
        position: the position of the time in a value; None if the value is the time.
    """

    until: dt.datetime
    position: int | None

    def has(self, value: Any) -> bool:
        """Return whether a value has expired; one without a time never does."""
        time = value if self.position is None else value[self.position]
        return time is not None and bool(time <= self.until)


@attrs.frozen
class TimeToLive:
    """How long the keys of a state live.

    Args:
        duration: how long after its time a key expires; ``timedelta.max`` is for ever.
        clock: the name of the state with the watermark.
        field: the value field with the time of a key.
    """

    duration: dt.timedelta = attrs.field()
    clock: str = attrs.field()
    field: str

    @duration.validator
    def _check_duration(self, _attribute: object, duration: Any) -> None:
        if not isinstance(duration, dt.timedelta) or duration < MICROSECOND:
            raise ConfigError(f"ttl of a state is {duration!r}; give a timedelta above zero, such as timedelta(days=1)")

    @clock.validator
    def _check_clock(self, _attribute: object, clock: Any) -> None:
        if not isinstance(clock, str) or not clock:
            raise ConfigError(
                "a state with a ttl needs the name of the state of an EventClock, whose watermark lets its keys "
                f"expire; write clock='clock', not {clock!r}"
            )

    @property
    def micros(self) -> int:
        """The duration in microseconds; one that is longer than all of time is as long."""
        return min(self.duration // MICROSECOND, _FOR_EVER)

    def until(self, watermark: dt.datetime) -> int:
        """Return the time up to which keys have expired at a watermark, in µs since 1970 UTC."""
        return max(micros_at(watermark) - self.micros, MICROS_MIN - 1)

    def expiry(self, until: int, fields: Fields) -> Expiry | None:
        """Return what tells expired values; None if none has.

        Args:
            until: the time up to which they have, in µs since 1970 UTC.
            fields: the state's value fields.
        """
        if until < MICROS_MIN:
            return None
        position = None if len(fields) == 1 else fields.index(self.field)
        return Expiry(datetime_at(until), position)
