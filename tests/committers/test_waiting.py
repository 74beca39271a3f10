"""Tuples that wait until they are columns."""

from __future__ import annotations

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
