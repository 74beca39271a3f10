"""The versions of rows: where events belong among those of their keys, and which ones they end.

All events of a transaction are placed at once, in columns: they and what is known of their keys, in the order of key
and sequence, are a *line*. The version of an event begins with its time, and ends with the time of what follows there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txtopo import Fields
from txtopo.columnar.equality import same_rows
from txtopo.columnar.key_index import Mask, Positions, are_equal
from txtopo.columnar.reducing import ordered
from txtopo.columnar.selection import rows_at

REPEAT = Fields("repeat: long")
"""How many versions of an equal sequence came before a version."""

INTERVALS = Fields("valid_from: timestamp", "valid_to: timestamp", "from_txid: long", "to_txid: long")
"""When a version was valid: by the times of changes, and by the transactions after which it was the row of its key."""

NUMBER, REPEATS, TXID, TIME, DELETED = ":number", ":repeat", ":txid", ":time", ":deleted"
"""The columns of a line before the sequence: the number of the key, and what is remembered of a version."""

_EVENT = ":event"
"""The position of an event among those of the transaction; -1 for a version that was known."""

_VALUES = ":values"
"""The position of a version's values, and of its intervals in the history; -1 if it has none."""

Find = Callable[[pa.Table], tuple[Mask, pa.Table]]
"""Returns which versions of a line the history has, and of all of them values and intervals: null for the others."""


@attrs.frozen(eq=False)
class Line:
    """Versions by key and sequence, known ones before the events of an equal sequence."""

    rows: pa.Table

    def of(self, is_in: Mask) -> Line:
        """Return some of them."""
        return self if is_in.all() else Line(self.rows.filter(pa.array(is_in)).combine_chunks())

    def with_column(self, name: str, values: Positions) -> Line:
        """Return them with a column, in the place of one of that name."""
        rows = self.rows.drop_columns([name]) if name in self.rows.column_names else self.rows
        return Line(rows.append_column(name, pa.array(values)))

    def numbers_in(self, name: str) -> Positions:
        """Return a column of numbers."""
        numbers: Positions = self.rows[name].to_numpy()
        return numbers

    @property
    def place(self) -> list[str]:
        """The columns of the sequence."""
        return [name for name in self.rows.column_names if not name.startswith(":")]

    @functools.cached_property
    def is_new(self) -> Mask:
        """Which are of events."""
        return self.numbers_in(_EVENT) >= 0

    @functools.cached_property
    def is_deleted(self) -> Mask:
        """Which delete the row."""
        deleted: Mask = self.rows[DELETED].to_numpy()
        return deleted

    @functools.cached_property
    def has_before(self) -> Mask:
        """Which have another of their key before them."""
        number = self.numbers_in(NUMBER)
        return np.append(False, number[1:] == number[:-1])[: len(number)]

    @property
    def has_next(self) -> Mask:
        """Which have another of their key after them."""
        return _next(self.has_before)

    @functools.cached_property
    def is_same(self) -> Mask:
        """Which have the key and the sequence of the one before."""
        place, count = self.rows.select([NUMBER, *self.place]), max(0, self.rows.num_rows - 1)
        return np.append(False, are_equal(place.slice(0, count), place.slice(1)))[: self.rows.num_rows]


@attrs.frozen(eq=False)
class VersionChanges:
    """What has become of the versions of some keys.

    Args:
        line: all known versions of the keys that have new ones, and these.
        rows: those that are new or have ended, as the history has them: number of the key, sequence, repeat, values,
            intervals.
        too_old: how many events had no place, because versions about as old are forgotten.
    """

    line: Line
    rows: pa.Table
    too_old: int


def left_as_is(is_left: Mask) -> Positions:
    """Return where each row has a value from: its own, or if it leaves that as it is, the row's before it."""
    positions: Positions = np.maximum.accumulate(np.where(is_left, -1, np.arange(len(is_left))))
    return positions


