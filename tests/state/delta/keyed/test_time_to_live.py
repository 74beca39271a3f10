"""Keys that expire: a table and a plain dict agree, by key and by columns, whatever the groups, failures and restarts."""

import datetime as dt
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings, strategies as st

from committers import EventClock
from state import DeltaState, StateKind, read_table
from tests.budgets import examples
from tests.state.delta.delta_tables import LARGE, held_merges, maintain, reread, scheduled, sized
from tests.state.delta.foreign import live_files, move_rows
from tests.state.delta.inline_executors import InlineExecutors
from txtopo import Fields
from txtopo.api.reduction import Reduction, Reductions
from txtopo.errors import ConfigError, FieldsError, StateAccessError
from txtopo.transactional.commit.views import GroupState
from txtopo.transactional.commit.write_buffer import group_states

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
KEY, VALUE = Fields("word: string"), Fields("n: long", "at: timestamp")
SUM = Reductions((("n", Reduction.SUM), ("at", Reduction.MAX)))
TTL = 5


def at(second: int | None) -> dt.datetime | None:
    return None if second is None else START + dt.timedelta(seconds=second)


def declared(
    root: Path, ttl: int = TTL, sizes: Mapping[str, int] | None = None, **options: int
) -> dict[str, DeltaState]:
    keys = DeltaState(root / "keys", KEY, VALUE, ttl=dt.timedelta(seconds=ttl), clock="clock", **options)
    return {"keys": sized(keys, **(sizes or {})), "clock": EventClock.state(root / "clock")}


def opened(states: dict[str, DeltaState], epoch: int = 1) -> dict[str, Any]:
    return {name: state.open("timed", name, "life", epoch) for name, state in states.items()}


def move(view: Any, second: int) -> None:
    """Move the clock, as an EventClock does."""
    view.put("", (None, None, at(second), None))


def table(*rows: tuple[str, int, dt.datetime | None]) -> pa.Table:
    """Return rows to fold: a mapping of times goes key by key."""
    return pa.table(list(map(list, zip(*rows, strict=True))), schema=(KEY + VALUE).arrow_schema())


def live(root: Path, **options: Any) -> dict[str, tuple[int, dt.datetime | None]]:
    rows = read_table(root / "keys", live=True, **options).to_pylist()
    return {row["word"]: (row["n"], row["at"]) for row in rows}


words = st.sampled_from(["a", "b", "", "ä" * 3_000])
values = st.tuples(st.integers(1, 5), st.one_of(st.integers(-8, 4), st.integers(-1, 4), st.none()))
calls = st.one_of(
    st.tuples(st.just("reduce"), st.lists(st.tuples(words, values), min_size=1, max_size=4)),
    st.tuples(st.just("reduce"), st.lists(st.tuples(words, values), min_size=1, max_size=4)),
    st.tuples(st.sampled_from(["put", "update", "multi_update", "get", "multi_get", "remove"]), words, values),
)


