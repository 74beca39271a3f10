"""Frames: every value that a tuple may hold arrives at another worker as it was (T-KRYO on our codecs)."""

import datetime as dt
import decimal
import enum
import marshal
import pickle
import uuid
from collections import namedtuple

import attrs
import numpy as np
import pytest

from txtopo.plain.frames import Columns, Frame, decode, encode


class Colour(enum.Enum):
    RED = 1


class Word(str):
    __slots__ = ()


@attrs.frozen
class Point:
    x: int


Pair = namedtuple("Pair", "one other")  # noqa: PYI024 - of a user's

VALUES = [
    None,
    True,
    0,
    -1,
    1 << 200,
    1.5,
    float("inf"),
    "",
    "wörd",
    "\ud800",
    b"",
    b"\x00\xff",
    bytearray(b"ab"),
    1 + 2j,
    {},
    {"a": [1, {"b": None}]},
    [],
    [1, [2, [3]]],
    (),
    (1, (2,)),
    {1, 2},
    frozenset({1}),
    dt.date(2024, 2, 29),
    dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
    dt.timedelta(seconds=1),
    decimal.Decimal("1.10"),
    uuid.UUID(int=7),
    Colour.RED,
    Word("word"),
    Point(1),
    Pair(1, 2),
    range(3),
    np.int64(7),
    np.float32(1.5),
    np.bool_(True),
    np.datetime64("2024-02-29"),
]


def frame_of(*values: object, roots: object = 0, edges: object = 0) -> Frame:
    columns = Columns(3, 9)
    columns.values, columns.roots, columns.edges = [values], [roots], [edges]
    return Frame([columns])


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__} {value!r}"[:40])
def test_values(value):
    """A value arrives equal and of the same type, alone and inside others."""
    for sent in (value, [value], {"key": value}, (value, None)):
        ((arrived,),) = decode(encode(frame_of(sent))).tuples[0].values
        assert (arrived, type(arrived)) == (sent, type(sent))
    inner = decode(encode(frame_of([value]))).tuples[0].values[0][0][0]
    assert type(inner) is type(value)


@pytest.mark.parametrize("values", [(), (None,), (1, "a"), (Colour.RED,)], ids=repr)
@pytest.mark.parametrize(
    ("roots", "edges"),
    [(0, 0), (7, 99), ((7,), {7: 99}), ((7, 8), {7: 99, 8: (1 << 64) - 1}), ((), {})],
    ids=["no tree", "one root", "a map of one root", "two roots", "an empty map"],
)
def test_places_in_trees(values, roots, edges):
    """T-KRYO: a tuple with its map of ids arrives equal; empty values and an empty map, too."""
    arrived = decode(encode(frame_of(*values, roots=roots, edges=edges))).tuples[0]
    assert (arrived.source, arrived.task) == (3, 9)
    assert (arrived.values, arrived.roots, arrived.edges) == ([values], [roots], [edges])


def test_messages_to_ackers():
    """Acks with their masks, failures and resets arrive in their order."""
    frame = Frame([], ([1, 2], [1 << 63, 0], [0, 1 << 300]), [3, 4], [5], known=6)
    assert decode(encode(frame)) == frame


def _truncated() -> list[bytes]:
    wholes = [encode(frame_of("word", 7, roots=7, edges=9)), encode(frame_of(Point(1), roots=7, edges=9))]
    return [whole[:length] for whole in wholes for length in range(1, len(whole))]


def test_truncated_frames():
    """Whatever is missing at its end, a frame that was cut off is refused."""
    for data in _truncated():
        with pytest.raises(ValueError, match="can't be read as a frame"):
            decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"garbage",
        bytes(range(1, 200)),
        pickle.dumps("text"),
        marshal.dumps(3),
        marshal.dumps((1, 2, 3, 4, 5)),
        marshal.dumps(([(1, 2)], ([], [], []), [], [], 0)),
    ],
    ids=range(8),
)
def test_garbage(data):
    """T-KRYO: bytes that are no frame, or none at all, raise ValueError and nothing else."""
    with pytest.raises(ValueError, match="frame"):
        decode(data)