def placed(  # noqa: PLR0913, PLR0917 - what is known, and what comes
    known: pa.Table, is_whole: Mask, events: pa.Table, values: pa.Table, is_left: Mapping[str, Mask], find: Find
) -> VersionChanges:
    """Place the events of a transaction.

    Of those with an equal sequence the last one counts, after the known versions of that sequence. One that says what
    the last of these does has come again, and is no version.

    Args:
        known: the known versions, as of a line.
        is_whole: for each key whether these are all that it has ever had.
        events: the events, as of a line; those of an equal sequence in the order in which they came. Each key has some.
        values: their values.
        is_left: by the name of a value which events leave it as it is.
        find: looks versions up in the history.
    """
    numbered = (known, np.full(known.num_rows, -1)), (events, np.arange(events.num_rows))
    rows = pa.concat_tables(each.append_column(_EVENT, pa.array(changed_rows)) for each, changed_rows in numbered)
    names = [NUMBER, *Line(rows).place]
    every = Line(rows_at(rows, ordered(rows.select(names)).to_numpy()).combine_chunks())
    known_so_far, first = np.cumsum(~every.is_new), np.flatnonzero(~every.has_before)
    of_others: Positions = np.repeat((known_so_far - ~every.is_new)[first], np.diff(first, append=rows.num_rows))
    has_place = (known_so_far > of_others) | is_whole[every.numbers_in(NUMBER)]
    line, contents = _with_values(every.of(has_place), values, is_left, find)
    line = line.of(~(line.is_new & line.has_next & _next(line.is_same)))
    line = line.of(~_come_again(line, contents.select(values.column_names)))

    repeats = line.numbers_in(REPEATS)
    line = line.with_column(REPEATS, np.where(line.is_new & line.is_same, np.roll(repeats, 1) + 1, repeats))
    is_changed = line.is_new | (line.has_next & _next(line.is_new))
    at = np.flatnonzero(is_changed & (line.numbers_in(_VALUES) >= 0))
    changed_rows, shown = line.rows.take(at), contents.take(line.numbers_in(_VALUES)[at])
    is_new, has_next = pa.array(line.is_new[at]), pa.array(line.has_next[at])
    # A version that comes after a later one was never the row of its key.
    columns = {
        **{name: changed_rows[name] for name in (*names, REPEATS)},
        **{name: shown[name] for name in values.column_names},
        "valid_from": pc.if_else(is_new, changed_rows[TIME], shown["valid_from"]),
        "valid_to": line.rows[TIME].take(pa.array(at + 1, mask=~line.has_next[at])),
        "from_txid": pc.if_else(is_new, changed_rows[TXID], shown["from_txid"]),
        "to_txid": pc.coalesce(shown["to_txid"], pc.if_else(has_next, events[TXID][0], None)),
    }
    changed = np.zeros(len(is_whole), dtype=bool)
    changed[line.numbers_in(NUMBER)[line.is_new]] = True
    changed_line = line.of(changed[line.numbers_in(NUMBER)])
    return VersionChanges(changed_line, pa.table(columns), int((~has_place).sum()))


def _with_values(line: Line, values: pa.Table, is_left: Mapping[str, Mask], find: Find) -> tuple[Line, pa.Table]:
    """Return a line with the positions of values, and these: of its events, and of the versions that they follow."""
    event = line.numbers_in(_EVENT)
    is_sought = ~line.is_new & ~line.is_deleted & line.has_next & _next(line.is_new)
    is_found, stored = find(line.rows.filter(pa.array(is_sought)))
    at = np.where(line.is_new & ~line.is_deleted, event, -1)
    at[np.flatnonzero(is_sought)[is_found]] = values.num_rows + np.flatnonzero(is_found)
    every = pa.concat_tables([values, stored.select(values.column_names)])
    may_leave = line.is_new & line.has_before & (at >= 0) & (np.roll(at, 1) >= 0)
    sources = {name: at[left_as_is(may_leave & mask[event])] for name, mask in is_left.items()}
    columns = {name: every[name].take(_or_null(sources.get(name, at))) for name in values.column_names}
    intervals = stored.select(INTERVALS.names).take(_or_null(np.where(at < values.num_rows, -1, at - values.num_rows)))
    columns |= dict(zip(INTERVALS.names, intervals.columns, strict=True))
    value_numbers = np.where(at < 0, -1, np.arange(len(at)))
    return line.with_column(_VALUES, value_numbers), pa.table(columns)


def _come_again(line: Line, contents: pa.Table) -> Mask:
    """Return which events do what the last version of their sequence has done."""
    later = np.flatnonzero(line.is_new & line.is_same)
    after, before = (contents.take(_or_null(line.numbers_in(_VALUES)[at])) for at in (later, later - 1))
    times = [line.rows[TIME].take(at) for at in (later, later - 1)]
    is_again = same_rows(after, before) & (line.is_deleted[later] == line.is_deleted[later - 1])
    # A row without values is no row: what deletes one has none, and one that the history lacks is not known.
    values = line.numbers_in(_VALUES)
    is_again &= (values[later] >= 0) == (values[later - 1] >= 0)
    # What is deleted already is not deleted again, at whatever time: so between versions there is one delete at most.
    is_again &= pc.fill_null(pc.equal(*times), fill_value=True).to_numpy() | line.is_deleted[later]
    mask = np.zeros(line.rows.num_rows, dtype=bool)
    mask[later[is_again]] = True
    return mask


def _next(mask: Mask) -> Mask:
    """Return for each row what is so of the one after it."""
    return np.append(mask[1:], False)[: len(mask)]


def _or_null(positions: Positions) -> pa.Array:
    return pa.array(positions, mask=positions < 0)
