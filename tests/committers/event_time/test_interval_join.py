"""IntervalJoin: pairs, rows without a partner, and late ones, whatever the cut."""

import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from committers import IntervalJoin, JoinStream
from committers.event_time.pairs import pairs
from state import read_table
from tests.budgets import examples
from tests.committers.event_time.joins import LEFT, RIGHT, SIDES, bought, run_join
from tests.committers.event_time.oracle import joined
from tests.committers.event_time.scripted import SECOND, START, Planned, rows_of
from tests.processes import ran
from txtopo import Config, Fields, TransactionalTopology
from txtopo.columnar.progress_probe import current_probe
from txtopo.errors import ConfigError, FieldsError
from txtopo.files.places import folder_at
from txtopo.fork.forking import moved
from txtopo.testing.inline import run_inline


def join(
    lower: float = 0, upper: float = 10, how: Literal["inner", "left", "full"] = "full", **options: Any
) -> IntervalJoin:
    both = {"left": SIDES["left"], "right": SIDES["right"], **options}
    return IntervalJoin("open", clock="clock", lower=lower * SECOND, upper=upper * SECOND, how=how, **both)


def left(second: float | None, key: str | None = "a", n: int = 1) -> tuple[Any, ...]:
    return "left", None if second is None else START + second * SECOND, key, n


def right(second: float | None, key: str | None = "a", n: int = 1) -> tuple[Any, ...]:
    return "right", *left(second, key, n)[1:]


def said(root: Path) -> list[tuple[Any, ...]]:
    """Return the joined rows: txid, key, the values of both."""
    return rows_of(root, "default", "txid", "key", "n", "amount")


def plan(*transactions: Sequence[Any]) -> list[Planned]:
    return [Planned(0, list(rows)) for rows in transactions]


