"""Promise 16, by real crashes: each failpoint in turn without Spark, and a short soak with it."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from state import read_table
from tests.cli.look.test_audit import audited
from tests.harness.soak.processes import members
from tests.harness.soak.transactions.command import main
from tests.harness.soak.transactions.kills import ELSEWHERE, RUN_FAILPOINTS, Kill, Victim, step_of
from tests.harness.soak.transactions.oracle import differences, oracle_of, rows_of
from tests.harness.soak.transactions.rounds import Round
from tests.harness.soak.transactions.subjects import judge_of, topology_of
from tests.harness.soak.transactions.topology import (
    TOO_FAR,
    Setup,
    batches_of,
    config_of,
    data_of,
    fill_topic,
    words_topology,
)
from tests.processes import python
from txtopo.failpoints import known_failpoints
from txtopo.servers.kafka import KafkaBroker
from txtopo.testing.checkers import Violation
from txtopo.testing.inline import run_inline

pytestmark = pytest.mark.slow

TRANSACTIONS = 24
SEED = 7

CHAINS = [
    *(
        (f"{step}.before", f"{step}.after")
        for step in dict.fromkeys(map(step_of, RUN_FAILPOINTS))
        if step not in RUN_FAILPOINTS
    ),
    ("delta.write.checked", "delta.write.landed"),
    ("folder.drafted", "folder.named"),
    ("delta.prepared", "bolt.finish"),
    ("spout.emit", "bolt.execute"),
]
"""Failpoints that kill one after another, each in the run that resumes after the kill before."""

SHORT = {0: {"table.write.before", "group.commit.before"}, 100_000: {"folder.drafted"}}
"""By the number of keys, the first failpoints of the chains that are not left to ``make long``."""

COUNTS = {"lead.take": 1, "table.open": 2, "recovery": 1, "table.maintain": 5, "spout": 12, "bolt": 20}
"""By the beginning of a failpoint's name, at which reach it kills; 2 for all others."""

GROUP_STEPS = (
    "group.decide.after",
    "delta.write.landed",
    "group.commit.before",
    "table.write.before",
    "group.commit.after",
    "group.journal.after",
)
"""Failpoints before, between and after the Delta writes of a group, which a process reaches with its first group."""

SETUPS = {
    "recovery.write": Kill(Victim.ALL, "group.commit.before", 2),
    "recovery.commit": Kill(Victim.ALL, "group.commit.before", 2),
}
"""By step of recovery, the kill before it, which leaves a group under way."""


def kill_at(failpoint: str, *, has_one_table: bool = False) -> Kill:
    """Return the kill that tests a failpoint."""
    count = next((n for name, n in COUNTS.items() if failpoint.startswith(name)), 2)
    return Kill(Victim.ALL, failpoint, 1 if has_one_table and failpoint.startswith("table.open") else count)


@pytest.fixture
def soaked(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Round]:
    """A round without Spark, whose processes are gone at the end; its parameter is how many keys a large table has."""
    keys = getattr(request, "param", 0)
    round_ = Round(
        tmp_path / "round", Setup("", SEED, 4 * TRANSACTIONS if keys else TRANSACTIONS, inline=True, keys=keys)
    )
    yield round_
    round_.kill_orphans()


@pytest.mark.parametrize(
    ("soaked", "chain"),
    [
        pytest.param(keys, chain, marks=[] if chain[0] in short else pytest.mark.long)
        for keys, short in SHORT.items()
        for chain in CHAINS
    ],
    indirect=["soaked"],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else f"{value} keys",
)
def test_killed_at_each_failpoint(soaked: Round, chain: tuple[str, ...]) -> None:
    """Whatever failpoint a process dies at, the next one resumes, and the tables are exact all the way.

    So they are with deletion vectors, rows that the executors fold, and merges all the time.
    """
    setup = SETUPS.get(step_of(chain[0]))
    if setup is not None:
        assert soaked.live(setup).kills == (setup,)
        assert soaked.is_group_decided
    for failpoint in chain:
        kill = kill_at(failpoint, has_one_table=soaked.setup.keys > 0)
        assert soaked.live(kill).kills == (kill,)
    assert soaked.live().is_finished
    assert soaked.check_end() == soaked.setup.transactions


def test_each_failpoint_has_its_test() -> None:
    """Every failpoint kills in a chain here, or has tests of its own."""
    killed = [failpoint for chain in CHAINS for failpoint in chain]
    assert sorted(killed) == sorted(name for name in known_failpoints() if not name.startswith(ELSEWHERE))


