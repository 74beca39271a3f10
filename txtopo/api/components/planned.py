"""When, and with what, a transaction began."""

from __future__ import annotations

import datetime as dt
import enum

import attrs

from txtopo.api.data.utc import EPOCH


class Turn(enum.Enum):
    """Why a transaction begins."""

    INPUT = "input"
    """The source has input."""
    QUIET = "quiet"
    """The source has had none for a while; the transaction has no input."""
    END = "end"
    """The source is exhausted; the transaction has no input and is the last until there is input again."""


@attrs.frozen
class Planned:
    """When and why the source began a transaction; durable with its metadata, and the same at every attempt."""

    at_ms: int
    """Wall-clock time in milliseconds since 1970, UTC; never less than that of the transaction before."""
    turn: Turn = Turn.INPUT

    @property
    def at(self) -> dt.datetime:
        """The time of :attr:`at_ms`, in UTC."""
        return EPOCH + dt.timedelta(milliseconds=self.at_ms)

    @property
    def has_input(self) -> bool:
        """Whether the transaction takes input; otherwise its metadata is that of the transaction before."""
        return self.turn is Turn.INPUT


NEVER = Planned(0)
"""That of no transaction, and of one that a version of txtopo without this record has committed."""
