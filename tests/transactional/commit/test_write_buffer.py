"""What the transactions of a group see of a state."""

import datetime as dt
import functools
import operator
from zoneinfo import ZoneInfo

import pytest

from state import MemoryState, TransactionalValue
from txtopo import Fields
from txtopo.api.state import OpenedState
from txtopo.api.values import KEYED_KINDS, StateKind, stored_value
from txtopo.errors import FieldsError, StateAccessError
from txtopo.transactional.commit.write_buffer import group_state
from txtopo.transactional.tasks.state_handle import StateHandle


def opened(kind: StateKind = StateKind.TRANSACTIONAL) -> OpenedState:
    return MemoryState(Fields("k"), Fields("v"), kind).open("topology", "s", "life", 1)


def add(amount: int):
    return lambda old: (old or 0) + amount


def test_later_sees_earlier() -> None:
    """A later transaction of the group sees what an earlier one has put; nothing is durable yet."""
    state = opened()
    group = group_state(state)
    first = group.begin(1)
    assert first.update("a", add(5)) == 5
    first.finish()
    second = group.begin(2)
    assert second.get("a").value == 5
    assert second.update("a", add(2)) == 7
    second.finish()
    assert group.written["a"].value == 7
    assert state.multi_get(["a"]) == [None]


def test_many_calls() -> None:
    """Any number of calls in a transaction, for one key each or several, add up."""
    group = group_state(opened())
    for txid in (1, 2):
        view = group.begin(txid)
        for number in range(40):
            view.multi_update([number, number + 1], add(1))
            view.put(-1, number)
        view.put("gone", 1)
        view.remove("gone")
        view.check()
        view.finish()
    assert [group.written[key].value for key in (0, 1, 39, 40)] == [2, 4, 4, 2]
    assert group.written[-1] == (2, 39)
    assert group.written["gone"] is None


def test_failed_leaves_nothing() -> None:
    """What a failed transaction has put is gone."""
    group = group_state(opened())
    first = group.begin(1)
    first.put("a", 1)
    first.finish()
    failed = group.begin(2)
    failed.update("a", add(10))
    failed.put("b", 3)
    failed.discard()
    again = group.begin(2)
    assert again.get("a").value == 1
    assert again.get("b") is None


@pytest.mark.parametrize("kind", KEYED_KINDS)
def test_twice_in_one_transaction(kind: StateKind) -> None:
    """Two updates of a key in one transaction, by two tasks for example, both count."""
    state = opened(kind)
    state.write(1, {"a": stored_value(kind, 1, 100)})
    view = group_state(state).begin(2)
    view.update("a", add(1))
    assert view.update("a", add(1)) == 102
    view.multi_put({"a": 7})
    assert view.get("a").value == 7


def test_applied_transaction_changes_nothing() -> None:
    """Promise 8: a replay of an applied transaction changes nothing, by update and by put."""
    state = opened()
    state.write(5, {"a": TransactionalValue(5, 50)})
    view = group_state(state).begin(5)
    assert view.update("a", add(1)) == 50
    view.put("a", 99)
    assert view.multi_update(["a", "b"], lambda _, old: (old or 0) + 1) == [50, 1]
    view.multi_reduce({"a": 7, "c": 7}, operator.add)
    view.multi_remove(["a"])
    assert [value.value for value in view.multi_get(["a", "b", "c"])] == [50, 1, 7]


def test_opaque_replay_starts_from_previous() -> None:
    """Promise 10: opaque state stays exact when a replay carries other tuples."""
    state = opened(StateKind.OPAQUE)
    state.write(1, {"a": TransactionalValue(1, 10)})
    group = group_state(state)
    view = group.begin(2)
    view.update("a", add(5))
    view.finish()
    state.write(2, group.written)
    replay = group_state(state).begin(2)
    assert replay.update("a", add(3)) == 13


