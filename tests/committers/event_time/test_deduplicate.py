"""Deduplicate: another ``within`` after a restart, and fields that it refuses."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from committers import AppendCommitter, Count, Deduplicate, EventClock, Tumbling, WindowCommitter
from committers.spill import SpillLimits
from spouts import MemoryTransactionalSpout
from state import DeltaRows, read_table
from tests.committers.event_time.scripted import SECOND, START, Planned, Script, rows_of, run_timed
from txtopo import Fields, TransactionalTopology, TransactionalTopologyBuilder
from txtopo.errors import FieldsError, TopologyError, TxtopoError
from txtopo.testing import run_inline

ROWS = Fields("at: timestamp", "key: string")
ROWS_OF_NUMBERS = "at: timestamp", "key: string", "n: long"


def unique(within: float, fields: Fields = ROWS, key: Any = "key") -> Deduplicate:
    return Deduplicate("windows", clock="clock", time="at", key=key, within=within * SECOND, fields=fields)


def run_parts(root: Path, script: list[Planned], *parts: tuple[int, float]) -> None:
    """Run a script in parts, up to a transaction each, with a ``within`` each."""
    for until, within in parts:
        run_timed(root, Script(script, ROWS), unique(within), until=until, delay=dt.timedelta())


def one_by_one(*rows: tuple[float, str]) -> list[Planned]:
    """Return a script of a row for each transaction."""
    return [Planned(number, [(START + second * SECOND, key)]) for number, (second, key) in enumerate(rows)]


def passed(root: Path, stream: str = "default") -> list[tuple[Any, ...]]:
    """Return the rows in a table: txid, event time, key."""
    return rows_of(root, stream, "txid", "at", "key")


@pytest.mark.slow
def test_longer_within_after_a_restart(tmp_path: Path) -> None:
    """A key that is remembered is so for the new time: none of its rows is passed on again."""
    script = one_by_one((1, "a"), (5, "b"), (20, "c"), (16, "a"), (19, "b"), (120, "d"), (121, "a"))
    run_parts(tmp_path, script, (2, 10), (7, 100))
    assert passed(tmp_path) == [(1, 1, "a"), (2, 5, "b"), (3, 20, "c"), (6, 120, "d"), (7, 121, "a")]
    assert passed(tmp_path, "late") == []


@pytest.mark.slow
def test_shorter_within_after_a_restart(tmp_path: Path) -> None:
    """A key that is remembered is forgotten by the new time; what may have been forgotten is late."""
    script = one_by_one((1, "a"), (15, "b"), (16, "a"), (17, "a"), (2, "a"))
    run_parts(tmp_path, script, (2, 100), (5, 10))
    assert passed(tmp_path) == [(1, 1, "a"), (2, 15, "b"), (4, 17, "a")]
    assert passed(tmp_path, "late") == [(5, 2, "a")]


@pytest.mark.slow
@pytest.mark.parametrize("is_spilled", [False, True])
def test_each_row_is_passed_on_dropped_late_or_untimed_once(tmp_path: Path, is_spilled: bool) -> None:
    """Rows that are alike are rows, too: late ones come as often as they came, repeats inside a transaction count."""
    fields = Fields("at: timestamp", "key: string", "n: long", "tags: struct<a:string>")
    rows = [(START + SECOND, "a", n, None) for n in (1, 1, 2, None)] + [(START + 2 * SECOND, "a", 1, None)] * 2
    rows += [(None, "a", 1, {"a": "x"})] * 2 + [(START + SECOND, None, 1, None)] * 3
    script = [Planned(0, rows), Planned(1, rows), Planned(2, [(START + 60 * SECOND, "z", 1, None)]), Planned(3, rows)]
    for name, own in (("with tags", fields), ("without", Fields(*map(str, ROWS_OF_NUMBERS)))):
        given = [Planned(each.second, [row[: len(own)] for row in each.rows or ()]) for each in script]
        root, committer = tmp_path / name, unique(10, own)
        if is_spilled:
            committer.spill_limits = SpillLimits(file_rows=1)
        report = run_timed(root, Script(given, own), committer, delay=dt.timedelta(), tasks=1, group=1)
        counted = {reading.name: reading.value for reading in report.readings if reading.component == "timed"}
        # A table holds 28 rows: 9 of each transaction have a time, and 2 have none.
        assert (counted["passed"], counted["repeated"], counted["late"], counted["untimed"]) == (3, 16, 9, 6)
        values = ("txid", "at", "key", "n")
        assert rows_of(root, "default", *values) == [(1, 1, "a", 1), (1, 1, None, 1), (3, 60, "z", 1)]
        late = [(4, row[0] - START, *row[1:3]) for row in rows if row[0] is not None]
        expected = sorted(((txid, at.total_seconds(), *more) for txid, at, *more in late), key=repr)
        assert rows_of(root, "late", *values) == expected


@pytest.mark.few(1)
@pytest.mark.parametrize("key", ["key", "more", ("key", "more"), ("more", "key")], ids=str)
def test_null_keys(tmp_path: Path, key: Any) -> None:
    """A null is a key like another, and another one than its neighbour's, alone and beside other parts of the key."""
    fields = Fields("at: timestamp", "key: string", "more: string")
    rows = [(START + SECOND, one, other) for one in ("a", "b", None) for other in (None, "a", "z")]
    script = [Planned(0, rows[:7]), Planned(1, rows), Planned(2, rows)]
    run_timed(tmp_path, Script(script, fields), unique(10, fields, key), tasks=1)
    names = [key] if isinstance(key, str) else list(key)
    firsts: dict[Any, int] = {}
    for txid, each in [(1, rows[:7]), (2, rows)]:
        for _, *values in each:
            firsts.setdefault(tuple(dict(zip(("key", "more"), values, strict=True))[name] for name in names), txid)
    expected = sorted([(txid, *of) for of, txid in firsts.items()], key=repr)
    assert rows_of(tmp_path, "default", "txid", *names) == expected