def in_order(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


@pytest.mark.slow
def test_pairs_rows_without_a_partner_and_late_ones(tmp_path: Path) -> None:
    """A pair comes with its later row; a row without a partner once nothing can match it; a late one on its stream."""
    script = plan(
        [left(0, n=1), left(1, "b", n=2)],
        [right(10, n=3), right(3, "c", n=4)],
        [left(30, n=5), right(30, "c", n=6)],
        [right(29, "c", n=7), left(30.5, n=8), left(None, n=9), right(None, "z", n=10)],
    )
    run_join(tmp_path, script, join())
    assert said(tmp_path) == in_order(
        [(2, "a", 1, 3), (3, "b", 2, None), (3, "c", None, 4), (5, "a", 5, None), (5, "c", None, 6), (5, "a", 8, None)]
    )
    assert rows_of(tmp_path, "right_late", "txid", "order", "paid_at", "n") == [(4, "c", 29, 7)]
    assert rows_of(tmp_path, "left_late") == []
    assert rows_of(tmp_path, "left_untimed", "txid", "key", "at", "n") == [(4, "a", None, 9)]
    assert rows_of(tmp_path, "right_untimed", "txid", "order", "n") == [(4, "z", 10)]


@pytest.mark.few(3)
@pytest.mark.parametrize("is_at_once", [True, False])
@pytest.mark.parametrize(
    ("second", "is_pair"), [(4.999999, False), (5, True), (7, True), (10, True), (10.000001, False)]
)
def test_the_bounds_of_the_interval(tmp_path: Path, second: float, is_pair: bool, is_at_once: bool) -> None:
    """Both bounds belong to the interval, and not a microsecond more, in one transaction or in two."""
    rows = [[left(0, n=1)], [right(second, n=2)]]
    script = plan([*rows[0], *rows[1]]) if is_at_once else plan(*rows)
    run_join(tmp_path, script, join(5, 10, "inner"))
    assert [row[1:] for row in said(tmp_path)] == [("a", 1, 2)] * is_pair


@pytest.mark.slow
def test_the_moment_at_which_a_row_has_no_partner(tmp_path: Path) -> None:
    """A row is kept while the watermark is at the last time of a partner, and without one a microsecond later."""
    script = plan(
        [left(0), right(10, "z")],
        [left(10, "z", n=2)],
        [right(10, n=3), left(10.000001, "z", n=4), right(10.000001, "z", n=5)],
        [right(10, n=6)],
    )
    run_join(tmp_path, script, join(0, 10, "left"))
    assert said(tmp_path) == in_order([(2, "z", 2, 1), (3, "a", 1, 3), (3, "z", 4, 5), (3, "z", 2, 5)])
    assert rows_of(tmp_path, "right_late", "txid", "n") == [(4, 6)]


@pytest.mark.slow
def test_a_kept_row_remembers_that_it_has_matched(tmp_path: Path) -> None:
    """One that has matched, when it came or later, once or often, is never emitted without a partner."""
    script = plan(
        [left(0, n=1), left(0, n=2), left(1, n=3)],
        [right(5, n=4)],
        [right(5, n=5), left(0, n=6)],
        [right(60, "z", n=7), left(60, "y", n=8)],
    )
    run_join(tmp_path, script, join(), delays={"left": 20 * SECOND, "right": 20 * SECOND})
    of_right = {4: (2, 3), 5: (3, 3)}
    expected = [
        (max(of_right[other][0], 3 if one == 6 else 1), "a", one, other) for one in (1, 2, 3, 6) for other in (4, 5)
    ]
    assert said(tmp_path) == in_order([*expected, (5, "z", None, 7), (5, "y", 8, None)])


@pytest.mark.slow
def test_an_interval_before_the_left_row(tmp_path: Path) -> None:
    """Partners may come before the row alone: then it is kept for none, and its own transaction says so."""
    script = plan(
        [right(0, n=1), left(0, "q", n=0)], [left(10, n=2), left(4, n=3), right(20, "x", n=4)], [left(21, n=5)]
    )
    run_join(tmp_path, script, join(-10, -5))
    assert said(tmp_path) == in_order(
        [(2, "a", 2, 1), (1, "q", 0, None), (2, "a", 3, None), (3, "a", 5, None), (4, "x", None, 4)]
    )


@pytest.mark.slow
def test_a_long_commit_phase_makes_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each portion of the pairs of one key renews the transaction's timeout."""
    seen = []

    def watched(*sides: Any) -> Iterator[Any]:
        for portion in pairs(*sides, pairs_max=100):
            seen.append(current_probe().position())
            yield portion

    monkeypatch.setattr("committers.event_time.interval_join.pairs", watched)
    run_join(tmp_path, plan([each(0, n=n) for n in range(30) for each in (left, right)]), join(), tasks=1)
    assert len(said(tmp_path)) == 900
    assert len(seen) == len(set(seen)) > 5


@pytest.mark.slow
@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_null_keys(tmp_path: Path, how: Any) -> None:
    """A null in a key is equal to nothing: its row has no partner."""
    run_join(tmp_path, plan([left(0, None, 1), right(0, None, 2)], [right(1, None, 3)]), join(how=how))
    lefts, rights = [(3, None, 1, None)], [(3, None, None, 2), (3, None, None, 3)]
    assert said(tmp_path) == in_order([*(lefts if how != "inner" else []), *(rights if how == "full" else [])])


@pytest.mark.slow
def test_a_stream_with_itself(tmp_path: Path) -> None:
    """A stream may be both sides: each row meets the others of its key, and itself."""
    other = JoinStream("left", key="key", time="at", fields=LEFT, rename={"at": "paid_at", "n": "amount"})
    script = plan([left(0, n=1), left(5, n=2)], [left(9, n=3)])
    run_join(
        tmp_path,
        script,
        SelfJoin("open", clock="clock", left=SIDES["left"], right=other, lower=0 * SECOND, upper=5 * SECOND),
    )
    assert said(tmp_path) == [(1, "a", 1, 1), (1, "a", 1, 2), (1, "a", 2, 2), (2, "a", 2, 3), (2, "a", 3, 3)]


class SelfJoin(IntervalJoin):
    """Subscribed to a second stream that it does not read."""

    def input_mistakes(self, inputs: Any) -> Any:
        return ()


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"lower": 1 * SECOND, "upper": 0 * SECOND}, ConfigError, "upper of an IntervalJoin is 0:00:00, less than"),
        ({"right": JoinStream("right", key="n", time="paid_at", fields=RIGHT)}, FieldsError, "keys .* same types"),
        (
            {"right": JoinStream("right", key="order", time="paid_at", fields=RIGHT)},
            FieldsError,
            "both streams have a field 'n'; .*rename={'n': 'other_n'}",
        ),
    ],
)
def test_what_it_refuses(wrong: dict[str, Any], error: type[Exception], said: str) -> None:
    """Bounds that are none, keys that can't be equal, and two fields of one name are refused where they are declared."""
    options = {"left": SIDES["left"], "right": SIDES["right"], "lower": 0 * SECOND, "upper": SECOND, **wrong}
    with pytest.raises(error, match=said):
        IntervalJoin("open", clock="clock", **options)
    with pytest.raises(FieldsError, match="no reliable equality"):
        JoinStream("a", key="x", time="at", fields=Fields("x: double", "at: timestamp"))
    with pytest.raises(FieldsError, match="'y'"):
        JoinStream("a", key="y", time="at", fields=Fields("x: double", "at: timestamp"))