@pytest.mark.long
def test_upkeep_is_killed_too(tmp_path: Path) -> None:
    """When a process dies before its first upkeep, or with a checkpoint of the log begun, the next one writes it."""
    round_ = Round(tmp_path / "round", Setup("", SEED, 2 * TRANSACTIONS, inline=True))
    checkpoint = Path(round_.setup.output) / "words" / "_delta_log" / "_last_checkpoint"
    assert round_.live(kill_at("table.maintain.before")).kills
    assert not checkpoint.exists()
    assert round_.live(Kill(Victim.ALL, "table.maintain.after", 5)).kills
    assert round_.live().is_finished
    assert checkpoint.exists()
    assert round_.check_end() == 2 * TRANSACTIONS


@pytest.mark.long
def test_killed_at_random_moments_opaque(tmp_path: Path) -> None:
    """A spout whose replays carry other tuples loses and doubles nothing: every row follows from the journal."""
    # Many, since a process commits a hundred in the time in which a busy machine sees the first five.
    round_ = Round(tmp_path / "round", Setup("", SEED, 6 * TRANSACTIONS, opaque=True, inline=True))
    kills = [Kill(Victim.ALL, count=5), Kill(Victim.ALL, "delta.write.landed"), Kill(Victim.ALL, count=6)]
    for kill in kills:
        assert round_.live(kill).kills == (kill,)
    assert round_.live().is_finished
    assert round_.check_end() >= 6 * TRANSACTIONS


@pytest.mark.long
@pytest.mark.parametrize("opaque", [False, True])
def test_killed_with_input_from_kafka(kafka: KafkaBroker, tmp_path: Path, opaque: bool) -> None:
    """Records of a real broker are committed exactly once, too."""
    setup = Setup("", SEED + opaque, TRANSACTIONS, opaque=opaque, inline=True, kafka=kafka.servers)
    fill_topic(setup, kafka)
    round_ = Round(tmp_path / "round", setup)
    # The last one early in its run: how much is left for it depends on how large the groups before it were.
    for kill in (Kill(Victim.ALL, count=5), kill_at("group.decide.after"), Kill(Victim.ALL, "spout.emit", 1)):
        assert round_.live(kill).kills == (kill,)
    assert round_.live().is_finished
    assert round_.check_end() >= TRANSACTIONS


def killed_to_the_end(round_: Round, count: int) -> list[Kill]:
    """Let each process die at the next step of a commit group, reached so many times, until one finishes the input."""
    kills: list[Kill] = []
    for failpoint in itertools.cycle(GROUP_STEPS):
        death = round_.live(Kill(Victim.ALL, failpoint, count))
        kills += death.kills
        if death.is_finished:
            return kills
    raise AssertionError


@pytest.mark.long
@pytest.mark.parametrize(("transactions", "count"), [(5, 2), (3, 1)])
def test_windows_are_said_once(tmp_path: Path, transactions: int, count: int) -> None:
    """Each row is in one window that is said once, or late or untimed once, whatever a replay carries."""
    round_ = Round(tmp_path / "round", Setup("", SEED, transactions, opaque=True, inline=True, timed=True))
    assert len(killed_to_the_end(round_, count)) >= 3
    assert round_.check_end() > transactions  # the last one ends the input
    assert audited(Path(round_.setup.output)).findings == []


@pytest.mark.long
@pytest.mark.parametrize("inline", [True, False], ids=["inline", "spark"])
def test_a_partition_that_falls_silent(tmp_path: Path, inline: bool) -> None:
    """The clock goes on without it, by when transactions were planned, which no kill changes; real Spark, too."""
    round_ = Round(tmp_path / "round", Setup("", SEED, 2 * TRANSACTIONS, inline=inline, timed=True, idle=True))
    kills = [kill_at("group.decide.after"), Kill(Victim.ALL, "delta.write.landed", 3), kill_at("group.commit.after")]
    for kill in kills:
        assert round_.live(kill).kills == (kill,)
    assert round_.live().is_finished
    assert round_.check_end() == 2 * TRANSACTIONS + 1
    assert audited(Path(round_.setup.output)).findings == []
    closed = read_table(Path(round_.setup.output) / "closed").to_pylist()
    silent = max(at for _, at, _ in data_of(round_.setup)[1] if at is not None and at != TOO_FAR)
    assert [row for row in closed if row["window_end"] > silent and row["txid"] <= 2 * TRANSACTIONS], "not by the end"


