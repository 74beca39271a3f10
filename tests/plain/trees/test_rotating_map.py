"""The rotating map: what survives a rotation, and what is told of what does not (RM1-RM5)."""

from __future__ import annotations

import pytest

from txtopo.plain.trees.rotating_map import RotatingMap


@pytest.mark.parametrize("buckets", [1, 0, -1])
def test_too_few_buckets(buckets):
    """RM1: one bucket could drop what was put just now, so at least two are asked for."""
    with pytest.raises(ValueError, match=f"at least 2 buckets, not {buckets}"):
        RotatingMap(buckets)


@pytest.mark.parametrize("buckets", [2, 3, 5])
def test_how_long_an_entry_lives(buckets):
    """RM2: an entry survives all rotations but the one of its number of buckets, and expires once."""
    expired: list[tuple[str, int]] = []
    rotating = RotatingMap(buckets, lambda key, value: expired.append((key, value)))
    rotating.put("a", 1)
    for _ in range(buckets - 1):
        assert rotating.rotate() == {}
        assert rotating.get("a") == 1
    assert (rotating.rotate(), expired) == ({"a": 1}, [("a", 1)])
    assert (rotating.get("a"), rotating.rotate(), expired) == (None, {}, [("a", 1)])


def test_put_refreshes():
    """RM3: an entry that is put again lives as long as a new one."""
    rotating = RotatingMap[str, int](2)
    rotating.put("a", 1)
    rotating.rotate()
    rotating.put("a", 2)
    assert (rotating.rotate(), rotating.get("a"), rotating.rotate()) == ({}, 2, {"a": 2})


def test_all_buckets_count():
    """RM4: entries are found, counted and removed in whichever bucket they are, and there is one of each key."""
    rotating = RotatingMap[str, int](3)
    for number, key in enumerate("abc"):
        rotating.put(key, number)
        if key != "c":
            rotating.rotate()
    assert (len(rotating), [rotating.get(key) for key in "abcd"]) == (3, [0, 1, 2, None])
    rotating.put("a", 7)
    assert (len(rotating), rotating.get("a")) == (3, 7)
    assert (rotating.remove("b"), rotating.remove("b")) == (1, None)
    assert ("a" in rotating, "b" in rotating, len(rotating)) == (True, False, 2)


def test_what_expires_may_be_put_again():
    """RM5: the callback sees the map after its rotation, so what it puts lives as long as any new entry."""
    rotating: RotatingMap[str, int] = RotatingMap(2, lambda key, value: rotating.put(key, value + 1))
    rotating.put("a", 1)
    rotations = [rotating.rotate() for _ in range(4)]
    assert rotations == [{}, {"a": 1}, {}, {"a": 2}]
    assert rotating.get("a") == 3


def test_values():
    """All values are seen, from whichever bucket, those that were put last first."""
    rotating: RotatingMap[str, int] = RotatingMap(3)
    for value, key in enumerate("abc"):
        rotating.put(key, value)
        rotating.rotate()
    assert list(rotating.values()) == [2, 1]


def test_values_that_are_false():
    """A value of 0 or None is an entry like any other."""
    rotating = RotatingMap[str, object](2)
    rotating.put("zero", 0)
    rotating.put("none", None)
    assert ("zero" in rotating, "none" in rotating, len(rotating)) == (True, True, 2)
    assert (rotating.remove("zero"), len(rotating)) == (0, 1)