class Model:
    """Transactions that move the clock and use keys, in groups; beside them, a plain dict."""

    def __init__(
        self, root: Path, sizes: Mapping[str, int], *, has_executors: bool, only_folds: bool, has_vectors: bool
    ) -> None:
        self.root, self.sizes = root, sizes
        self.has_executors, self.only_folds, self.has_vectors = has_executors, only_folds, has_vectors
        self.epoch = self.txid = 0
        self.durable: tuple[dict[str, Any], int, int] = ({}, -100, -100)
        """The values by key, the watermark, and the time up to which keys had expired at the last write."""
        self.former: dict[int, tuple[int, int, Any]] = {}
        """For each group by its last transaction those of the two tables, and ``durable``."""
        self._reopen()

    def _reopen(self) -> None:
        self.epoch += 1
        made = declared(self.root, sizes=self.sizes, upkeep_every_writes=2, deletion_vectors=self.has_vectors)
        self.states = opened(made, self.epoch)
        if self.has_executors:
            self.states["keys"].use_executors(InlineExecutors(), 2)
        self._begin_group()

    def _begin_group(self) -> None:
        self.group = group_states(self.states)
        self.last, self.now = self.txid, (dict(self.durable[0]), *self.durable[1:])

    def transaction(self, steps: int, own: list[Any], clock_first: bool, ends: bool) -> None:
        views = {name: each.begin(self.last + 1) for name, each in self.group.items()}
        rows, watermark, mark = dict(self.now[0]), self.now[1], self.now[2]
        until, after = watermark - TTL, max(watermark, 0) + steps
        touched = False

        def before(key: str) -> tuple[int, int | None] | None:
            if key not in rows:
                return None
            n, second, txid = rows[key]
            is_over = txid <= self.last and second is not None and second <= until
            return None if is_over else (n, second)

        def given(pair: tuple[int, int | None]) -> tuple[int, int | None]:
            return pair[0], None if pair[1] is None else max(after, 0) + pair[1]

        def folded(old: Any, new: Any) -> Any:
            times = [each for each in (old and old[1], new[1]) if each is not None]
            return new if old is None else (old[0] + new[0], max(times, default=None))

        def shown(value: Any) -> Any:
            return None if value is None else (value[0], at(value[1]))

        if clock_first:
            move(views["clock"], after)
        view = views["keys"]
        for call, what, *rest in own:
            if call == "reduce":
                new = [(key, given(value)) for key, value in what]
                view.multi_reduce(table(*((key, *shown(value)) for key, value in new)), SUM)
                for key, value in new:
                    rows[key] = (*folded(before(key), value), self.last + 1)
                touched = True
                continue
            if self.only_folds:  # any other use of a key ends the folding of columns
                continue
            old, value = before(what), given(rest[0])
            if call in {"get", "multi_get"}:
                stored = view.get(what) if call == "get" else view.multi_get([what])[0]
                assert (None if stored is None else tuple(stored.value)) == shown(old)
                continue
            touched = True
            if call == "remove":
                view.multi_remove([what])
                rows.pop(what, None)
                continue
            if call == "put":
                view.put(what, shown(value))
            elif call == "update":
                view.update(what, lambda found, old=old, value=value: (self._same(found, shown(old)), shown(value))[1])
            else:
                view.multi_update(
                    [what], lambda _, found, old=old, value=value: (self._same(found, shown(old)), shown(value))[1]
                )
            rows[what] = (*value, self.last + 1)
        if not clock_first:
            move(views["clock"], after)
        for each in views.values():
            each.finish() if ends else each.discard()
        if ends:
            self.last, self.now = self.last + 1, (rows, after, until if touched else mark)

    def _same(self, found: Any, old: Any) -> None:
        assert (None if found is None else tuple(found)) == old

    def end_group(self, how: str, deed: str = "nothing") -> None:
        """End the group; ``deed`` is what somebody else does once it is prepared."""
        if self.last == self.txid:
            return
        writes = {name: each.writes() for name, each in self.group.items()}
        if how == "lose":
            self._reopen()
            return
        notes = {name: reread(self.states[name].prepare(self.last, write)) for name, write in writes.items() if write}
        self.txid, self.durable = self.last, self.now
        self.disturb(deed)
        if how == "prepare and restart":
            self._reopen()
        for name, note in notes.items():
            self.states[name].publish(self.txid, note)
        self.former[self.txid] = (self.states["keys"].last_txid or 0, self.states["clock"].last_txid or 0, self.durable)
        self._begin_group()

    def disturb(self, deed: str) -> None:
        """Move the rows of the keys to other files, as somebody else: once or twice, and vacuum what they were in."""
        path = self.root / "keys"
        for _ in range(("nothing", "move", "move twice").index(deed)):
            moved = live_files(path)
            if moved:
                move_rows(path, moved)
                DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)

    def go_back(self, groups: int) -> None:
        """Go back some groups."""
        reached = sorted(txid for txid in self.former if txid <= self.txid)[: -groups or None]
        if not reached:
            return
        keys, clock, durable = self.former[reached[-1]]
        if not keys or not clock:
            return
        try:
            self.states["keys"].roll_back(keys)
        except StateAccessError:  # somebody has removed what it needs
            return
        self.states["clock"].roll_back(clock)
        self.txid, self.durable = reached[-1], durable
        self.former = {txid: each for txid, each in self.former.items() if txid <= self.txid}
        self._begin_group()

    def check(self) -> None:
        """Compare the live rows of the table with those of the dict."""
        rows, _, mark = self.durable
        alive = {key: (n, at(second)) for key, (n, second, _) in rows.items() if second is None or second > mark}
        assert live(self.root) == alive