def test_opaque_previous_is_that_of_the_last_transaction() -> None:
    """Promise 10: what is stored beside a value is the one before the last transaction of the group that put it."""
    state = opened(StateKind.OPAQUE)
    state.write(1, {"a": stored_value(StateKind.OPAQUE, 1, 10)})
    group = group_state(state)
    for txid in (2, 3, 4):
        view = group.begin(txid)
        view.update("a", add(5))
        view.multi_update(["a", "b"], add(1))
        view.finish()
    assert dict(group.written) == {
        "a": stored_value(StateKind.OPAQUE, 4, 28, 22),
        "b": stored_value(StateKind.OPAQUE, 4, 3, 2),
    }


def test_use_after_the_end() -> None:
    """A state that is kept beyond its transaction's commit phase is refused."""
    view = group_state(opened()).begin(1)
    view.finish()
    with pytest.raises(StateAccessError, match="transaction 1"):
        view.get("a")


class Fickle(str):
    """A key whose comparison fails once, as it does if it looks up something of its own."""

    __slots__ = ("failures",)
    failures: list[Exception]
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        if self.failures:
            raise self.failures.pop()
        return super().__eq__(other)


@pytest.mark.parametrize("error", [KeyError, TypeError])
def test_errors_of_a_key_are_the_users(error: type[Exception]) -> None:
    """A key that fails to compare is not taken for one that nobody has put, which would begin anew."""
    group = group_state(opened())
    first = group.begin(1)
    first.put("a", 1)
    first.finish()
    second = group.begin(2)
    for call in (lambda key: second.update(key, add(1)), second.get):
        key = Fickle("a")
        key.failures = [error("its own")]
        with pytest.raises(error, match="its own"):
            call(key)
    assert second.update("a", add(1)) == 2


def test_removed_key() -> None:
    """A key that is removed is gone for later transactions, and from the table; it can come back."""
    state = opened()
    state.write(1, {"a": TransactionalValue(1, 10), "b": TransactionalValue(1, 20)})
    group = group_state(state)
    view = group.begin(2)
    view.remove("a")
    view.multi_remove(["b", "never there"])
    assert view.get("a") is None
    assert view.update("b", add(1)) == 1
    view.finish()
    assert group.begin(3).get("a") is None
    state.write(2, group.written)
    assert [kept and kept.value for kept in state.multi_get(["a", "b"])] == [None, 1]


def test_ways_to_put_and_update_several() -> None:
    """Several keys: a mapping or keys and values; one function of key and old, of old alone, or one a key."""
    view = group_state(opened()).begin(1)
    view.multi_put({"a": 1, "b": 2})
    view.multi_put(["c", "d"], [3, 4])
    assert [kept.value for kept in view.multi_get(["a", "b", "c", "d"])] == [1, 2, 3, 4]
    assert view.multi_update(["a", "b"], lambda key, old: f"{key}{old}") == ["a1", "b2"]
    assert view.multi_update(["c", "d"], lambda old: old * 10) == [30, 40]
    assert view.multi_update(["c", "d"], [add(1), add(2)]) == [31, 42]


class Adder:
    """Adds up, as a method and as an object."""

    def of_both(self, key, old):
        return of_both(key, old)

    def of_old(self, old):
        return of_old(old)

    def __call__(self, key, old):
        return of_both(key, old)


def of_both(key, old):
    return f"{key}{old}"


def of_old(old):
    return f"k{old}"


def with_more(key, old=0, *, sign=""):
    return f"{sign}{key}{old}"


def with_only_an_option(old, *, sign="k"):
    return f"{sign}{old}"


def of_any(*values):
    return "".join(map(str, values))


@functools.wraps(of_old)
def wrapped(*values):
    return of_old(*values)


@pytest.mark.parametrize(
    "function",
    [
        *[of_both, of_old, with_more, with_only_an_option, of_any, wrapped, lambda old, more=1: f"{old}{more}"],
        *[Adder().of_both, Adder().of_old, Adder(), functools.partial(with_more, sign="")],
        *["{}{}".format, functools.partial(of_any, "")],
    ],
)
def test_functions_of_key_and_old(function) -> None:
    """Whoever takes two arguments gets the key first; what has other arguments of its own is asked for its signature."""
    view = group_state(opened()).begin(1)
    view.put("k", 1)
    assert view.multi_update(["k"], function) == ["k1"]


