"""A state whose values can be changed in place: what a bolt does to them harms nothing."""

import datetime as dt
import operator
from zoneinfo import ZoneInfo

import pytest

from state import DeltaState, MemoryState
from txtopo import Fields
from txtopo.api.data.copying import Copying
from txtopo.api.values import KEYED_KINDS, StateKind
from txtopo.transactional.commit.write_buffer import group_state
from txtopo.transactional.tasks.state_handle import StateHandle

KEY, TAGS = Fields("key: string"), Fields("tags: array<string>")


@pytest.fixture(params=["typed", "untyped", "delta"])
def declared(request, tmp_path):
    def declare(kind: StateKind):
        if request.param == "delta":
            return DeltaState(tmp_path / "t", KEY, TAGS, kind)
        return MemoryState(KEY, TAGS, kind) if request.param == "typed" else MemoryState(kind=kind)

    return declare


def handle(view) -> StateHandle:
    return StateHandle("bolt", "s", view, None)


def extended(*more: str):
    def extend(old):
        old = [] if old is None else old
        old.extend(more)
        return old

    return extend


@pytest.mark.parametrize("kind", KEYED_KINDS, ids=lambda kind: kind.value)
def test_failed_attempt(declared, kind) -> None:
    """What an attempt has changed in place, and then failed, is not there when it is tried again."""
    opened = declared(kind).open("topology", "s", "life", 1)
    for txid in (1, 2, 3):
        for is_last in (False, True):
            group = group_state(opened)
            view = group.begin(txid)
            seen = handle(view)
            kept = seen.update("a", extended(str(txid)))
            kept.append("mine")
            stored = seen.get("a")
            stored.value.append("mine")
            if kind is StateKind.OPAQUE and stored.previous is not None:
                stored.previous.append("mine")
            seen.multi_update(["a", "b"], lambda _key, old: extended("more")(old))[0].clear()
            given = ["given"]
            seen.multi_put({"c": given})
            seen.put("d", given)
            given.append("mine")
            seen.multi_get(["a", "c"])[1].value.append("mine")
            if is_last:
                view.finish()
            else:
                view.discard()
        opened.write(txid, group.writes())
    values = [kept.value for kept in opened.multi_get(["a", "b", "c", "d"])]
    assert values == [["1", "more", "2", "more", "3", "more"], ["more"] * 3, ["given"], ["given"]]


def test_values_that_are_reduced(declared) -> None:
    """A function that adds in place changes neither what it is given by the bolt nor what is kept."""
    opened = declared(StateKind.TRANSACTIONAL).open("topology", "s", "life", 1)
    given = {"a": ["1"]}
    for _ in range(2):
        group = group_state(opened)
        view = group.begin(1)
        seen = handle(view)
        seen.multi_reduce(given, operator.iadd)
        seen.multi_reduce(given, operator.iadd)
        view.finish()
    assert given == {"a": ["1"]}
    assert group.written["a"].value == ["1", "1"]


@pytest.mark.parametrize(
    ("function", "expected"),
    [(operator.add, ["in", "in", "out"]), (lambda one, other: one + other, ["in", "out"])],
    ids=["reduction", "plain"],
)
def test_each_value_that_is_reduced_is_copied_as_often_as_it_must_be(monkeypatch, function, expected) -> None:
    """What its function gets and what it returns; and what the bolt gives, if it may be kept as it is, to be folded with
    the rows of others."""
    copies = []
    opened = MemoryState(KEY, TAGS).open("topology", "s", "life", 1)
    view = group_state(opened).begin(1)
    copying = Copying(lambda value: (copies.append("in"), value)[1], lambda value: (copies.append("out"), value)[1])
    monkeypatch.setattr(type(view), "copying", copying)
    seen = handle(view)
    seen.multi_reduce({"a": ["1"]}, function)
    assert sorted(copies) == expected


def test_lists_for_several_fields() -> None:
    """Who gives a list where a tuple is meant, and changes it, changes nothing."""
    opened = MemoryState(KEY, Fields("x: long", "y: long")).open("topology", "s", "life", 1)
    group = group_state(opened)
    seen = handle(group.begin(1))
    given = [1, 2]
    seen.put("a", given)
    given[0] = 7
    assert seen.get("a").value == (1, 2)


CALLS = {
    "get": ("key",),
    "put": ("key", 1),
    "update": ("key", lambda _: 1),
    "multi_get": (["key"],),
    "multi_put": ({"key": 1},),
    "multi_update": (["key"], lambda _: 1),
    "multi_reduce": ({"key": 1}, max),
    "multi_remove": (["key"],),
    "snapshot": (),
}


@pytest.mark.parametrize("name", CALLS)
def test_writes_are_noted(name: str) -> None:
    """Who writes is noted where that is asked for, and only there."""
    noted = []
    view = group_state(MemoryState().open("topology", "s", "life", 1)).begin(1)
    for note in (lambda component, state: noted.append((component, state)), None):
        getattr(StateHandle("bolt", "state", view, None, record_write=note), name)(*CALLS[name])
    assert noted == ([] if name in {"get", "multi_get", "snapshot"} else [("bolt", "state")])


@pytest.mark.parametrize(
    "key", [Fields("at: timestamp"), Fields("k: string", "at: timestamp")], ids=["alone", "beside"]
)
def test_the_hour_that_comes_twice(tmp_path, key) -> None:
    """Two moments that a clock on the wall shows alike are two keys, however they are put, within a transaction or not."""
    first = dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    second = first.replace(fold=1)
    assert first == second  # as Python sees it
    one, two = (first, second) if len(key) == 1 else (("a", first), ("a", second))
    opened = DeltaState(tmp_path / "t", key, Fields("n: long")).open("topology", "s", "life", 1)
    group = group_state(opened)
    for txid in (1, 2):
        view = group.begin(txid)
        state = handle(view)
        for each in (one, two, two):
            state.update(each, lambda old: (old or 0) + 1)
        assert state.multi_update([one, two], lambda given, old: old + (10 if given is one else 20)) == [
            11 * txid,
            22 * txid,
        ]
        assert [value.value for value in state.multi_get([one, two])] == [state.get(one).value, state.get(two).value]
        view.finish()
    opened.write(2, group.writes())
    assert [value.value for value in opened.multi_get([one, two])] == [22, 44]
    view = group_state(opened).begin(3)
    state = handle(view)
    state.multi_put([one, two], [1, 2])
    state.multi_reduce({one: 5}, operator.add)
    state.put(two, state.get(two).value + 5)
    assert [value.value for value in state.multi_get([one, two])] == [6, 7]
    state.multi_remove([one])
    assert [state.get(one), state.get(two).value] == [None, 7]