transactions = st.tuples(st.integers(0, 6), st.lists(calls, min_size=1, max_size=3), st.booleans(), st.booleans())
groups = st.tuples(
    st.lists(transactions, min_size=1, max_size=5),
    st.sampled_from(["write", "write", "prepare and restart", "lose"]),
    st.sampled_from(["nothing", "merge", "merge slowly", "move", "move twice", "go back"]),
    st.sampled_from(["nothing", "nothing", "move", "move twice"]),
)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    is_held=st.booleans(),
    has_executors=st.booleans(),
    only_folds=st.booleans(),
    has_vectors=st.booleans(),
    story=st.lists(groups, min_size=1, max_size=4),
)
def test_a_table_and_a_dict_agree(
    is_held: bool, has_executors: bool, only_folds: bool, has_vectors: bool, story: Any
) -> None:
    """Keys expire by the watermark before each transaction, whatever becomes of groups, wherever the fold is, and whoever moves rows."""
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(dir=folder) as root:
        gate, _ = held_merges(patch)
        sizes = {"rewritten_rows": 1, **({} if is_held else LARGE)}
        model = Model(Path(root), sizes, has_executors=has_executors, only_folds=only_folds, has_vectors=has_vectors)
        for own, how, upkeep, deed in story:
            for each in own:
                model.transaction(*each)
            model.end_group(how, deed)
            if upkeep == "merge slowly":
                gate.clear()
                model.states["keys"].maintain()
            elif upkeep == "merge":
                gate.set()
                maintain(model.states["keys"])
            elif upkeep == "go back":
                model.go_back(1)
            else:
                model.disturb(upkeep)
            model.check()
        gate.set()
        maintain(model.states["keys"])
        model.check()


def put(states: dict[str, Any], txid: int, watermark: int, rows: dict[str, tuple[int, int]]) -> None:
    """Commit a transaction that puts rows and moves the clock."""
    group = group_states(states)
    views = {name: each.begin(txid) for name, each in group.items()}
    move(views["clock"], watermark)
    if rows:
        views["keys"].multi_put({key: (n, at(second)) for key, (n, second) in rows.items()})
    for view in views.values():
        view.finish()
    for name, each in group.items():
        writes = each.writes()
        if writes:
            states[name].write(txid, writes)


@pytest.mark.few(1)
@pytest.mark.parametrize("is_held", [True, False], ids=["held", "streamed"])
def test_upkeep_drops_what_has_expired(tmp_path: Path, is_held: bool) -> None:
    """The rows of a file go once most of them have expired, from memory, too; the others stay, and keep their values."""
    states = opened(declared(tmp_path, sizes={} if is_held else LARGE, upkeep_every_writes=1))
    put(states, 1, 0, {"a": (1, 0), "b": (2, 0), "c": (3, 30)})
    put(states, 2, 20, {"d": (4, 20)})
    maintain(states["keys"])
    assert read_table(tmp_path / "keys").num_rows == 4, "nothing had expired for the second transaction"
    put(states, 3, 20, {"e": (5, 20)})
    maintain(states["keys"])
    alive = {"c": (3, at(30)), "d": (4, at(20)), "e": (5, at(20))}
    assert live(tmp_path) == alive
    raw = set(read_table(tmp_path / "keys")["word"].to_pylist())
    assert raw == ({"a", "b", "c", "d", "e"} if is_held else {"c", "d", "e"}), "2 of 5 are not most"
    put(states, 4, 27, {"c": (6, 31), "d": (7, 30)})
    put(states, 5, 27, {"f": (8, 1)})
    maintain(states["keys"])
    assert set(read_table(tmp_path / "keys")["word"].to_pylist()) == {"c", "d"}, "others had expired for 5"
    found = states["keys"].multi_get(["a", "c", "d", "f"])
    assert [each and each.value for each in found] == [None, (6, at(31)), (7, at(30)), None]
    states["keys"].roll_back(3)
    assert live(tmp_path) == alive


