"""The conformance tests of every state, yours and txtopo's: a test class to subclass.

::

    class TestMyState(StateConformance):
        @pytest.fixture
        def place(self, tmp_path):
            return MyPlace(tmp_path)

``place`` is a :class:`StatePlace`: the place of a state, which outlives the processes that open the state.
"""

from __future__ import annotations

import datetime as dt
import json
import pickle
from abc import ABC, abstractmethod
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from txtopo.api.data.fields import Fields
from txtopo.api.state import CanBeForked, CanBeRenamed, CanBeRepaired, FindsRows, OpenedState, State, StateTable
from txtopo.api.values import KEYED_KINDS, Key, StateKind, StateValue, stored_value
from txtopo.api.writes import TransactionRows
from txtopo.errors import DivergenceError, FieldsError, LostLead, RuleError, StateAccessError, StateFailure

WORD = Fields("word: string")
COUNT = Fields("n: long")
PAIR = Fields("word: string", "day: date")
COUNTS = Fields("n: long", "mean: double")

TOPOLOGY, NAME, INCARNATION = "counting", "counts", "first-life"

EVERY_KIND = pytest.mark.parametrize("kind", KEYED_KINDS, ids=lambda kind: kind.value)

MISFITS: tuple[tuple[Fields, Any], ...] = (
    (Fields("n: long"), 1.5),
    (Fields("n: long"), "1"),
    (Fields("n: long"), True),
    (Fields("n: long"), 2**63),
    (Fields("n: int"), 2**40),
    (Fields("n: float"), 1e300),
    (Fields("n: double"), "1.0"),
    (Fields("n: string"), 1),
    (Fields("n: string"), b"bytes"),
    (Fields("n: string"), "\ud800"),
    (Fields("n: binary"), "text"),
    (Fields("n: boolean"), 1),
    (Fields("n: date"), 18_262),
    (Fields("n: decimal(4, 2)"), 123.45),
    (Fields("n: array<long>"), [1, 1.5]),
    (Fields("n: struct<a: long>"), {"a": 1, "b": 2}),
    (Fields("n: map<string, long>"), [("a", 1)]),
    (Fields("n: long", "m: long"), 1),
    (Fields("n: long", "m: long"), (1,)),
    (Fields("n: long", "m: long"), (1, "2")),
)
"""Value fields, and a value that does not fit them."""


class StatePlace(ABC):
    """The place of a state in one test.

    Args:
        has_past: whether the rows as of earlier transactions can be had; if not, they must be refused.
        has_nested_types: whether a field may be an array, map or struct; if not, it must be refused.
    """

    has_past = True
    has_nested_types = True

    @abstractmethod
    def state(self, key: Fields = WORD, value: Fields = COUNT, kind: StateKind = StateKind.TRANSACTIONAL) -> State:
        """Return the state at this place, as a topology would declare it; every call must return the same state."""

    def opened(
        self, key: Fields = WORD, value: Fields = COUNT, kind: StateKind = StateKind.TRANSACTIONAL, epoch: int = 1
    ) -> OpenedState:
        """Open the state for the tests' topology."""
        return self.state(key, value, kind).open(TOPOLOGY, NAME, INCARNATION, epoch)

    def take_away(self) -> bool:
        """Make the stored data unreadable, as if its disk were missing; return whether that was done.

        Override it to have read failures tested; by default it returns False.
        """
        return False


