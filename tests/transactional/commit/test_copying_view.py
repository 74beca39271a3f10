"""A state whose values can be changed in place: what a bolt does to them harms nothing."""

from __future__ import annotations

import operator

import pytest

from state import DeltaState, MemoryState
from txtopo import Fields
from txtopo.api.state import KEYED_KINDS, StateKind
from txtopo.transactional.commit.copying_view import CopyingView, seen_by_bolts
from txtopo.transactional.commit.write_buffer import GroupState, TransactionView

KEY, TAGS = Fields("key: string"), Fields("tags: array<string>")


@pytest.fixture(params=["typed", "untyped", "delta"])
def declared(request, tmp_path):
    def declare(kind: StateKind):
        if request.param == "delta":
            return DeltaState(tmp_path / "t", KEY, TAGS, kind)
        return MemoryState(KEY, TAGS, kind) if request.param == "typed" else MemoryState(kind=kind)

    return declare


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
            group = GroupState(opened)
            view = group.begin(txid)
            seen = seen_by_bolts(view)
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
        group = GroupState(opened)
        view = group.begin(1)
        seen_by_bolts(view).multi_reduce(given, operator.iadd)
        seen_by_bolts(view).multi_reduce(given, operator.iadd)
        view.finish()
    assert given == {"a": ["1"]}
    assert group.written["a"].value == ["1", "1"]


def test_lists_for_several_fields() -> None:
    """Who gives a list where a tuple is meant, and changes it, changes nothing."""
    opened = MemoryState(KEY, Fields("x: long", "y: long")).open("topology", "s", "life", 1)
    group = GroupState(opened)
    seen = seen_by_bolts(group.begin(1))
    given = [1, 2]
    seen.put("a", given)
    given[0] = 7
    assert seen.get("a").value == (1, 2)


@pytest.mark.parametrize("kind", ["long", "string", "double", "timestamp", "decimal(5, 2)", "boolean", "date"])
def test_plain_types_cost_nothing(kind) -> None:
    """A state whose values can't be changed is seen as it is."""
    opened = MemoryState(KEY, Fields(f"value: {kind}")).open("topology", "s", "life", 1)
    assert isinstance(seen_by_bolts(GroupState(opened).begin(1)), TransactionView)


@pytest.mark.parametrize("kind", ["array<long>", "map<string, long>", "struct<x: long>", "binary"])
def test_types_that_can_be_changed(kind) -> None:
    """One whose values can be changed is seen through copies."""
    opened = MemoryState(KEY, Fields(f"value: {kind}")).open("topology", "s", "life", 1)
    assert isinstance(seen_by_bolts(GroupState(opened).begin(1)), CopyingView)
