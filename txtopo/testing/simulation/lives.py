"""What is drawn for a schedule: how long its processes live, what may strike them, and their settings."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from random import Random

import attrs

from txtopo.config import MICRO_BATCH, REAL_TIME, Config
from txtopo.testing.simulation.faults import LONG_RATES, RATES, Fault
from txtopo.testing.simulation.schedule import Schedule

TIMEOUT_MS = 1_000
MOVES_MAX = 80
"""Moves with faults."""
LAYOUTS = ("together", "together", "together", "together", "spread")
"""Drawn from for each process; most are the quicker one."""
LONG = 0.75
"""How probable long lives are, where a topology has enough transactions for them.

Hardly anything happens to a process then but that time passes, so it lives to delete what it has replaced itself.
"""
LONG_TRANSACTIONS_MIN = 12
LONG_MOVES_MAX = 300
"""In place of :data:`MOVES_MAX`."""
AGES_SECS = (30, 100, 400, 400, 4_000, 30 * 3600, 3 * 24 * 3600, 8 * 24 * 3600)
"""How much time passes at once where much does."""
LONG_AGES_SECS = (*[20] * 6, 45, 45, 100, 400, 30 * 3600)
"""In place of :data:`AGES_SECS`: more often less than the time between two clean-ups."""
CHANGING = 0.2
"""How probable it is that settings of the history change from run to run."""
SKIPPING = 0.1
"""How probable it is that transactions are given up after one or two tries."""
HISTORIES = ((300, 168), (300, 168), (300, 25), (60, 2), (900, 168))
"""How long versions are kept, in seconds, and points, in hours; one or two of them are drawn for a schedule."""
LONG_HISTORIES = ((60, 168), (60, 2), (300, 25))
"""Those of long lives: who has replaced a file a minute ago deletes it between two clean-ups, a minute apart."""


@attrs.frozen
class Lives:
    """How the processes of a schedule live.

    Args:
        is_long: whether they live long; see :data:`LONG`.
        faults: the kinds of fault that there are.
        histories: how long versions are kept, in seconds, and points, in hours: one of them in each process.
        tries_max: after how many tries a transaction is given up; None: never.
    """

    is_long: bool
    faults: Sequence[Fault]
    histories: Sequence[tuple[int, int]]
    tries_max: int | None

    @classmethod
    def drawn(cls, schedule: Schedule, kinds: Sequence[Fault], transactions: int) -> Lives:
        """Draw those of a schedule with some kinds of fault, of a topology with so many transactions."""
        random = schedule.random
        is_long = Fault.AGES in kinds and transactions >= LONG_TRANSACTIONS_MIN and random.random() < LONG
        if is_long:
            faults = schedule.draw_rates([kind for kind in kinds if kind in LONG_RATES], LONG_RATES, drawn=1)
        else:
            faults = schedule.draw_rates(kinds, RATES)
        histories = random.sample(LONG_HISTORIES if is_long else HISTORIES, 2 if random.random() < CHANGING else 1)
        tries_max = random.choice((1, 2)) if kinds and random.random() < SKIPPING else None
        return cls(is_long, faults, histories, tries_max)

    @property
    def skip(self) -> bool:
        """Whether transactions are given up."""
        return self.tries_max is not None

    def fault_moves(self, random: Random) -> int:
        """Draw for how many moves faults strike."""
        return random.randrange(LONG_MOVES_MAX if self.is_long else MOVES_MAX) if self.faults else 0

    def age_secs(self, random: Random) -> int:
        """Draw how much time passes at once."""
        return random.choice(LONG_AGES_SECS if self.is_long else AGES_SECS)

    def config(self, random: Random, *, is_real_time: bool) -> Config:
        """Draw the configuration of a process."""
        return _config(
            random.randrange(1, 9),
            random.randrange(1, 4),
            # Without faults, each transaction is a group: the oracle needs a version of the tables for every txid.
            random.randrange(1, 5) if self.faults else 1,
            random.choice(LAYOUTS),
            self.tries_max,
            REAL_TIME if is_real_time else MICRO_BATCH,
            random.choice(self.histories),
        )


@functools.cache
def _config(  # noqa: PLR0913, PLR0917 - what is drawn
    pending_max: int,
    jobs_max: int,
    group_transactions_max: int,
    layout: str,
    tries_max: int | None,
    mode: str,
    history: tuple[int, int],
) -> Config:
    """Return the configuration of a process; some hundreds of them can be drawn."""
    return Config(
        max_spout_pending=pending_max,
        jobs_in_flight_max=jobs_max,
        group_transactions_max=group_transactions_max,
        message_timeout_secs=TIMEOUT_MS / 1000,
        layout=layout,
        processing_mode=mode,
        transaction_max_attempts=tries_max,
        history_recent_secs=history[0],
        rewind_hours=history[1],
        transaction_max_attempts_policy="SKIP",
    )