def rows_of(opened: OpenedState, txid: int | None = None) -> list[tuple[Any, ...]]:
    """Return the rows of a snapshot, sorted."""
    table = opened.snapshot(txid)
    return sorted(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


def rows_as_of(place: StatePlace, opened: OpenedState, txid: int) -> list[tuple[Any, ...]] | None:
    """Return the rows as of an earlier transaction, sorted; None if the state has no past, and refuses."""
    if place.has_past:
        return rows_of(opened, txid)
    with pytest.raises(StateAccessError):
        opened.snapshot(txid)
    return None


def put(opened: OpenedState, txid: int, values: Mapping[Key, Any]) -> None:
    """Write values like a transaction that reads them before it puts them."""
    opened.write(txid, kept_after(opened, txid, values))


def made(opened: OpenedState, txid: int, value: Any) -> StateValue:
    """Return what the state stores for a new key that transaction ``txid`` puts."""
    return stored_value(opened.declared.kind, txid, value)


def kept_after(opened: OpenedState, txid: int, values: Mapping[Key, Any]) -> dict[Key, Any]:
    """Return the values to keep after transaction ``txid`` has put ``values``."""
    stored = dict(zip(values, opened.multi_get(list(values)), strict=True))
    return {
        key: made(opened, txid, value) if old is None else old.written(txid, value)
        for (key, value), old in zip(values.items(), stored.values(), strict=True)
    }


def _declared(place: StatePlace, value: Fields, kind: StateKind = StateKind.TRANSACTIONAL) -> None:
    """Skip the test if these fields are refused, as those of nested types may be."""
    if place.has_nested_types or not any(each is not None and pa.types.is_nested(each) for each in value.types):
        return
    with pytest.raises(FieldsError):
        place.state(value=value, kind=kind)
    pytest.skip("this state has no fields of nested types")


def _capable(opened: OpenedState, capability: type[object]) -> Any:
    """Return the state if it has a capability; otherwise skip the test."""
    if not isinstance(opened, capability):
        pytest.skip(f"this state lacks the capability {capability.__name__}")
    return opened


def values_of(opened: OpenedState, *keys: Key) -> list[Any]:
    """Return the plain value of each key, None for missing keys."""
    return [None if kept is None else kept.value for kept in opened.multi_get(keys)]


class StateConformance:
    """The promises of :class:`~txtopo.api.state.State` and its opened form, as tests."""

    @pytest.fixture
    def place(self) -> StatePlace:
        """Return the place of the state; a subclass must override it."""
        raise NotImplementedError

    @EVERY_KIND
    def test_what_is_written_is_read(self, place: StatePlace, kind: StateKind) -> None:
        """Written values are read back, immediately and by the next coordinator that opens the state."""
        opened = place.opened(kind=kind)
        put(opened, 1, {"a": 1, "b": 2})
        put(opened, 2, {"b": 3, "c": None})
        kept = opened.multi_get(["a", "b", "c", "d"])
        assert values_of(opened, "a", "b", "c", "d") == [1, 3, None, None]
        assert kept[2] is not None
        assert kept[3] is None
        again = place.opened(kind=kind, epoch=2)
        assert again.multi_get(["d", "c", "b", "a"]) == list(reversed(kept))

    def test_a_key_asked_for_twice_is_answered_twice(self, place: StatePlace) -> None:
        """The result has one value for each requested key, in order, also for repeated keys."""
        opened = place.opened()
        assert opened.multi_get([]) == []
        put(opened, 1, {"a": 1})
        assert values_of(opened, "a", "z", "a") == [1, None, 1]

    def test_rows_are_found_and_put_in_columns(self, place: StatePlace) -> None:
        """A FindsRows finds the rows of keys, those that come twice, too; and what is put and removed as rows is so."""
        opened = _capable(place.opened(), FindsRows)
        put(opened, 1, {"a": 1, "b": 2, "c": None})
        keys = pa.table({"word": ["z", "b", "a", "b", "c"]}, schema=WORD.arrow_schema())
        own, rows = opened.rows_among(keys)
        columns = (rows[name].to_pylist() for name in ("word", "n", "txid"))
        assert sorted(zip(own.tolist(), *columns, strict=True)) == [
            (1, "b", 2, 1),
            (2, "a", 1, 1),
            (3, "b", 2, 1),
            (4, "c", None, 1),
        ]
        assert opened.rows_among(keys.slice(0, 0))[1].num_rows == 0
        kept = opened.rows_as_kept(pa.table({"k": ["b", "d", "a"], "v": pa.array([5, 6, None], pa.int64())}))
        assert kept.column_names == ["word", "n"]
        changed = kept.append_column(pa.field("txid", pa.int64()), pa.array([2, 2, None], pa.int64()))
        opened.write(2, opened.fold([TransactionRows(2, changed)], None))
        assert values_of(opened, "a", "b", "c", "d") == [None, 5, None, 6]
        assert opened.rows_as_kept(pa.table({"k": ["b"], "v": ["no number"]})) is None

    def test_what_cannot_be_read_is_a_state_failure(self, place: StatePlace) -> None:
        """A failed read raises StateFailure, which is retried and then stops the run, because no replay helps."""
        put(place.opened(), 1, {"a": 1})
        opened = place.opened(epoch=2)
        if not place.take_away():
            pytest.skip("the place's take_away() is not written")
        with pytest.raises(StateFailure):
            opened.multi_get(["a"])

    @EVERY_KIND
    def test_txids_rise(self, place: StatePlace, kind: StateKind) -> None:
        """last_txid is None at first, then the txid of the last write, even if that put nothing."""
        opened = place.opened(kind=kind)
        told = [opened.last_txid]
        put(opened, 3, {"a": 1})
        told.append(opened.last_txid)
        opened.write(7, {})
        told += [opened.last_txid, place.opened(kind=kind, epoch=2).last_txid]
        assert told == [None, 3, 7, 7]
        assert values_of(opened, "a") == [1]

    def test_txid_zero_is_a_txid(self, place: StatePlace) -> None:
        """A write of transaction 0 counts as a write and is not made twice."""
        opened = place.opened()
        put(opened, 0, {"a": 1})
        assert opened.last_txid == 0
        opened.write(0, {"a": made(opened, 0, 99)})
        assert values_of(opened, "a") == [1]

    @EVERY_KIND
    def test_a_txid_is_written_once(self, place: StatePlace, kind: StateKind) -> None:
        """A write of a txid that is already written, or of a lower one, does nothing, also by a new coordinator."""
        opened = place.opened(kind=kind)
        put(opened, 2, {"a": 1})
        before = rows_of(opened)
        again = place.opened(kind=kind)
        for writer in (opened, again):
            writer.write(2, {"a": made(writer, 2, 5), "b": made(writer, 2, 5)})
            writer.write(1, {"a": made(writer, 1, 6)})
        again = place.opened(kind=kind, epoch=2)
        assert rows_of(again) == before
        assert values_of(again, "a", "b") == [1, None]

    def test_opaque_state_remembers_what_was_before(self, place: StatePlace) -> None:
        """Opaque state gives a replay the previous value, before and after a restart."""
        opened = place.opened(kind=StateKind.OPAQUE)
        put(opened, 1, {"a": 10})
        put(opened, 2, {"a": 15})
        again = place.opened(kind=StateKind.OPAQUE, epoch=2)
        for writer in (opened, again):
            (kept,) = writer.multi_get(["a"])
            assert kept is not None
            assert [kept.value_before(2), kept.value_before(3)] == [10, 15]
            assert [kept.is_applied(1), kept.is_applied(2)] == [True, False]

    @EVERY_KIND
    def test_several_key_and_value_fields(self, place: StatePlace, kind: StateKind) -> None:
        """With several key fields a key is a tuple, with several value fields a value is one."""
        first, second = dt.date(2011, 9, 19), dt.date(2018, 7, 17)
        opened = place.opened(PAIR, COUNTS, kind)
        put(opened, 1, {("a", first): (1, 0.5), ("a", second): (2, None), ("b", first): (None, 1)})
        put(opened, 2, {("a", second): (3, 2.5), ("b", second): (4, 4.5)})
        asked = [("a", first), ("a", second), ("b", first), ("b", second), ("c", first)]
        expected = [(1, 0.5), (3, 2.5), (None, 1.0), (4, 4.5), None]
        assert values_of(opened, *asked) == expected
        again = place.opened(PAIR, COUNTS, kind, epoch=2)
        assert values_of(again, *asked) == expected
        assert again.multi_get(asked) == opened.multi_get(asked)
        assert rows_of(again)[0] == ("a", first, 1, 0.5, 1)

    @EVERY_KIND
    def test_a_prepared_write_is_seen_once_it_is_published(self, place: StatePlace, kind: StateKind) -> None:
        """A prepared write is invisible; once published, it is like any other; published again, it does nothing."""
        opened = place.opened(kind=kind)
        put(opened, 1, {"a": 1})
        note = opened.prepare(2, kept_after(opened, 2, {"a": 2, "b": 2}))
        assert values_of(opened, "a", "b") == [1, None]
        assert opened.last_txid == 1
        opened.publish(2, note)
        assert values_of(opened, "a", "b") == [2, 2]
        assert opened.last_txid == 2  # noqa: PLR2004
        opened.publish(2, note)
        opened.clean_up()
        opened.publish(2, note)
        assert rows_of(opened) == [("a", 2, 2), ("b", 2, 2)]

    def test_a_prepared_write_outlives_who_prepared_it(self, place: StatePlace) -> None:
        """The next coordinator can publish what the last one has prepared, from the note as the store keeps it."""
        opened = place.opened()
        put(opened, 1, {"a": 1})
        note = json.loads(json.dumps(opened.prepare(2, kept_after(opened, 2, {"a": 2}))))
        again = place.opened(epoch=2)
        again.publish(2, note)
        assert values_of(again, "a") == [2]
        assert again.last_txid == 2  # noqa: PLR2004
        again.clean_up()

    def test_an_empty_write_can_be_prepared(self, place: StatePlace) -> None:
        """A prepared write without values only records its txid."""
        opened = place.opened()
        put(opened, 1, {"a": 1})
        opened.publish(4, opened.prepare(4, {}))
        assert opened.last_txid == 4  # noqa: PLR2004
        assert rows_of(opened) == [("a", 1, 1)]

    def test_what_nobody_publishes_never_was(self, place: StatePlace) -> None:
        """A prepared write that no group decides leaves nothing; its transaction may be written with other values."""
        opened = place.opened()
        opened.prepare(1, {"a": made(opened, 1, 1)})
        again = place.opened(epoch=2)
        again.clean_up()
        put(again, 1, {"b": 2})
        assert rows_of(again) == [("b", 2, 1)]

    def test_an_older_clean_up_leaves_what_a_newer_coordinator_has_prepared(self, place: StatePlace) -> None:
        """A coordinator that has lost its lead does not remove what the new one has prepared."""
        old = place.opened()
        new = place.opened(epoch=2)
        note = new.prepare(1, {"a": made(new, 1, 1)})
        old.clean_up()
        new.publish(1, note)
        assert values_of(new, "a") == [1]

    def test_a_newer_epoch_fences_older_ones(self, place: StatePlace) -> None:
        """After a newer epoch has opened the state, an older one can neither write nor open it."""
        old = place.opened(epoch=1)
        put(old, 1, {"a": 1})
        note = old.prepare(2, {"a": made(old, 2, 50)})
        value = made(old, 2, 60)
        new = place.opened(epoch=2)
        for attempt in (
            lambda: old.write(2, {"a": value}),
            lambda: old.write(2, {}),
            lambda: old.publish(2, note),
            lambda: place.opened(epoch=1),
        ):
            with pytest.raises(LostLead):
                attempt()
        assert rows_of(new) == [("a", 1, 1)]
        put(new, 2, {"a": 2})
        with pytest.raises(LostLead):
            old.write(3, {"a": value})
        assert rows_of(new) == [("a", 2, 2)]

    def test_an_epoch_may_open_twice(self, place: StatePlace) -> None:
        """Opening again with the same epoch fences nobody."""
        put(place.opened(epoch=3), 1, {"a": 1})
        put(place.opened(epoch=3), 2, {"a": 2})
        assert values_of(place.opened(epoch=4), "a") == [2]

    @pytest.mark.parametrize(
        ("topology", "name", "incarnation"),
        [("other", NAME, INCARNATION), (TOPOLOGY, "other", INCARNATION), (TOPOLOGY, NAME, "other")],
        ids=["topology", "name", "life"],
    )
    def test_what_belongs_elsewhere_is_refused(
        self, place: StatePlace, topology: str, name: str, incarnation: str
    ) -> None:
        """A state of another topology, name or incarnation is refused; the error names its last transaction."""
        opened = place.opened()
        put(opened, 41, {"a": 1})
        with pytest.raises(DivergenceError, match="41") as refusal:
            place.state().open(topology, name, incarnation, 2)
        assert refusal.value.txid == 41  # noqa: PLR2004
        put(opened, 42, {"a": 2})

    def test_identity_stays(self, place: StatePlace) -> None:
        """A state keeps its identity."""
        assert place.opened().identity == place.opened(epoch=2).identity

    @EVERY_KIND
    def test_snapshots_by_txid(self, place: StatePlace, kind: StateKind) -> None:
        """A snapshot holds the rows as of the last write at or before its transaction."""
        opened = place.opened(kind=kind)
        assert rows_of(opened) == []
        put(opened, 1, {"a": 1})
        put(opened, 2, {"a": 2, "b": 2})
        put(opened, 5, {"b": 5})
        opened = place.opened(kind=kind, epoch=2)
        put(opened, 6, {"c": 6})
        first = [("a", 1, 1)]
        second = [("a", 2, 2), ("b", 2, 2)]
        fifth = [("a", 2, 2), ("b", 5, 5)]
        sixth = [*fifth, ("c", 6, 6)]
        past = [rows_as_of(place, opened, txid) for txid in range(6)]
        assert past == ([[], first, second, second, second, fifth] if place.has_past else [None] * 6)
        assert rows_of(opened, 6) == rows_of(opened) == sixth
        assert opened.snapshot().column_names == ["word", "n", "txid"]

    def test_a_snapshot_of_the_future_is_refused(self, place: StatePlace) -> None:
        """A transaction that is not written yet has no snapshot; the error names the last written one.

        As of transaction 0 there are no rows, also before anything is written.
        """
        opened = place.opened()
        with pytest.raises(StateAccessError):
            opened.snapshot(1)
        if place.has_past:
            assert rows_of(opened, 0) == []
        put(opened, 17, {"a": 1})
        with pytest.raises(StateAccessError, match="17"):
            opened.snapshot(18)

    @pytest.mark.parametrize(("fields", "value"), MISFITS, ids=lambda case: repr(case)[:40])
    def test_a_value_that_does_not_fit_is_refused(self, place: StatePlace, fields: Fields, value: Any) -> None:
        """A misfit is refused before anything is written, and the error names state, key and value."""
        _declared(place, fields)
        opened = place.opened(value=fields)
        good: dict[Key, Any] = {"good": made(opened, 1, None if len(fields) == 1 else (None,) * len(fields))}
        for write in (opened.write, opened.prepare):
            with pytest.raises(FieldsError) as refusal:
                write(1, {**good, "bad": made(opened, 1, value)})
            assert NAME in refusal.value.message
            assert "'bad'" in refusal.value.message
        assert opened.last_txid is None
        assert rows_of(opened) == []
        opened.write(1, good)

    @pytest.mark.parametrize(
        ("fields", "key"),
        [
            (WORD, None),
            (WORD, 1),
            (WORD, ("a",)),
            (WORD, ["a"]),
            (Fields("number: long"), 1.5),
            (PAIR, "a"),
            (PAIR, ("a",)),
            (PAIR, ("a", None)),
            (PAIR, ("a", "2011-09-19")),
        ],
        ids=repr,
    )
    def test_a_key_that_does_not_fit_is_refused(self, place: StatePlace, fields: Fields, key: Any) -> None:
        """A key that does not fit, or is null, is refused when it is read and when it is written."""
        opened = place.opened(key=fields)
        with pytest.raises(FieldsError, match=NAME):
            opened.multi_get([key])
        if not isinstance(key, list):
            with pytest.raises(FieldsError, match=NAME):
                opened.write(1, {key: made(opened, 1, 1)})
        assert opened.last_txid is None

    @EVERY_KIND
    def test_values_are_the_same_after_a_restart(self, place: StatePlace, kind: StateKind) -> None:
        """A value reads the same after a restart as after its write, to the last bit and type."""
        names = ("tinyint", "smallint", "int", "long", "float", "double", "decimal(38, 10)", "boolean", "string")
        kinds = (*names, "binary", "date", "timestamp", "timestamp_ntz")
        least = (-128, -32768, -(2**31), -(2**63), -0.1, -1e300, Decimal("-0.0000000001"), False, "")
        most = (127, 32767, 2**31 - 1, 2**63 - 1, 0.1, 5e-324, Decimal(10**28 - 1), True, "\U0001f600'\"\\%s:n")
        first, last = dt.datetime.min, dt.datetime.max  # noqa: DTZ901 - of a field without a time zone, too
        rows: dict[Key, Any] = {
            "a": (*least, b"", dt.date.min, first.replace(tzinfo=dt.UTC), first),
            "b": (*most, b"\x00\xff", dt.date.max, last.replace(tzinfo=dt.UTC), last),
            "c": (0, *[None] * (len(kinds) - 1)),
        }
        opened = place.opened(value=Fields(*(f"f{at}: {each}" for at, each in enumerate(kinds))), kind=kind)
        put(opened, 1, rows)
        before = opened.multi_get(["a", "b", "c"])
        after = place.opened(value=opened.declared.value, kind=kind, epoch=2).multi_get(["a", "b", "c"])
        assert repr(before) == repr(after)
        assert [each.value[:4] for each in after if each] == [row[:4] for row in rows.values()]
        assert [each.value[5:] for each in after if each] == [row[5:] for row in rows.values()]

    @EVERY_KIND
    def test_nested_values_are_the_same_after_a_restart(self, place: StatePlace, kind: StateKind) -> None:
        """So does a value of several parts."""
        fields = Fields("n: float", "d: decimal(6, 2)", "l: array<double>", "s: struct<a: long, b: string>")
        _declared(place, fields, kind)
        value = (0.1, 3, (1, 2.5), {"a": 7, "b": None})
        opened = place.opened(value=fields, kind=kind)
        put(opened, 1, {"a": value, "b": [None, None, [], {"a": None, "b": None}]})
        before = opened.multi_get(["a", "b"])
        after = place.opened(value=fields, kind=kind, epoch=2).multi_get(["a", "b"])
        assert repr(before) == repr(after)
        assert before[0] is not None
        assert before[0].value[2:] == ([1.0, 2.5], {"a": 7, "b": None})

    def test_the_state_pickles(self, place: StatePlace) -> None:
        """A declared state pickles, for it is sent along with its topology."""
        state = place.state()
        again = pickle.loads(pickle.dumps(state))  # noqa: S301
        assert (again.key, again.value, again.kind) == (state.key, state.value, state.kind)
        assert (again.home, again.is_durable) == (state.home, state.is_durable)

    @pytest.mark.parametrize(
        ("key", "value", "kind"),
        [
            (Fields(), COUNT, StateKind.TRANSACTIONAL),
            (WORD, Fields(), StateKind.TRANSACTIONAL),
            (WORD, Fields("word: long"), StateKind.TRANSACTIONAL),
            (WORD, Fields("txid: long"), StateKind.TRANSACTIONAL),
            (Fields("txid: long"), COUNT, StateKind.TRANSACTIONAL),
            (Fields("previous_n: long"), COUNT, StateKind.OPAQUE),
            (Fields("x: double"), COUNT, StateKind.TRANSACTIONAL),
            (Fields("x: array<long>"), COUNT, StateKind.TRANSACTIONAL),
        ],
        ids=repr,
    )
    def test_fields_that_make_no_table_are_refused(
        self, place: StatePlace, key: Fields, value: Fields, kind: StateKind
    ) -> None:
        """A declaration with missing or repeated fields, or with fields that cannot be keys, is refused."""
        with pytest.raises(RuleError):
            place.state(key, value, kind)

    def test_upkeep_changes_nothing(self, place: StatePlace) -> None:
        """maintain() leaves values, txids and snapshots as they are."""
        opened = place.opened()
        for txid in range(1, 4):
            put(opened, txid, {"a": txid, txid * "b": txid})
            opened.maintain()
        expected = [("a", 3, 3), ("b", 1, 1), ("bb", 2, 2), ("bbb", 3, 3)]
        assert (rows_of(opened), opened.last_txid) == (expected, 3)
        assert rows_as_of(place, opened, 1) in (None, [("a", 1, 1), ("b", 1, 1)])

    @EVERY_KIND
    def test_forking(self, place: StatePlace, kind: StateKind) -> None:
        """A fork has what the state had after a transaction, and neither changes the other from then on."""
        state = place.state(kind=kind)
        if not isinstance(state, CanBeForked):
            pytest.skip("this state can't be forked")
        opened, origin = place.opened(kind=kind), str(place.state(kind=kind).address)
        for txid in (1, 2, 3):
            put(opened, txid, {"a": txid, txid * "b": txid})
        then, now = rows_of(opened, 2), rows_of(opened)
        fork = state.moved(f"{origin}-fork")
        assert isinstance(fork, CanBeForked)
        fork.fork(origin, 2, "fork", NAME, "second-life", 1)
        forked = fork.open("fork", NAME, "second-life", 1)
        assert (rows_of(forked), forked.last_txid, values_of(forked, "a", "bbb")) == (then, 2, [2, None])
        assert forked.identity != opened.identity
        put(forked, 3, {"a": 30})
        assert values_of(forked, "a", "b") == [30, 1]
        assert (rows_of(opened), rows_of(forked, 2)) == (now, then)
        put(opened, 4, {"a": 4})
        assert values_of(forked, "a") == [30]
        other = state.moved(f"{origin}-other")
        assert isinstance(other, CanBeForked)
        with pytest.raises(StateAccessError):
            other.fork(origin, 7, "fork", NAME, "second-life", 1)

    # The table, looked at without opening it

    @pytest.fixture
    def table(self, place: StatePlace) -> StateTable:
        """Return the state's table, if it has one to look at."""
        table = place.state().table()
        if table is None:
            pytest.skip("this state has no table to look at")
        return table

    def test_to_describe_changes_nothing(self, place: StatePlace, table: StateTable) -> None:
        """A look creates no table; at an opened one it tells topology, state, incarnation and last txid."""
        assert [table.describe(), table.describe()] == [None, None]
        put(place.opened(epoch=3), 5, {"a": 1})
        description = table.describe()
        assert description is not None
        assert (description.topology_id, description.state, description.incarnation) == (TOPOLOGY, NAME, INCARNATION)
        assert (description.last_txid, description.epoch, description.misfit) == (5, 3, None)
        assert table.describe() == description
        assert description.identity == place.opened(epoch=3).identity

    def test_what_does_not_fit_is_seen(self, place: StatePlace, table: StateTable) -> None:
        """A look reports other columns, and another kind."""
        put(place.opened(), 5, {"a": 1})
        assert table.foreign_change(None) is None
        for state in (place.state(value=COUNTS), place.state(kind=StateKind.OPAQUE)):
            other = state.table()
            assert other is not None
            description = other.describe()
            assert description is not None
            assert description.misfit is not None

    def test_own_versions_are_not_foreign(self, place: StatePlace, table: StateTable) -> None:
        """Markers, writes, staged writes and upkeep are a coordinator's own, from whatever version one looks."""
        versions: list[int | None] = [None]
        for epoch in (1, 2, 3):
            opened = place.opened(epoch=epoch)
            versions.append(opened.version)
            put(opened, epoch, {"a": epoch})
            versions.append(opened.version)
            opened.maintain()
        assert [table.foreign_change(version) for version in versions] == [None] * len(versions)

    def test_rolling_back(self, place: StatePlace, table: StateTable) -> None:
        """A roll back restores an earlier transaction, also twice; the ones after it are no longer kept."""
        opened = _capable(place.opened(), CanBeRepaired)
        if not place.has_past:
            pytest.skip("this state has no past")
        for txid in (1, 2, 3):
            put(opened, txid, {"a": txid, txid * "b": txid})
        then = {txid: rows_of(opened, txid) for txid in (1, 2)}
        assert [table.is_kept(txid) for txid in (None, 1, 2, 3, 4)] == [True, True, True, True, False]
        for _ in range(2):
            opened.roll_back(2)
            assert (opened.last_txid, rows_of(opened), values_of(opened, "a", "bbb")) == (2, then[2], [2, None])
        assert not table.is_kept(3)
        put(opened, 3, {"a": 30})
        assert (rows_of(opened, 1), rows_of(opened, 2)) == (then[1], then[2])
        assert rows_of(opened, 3) == [("a", 30, 3), ("b", 1, 1), ("bb", 2, 2)]
        opened.roll_back(1)
        put(opened, 4, {"c": 4})
        assert (rows_of(opened, 1), rows_of(opened, 3)) == (then[1], then[1])
        opened.roll_back(None)
        assert (rows_of(opened), opened.last_txid) == ([], 0)
        assert table.foreign_change(None) is None

    def test_rolling_back_to_before_any(self, place: StatePlace, table: StateTable) -> None:
        """A table can be emptied, and left as it is; the other transactions count as kept only if they are."""
        opened = _capable(place.opened(), CanBeRepaired)
        for txid in (1, 2, 3):
            put(opened, txid, {"a": txid, txid * "b": txid})
        rows = rows_of(opened)
        assert [table.is_kept(txid) for txid in (None, 1, 2, 3, 4)] == [True, *[place.has_past] * 2, True, False]
        opened.roll_back(3)
        assert (rows_of(opened), opened.last_txid, table.undone_to(0)) == (rows, 3, None)
        if not place.has_past:
            with pytest.raises(StateAccessError):
                opened.roll_back(2)
            assert (rows_of(opened), opened.last_txid) == (rows, 3)
        for _ in range(2):
            opened.roll_back(None)
            assert (rows_of(opened), opened.last_txid, table.undone_to(0)) == ([], 0, 0)
        put(opened, 1, {"c": 1})
        assert (values_of(opened, "a", "c"), opened.last_txid) == ([None, 1], 1)

    def test_rolling_back_to_nowhere(self, place: StatePlace, table: StateTable) -> None:
        """A table cannot be rolled back to a transaction that wrote nothing in it."""
        opened = _capable(place.opened(), CanBeRepaired)
        put(opened, 2, {"a": 1})
        put(opened, 5, {"a": 2})
        with pytest.raises(StateAccessError):
            opened.roll_back(3)
        assert (opened.last_txid, values_of(opened, "a"), table.is_kept(3)) == (5, [2], False)

    def test_a_turn_is_marked(self, place: StatePlace, table: StateTable) -> None:
        """The mark says where the topology has gone back to, to whoever knows only earlier epochs; no row changes."""
        put(place.opened(epoch=2), 1, {"a": 1})
        assert table.turned_to(0) is None
        for epoch, txid in ((3, 5), (4, 7)):
            opened = _capable(place.opened(epoch=epoch), CanBeRepaired)
            opened.record_turn(txid)
            assert (opened.last_txid, rows_of(opened)) == (1, [("a", 1, 1)])
        assert [table.turned_to(epoch) for epoch in (2, 3, 4, 5)] == [5, 7, None, None]
        assert (table.undone_to(2), table.foreign_change(None)) == (None, None)
        place.opened(epoch=5)
        assert [table.turned_to(epoch) for epoch in (2, 5)] == [5, None]

    def test_a_zombie_rolls_nothing_back(self, place: StatePlace, table: StateTable) -> None:
        """A roll back is fenced like a write."""
        old = _capable(place.opened(epoch=1), CanBeRepaired)
        for txid in (1, 2):
            put(old, txid, {"a": txid})
        new = _capable(place.opened(epoch=2), CanBeRepaired)
        for late in (old.roll_back, old.record_turn):
            with pytest.raises(LostLead):
                late(1 if place.has_past else 0)
        assert (rows_of(new), table.is_kept(2), table.turned_to(0)) == ([("a", 2, 2)], True, None)

    def test_a_rename(self, place: StatePlace, table: StateTable) -> None:
        """A table that gets another owner is the same in all else, and fences whoever had it under its former name."""
        if not isinstance(table, CanBeRenamed):
            pytest.skip(f"this state's table lacks the capability {CanBeRenamed.__name__}")
        old = place.opened(epoch=1)
        for txid in (1, 2):
            put(old, txid, {"a": txid})
        before, rows = table.describe(), rows_of(old)
        assert before is not None
        for _ in range(2):
            table.rename(f"other-{TOPOLOGY}", f"other-{NAME}", 2)
        after = table.describe()
        assert after is not None
        assert (after.topology_id, after.state, after.epoch) == (f"other-{TOPOLOGY}", f"other-{NAME}", 2)
        assert (after.identity, after.last_txid, after.misfit) == (before.identity, 2, None)
        assert (table.foreign_change(before.version), table.is_kept(1)) == (None, place.has_past)
        with pytest.raises(LostLead):
            put(old, 3, {"a": 30})
        with pytest.raises(DivergenceError):
            place.opened(epoch=3)
        new = place.state().open(f"other-{TOPOLOGY}", f"other-{NAME}", INCARNATION, 3)
        assert (new.last_txid, rows_of(new)) == (2, rows)
        put(new, 3, {"a": 3})
        assert (values_of(new, "a"), rows_as_of(place, new, 2)) == ([3], rows if place.has_past else None)
        with pytest.raises(LostLead):
            table.rename(TOPOLOGY, NAME, 2)

    def test_setting_aside(self, place: StatePlace, table: StateTable) -> None:
        """A table that is set aside is kept, and leaves its place to a new one."""
        identity = place.opened().identity
        assert table.asides() == []
        for _ in range(2):
            table.set_aside(3)
            assert (table.describe(), table.asides()) == (None, [3])
        assert place.opened().identity != identity
