"""The conformance tests of states whose rows or keys expire, yours and txtopo's: test classes to subclass.

::

    class TestMyExpiringState(ExpiringRowsConformance):
        @pytest.fixture
        def declared(self, tmp_path):
            return MyExpiringState(tmp_path, EXPIRING_FIELDS, expires="ends", key=("word",))

    class TestMyKeysThatExpire(ExpiringKeysConformance):
        @pytest.fixture
        def declare(self, tmp_path):
            return lambda ttl: MyState(tmp_path, EXPIRING_KEY, EXPIRING_VALUE, ttl=ttl, clock="clock")
"""

from __future__ import annotations

import datetime as dt
import json
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from txtopo.api.data.fields import Fields
from txtopo.api.data.utc import MICROS_MIN, datetime_at
from txtopo.api.map_state import MapState
from txtopo.api.state import CanBeRepaired, ExpiresKeys, OpenedState, State
from txtopo.api.writes import KeyedWrites
from txtopo.errors import FieldsError, LostLead, StateAccessError
from txtopo.testing.conformance.state import INCARNATION, NAME, TOPOLOGY
from txtopo.transactional.commit.write_buffer import group_state

EXPIRING_FIELDS = Fields("word: string", "ends: timestamp")

EXPIRING_KEY, EXPIRING_VALUE = Fields("word: string"), Fields("n: long", "at: timestamp")

Row = tuple[str | None, int]
"""A word, and the second after 1970 at which its row expires."""

Call = int | Sequence[Row]
"""What a transaction does: takes up to a second, or appends rows."""


def opened(declared: State, epoch: int = 1) -> OpenedState:
    """Open the state for the tests' topology."""
    return declared.open(TOPOLOGY, NAME, INCARNATION, epoch)


def rows(*rows: Row) -> pa.Table:
    """Return rows of the state."""
    columns = {"word": [word for word, _ in rows], "ends": [_second(second) for _, second in rows]}
    return pa.table(columns, schema=EXPIRING_FIELDS.arrow_schema())


def _second(second: int) -> dt.datetime:
    return datetime_at(second * 1_000_000)


def listed(table: pa.Table) -> list[Row]:
    """Return rows as the tests write them, sorted."""
    found = table.select(list(EXPIRING_FIELDS)).to_pylist()
    rows = [(row["word"], round((row["ends"] - _second(0)).total_seconds())) for row in found]
    return sorted(rows, key=lambda row: (row[0] or "", row[1]))


def call(view: MapState, *calls: Call) -> list[list[Row]]:
    """Make calls in a transaction; return what each take has taken."""
    taken = []
    for number in calls:
        if isinstance(number, int):
            taken.append(listed(view.take_expired(number * 1_000_000)))
        else:
            view.append(rows(*number))
    return taken


def commit(
    state: OpenedState, *transactions: tuple[int, list[Call]], write: Callable[[int, Any], object] | None = None
) -> list[list[Row]]:
    """Commit a group of transactions, each of its txid and its calls; return what each take has taken."""
    group = group_state(state)
    taken = []
    for txid, calls in transactions:
        view = group.begin(txid)
        taken += call(view, *calls)
        view.finish()
    (write or state.write)(transactions[-1][0], group.writes())
    return taken


def held(view: MapState, words: str) -> str:
    """Return those of some one-letter words that have a row."""
    found = view.holds(pa.table({"word": list(words)})).to_pylist()
    return "".join(word for word, is_held in zip(words, found, strict=True) if is_held)


TTL = dt.timedelta(minutes=1)
"""The time to live of keys."""

Declare = Callable[[dt.timedelta], State]

_SECOND = 1_000_000


def keys_of(declare: Declare, epoch: int = 1, ttl: dt.timedelta = TTL) -> Any:
    """Open a state whose keys expire; skip the test if they do not."""
    state = opened(declare(ttl), epoch)
    assert isinstance(state, ExpiresKeys), f"{state} is none whose keys expire"
    return state