@pytest.mark.slow
def test_upkeep_comes_by_rows(tmp_path: Path) -> None:
    """A table of a few large writes is looked after before it holds many times what is alive."""
    tables = declared(tmp_path, sizes=LARGE)
    scheduled(tables["keys"], grown_rows=100)
    states = opened(tables)
    held = []
    for txid in range(1, 31):
        now = txid * 100
        put(states, txid, now, {f"{txid}-{number}": (1, now) for number in range(40)})
        maintain(states["keys"])
        held.append(read_table(tmp_path / "keys").num_rows)
    assert max(held) <= 4 * 40, "of each write all has expired by the next but one"
    assert len(live(tmp_path)) <= 2 * 40
    assert held[20:] != sorted(held[20:]), "it shrinks now and then"


def group_of(states: dict[str, Any], first: int, *transactions: tuple[int, list[pa.Table]]) -> dict[str, GroupState]:
    """Return a group whose transactions each fold the rows of some tasks, and then move the clock."""
    group = group_states(states)
    for txid, (watermark, tasks) in enumerate(transactions, first):
        views = {name: each.begin(txid) for name, each in group.items()}
        for own in tasks:
            views["keys"].multi_reduce(own, SUM)
        move(views["clock"], watermark)
        for view in views.values():
            view.finish()
    return group


@pytest.mark.parametrize("executors", [None, 1], ids=["driver", "executors"])
@pytest.mark.parametrize("is_by_key", [False, True], ids=["columns", "by key"])
def test_a_fold_is_cut_within_a_group(tmp_path: Path, executors: int | None, is_by_key: bool) -> None:
    """A stored key that expires between two transactions starts anew in the second one; tasks of one share a key."""
    states = opened(declared(tmp_path))
    if executors is not None:
        states["keys"].use_executors(InlineExecutors(), executors)
    put(states, 1, 0, {"a": (1, 3), "b": (2, 3), "c": (3, -9)})
    late = [table(("d", 10, at(-9))), table(("d", 20, at(-8)))]
    group = group_of(
        states,
        2,
        (4, [table(("a", 10, at(9)), ("c", 1, at(9))), *late]),
        (8, [table(("b", 20, at(9)))]),
        (9, [table(("a", 30, at(10)), ("b", 30, at(10)))]),
    )
    if is_by_key:
        group["keys"].begin(5).get("a")
    writes = group["keys"].writes()
    states["keys"].write(4, writes)
    assert live(tmp_path) == {"a": (41, at(10)), "b": (52, at(10)), "c": (1, at(9))}
    if is_by_key:
        found = states["keys"].multi_get(["d"])[0].value
        assert tuple(found) == (30, at(-8)), "for its own transaction, what it puts has not expired"


def test_the_fold_of_a_key_that_expires_is_cut(tmp_path: Path) -> None:
    """The stored time alone lies between the watermarks of the group; what the group brings is fresh."""
    states = opened(declared(tmp_path))
    put(states, 1, 0, {"a": (1, 0), "b": (2, 4)})
    fresh = table(("a", 10, at(20)), ("b", 20, at(20)))
    group = group_of(states, 2, (6, [table(("e", 1, at(20)))]), (6, [fresh]))
    states["keys"].write(3, group["keys"].writes())
    assert live(tmp_path) == {"a": (10, at(20)), "b": (22, at(20)), "e": (1, at(20))}


def test_a_ttl_that_is_for_ever(tmp_path: Path) -> None:
    """No key expires, whatever the watermark: by key, by columns, and for readers."""
    declared_for_ever = declared(tmp_path)
    declared_for_ever["keys"] = DeltaState(tmp_path / "keys", KEY, VALUE, ttl=dt.timedelta.max, clock="clock")
    states = opened(declared_for_ever)
    put(states, 1, 10**9, {"a": (1, -(10**9)), "b": (2, 0)})
    group = group_of(states, 2, (10**9, [table(("a", 10, at(0)))]))
    assert group["keys"].begin(3).get("b").value == (2, at(0))
    states["keys"].write(2, group["keys"].writes())
    assert live(tmp_path) == {"a": (11, at(0)), "b": (2, at(0))}


