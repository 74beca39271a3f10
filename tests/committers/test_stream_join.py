"""StreamJoin: each pair once, in the transaction of the later row, whatever the cut, the replays and the crashes."""

import datetime as dt
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings, strategies as st

from committers import AppendCommitter, Count, EventClock, JoinStream, Max, ReduceCommitter, StreamJoin
from spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout
from state import DeltaRows, read_table
from tests.budgets import examples
from tests.crashes import Crash, run_with_crash
from txtopo import BasicBolt, Config, Fields, TransactionalTopologyBuilder
from txtopo.errors import ConfigError, FieldsError, TopologyError
from txtopo.testing.inline import run_inline

ROW = Fields("side: string", "key: string", "n: long", "at: timestamp")
LEFT, RIGHT = Fields("key: string", "n: long", "at: timestamp"), Fields("m: long", "of: string", "at: timestamp")
DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)


class Only(BasicBolt):
    """Emits the rows of one side."""

    def __init__(self, side: str, *, is_typed: bool = True) -> None:
        self.side = side
        fields = LEFT if side == "left" else RIGHT
        self.output_fields = fields.with_attempt() if is_typed else Fields("attempt", *fields.names)

    def execute(self, tuple, collector):
        side, key, n, at = tuple.values[1:]
        if side == self.side:
            collector.emit((tuple.attempt, *((key, n, at) if side == "left" else (n, key, at))))


def joining(how="inner", **options) -> StreamJoin:
    return StreamJoin(
        "lefts",
        "rights",
        left=JoinStream("left", key="key", time="at", fields=Fields("key: string", "n: long")),
        right=JoinStream("right", key="of", time="at", fields=Fields("m: long", "of: string"), rename={"of": "key"}),
        how=how,
        **options,
    )


def topology(folder, spout, join, tasks=1, *, is_typed=True, clock=None):
    builder = TransactionalTopologyBuilder("join", "rows", spout)
    declared = builder.set_committer_bolt("join", join, tasks)
    for side, key in (("left", "key"), ("right", "of")):
        builder.set_bolt(side, Only(side, is_typed=is_typed)).shuffle_grouping("rows")
        declared.fields_grouping(side, Fields(key))
    if clock is not None:
        builder.set_committer_bolt("clock", clock).global_grouping("left").global_grouping("right")
        builder.set_state("clock", clock.state(folder / "clock"))
        declared.all_grouping("clock")
    builder.set_state("lefts", join.left_table(folder / "lefts"))
    builder.set_state("rights", join.right_table(folder / "rights"))
    builder.set_bolt("append", AppendCommitter("joined")).shuffle_grouping("join")
    builder.set_state("joined", DeltaRows(folder / "joined", join.joined()))
    return builder.build()


def by_hand(rows, how: str) -> Counter:
    """The joined rows of all rows so far."""
    lefts = [(key, n) for side, key, n, _ in rows if side == "left"]
    rights = [(key, n) for side, key, n, _ in rows if side == "right"]
    made: Counter = Counter()
    for key, n in lefts:
        partners = [m for other, m in rights if other == key and key is not None]
        made.update((key, n, m) for m in partners)
        if how == "left" and not partners:
            made[key, n, None] += 1
    return made


def shown(folder, until: int) -> Counter:
    made: Counter = Counter()
    for row in read_table(folder / "joined").to_pylist():
        if row["txid"] <= until:
            made[row["key"], row["n"], row["m"]] += row.get("diff", 1)
    return made