def put_keys(
    state: OpenedState, txid: int, ends: dict[str, int | None], until: int | None, removed: Sequence[str] = ()
) -> None:
    """Write keys with their times, in seconds after 1970, and remove others, as txtopo does."""
    values = [(txid, None if second is None else _second(second)) for second in ends.values()]
    micros = None if until is None else until * _SECOND
    writes = KeyedWrites(state.declared.kind, list(ends), values, [txid] * len(ends), removed=removed, until=micros)
    state.write(txid, writes)


def expired(state: Any, until: int) -> list[tuple[str, int]]:
    """Return the words and transactions of the rows up to a second, sorted."""
    rows = state.expired_rows(until * _SECOND)
    assert set(rows.column_names) >= {*EXPIRING_KEY, *EXPIRING_VALUE, "txid"}
    return sorted(zip(rows["word"].to_pylist(), rows["txid"].to_pylist(), strict=True))


class ExpiringRowsConformance:
    """The promises of :class:`~txtopo.api.state.ExpiresRows`, as tests. Define the fixture ``declared``."""

    @pytest.fixture
    def declared(self) -> State:
        """Return the state: fields ``EXPIRING_FIELDS``, which expires at ``ends``, with the key ``word``."""
        raise NotImplementedError

    def test_what_a_take_returns(self, declared: State) -> None:
        """A take returns durable rows, those of earlier transactions of its group and its own; each row once."""
        state = opened(declared)
        assert commit(state, (1, [[("a", 10), ("b", 20)]]), (2, [[("c", 5)]])) == []
        group: list[tuple[int, list[Call]]] = [
            (3, [[("d", 12), ("e", 30)], 12]),
            (4, [[("f", 15), ("g", 14)], 14, 14]),
            (5, [13, 20]),
        ]
        first, second = [("a", 10), ("c", 5), ("d", 12)], [("b", 20), ("f", 15)]
        assert commit(state, *group) == [first, [("g", 14)], [], [], second]
        assert listed(state.snapshot()) == [("e", 30)]
        again = opened(declared, epoch=2)
        assert commit(again, (6, [29]), (7, [30])) == [[], [("e", 30)]]
        assert listed(again.snapshot()) == []

    def test_equal_rows_are_several(self, declared: State) -> None:
        """Rows that are equal in all fields are taken as often as they were appended."""
        state = opened(declared)
        commit(state, (1, [[("a", 1), ("a", 1)]]), (2, [[("a", 1)]]))
        assert commit(state, (3, [[("a", 1)], 1])) == [[("a", 1)] * 4]

    def test_a_failed_transaction_leaves_nothing(self, declared: State) -> None:
        """What a transaction appended or took before it failed is as it was, for those after it."""
        state = opened(declared)
        commit(state, (1, [[("a", 10)]]))
        group = group_state(state)
        view = group.begin(2)
        call(view, [("b", 20)])
        view.finish()
        failing = group.begin(3)
        assert call(failing, [("c", 30)], 25) == [[("a", 10), ("b", 20)]]
        failing.discard()
        again = group.begin(3)
        assert call(again, [("d", 12)], 15) == [[("a", 10), ("d", 12)]]
        again.finish()
        state.write(3, group.writes())
        assert listed(state.snapshot()) == [("b", 20)]

    def test_a_row_that_comes_too_late_is_refused(self, declared: State) -> None:
        """A row that expires at a time that this group or an earlier one has taken is refused, and names it."""
        state = opened(declared)
        commit(state, (1, [[("a", 10)], 10]))
        for again in (state, opened(declared, epoch=2)):
            view = group_state(again).begin(2)
            with pytest.raises(StateAccessError, match="1970-01-01T00:00:10"):
                call(view, [("b", 11), ("c", 10)])
            call(view, [("b", 11)], 11)
            with pytest.raises(StateAccessError, match="1970-01-01T00:00:11"):
                call(view, [("d", 11)])

    def test_up_to_when_rows_are_taken(self, declared: State) -> None:
        """A transaction sees the latest time of all takes: of earlier ones, of its group, its own; None before any."""
        state = opened(declared)
        group = group_state(state)
        failing, view = group.begin(1), group.begin(1)
        seen = [failing.taken_until()]
        call(failing, 7)
        seen.append(failing.taken_until())
        failing.discard()
        seen.append(view.taken_until())
        call(view, [("a", 9)], 5)
        view.finish()
        seen.append(group.begin(2).taken_until())
        state.write(1, group.writes())
        for again in (state, opened(declared, epoch=2)):
            view = group_state(again).begin(2)
            call(view, 4)
            seen.append(view.taken_until())
        assert seen == [None, 7_000_000, None, *[5_000_000] * 3]

    def test_how_many_rows_are_held(self, declared: State) -> None:
        """All rows that are not taken count: durable ones, those of the group, and the transaction's own."""
        state = opened(declared)
        commit(state, (1, [[("a", 10), ("a", 20), ("b", 30)]]))
        group = group_state(state)
        first = group.begin(2)
        call(first, [("c", 5)], 10)
        held = [first.rows_held()]
        first.finish()
        second = group.begin(3)
        call(second, [("d", 40), ("d", 40)])
        held.append(second.rows_held())
        second.finish()
        state.write(3, group.writes())
        held += [group_state(again).begin(4).rows_held() for again in (state, opened(declared, epoch=2))]
        assert held == [2, 4, 4, 4]

    def test_rows_without_a_time_are_refused(self, declared: State) -> None:
        """A row needs a time at which it expires."""
        view = group_state(opened(declared)).begin(1)
        with pytest.raises(FieldsError, match="ends"):
            view.append([("a", None)])

    def test_null_keys(self, declared: State) -> None:
        """A null is a key like another, durable or not."""
        state = opened(declared)
        keys, null = pa.table({"word": ["a", None]}), pa.table({"word": pa.array([None], pa.string())})
        commit(state, (1, [[("a", 10)]]))
        group = group_state(state)
        view = group.begin(2)
        held = [view.holds(keys).to_pylist()]
        view.append([(None, _second(10)), (None, _second(20))])
        held.append(view.holds(keys).to_pylist())
        assert listed(view.rows_of(null)) == [(None, 10), (None, 20)]
        view.finish()
        state.write(2, group.writes())
        for again in (state, opened(declared, epoch=2)):
            view = group_state(again).begin(3)
            assert listed(view.rows_of(null)) == [(None, 10), (None, 20)]
            held.append(view.holds(keys).to_pylist())
            call(view, 15)
            held.append(view.holds(keys).to_pylist())
        assert held == [[True, False], [True, True], *[[True, True], [False, True]] * 2]

    def test_which_keys_are_held(self, declared: State) -> None:
        """A key is held while one of its rows is not taken: a durable one, one of the group or of the transaction."""
        state = opened(declared)
        commit(state, (1, [[("a", 10), ("a", 30), ("b", 20)]]), (2, [[("c", 40)]]))
        for again in (state, opened(declared, epoch=2)):
            group = group_state(again)
            view = group.begin(3)
            assert held(view, "abcd") == "abc"
            call(view, [("d", 50)], 20)
            assert held(view, "dcba") == "dca"
            view.finish()
            failing = group.begin(4)
            call(failing, [("e", 50)], 40)
            assert held(failing, "abcde") == "de"
            failing.discard()
            assert held(group.begin(4), "abcde") == "acd"
        with pytest.raises(FieldsError):
            group_state(state).begin(3).holds(pa.table({"word": [["a"]]}))

    def test_a_prepared_take_outlives_who_prepared_it(self, declared: State) -> None:
        """The next coordinator publishes what the last one prepared, from the note as it is stored; twice is once."""
        state, notes = opened(declared), []
        commit(state, (1, [[("a", 10), ("b", 20)]]))
        commit(state, (2, [[("c", 11), ("d", 40)], 15]), write=lambda txid, to: notes.append(state.prepare(txid, to)))
        assert listed(state.snapshot()) == [("a", 10), ("b", 20)]
        again = opened(declared, epoch=2)
        for _ in range(2):
            again.publish(2, json.loads(json.dumps(notes[0])))
            assert (listed(again.snapshot()), again.last_txid) == ([("b", 20), ("d", 40)], 2)
        assert commit(again, (3, [40])) == [[("b", 20), ("d", 40)]]

    def test_what_nobody_publishes_never_was(self, declared: State) -> None:
        """A prepared write that no group decides takes nothing, and appends nothing."""
        state = opened(declared)
        commit(state, (1, [[("a", 10)]]))
        commit(state, (2, [[("b", 20)], 10]), write=state.prepare)
        again = opened(declared, epoch=2)
        again.clean_up()
        assert commit(again, (2, [[("c", 9)], 30])) == [[("a", 10), ("c", 9)]]

    def test_a_txid_is_written_once(self, declared: State) -> None:
        """A write of a transaction that is written already does nothing."""
        state = opened(declared)
        commit(state, (1, [[("a", 10)]]), (2, [[("b", 20)], 5]))
        commit(opened(declared), (2, [[("z", 40)], 30]))
        assert listed(opened(declared, epoch=2).snapshot()) == [("a", 10), ("b", 20)]

    def test_a_newer_epoch_fences_older_ones(self, declared: State) -> None:
        """A coordinator that has lost its lead takes nothing, and appends nothing."""
        old = opened(declared)
        commit(old, (1, [[("a", 10)]]))
        new = opened(declared, epoch=2)
        with pytest.raises(LostLead):
            commit(old, (2, [[("b", 20)], 10]))
        assert commit(new, (2, [20])) == [[("a", 10)]]

    def test_upkeep_changes_nothing(self, declared: State) -> None:
        """maintain() leaves rows, keys and what is taken as they are."""
        state = opened(declared)
        for txid in range(1, 8):
            commit(state, (txid, [[("k", 10 * txid), ("z", 1_000)], 10 * txid - 15]))
            state.maintain()
        expected = [("k", 60), ("k", 70)] + [("z", 1_000)] * 7
        for epoch in (1, 2):
            again = state if epoch == 1 else opened(declared, epoch)
            assert (listed(again.snapshot()), again.last_txid) == (expected, 7)
            assert call(group_state(again).begin(8), 1_000) == [expected]

    def test_rolling_back(self, declared: State) -> None:
        """Rows that were taken are there again once the state is rolled back, and can be taken once more."""
        state = opened(declared)
        if not isinstance(state, CanBeRepaired):
            pytest.skip("this state lacks the capability CanBeRepaired")
        commit(state, (1, [[("a", 10), ("b", 20)]]))
        commit(state, (2, [[("c", 15)], 12]))
        commit(state, (3, [30]))
        assert [listed(state.snapshot(txid)) for txid in (1, 2, 3)] == [
            [("a", 10), ("b", 20)],
            [("b", 20), ("c", 15)],
            [],
        ]
        state.roll_back(2)
        assert commit(state, (3, [15])) == [[("c", 15)]]
        state.roll_back(1)
        assert commit(opened(declared, epoch=2), (2, [10])) == [[("a", 10)]]
        again: Any = opened(declared, epoch=3)
        again.roll_back(None)
        assert listed(again.snapshot()) == []
        assert commit(again, (1, [[("z", -5)], -5])) == [[("z", -5)]]

    def test_the_state_pickles(self, declared: State) -> None:
        """A declared state pickles, for it is sent along with its topology."""
        again = pickle.loads(pickle.dumps(declared))  # noqa: S301
        assert (again.key, again.value, again.expires, again.kind) == (
            declared.key,
            declared.value,
            declared.expires,
            declared.kind,
        )


