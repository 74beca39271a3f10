"""How long a failed message waits until it is emitted again. A policy is a value, which spouts may share."""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs

from txtopo.api.arguments import checked_class
from txtopo.errors import ConfigError

RETRIES_UNLIMITED = 2**31 - 1
_SHIFT_MAX = 62
"""Beyond it the delay is longer than any maximum, and the number larger than 64 bits."""


class RetryPolicy(ABC):
    """Says how long a failed message waits. Must pickle."""

    @abstractmethod
    def delay_ms(self, fails: int) -> float | None:
        """Return how long to wait after the 1st, 2nd, … failure; None to give the message up."""


@checked_class
@attrs.frozen
class ExponentialBackoff(RetryPolicy):
    """Waits ``initial_ms`` after the first failure and ``period_ms * 2 ** (n - 1)`` after the n-th.

    The delay is at most ``delay_max_ms``, and a message is given up after ``retries_max`` retries. (Storm's delay
    overflows: with its default period it is 0 from the 57th failure on, so that a poison record becomes a hot loop
    after some six minutes.)

    Raises:
        ConfigError: an argument is below 0.
    """

    initial_ms: float = 0
    period_ms: float = 2
    retries_max: int = RETRIES_UNLIMITED
    delay_max_ms: float = 10_000

    def __attrs_post_init__(self) -> None:
        if min(self.initial_ms, self.period_ms, self.retries_max, self.delay_max_ms) < 0:
            raise ConfigError(f"delays and retries_max must be 0 or more: {self}")

    def delay_ms(self, fails: int) -> float | None:
        """Return the delay after a failure; None after more failures than ``retries_max``."""
        if fails > self.retries_max:
            return None
        # Without a bound on the shift, the integer grows by a bit with each failure.
        delay_ms = self.initial_ms if fails <= 1 else self.period_ms * (1 << min(fails - 1, _SHIFT_MAX))
        return min(delay_ms, self.delay_max_ms)
