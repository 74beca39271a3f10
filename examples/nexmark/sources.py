"""The streams of Nexmark, as files that :mod:`examples.nexmark.events` makes: a file of each is a transaction."""

from __future__ import annotations

from collections.abc import Mapping

from spouts import FilesTransactionalSpout
from txtopo import Fields

EVENTS = "txtopo-data/nexmark"
"""The folder of the events."""

PERSON = Fields(
    *(f"{name}: string" for name in ("name", "emailAddress", "creditCard", "city", "state", "extra")),
    "id: long",
    "dateTime: timestamp",
)
AUCTION = Fields(
    *(f"{name}: long" for name in ("id", "initialBid", "reserve", "seller", "category")),
    *(f"{name}: string" for name in ("itemName", "description", "extra")),
    *(f"{name}: timestamp" for name in ("dateTime", "expires")),
)
BID = Fields(
    *(f"{name}: long" for name in ("auction", "bidder", "price")),
    *(f"{name}: string" for name in ("channel", "url", "extra")),
    "dateTime: timestamp",
)
STREAMS: Mapping[str, Fields] = {"person": PERSON, "auction": AUCTION, "bid": BID}


def spout(events: str, stream: str, *names: str) -> FilesTransactionalSpout:
    """Return a spout of a stream's fields with these names, or of all; a transaction is a file."""
    fields = STREAMS[stream].subset(names) if names else STREAMS[stream]
    return FilesTransactionalSpout(f"{events}/{stream}", fields, "parquet", batch_bytes=2**40, batch_files_max=1)
