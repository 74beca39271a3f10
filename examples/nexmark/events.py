"""Makes the events of Nexmark, the same for the same seed: ``python -m examples.nexmark.events FOLDER``.

Of 50 events, 1 is a person, 3 are auctions, 46 are bids. Event time rises evenly with their numbers. Half of the bids
go to the first of the last hundred auctions, and 3 of 4 are by one of the last hundred people, so keys are uneven.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import write_deltalake

DELAY = dt.timedelta(seconds=4)
"""How long an event may come too late, as queries expect it."""
SIDE_KEYS = 10_000
"""The rows of the table ``side``."""

_EACH, _PEOPLE, _AUCTIONS = 50, 1, 3
_FIRST_ID = 1_000
_HOT_EVERY = 100
_RECENT_PEOPLE, _RECENT_AUCTIONS, _AHEAD = 1_000, 100, 10
"""Ids are among so many last ones, or a little ahead of those that exist."""
_CITIES = ["Boise", "Cheyenne", "Kent", "Los Angeles", "Phoenix", "Portland", "San Francisco", "Seattle"]
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_FIRST_NAMES = ["Ada", "Bela", "Cora", "Dana", "Emil", "Fritz", "Gesa", "Hugo", "Ida", "Jonas", "Kai"]
_LAST_NAMES = ["Adler", "Busch", "Conrad", "Dietz", "Engel", "Falk", "Graf", "Hahn", "Jung"]
_HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
_OTHER_CHANNELS = 10_000

Numbers = npt.NDArray[np.int64]


@attrs.frozen
class Events:
    """The first events of a seed.

    Args:
        count: how many.
        seed: decides all values.
        every_us: how many microseconds of event time are between an event and the next.
        late_us: an event arrives less than so many microseconds of event time too late.
        start: the event time of the first one.
    """

    count: int
    seed: int = 1
    every_us: int = 100
    late_us: int = 0
    start: dt.datetime = dt.datetime(2026, 3, 1, 23, 59, tzinfo=dt.UTC)

    @property
    def lasts_max(self) -> dt.timedelta:
        """How long an auction lasts at most: twice the time in which a hundred of them begin."""
        return dt.timedelta(milliseconds=max(2 * (100 * _EACH // _AUCTIONS * self.every_us // 1_000), 1))

    def write(self, folder: Path, ends: Sequence[int]) -> None:
        """Write a folder of files for each stream, and the Delta table ``side``.

        File n of each stream has what is among the events that arrive after the n-th of ``ends``, up to the next one.
        """
        arrivals, kinds = self._arrivals()
        cuts = sorted({0, *ends, self.count})
        for kind, (stream, table) in enumerate(self.tables().items()):
            places = np.searchsorted(np.flatnonzero(kinds[arrivals] == kind), cuts)
            (folder / stream).mkdir(parents=True)
            for number, (begin, end) in enumerate(itertools.pairwise(places)):
                pq.write_table(table.slice(begin, end - begin), folder / stream / f"{number:06}.parquet")
        keys = np.arange(SIDE_KEYS)
        write_deltalake(folder / "side", pa.table({"key": keys, "value": [f"side {key}" for key in keys]}))

    def tables(self) -> Mapping[str, pa.Table]:
        """Return the rows of each stream, in the order in which they arrive."""
        arrivals, kinds = self._arrivals()
        tables = {}
        streams = {"person": self._people, "auction": self._auctions, "bid": self._bids}
        for kind, (stream, make) in enumerate(streams.items()):
            numbers = np.flatnonzero(kinds == kind)
            arriving = arrivals[kinds[arrivals] == kind]
            made = make(np.random.default_rng((self.seed, kind)), numbers)
            tables[stream] = made.take(pa.array(np.searchsorted(numbers, arriving)))
        return tables

    def _arrivals(self) -> tuple[Numbers, Numbers]:
        """Return the events' numbers in the order of arrival, and the kind of each event."""
        numbers = np.arange(self.count)
        late = np.random.default_rng((self.seed, 3)).integers(0, self.late_us or 1, self.count)
        kinds = np.digitize(numbers % _EACH, [_PEOPLE, _PEOPLE + _AUCTIONS])
        return np.argsort(numbers * self.every_us + late, kind="stable"), kinds

    def _people(self, rng: np.random.Generator, numbers: Numbers) -> pa.Table:
        count = len(numbers)
        digits = [f"{number:016}" for number in rng.integers(0, 10**16, count).tolist()]
        return pa.table(
            {
                "id": _FIRST_ID + numbers // _EACH,
                "name": _joined(_drawn(rng, _FIRST_NAMES, count), " ", _drawn(rng, _LAST_NAMES, count)),
                "emailAddress": _joined(_words(rng, count, 7), "@", _words(rng, count, 5), ".com"),
                "creditCard": digits,
                "city": _drawn(rng, _CITIES, count),
                "state": _drawn(rng, _STATES, count),
                "dateTime": self._times(numbers),
                "extra": _letters(rng, rng.integers(80, 140, count)),
            }
        )

    def _auctions(self, rng: np.random.Generator, numbers: Numbers) -> pa.Table:
        count, people = len(numbers), numbers // _EACH
        lasts_ms = 1 + (rng.random(count) * (self.lasts_max // dt.timedelta(milliseconds=1))).astype(np.int64)
        seller = np.where(rng.integers(0, 4, count) > 0, people // _HOT_EVERY * _HOT_EVERY, _recent_people(rng, people))
        first, more = _prices(rng, count), _prices(rng, count)
        return pa.table(
            {
                "id": _FIRST_ID + people * _AUCTIONS + numbers % _EACH - _PEOPLE,
                "itemName": _words(rng, count, 20),
                "description": _words(rng, count, 100),
                "initialBid": first,
                "reserve": first + more,
                "dateTime": self._times(numbers),
                "expires": self._times(numbers, lasts_ms),
                "seller": _FIRST_ID + seller,
                "category": rng.integers(10, 15, count),
                "extra": _letters(rng, rng.integers(300, 460, count)),
            }
        )

    def _bids(self, rng: np.random.Generator, numbers: Numbers) -> pa.Table:
        count, people = len(numbers), numbers // _EACH
        last = people * _AUCTIONS + _AUCTIONS - 1
        oldest = np.maximum(last - _RECENT_AUCTIONS, 0)
        recent = oldest + (rng.random(count) * (last - oldest + 1 + _AHEAD)).astype(np.int64)
        auction = np.where(rng.integers(0, 2, count) > 0, last // _HOT_EVERY * _HOT_EVERY, recent)
        hot = people // _HOT_EVERY * _HOT_EVERY + 1
        bidder = np.where(rng.integers(0, 4, count) > 0, hot, _recent_people(rng, people))
        others = len(_HOT_CHANNELS) + rng.integers(0, _OTHER_CHANNELS, count)
        channel = pa.array(np.where(rng.integers(0, 2, count) > 0, rng.integers(0, len(_HOT_CHANNELS), count), others))
        names, urls = self._channels()
        return pa.table(
            {
                "auction": _FIRST_ID + auction,
                "bidder": _FIRST_ID + bidder,
                "price": _prices(rng, count),
                "channel": names.take(channel),
                "url": urls.take(channel),
                "dateTime": self._times(numbers),
                "extra": _letters(rng, rng.integers(40, 70, count)),
            }
        )

    def _channels(self) -> tuple[pa.Array, pa.Array]:
        """Return the names and the URLs of all channels; 1 of 10 that are not hot has no id in its URL."""
        rng = np.random.default_rng((self.seed, 4))
        others = range(_OTHER_CHANNELS)
        names = [*_HOT_CHANNELS, *(f"channel-{other}" for other in others)]
        ids = ["" if rng.integers(0, 10) == 0 else f"&channel_id={other * 48_271 % 2**31}" for other in others]
        folders = [part for _ in range(3) for part in ("/", _words(rng, len(names), 5))]
        queries = pa.array([""] * len(_HOT_CHANNELS) + ids)
        return pa.array(names), _joined("https://www.nexmark.com", *folders, "/item.htm?query=1", queries)

    def _times(self, numbers: Numbers, later_ms: Numbers | int = 0) -> pa.Array:
        """Return event times: whole milliseconds, so that several events have the same one."""
        start_ms = int(self.start.timestamp() * 1_000)
        micros = (start_ms + numbers * self.every_us // 1_000 + later_ms) * 1_000
        return pa.array(micros).cast(pa.timestamp("us", tz="UTC"))


def _recent_people(rng: np.random.Generator, last: Numbers) -> Numbers:
    some = np.minimum(last + 1, _RECENT_PEOPLE)
    return np.asarray(last + 1 - some + rng.random(len(last)) * (some + _AHEAD), np.int64)


def _prices(rng: np.random.Generator, count: int) -> Numbers:
    return np.asarray(np.round(10 ** (rng.random(count) * 6) * 100), np.int64)


def _drawn(rng: np.random.Generator, values: Sequence[str], count: int) -> pa.Array:
    return pa.array(values).take(pa.array(rng.integers(0, len(values), count)))


def _words(rng: np.random.Generator, count: int, length_max: int) -> pa.Array:
    return _letters(rng, rng.integers(3, length_max, count))


def _letters(rng: np.random.Generator, lengths: Numbers) -> pa.Array:
    """Return strings of these lengths, of the letters a to z."""
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    text = rng.integers(ord("a"), ord("z") + 1, ends[-1], np.uint8)
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(ends), pa.py_buffer(text))


def _joined(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, "")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=False))
@click.option("--events", default=1_000_000, show_default=True, type=click.IntRange(1), help="How many.")
@click.option("--seed", default=1, show_default=True, help="Decides all values.")
@click.option("--each", default=20_000, show_default=True, type=click.IntRange(1), help="Events of a transaction.")
def main(folder: Path, events: int, seed: int, each: int) -> None:
    """Make events in FOLDER."""
    Events(events, seed).write(folder, range(0, events, each))


if __name__ == "__main__":
    main()