class ExpiringKeysConformance:
    """The promises of :class:`~txtopo.api.state.ExpiresKeys`, as tests. Define the fixture ``declare``.

    What the changes of such a state tell rests on them: a key that went before a transaction has told of it would stay
    for ever in the totals of those who read the changes.
    """

    @pytest.fixture
    def declare(self) -> Callable[[dt.timedelta], State]:
        """Return what declares the state with a time to live: fields ``EXPIRING_KEY`` and ``EXPIRING_VALUE``."""
        raise NotImplementedError

    def test_nothing_has_expired_at_first(self, declare: Declare) -> None:
        """Neither before the first write nor after one for which nothing had expired."""
        state = keys_of(declare)
        assert state.expired_until(None) < MICROS_MIN
        put_keys(state, 1, {"a": 5, "b": None}, until=None)
        assert state.expired_until(None) < MICROS_MIN
        assert keys_of(declare, epoch=2).expired_until(_second(1_000)) < MICROS_MIN

    def test_rows_up_to_a_time(self, declare: Declare) -> None:
        """The rows whose time is at or before another one, with the transaction that put them; none without."""
        state = keys_of(declare)
        put_keys(state, 1, {"a": 5, "b": None, "c": 7, "d": -3}, until=None)
        put_keys(state, 2, {"c": 9, "e": 5}, until=None)
        for again in (state, keys_of(declare, epoch=2)):
            found = [expired(again, until) for until in (-4, -3, 5, 8, 9)]
            first = [("a", 1), ("d", 1), ("e", 2)]
            assert found == [[], first[1:2], first, first, sorted([*first, ("c", 2)])]

    def test_what_had_expired_is_on_record(self, declare: Declare) -> None:
        """That of the last write is known to the next coordinator, whatever the watermark, and to upkeep."""
        state = keys_of(declare)
        put_keys(state, 1, {"a": 5, "b": 50}, until=None)
        put_keys(state, 2, {"c": 60}, until=20)
        state.maintain()
        for again in (state, keys_of(declare, epoch=2)):
            for watermark in (None, 0, 1_000):
                assert again.expired_until(None if watermark is None else _second(watermark)) == 20 * _SECOND
            assert {word for word, _ in expired(again, 100)} - {"a"} == {"b", "c"}

    def test_a_key_stays_until_it_is_told(self, declare: Declare) -> None:
        """What ended by a former time to live is there until a transaction was written, which has told of it."""
        state = keys_of(declare)
        put_keys(state, 1, {"a": 5, "b": 50}, until=None)
        put_keys(state, 2, {"c": 60}, until=None)
        # Lives were TTL long; the watermark of the first transaction, at which "a" has ended, is TTL and 30 seconds.
        for epoch in (2, 3):
            again = keys_of(declare, epoch, TTL * 2)
            until = again.expired_until(_second(30) + TTL)
            again.maintain()
            assert until == 30 * _SECOND
            assert expired(again, 30) == [("a", 1)]
        put_keys(again, 3, {"d": 70}, until=30)
        again.maintain()
        assert keys_of(declare, 4, TTL * 2).expired_until(None) == 30 * _SECOND
        assert {word for word, _ in expired(again, 100)} - {"a"} == {"b", "c", "d"}

    def test_a_removed_key_is_gone(self, declare: Declare) -> None:
        """A transaction that tells of a key removes it; it is not found again."""
        state = keys_of(declare)
        put_keys(state, 1, {"a": 5, "b": 50}, until=None)
        put_keys(state, 2, {}, until=20, removed=["a"])
        assert expired(state, 100) == expired(keys_of(declare, epoch=2), 100) == [("b", 1)]