times = st.one_of(st.none(), st.integers(0, 60))
row = st.builds(
    lambda side, second, key, n: (side, None if second is None else START + second * SECOND, key, n),
    st.sampled_from(["left", "right"]),
    times,
    st.sampled_from(["a", "a", "b", None]),
    st.integers(1, 3),
)


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    script=st.lists(st.lists(row, max_size=8), min_size=1, max_size=8),
    bounds=st.tuples(st.integers(-20, 20), st.integers(0, 20)),
    how=st.sampled_from(["inner", "left", "full"]),
    delays=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    is_typed=st.booleans(),
    group=st.integers(1, 4),
    stops=st.lists(st.integers(1, 8), max_size=2),
)
def test_generated(
    script: Sequence[Any],
    bounds: tuple[int, int],
    how: Any,
    delays: tuple[int, int],
    is_typed: bool,
    group: int,
    stops: list[int],
) -> None:
    """Whatever comes on either side, in whichever transactions, groups and runs: a plain loop says the same."""
    lower, upper = bounds[0], bounds[0] + bounds[1]
    by_side = dict(zip(("left", "right"), (delay * SECOND for delay in delays), strict=True))
    settings_of = {side: {"delay": delay, "idle_after": None, "partition": None} for side, delay in by_side.items()}
    expected = joined(script, lower * SECOND, upper * SECOND, how, settings_of)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as folder:
        root = Path(folder)
        for until in [*sorted({stop for stop in stops if stop < len(script)}), None]:
            run_join(
                root,
                plan(*script),
                join(lower, upper, how),
                delays=by_side,
                until=until,
                is_typed=is_typed,
                group=group,
            )
        assert said(root) == in_order(expected.pairs)
        for side, key, time in (("left", "key", "at"), ("right", "order", "paid_at")):
            late = [(txid, (at - START).total_seconds(), *more) for txid, at, *more in expected.late[side]]
            assert rows_of(root, f"{side}_late", "txid", time, key, "n") == in_order(late)
            assert rows_of(root, f"{side}_untimed", "txid", key, "n") == in_order(expected.untimed[side])


MODULE = """
from pathlib import Path
from tests.committers.event_time.joins import bought
topology_of_join = bought(Path({output!r}))
"""
ALONE = {"topology.group.transactions.max": 1}
"""So that the topology can be brought back to each transaction."""


def joined_in(output: Path) -> list[tuple[Any, ...]]:
    return in_order([tuple(row.values()) for row in read_table(output / "joined").to_pylist()])


@pytest.mark.slow
def test_going_back(tmp_path: Path, command_line: Any) -> None:
    """A rewind and a fork emit what the first run has emitted, a replay of each transaction is the same."""
    output, side = tmp_path / "out", tmp_path / "side"
    transactions = run_inline(bought(output), ALONE).committed_txid
    expected = joined_in(output)
    assert len({row[-1] for row in expected}) > 5, "pairs come in many transactions"
    command_line.write_module("joining", MODULE.format(output=str(output)))
    module = "joining:topology_of_join"
    assert "differs" not in command_line.told("replay", module, "--from", "1", "--to", str(transactions))
    command_line.told("fork", module, "6", str(side))
    plan = moved(bought(output).plan, Config(), folder_at(side))[0]
    run_inline(TransactionalTopology(plan), {"topology.state.dir": str(side / "_txtopo")})
    assert joined_in(side) == expected
    command_line.told("rewind", module, "5", "--yes")
    assert joined_in(output) == [row for row in expected if row[-1] <= 5]
    run_inline(bought(output))
    assert joined_in(output) == expected
    for folder in (output, side):
        command_line.told("audit", str(folder))


@pytest.mark.slow
def test_replays_between_points(tmp_path: Path, command_line: Any) -> None:
    """Kept rows of a key meet a row in the order of the first time, though a past table has them in other runs."""
    for until in (4, 9, None):
        transactions = run_inline(bought(tmp_path, near=20), {"topology.group.transactions.max": 3}, until=until)
    command_line.write_module("joining", MODULE.format(output=str(tmp_path)).replace(")\n", ", near=20)\n"))
    for txid in range(4, transactions.committed_txid + 1, 3):
        assert "✘" not in command_line.told("replay", "joining:topology_of_join", str(txid)), txid


@pytest.mark.slow
def test_a_join_that_is_new(tmp_path: Path, command_line: Any) -> None:
    """A backfill emits what it would have emitted from the first transaction on, and the next run goes on from there."""
    reference, output = tmp_path / "reference", tmp_path / "out"
    run_inline(bought(reference), ALONE)
    run_inline(bought(output, is_joined=False), ALONE, until=6)
    command_line.write_module("joining", MODULE.format(output=str(output)))
    command_line.told("backfill", "joining:topology_of_join", "joined")
    assert joined_in(output) == [row for row in joined_in(reference) if row[-1] <= 6]
    run_inline(bought(output))
    assert joined_in(output) == joined_in(reference)
    command_line.told("audit", str(output))


@pytest.mark.slow
@pytest.mark.long  # that of q8 in tests/examples/nexmark is killed in `make test`
@pytest.mark.parametrize(
    ("mode", "step"), [("real-time", "group.decide.after"), ("micro-batch", "group.decide.before")]
)
def test_killed_on_spark(tmp_path: Path, mode: str, step: str) -> None:
    """The next start emits each pair and each row without a partner once, in both modes."""
    killed = ran("-m", "tests.committers.event_time.joins", tmp_path / "out", mode, failpoints=f"{step}=kill:2")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = ran("-m", "tests.committers.event_time.joins", tmp_path / "out", mode)
    assert again.returncode == 0, again.stderr
    run_inline(bought(tmp_path / "reference"))
    assert [row[:-1] for row in joined_in(tmp_path / "out")] == [row[:-1] for row in joined_in(tmp_path / "reference")]