@pytest.mark.few(1)
@pytest.mark.parametrize(("second", "is_late"), [(20, True), (20.000001, False)])
def test_the_moment_at_which_a_key_is_forgotten(tmp_path: Path, second: float, is_late: bool) -> None:
    """A row is late, and a key forgotten, once the watermark has reached its time plus ``within``, not a moment before."""
    script = one_by_one((20, "a"), (30, "b"), (second, "a"), (30, "a"))
    run_parts(tmp_path, script, (4, 10))
    assert [each[0] for each in passed(tmp_path, "late")] == [3] * is_late
    assert [each[0] for each in passed(tmp_path)] == [1, 2, 4 if is_late else 3]


@pytest.mark.parametrize("kind", ["array<string>", "map<string,string>", "struct<a:array<string>>"])
def test_fields_that_it_refuses(kind: str) -> None:
    """A key that is nested, or a field that rows cannot be ordered by, is refused by its name where it is declared."""
    fields = Fields("at: timestamp", "key: string", f"tags: {kind}")
    with pytest.raises(FieldsError, match=r"key field 'tags' is .*use a string"):
        unique(10, fields, key="tags")
    with pytest.raises(FieldsError, match=r"field 'tags' is .*make it a string, such as JSON, in a bolt above"):
        unique(10, fields)
    unique(10, Fields("at: timestamp", "key: string", "tags: struct<a:string>"))


def test_a_key_with_the_name_of_its_own_column() -> None:
    """The name of the state's column is refused in a key."""
    with pytest.raises(FieldsError, match="a column 'first_at' of its own; give your key another name"):
        unique(10, Fields("at: timestamp", "first_at: string"), key="first_at")


@pytest.mark.few(1)
@pytest.mark.parametrize("committer", ["unique", "late_rows"])
def test_rows_of_another_type(tmp_path: Path, committer: str) -> None:
    """A number of a stream that is declared as another one is converted without loss or refused: no float is a long."""
    fields = Fields(*map(str, ROWS_OF_NUMBERS))
    made: Any = unique(10, fields)
    if committer == "late_rows":
        made = WindowCommitter(
            "windows", clock="clock", time="at", key=Fields("key: string"), window=Tumbling(10 * SECOND),
            aggregates={"rows": Count()}, late_rows=fields,
        )  # fmt: skip
    given = Fields("at: timestamp", "key: string", "n: tinyint")
    run_timed(tmp_path / "small", Script([Planned(0, [(START, "a", 1)])], given), made, tasks=1)
    given = Fields("at: timestamp", "key: string", "n: double")
    with pytest.raises(TxtopoError, match=r"field 'n: bigint': 2.0 .Arrow's double. does not fit bigint"):
        run_timed(tmp_path / "other", Script([Planned(0, [(START, "a", 2.0)])], given), made, tasks=1)


def grouped(output: Path, group: Any, tasks: int) -> TransactionalTopology:
    """Return a topology of four rows of one key, of which the last one has the smallest time."""
    fields = Fields("id: long", "at: timestamp", "n: long")
    rows = [(1, START + at * SECOND, n) for n, at in enumerate([5, 4, 3, 1])]
    builder = TransactionalTopologyBuilder("grouped", "spout", MemoryTransactionalSpout(rows, fields, 4))
    clock = EventClock("clock", time="at", delay=60 * SECOND)
    builder.set_committer_bolt("clock", clock).global_grouping("spout")
    builder.set_state("clock", clock.state(f"{output}/clock"))
    unique = Deduplicate("seen", clock="clock", time="at", key="id", within=60 * SECOND, fields=fields)
    group(builder.set_committer_bolt("unique", unique, tasks).all_grouping("clock"))
    builder.set_state("seen", unique.state(f"{output}/seen"))
    builder.set_bolt("append", AppendCommitter("rows")).shuffle_grouping("unique")
    builder.set_state("rows", DeltaRows(f"{output}/rows", fields))
    return builder.build()


@pytest.mark.parametrize(
    ("group", "tasks"),
    [
        (lambda bolt: bolt.fields_grouping("spout", Fields("id")), 2),
        (lambda bolt: bolt.global_grouping("spout"), 2),
        (lambda bolt: bolt.shuffle_grouping("spout"), 1),
    ],
    ids=["by key", "global", "one task"],
)
def test_the_first_row_of_all(tmp_path: Path, group: Any, tasks: int) -> None:
    """If one task has all rows of a key, the one with the smallest time passes, wherever it is among them."""
    run_inline(grouped(tmp_path, group, tasks))
    assert read_table(tmp_path / "rows")["n"].to_pylist() == [3]


@pytest.mark.parametrize(
    "group",
    [
        lambda bolt: bolt.shuffle_grouping("spout"),
        lambda bolt: bolt.local_or_shuffle_grouping("spout"),
        lambda bolt: bolt.all_grouping("spout"),
        lambda bolt: bolt.partial_key_grouping("spout", Fields("id")),
        lambda bolt: bolt.fields_grouping("spout", Fields("n")),
    ],
    ids=["shuffle", "local", "all", "partial key", "another field"],
)
def test_rows_of_a_key_in_several_tasks(tmp_path: Path, group: Any) -> None:
    """Each task would take its own row for the first one: build() refuses it, and says how it is grouped."""
    words = r"'unique' keeps something for each id.*write \.fields_grouping\('spout', Fields\('id'\)\), or give it one"
    with pytest.raises(TopologyError, match=words):
        grouped(tmp_path, group, 2)