@pytest.mark.parametrize("is_over", [True, False])
@pytest.mark.parametrize("stored", [True, False], ids=["stored", "of the group"])
def test_the_fold_of_a_key_at_the_last_bound_of_a_group(tmp_path: Path, stored: bool, is_over: bool) -> None:
    """A key whose time is the very bound of the group's last transaction is over for it; one a second later is not."""
    states, second = opened(declared(tmp_path)), 3 if is_over else 4
    put(states, 1, 0, {"a": (1, second), "b": (1, 9)} if stored else {"b": (1, 9)})
    first = [table(("b", 1, at(20)))] if stored else [table(("a", 1, at(second)), ("b", 1, at(20)))]
    group = group_of(states, 2, (3 + TTL, first), (9, [table(("a", 10, at(20)))]))
    states["keys"].write(3, group["keys"].writes())
    assert live(tmp_path) == {"a": (10 if is_over else 11, at(20)), "b": (2, at(20))}


def test_a_row_that_expires_within_a_group_replaces_the_stored_one(tmp_path: Path) -> None:
    """A stored key without a time gets one that has expired by the end of the group: it does not live on without."""
    states = opened(declared(tmp_path))
    put(states, 1, 20, {"b": (1, 30)})
    group = group_of(states, 2, (20, [table(("a", 1, None))]))
    states["keys"].write(2, group["keys"].writes())
    group = group_of(states, 3, (20, [table(("a", 2, at(0)))]), (20, [table(("b", 2, at(31)), ("e", 1, at(0)))]))
    states["keys"].write(4, group["keys"].writes())
    assert live(tmp_path) == {"b": (3, at(31))}


def test_a_transaction_that_the_table_has_sees_its_own_value(tmp_path: Path) -> None:
    """A replay on top of itself finds what it has put, even if that comes so late that it expires next."""
    states = opened(declared(tmp_path))
    put(states, 1, 20, {"b": (1, 20)})
    put(states, 2, 20, {"a": (1, 0)})
    keys = group_states(states)["keys"]
    assert tuple(keys.begin(2).get("a").value) == (1, at(0))
    assert keys.begin(3).get("a") is None


@pytest.mark.parametrize("is_by_key", [False, True], ids=["columns", "by key"])
def test_what_has_expired_is_told_once(tmp_path: Path, is_by_key: bool) -> None:
    """Of two components of a transaction that ask for it, the second one gets nothing."""
    states = opened(declared(tmp_path))
    put(states, 1, 0, {"a": (1, 0)})
    put(states, 2, 20, {})
    view = {name: state.begin(3) for name, state in group_states(states).items()}["keys"]
    if is_by_key:
        view.put("b", (1, at(30)))
    assert [view.remove_expired().num_rows for _ in range(2)] == [1, 0]


def test_a_longer_time_to_live_brings_nothing_back(tmp_path: Path) -> None:
    """What has expired stays so, whether upkeep has dropped it or not; what has not lives longer."""
    states = opened(declared(tmp_path, ttl=5))
    put(states, 1, 10, {"a": (1, 0), "b": (2, 8)})
    put(states, 2, 10, {"b": (3, 9)})
    states = opened(declared(tmp_path, ttl=50), epoch=2)
    views = {name: state.begin(3) for name, state in group_states(states).items()}
    assert [value and value.value for value in views["keys"].multi_get(["a", "b"])] == [None, (3, at(9))]
    put(states, 3, 40, {"c": (4, 40)})
    assert live(tmp_path) == {"b": (3, at(9)), "c": (4, at(40))}
    assert live(tmp_path, txid=1) == {"a": (1, at(0)), "b": (2, at(8))}