@pytest.mark.long
@pytest.mark.parametrize("opaque", [False, True])
def test_windows_over_kafka(kafka: KafkaBroker, tmp_path: Path, opaque: bool) -> None:
    """So it is with records of a real broker, killed at random moments and at each step of groups."""
    setup = Setup("", SEED + 2 + opaque, TRANSACTIONS, opaque=opaque, inline=True, timed=True, kafka=kafka.servers)
    fill_topic(setup, kafka)
    round_ = Round(tmp_path / "round", setup)
    kills = (Kill(Victim.ALL, count=3), kill_at("spout.emit"), Kill(Victim.ALL, count=4))
    struck = [each for kill in kills for each in round_.live(kill).kills]
    assert len([*struck, *killed_to_the_end(round_, 2)]) >= 4
    assert round_.check_end() > TRANSACTIONS
    assert audited(Path(round_.setup.output)).findings == []


def test_a_wrong_window_is_found(tmp_path: Path) -> None:
    """The judge finds windows that count other rows than the input's."""
    setup = Setup(str(tmp_path / "tables"), SEED, 6, inline=True, timed=True)
    report = run_inline(topology_of(setup), config_of(setup))
    assert judge_of(setup).check_end(report.committed_txid) == 7
    with pytest.raises(Violation, match="is missing"):
        judge_of(attrs.evolve(setup, seed=SEED + 1)).check_end(report.committed_txid)


def test_a_wrong_row_is_found(tmp_path: Path) -> None:
    """The judge names a wrong count, a wrong txid, and a missing or superfluous row, one by one."""
    setup = Setup(str(tmp_path / "tables"), SEED, 4, inline=True)
    run_inline(words_topology(setup), config_of(setup))
    oracle = oracle_of(batches_of(setup))
    actual = rows_of(read_table(tmp_path / "tables" / "words"))
    assert differences("words", actual, oracle.as_of("words", 4)) == []
    assert [line.split(" ")[0] for line in differences("words", actual, oracle.as_of("words", 3))] == sorted(
        f"words[{word!r}]" for word in set(batches_of(setup)[3])
    )


def test_an_unfinished_round_is_found(soaked: Round) -> None:
    """The judge finds a round that has not finished its input."""
    assert soaked.live(Kill(Victim.ALL, "group.commit.after", 3)).kills
    with pytest.raises(Violation):
        soaked.check_end()


def test_no_option_is_needed(tmp_path: Path) -> None:
    """The command takes its own defaults; what it refuses here is the folder."""
    (tmp_path / "something").touch()
    said = CliRunner().invoke(main, ["--output", str(tmp_path)])
    assert f"{tmp_path} is not empty" in " ".join(said.output.split()), said.output


@pytest.mark.long
def test_short_soak_that_somebody_tidies(tmp_path: Path) -> None:
    """Files move and go all the time, as they are marked and merged and the run is killed: the table is exact."""
    options = ["--inline", "--keys", "20000", "--kills", "3", "--seed", "12", "--transactions", "60", "--tidied"]
    said = CliRunner().invoke(main, [*options, "--output", str(tmp_path / "soak")])
    assert "all tables are exact" in said.output, said.output
    assert "compacted by somebody else" in said.output


@pytest.mark.long
@pytest.mark.timeout(1800)  # some 35 processes, one after another
def test_short_soak_at_each_failpoint(tmp_path: Path) -> None:
    """Into a table with all its rows, vectors and files that are being merged; every failpoint of a run is met."""
    options = ["--inline", "--keys", "10000", "--each", "--seed", "12", "--transactions", "100"]
    said = CliRunner().invoke(main, [*options, "--output", str(tmp_path / "soak")])
    assert "all tables are exact" in said.output, said.output
    assert f"{len(RUN_FAILPOINTS)} of {len(RUN_FAILPOINTS)}" in said.output


@pytest.mark.long
@pytest.mark.parametrize(
    "mode", [[], ["--real-time"], ["--inline", "--store", "bucket"]], ids=["micro-batch", "real-time", "bucket"]
)
def test_short_soak(tmp_path: Path, mode: list[str]) -> None:
    """The command kills real Spark, or a topology in a bucket that loses answers and whose disk is emptied; it resumes that
    and reports it, and leaves no process and no file behind.
    """
    options = ["--kills", "2", "--seed", "12", "--transactions", "120", *mode, "--output", tmp_path / "soak"]
    process = python("-m", "tests.harness.soak", "transactions", *options, start_new_session=True)
    try:
        said = process.communicate(timeout=500)[0]
    finally:
        process.terminate()  # it takes its processes with it
        process.wait()
    assert process.returncode == 0, said
    assert "2/2" in said
    assert "again, with the same other options: --seed 12" in said
    assert not members(process.pid)
    assert not (tmp_path / "soak").exists()
