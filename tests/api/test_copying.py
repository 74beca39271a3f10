"""Copies share nothing that can be changed, and what can't be changed is not copied."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np
import pytest

from txtopo import Fields
from txtopo.api.copying import copied, copied_json, copying_of_rows, copying_of_value
from txtopo.errors import FieldsError

POINT = {"x": 1, "ys": [1, [2]], "more": {"a": [3]}}


@pytest.mark.parametrize("value", ["text", b"bytes", 1, 1.5, True, None, ("a", 1, None)])
def test_what_cannot_be_changed(value) -> None:
    """Texts, bytes, numbers, truth values, nothing, and tuples of these are the very same."""
    assert copied(value) is value


@pytest.mark.parametrize(
    "value", [[1], [[1]], {"a": [1]}, {1}, bytearray(b"x"), ("a", [1]), deque([1]), POINT], ids=repr
)
def test_what_can_be_changed(value) -> None:
    """All else is copied, as deep as it goes."""
    own = copied(value)
    assert own == value
    assert own is not value


def test_deep() -> None:
    """What lies in a value is copied, too, and what refers to itself."""
    own = copied(POINT)
    own["ys"][1].append(1)
    own["more"]["a"].append(1)
    assert POINT == {"x": 1, "ys": [1, [2]], "more": {"a": [3]}}
    ring: list = []
    ring.append(ring)
    own = copied(ring)
    assert own[0] is own


def test_what_cannot_be_copied() -> None:
    """A value that can't travel is refused, with its class."""
    with pytest.raises(FieldsError, match="lock"):
        copied([threading.Lock()])


def test_json() -> None:
    """Metadata is copied as deep as it goes."""
    own = copied_json(POINT)
    assert own == POINT
    own["ys"][1].append(1)
    assert POINT["ys"] == [1, [2]]


@pytest.mark.parametrize(
    ("kind", "value", "reach"),
    [
        ("array<long>", [1], lambda value: value),
        ("array<long>", np.array([1]), lambda value: value),
        ("array<array<long>>", [[1]], lambda value: value[0]),
        ("map<string, array<long>>", {"a": [1]}, lambda value: value["a"]),
        ("struct<x: long, ys: array<struct<z: array<long>>>>", {"x": 1, "ys": [{"z": [1]}]}, lambda v: v["ys"][0]["z"]),
        ("struct<x: array<long>, y: long>", {"y": 1, "x": [2]}, lambda value: value["x"]),
        ("array<binary>", [bytearray(b"x")], lambda value: value),
    ],
)
def test_typed(kind, value, reach) -> None:
    """Values of nested types are copied as deep as their type goes, both ways."""
    copying = copying_of_value(Fields(f"value: {kind}"))
    assert copying is not None
    for copy in (copying.taken, copying.handed):
        own = copy(value)
        assert own == value
        assert reach(own) is not reach(value)
        assert copy(None) is None


def test_rows() -> None:
    """Of a tuple the fields that can be changed are copied; one in which nothing can is the very same."""
    assert copying_of_rows(Fields("attempt", "word: string", "n: long")) is None
    copying = copying_of_rows(Fields("attempt", "word: string", "tags: array<string>"))
    row = (1, "a", ["x"])
    own = copying.taken(row)
    assert own == row
    assert own[2] is not row[2]
    plain = (1, "a", None)
    assert copying.handed(plain) is plain