def test_value_put_whole() -> None:
    """What get returns may be put back whole, as in Storm, in the same transaction."""
    view = group_state(opened()).begin(4)
    view.put("a", TransactionalValue(4, 9))
    assert view.get("a") == TransactionalValue(4, 9)
    with pytest.raises(StateAccessError, match="transaction 3"):
        view.put("a", TransactionalValue(3, 9))


def test_misfit_is_told_while_its_owner_is_known() -> None:
    """A value that does not fit is refused when the component has finished, not when the group is written."""
    state = MemoryState(Fields("k: string"), Fields("n: long")).open("topology", "s", "life", 1)
    view = group_state(state).begin(1)
    view.put("a", "many")
    with pytest.raises(FieldsError, match="many"):
        view.check()


@pytest.mark.parametrize("value", ["n: long", "n: array<string>"], ids=["kept as it is", "copied"])
@pytest.mark.parametrize("is_tuple", [False, True])
def test_times_when_clocks_go_back(is_tuple: bool, value: str) -> None:
    """Keys an hour apart are two, though Python takes them for equal, in all calls; a function gets its key as given.

    So totals do not depend on how transactions are grouped.
    """
    shown = [dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold) for fold in (0, 1)]
    keys = [("k", time) if is_tuple else time for time in shown]
    assert keys[0] == keys[1]
    fields = Fields("k: string", "at: timestamp") if is_tuple else Fields("at: timestamp")
    state = MemoryState(fields, Fields(value)).open("topology", "s", "life", 1)
    empty, one = (0, 1) if value == "n: long" else ([], ["1"])
    given = []

    def note(key, old):
        given.append(key)
        return old + one

    for group in (group_state(state), group_state(state)):
        for txid in (1, 2):
            view = group.begin(txid)
            seen = StateHandle("bolt", "s", view, None)
            seen.put(keys[0], empty)
            seen.multi_put({keys[1]: empty})
            seen.multi_put(keys, [empty, one])
            assert seen.update(keys[1], lambda old: old + one) == one * 2
            seen.multi_update(keys, [lambda old: old + one * 10, lambda old: old + one * 20])
            seen.multi_update(keys, note)
            assert all(got is key for got, key in zip(given[-2:], keys, strict=True))
            seen.multi_reduce({keys[0]: one}, operator.add)
            assert [seen.get(key).value for key in keys] == [one * 12, one * 23]
            assert [each.value for each in seen.multi_get(keys)] == [one * 12, one * 23]
            view.check()
            view.finish()
        assert len(group.written) == 2
    seen = StateHandle("bolt", "s", group_state(state).begin(1), None)
    seen.multi_put(keys, [one, one])
    seen.remove(keys[0])
    assert [kept and kept.value for kept in seen.multi_get(keys)] == [None, one]


@pytest.mark.parametrize("value", ["v: float", "v: float, w: long", "v: array<float>"])
def test_a_float_is_read_as_it_is_kept(value: str) -> None:
    """A transaction reads what it, or another of its group, has put as if it were in another group: in 32 bits."""

    def made(number: float):
        return {"v: float": number, "v: array<float>": [number]}.get(value, (number, 1))

    group = group_state(MemoryState(Fields("k: string"), Fields(*value.split(", "))).open("topology", "s", "life", 1))
    kept = 0.10000000149011612
    for txid in (1, 2):
        view = group.begin(txid)
        state = StateHandle("bolt", "s", view, None)
        assert txid == 1 or state.get("put").value == made(kept)
        state.put("put", made(0.1))
        state.multi_put({"several": made(0.1)})
        assert state.update("updated", lambda _: made(0.1)) == made(kept)
        state.multi_reduce({"reduced": made(0.1)}, lambda old, _: old)
        assert [each.value for each in state.multi_get(["put", "several", "updated", "reduced"])] == [made(kept)] * 4
        view.check()
        view.finish()
    state = StateHandle("bolt", "s", group.begin(3), None)
    for number in (1e300, 1e-300, 0.0, float("inf")):  # what does not fit is refused as it is
        state.put("other", made(number))
        assert state.get("other").value == made(number)
