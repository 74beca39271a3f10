"""When, and with what, a transaction began."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from typing import Any

import attrs

from txtopo.api.data.utc import EPOCH
from txtopo.api.reference import SeenVersion


class BeginReason(enum.Enum):
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
    turn: BeginReason = BeginReason.INPUT
    without: tuple[str, ...] = ()
    """The spouts whose source had nothing, or that waited, if others had; their metadata is that of the transaction
    before."""
    references: tuple[SeenVersion, ...] = ()
    """The version of each reference table of the topology."""
    ahead: tuple[str, ...] = ()
    """Those of ``without`` that waited: they had input, but their event time was too far ahead of another spout's."""

    def seen(self, name: str) -> SeenVersion | None:
        """The version of a reference table; None if the topology had no such reference then."""
        return next((reference for reference in self.references if reference.name == name), None)

    @property
    def at(self) -> dt.datetime:
        """The time of :attr:`at_ms`, in UTC."""
        return EPOCH + dt.timedelta(milliseconds=self.at_ms)

    @property
    def has_input(self) -> bool:
        """Whether the transaction takes input; otherwise its metadata is that of the transaction before."""
        return self.turn is BeginReason.INPUT

    def has_input_of(self, spout_id: str, metadata: Mapping[str, Any] | None) -> bool:
        """Whether the transaction takes input of a spout, given its metadata.

        If not, the spout's part is that of the transaction before, or there is none: the topology did not have it yet.
        """
        return self.has_input and spout_id in (metadata or {}) and spout_id not in self.without


NEVER = Planned(0)
"""That of no transaction, and of one that a version of txtopo without this record has committed."""


def metadata_of(metadata: Mapping[str, Any] | None, spout_id: str) -> Any:
    """Return the part of a transaction's metadata that is a spout's; None if that has taken nothing yet."""
    return None if metadata is None else metadata.get(spout_id)


def last_txid_of(spout_id: str, txid: int, metadata: Mapping[str, Any] | None) -> int:
    """Return the transaction that a spout's coordinator goes on after; 0 if the spout has taken nothing yet."""
    return txid if spout_id in (metadata or {}) else 0
