"""Tuples that wait until they are columns."""

import datetime as dt

import pytest

from committers.waiting import WaitingTuples
from txtopo import Fields, Tuple
from txtopo.api.data.tuples import TupleSource
from txtopo.errors import FieldsError


def test_tuple_that_does_not_fit() -> None:
    """The error says which of those that waited it is about."""
    waiting = WaitingTuples(Fields("n: long"), "join")
    source = TupleSource("spout", "default", 0, Fields("attempt", "word", "n"))
    for n in (1, "x", 2):
        waiting.add(Tuple((None, "a", n), source))
    with pytest.raises(FieldsError, match=r"'x' .str. does not fit bigint") as raised:
        waiting.take()
    assert raised.value.__notes__ == ["at the tuple (n='x')"]


def test_event_times_with_and_without_a_zone() -> None:
    """Those without one are UTC, also beside others: what a tuple means does not depend on which ones wait with it."""
    waiting = WaitingTuples(Fields("at: timestamp"), "window", "at")
    source, noon = TupleSource("spout", "default", 0, Fields("attempt", "at")), dt.datetime(2026, 3, 1, 12)  # noqa: DTZ001 - none
    zone = dt.timezone(dt.timedelta(hours=2))
    for at in (noon, noon.replace(tzinfo=zone), None, noon.replace(tzinfo=dt.UTC)):
        waiting.add(Tuple((None, at), source))
    taken = waiting.take()
    assert taken is not None
    utc = noon.replace(tzinfo=dt.UTC)
    assert taken["at"].to_pylist() == [utc, utc - dt.timedelta(hours=2), None, utc]
    for given in (noon, "later", noon.replace(tzinfo=zone)):
        waiting.add(Tuple((None, given), source))
    with pytest.raises(FieldsError, match=r"'later' .str. does not fit timestamp") as raised:
        waiting.take()
    assert raised.value.__notes__ == ["at the tuple (at='later')"]