@pytest.mark.slow
@settings(max_examples=examples(24), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_any_streams(data) -> None:
    """Inner and left are the plain joins of all rows so far, at every txid; both tables have the rows with a key."""
    row = st.tuples(
        st.sampled_from(["left", "right"]), st.sampled_from([None, "a", "b"]), st.integers(0, 2), st.just(DAY)
    )
    rows = [list(each) for each in data.draw(st.lists(row, min_size=1, max_size=16))]
    how, batch, tasks = (
        data.draw(st.sampled_from(["inner", "left"])),
        data.draw(st.integers(1, 5)),
        data.draw(st.integers(1, 2)),
    )
    spout = data.draw(st.sampled_from([MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout]))
    is_typed, crash = data.draw(st.booleans()), Crash(data.draw(st.integers(0, 60)))
    config = Config(max_spout_pending=6, group_transactions_max=data.draw(st.integers(1, 4)))
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))

    def build():
        return topology(folder, spout({0: rows}, ROW, batch), joining(how), tasks, is_typed=is_typed)

    if not run_with_crash(build, crash, config):
        assert run_with_crash(build, Crash(), config)
    for txid in range(1, -(-len(rows) // batch) + 1):
        assert +shown(folder, txid) == by_hand(rows[: batch * txid], how), f"as of {txid}"
        assert not -shown(folder, txid)
    lefts = Counter((row["key"], row["n"]) for row in read_table(folder / "lefts").to_pylist())
    assert lefts == Counter((key, n) for side, key, n, _ in rows if side == "left" and key is not None)
    rights = Counter((row["of"], row["m"]) for row in read_table(folder / "rights").to_pylist())
    assert rights == Counter((key, n) for side, key, n, _ in rows if side == "right" and key is not None)
    shutil.rmtree(folder)


@pytest.mark.slow
def test_rows_are_forgotten(tmp_path) -> None:
    """With a ttl a row meets those that come until the watermark has passed its time by it, and no later ones."""
    at = [DAY + minute * MINUTE for minute in range(20)]
    rows = [
        ["left", "a", 1, at[0]],
        ["left", "a", 2, None],
        ["right", "a", 10, at[5]],  # meets both
        ["left", "b", 3, at[6]],  # the watermark is now at 6: left 1 is forgotten
        ["right", "a", 20, at[5]],  # meets the one without a time
        ["right", "a", 30, at[0]],  # comes too late to be kept, and meets that one
        ["left", "a", 4, at[7]],  # meets the right ones that are kept
    ]
    clock = EventClock("clock", time="at", delay=dt.timedelta(0), close_at_end=True)
    join = joining(ttl=5 * MINUTE, clock="clock")
    run_inline(topology(tmp_path, MemoryTransactionalSpout({0: rows}, ROW, 1), join, 2, clock=clock))
    found = sorted((row["txid"], row["n"], row["m"]) for row in read_table(tmp_path / "joined").to_pylist())
    assert found == [(3, 1, 10), (3, 2, 10), (5, 2, 20), (6, 2, 30), (7, 4, 10), (7, 4, 20)]
    live = read_table(tmp_path / "lefts", live=True).to_pylist()
    assert [(row["key"], row["n"]) for row in live] == [("a", 2)], "at the end all others are forgotten"


def left_with_ttl(batches: list[list], ttl: int) -> list[Counter]:
    """What a left join that forgets shows after each transaction, by hand."""
    lefts: list[list] = []
    rights: list[list] = []
    shown_so_far: Counter = Counter()
    taken = watermark = None
    after = []
    for batch in batches:
        new_lefts = [[key, n, at, True] for side, key, n, at in batch if side == "left"]
        new_rights = [[key, n, at] for side, key, n, at in batch if side == "right"]
        for left in lefts:
            partners = [m for key, m, _ in new_rights if key == left[0]]
            shown_so_far.update((*left[:2], m) for m in partners)
            if partners and left[3]:
                shown_so_far[(*left[:2], None)] -= 1
                left[3] = False
        for left in new_lefts:
            partners = [m for key, m, _ in rights + new_rights if key == left[0] and key is not None]
            shown_so_far.update((*left[:2], m) for m in partners)
            left[3] = not partners
            shown_so_far[(*left[:2], None)] += not partners
        watermark = max([at for *_, at in batch if at is not None] + ([] if watermark is None else [watermark]))

        def is_kept(row, until):
            return row[0] is not None and (row[2] is None or until is None or row[2] + ttl * MINUTE > until)

        lefts += [row for row in new_lefts if is_kept(row, taken)]
        rights += [row for row in new_rights if is_kept(row, taken)]
        taken = watermark
        lefts, rights = ([row for row in rows if is_kept(row, taken)] for rows in (lefts, rights))
        after.append(Counter(shown_so_far))
    return after


@pytest.mark.slow
@settings(max_examples=examples(24), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_a_left_join_that_forgets(data) -> None:
    """A left row is taken back once, with its first partner, whatever right rows it has met are forgotten by then."""
    time = st.none() | st.integers(0, 9).map(lambda minute: DAY + minute * MINUTE)
    row = st.tuples(st.sampled_from(["left", "right"]), st.sampled_from([None, "a", "a", "b"]), st.integers(0, 2), time)
    rows = [list(each) for each in data.draw(st.lists(row, min_size=1, max_size=16))]
    rows[0][3] = DAY
    forgetting(rows, *(data.draw(st.integers(1, most)) for most in (4, 6, 2, 4)), data.draw(st.integers(0, 60)))


@pytest.mark.slow
def test_a_partner_that_is_forgotten() -> None:
    """A left row that has met one is not alone again for the next; one that came in between is."""
    at = [DAY + minute * MINUTE for minute in range(9)]
    rows = [
        ["left", "a", 1, at[0]],
        ["left", "a", 2, None],  # both alone
        ["right", "a", 10, at[0]],  # taken back
        ["left", "b", 3, at[5]],  # the right row is forgotten
        ["left", "a", 4, at[6]],  # alone
        ["right", "a", 20, at[6]],  # takes back the last one alone
        ["right", "a", 30, at[6]],
        ["left", "b", 5, at[8]],
        ["right", "a", 40, at[0]],  # too late to be kept, and met
        ["left", "a", 6, None],
        ["right", "a", 50, None],
    ]
    for batch in (1, 2):
        forgetting(rows, batch, 4, 1, 3, 60)


def forgetting(rows, batch: int, ttl: int, tasks: int, group: int, crash_at: int) -> None:
    config = Config(max_spout_pending=6, group_transactions_max=group)
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))

    def build():
        builder = TransactionalTopologyBuilder("join", "rows", MemoryTransactionalSpout({0: rows}, ROW, batch))
        join = joining("left", ttl=ttl * MINUTE, clock="clock")
        declared = builder.set_committer_bolt("join", join, tasks).all_grouping("clock")
        for side, key in (("left", "key"), ("right", "of")):
            builder.set_bolt(side, Only(side)).shuffle_grouping("rows")
            declared.fields_grouping(side, Fields(key))
        clock = EventClock("clock", time="at", delay=dt.timedelta(0))
        builder.set_committer_bolt("clock", clock).global_grouping("rows")
        builder.set_state("clock", clock.state(folder / "clock"))
        builder.set_state("lefts", join.left_table(folder / "lefts"))
        builder.set_state("rights", join.right_table(folder / "rights"))
        builder.set_bolt("append", AppendCommitter("joined")).shuffle_grouping("join")
        builder.set_state("joined", DeltaRows(folder / "joined", join.joined()))
        return builder.build()

    if not run_with_crash(build, Crash(crash_at), config):
        assert run_with_crash(build, Crash(), config)
    batches = [rows[start : start + batch] for start in range(0, len(rows), batch)]
    for txid, expected in enumerate(left_with_ttl(batches, ttl), 1):
        assert shown(folder, txid) == expected, f"as of {txid}"
    shutil.rmtree(folder)


def test_a_left_join_is_counted(tmp_path) -> None:
    """What a left join takes back, aggregates take back."""
    rows = [["left", "a", 1, DAY], ["left", "a", 2, DAY], ["right", "a", 5, DAY], ["left", "b", 3, DAY]]
    join = joining("left")
    counts = ReduceCommitter(
        "counts",
        Fields("key: string"),
        values={"rows": Count(), "met": Count("m: long"), "m": Max("m: long")},
        diff="diff",
    )
    builder = TransactionalTopologyBuilder("join", "rows", MemoryTransactionalSpout({0: rows}, ROW, 1))
    declared = builder.set_committer_bolt("join", join)
    for side, key in (("left", "key"), ("right", "of")):
        builder.set_bolt(side, Only(side)).shuffle_grouping("rows")
        declared.fields_grouping(side, Fields(key))
    builder.set_state("lefts", join.left_table(tmp_path / "lefts"))
    builder.set_state("rights", join.right_table(tmp_path / "rights"))
    builder.set_committer_bolt("count", counts, 2).fields_grouping("join", Fields("key"))
    builder.set_state("counts", counts.state(tmp_path / "counts"))
    run_inline(builder.build())
    results = sorted(tuple(row.values()) for row in counts.results(read_table(tmp_path / "counts")).to_pylist())
    assert results == [("a", 2, 2, 5), ("b", 1, 0, None)]


def test_mistakes(tmp_path) -> None:
    """What it can't be exact about, and what is missing, is refused by name."""
    with pytest.raises(ConfigError, match="both ttl= and clock="):
        joining(ttl=MINUTE)
    fields = Fields("key: string")
    with pytest.raises(ConfigError, match="the rows of 'a' are forgotten by their event time"):
        StreamJoin(
            "l",
            "r",
            left=JoinStream("a", key="key", fields=fields),
            right=JoinStream("b", key="key", fields=fields),
            ttl=MINUTE,
            clock="c",
        )
    with pytest.raises(FieldsError, match="must have the same types"):
        StreamJoin(
            "l",
            "r",
            left=JoinStream("a", key="key", fields=fields),
            right=JoinStream("b", key="n", fields=Fields("n: long")),
        )
    join = joining()
    builder = TransactionalTopologyBuilder("join", "rows", MemoryTransactionalSpout([], ROW, 1))
    builder.set_bolt("left", Only("left")).shuffle_grouping("rows")
    builder.set_committer_bolt("join", join).fields_grouping("left", Fields("key"))
    builder.set_state("lefts", join.left_table(tmp_path / "lefts"))
    builder.set_state("rights", join.right_table(tmp_path / "rights"))
    with pytest.raises(TopologyError, match="joins 'right', but does not subscribe to it"):
        builder.build()