@pytest.mark.slow
def test_what_a_former_time_to_live_ends_is_there_until_a_transaction_removes_it(tmp_path: Path) -> None:
    """Upkeep after a restart with another time to live, and before a transaction is written, drops no row that this tells."""
    options = {"deletion_vectors": True}
    states = opened(declared(tmp_path, ttl=5, **options))
    for txid in range(1, 41):
        put(states, txid, 0, {f"word-{txid}": (1, txid % 3)})
    put(states, 41, 20, {})
    for epoch in (2, 3):  # the first one dies
        states = opened(declared(tmp_path, ttl=50, **options), epoch)
        views = {name: state.begin(42) for name, state in group_states(states).items()}
        assert states["keys"].is_upkeep_due or epoch > 2, "it has many files"
        maintain(states["keys"])
    assert views["keys"].remove_expired().num_rows == 40


def test_a_longer_time_to_live_brings_nothing_back_that_nobody_has_touched(tmp_path: Path) -> None:
    """What has expired stays so though nothing was written since; what has not lives longer, over further restarts."""
    states = opened(declared(tmp_path, ttl=5))
    put(states, 1, 0, {"a": (1, 0), "b": (2, 8)})
    put(states, 2, 10, {})
    for epoch, txid, watermark in [(2, 3, 30), (3, 4, 31), (4, 5, 40)]:
        states = opened(declared(tmp_path, ttl=50), epoch)
        views = {name: state.begin(txid) for name, state in group_states(states).items()}
        assert [value and value.value for value in views["keys"].multi_get(["a", "b"])] == [None, (2, at(8))]
        assert live(tmp_path) == {"b": (2, at(8))}
        put(states, txid, watermark, {})
    group = group_of(states, 6, (40, [table(("a", 10, at(40)), ("b", 10, at(40)))]))
    states["keys"].write(6, group["keys"].writes())
    assert live(tmp_path) == {"a": (10, at(40)), "b": (12, at(40))}


def test_a_table_that_goes_back_has_the_time_to_live_of_then(tmp_path: Path) -> None:
    """What had expired before a longer one began stays so, in the table and in a fork of it, as it was the first time."""
    states = opened(declared(tmp_path, ttl=5))
    put(states, 1, 0, {"a": (1, 0), "b": (2, 8)})
    put(states, 2, 10, {})
    longer = declared(tmp_path, ttl=50)
    states = opened(longer, epoch=2)
    put(states, 3, 30, {"c": (3, 30)})
    forks = {name: state.moved(str(tmp_path / "fork" / name)) for name, state in longer.items()}
    for name, txid in (("keys", 1), ("clock", 2)):
        forks[name].fork(longer[name].address, txid, "timed", name, "life", 3)
    states = opened(longer, epoch=3)
    states["keys"].roll_back(1)
    states["clock"].roll_back(2)
    for each in (states, opened(forks, epoch=3)):
        views = {name: state.begin(3) for name, state in group_states(each).items()}
        assert [found and found.value for found in views["keys"].multi_get(["a", "b"])] == [None, (2, at(8))]


def test_refused(tmp_path: Path) -> None:
    """A declaration that cannot work says what to do; so does a read of the live keys of a table without them."""
    day = dt.timedelta(days=1)
    for options, error, text in (
        ({"ttl": dt.timedelta(0), "clock": "clock"}, ConfigError, "above zero"),
        ({"ttl": day}, ConfigError, "state of an EventClock"),
        ({"clock": "clock"}, ConfigError, "no ttl"),
        ({"ttl": day, "clock": "clock", "kind": StateKind.OPAQUE}, ConfigError, "transactional"),
        ({"ttl": day, "clock": "clock", "value": Fields("n: long")}, FieldsError, "'at: timestamp'"),
        ({"ttl": day, "clock": "clock", "time": "n"}, FieldsError, "is bigint"),
        ({"ttl": day, "clock": "clock", "value": Fields("a: timestamp", "b: timestamp")}, FieldsError, "time='…'"),
    ):
        with pytest.raises(error, match=text):
            DeltaState(tmp_path / "t", KEY, **{"value": VALUE, **options})
    state = DeltaState(tmp_path / "plain", KEY, VALUE)
    state.open("timed", "plain", "life", 1)
    with pytest.raises(ConfigError, match="nothing in the table"):
        read_table(tmp_path / "plain", live=True)
