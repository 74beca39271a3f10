"""What a durable step relies on was synced before it: a loss of power at any of them loses and doubles nothing."""

import pathlib
import random
import time

import pytest
from click.testing import CliRunner

from spouts import MemoryTransactionalSpout
from state import DeltaState, SqliteStore
from tests.acceptance.topologies import counting, counts_of, make_data, read_words
from tests.crashes import dying
from tests.harness.history.clock import SimulatedClock
from tests.state.delta.delta_tables import merge_at_once, sized_tables
from tests.transactional.recovery.divergences import keep_notes_beside
from tests.transactional.recovery.power_loss import STORE, Disk
from tests.transactional.recovery.three_states import (
    CONFIG,
    EXECUTORS_CONFIG,
    REAL_TIME_CONFIG,
    expected_rows,
    tables_in,
    topology,
)
from tests.variants import variants
from txtopo import Fields
from txtopo.failpoints import armed
from txtopo.main.group import txtopo
from txtopo.testing.inline import run_inline
from txtopo.transactional.recovery.coordinator_state import CoordinatorState

WAYS = pytest.mark.parametrize(
    ("config", "vectors"),
    [
        pytest.param(config, vectors, id=f"{place}, {'vectors' if vectors else 'files'}")
        for place, config in (("driver", CONFIG), ("real-time", REAL_TIME_CONFIG), ("executors", EXECUTORS_CONFIG))
        for vectors in (False, True)
    ],
)


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """An output folder whose syncs are noted."""
    with Disk.watched(tmp_path / "out", monkeypatch) as watched:
        yield watched


STEPS = ("folder.drafted", "folder.named", "delta.write.checked", "delta.write.landed", "table.maintain.after")
"""Steps between which files are on disk, with or without their names."""


def sized_topology(folder, transactions, tier_files=8, *, vectors=False):
    return sized_tables(topology(folder, transactions, deletion_vectors=vectors), tier_files=tier_files)


def lefts_of_run(disk, config, transactions, steps, slots=2, *, vectors=False, tier_files=8):
    """Run, and return what a loss of power at each of some steps would have left."""
    lefts = []

    def handler(name):
        if name in steps:
            lefts.append((name, disk.left()))

    with armed(handler):
        run_inline(sized_topology(disk.folder, transactions, tier_files, vectors=vectors), config, slots=slots)
    return lefts


def check_left(left, folder, config, transactions, *, vectors=False, tier_files=8, **luck):
    """Go on from what was left, to the end of the input: tables are exact, and the journal proves it."""
    left.lay_out(folder, **luck)
    run_inline(sized_topology(folder, transactions, tier_files, vectors=vectors), config)
    assert tables_in(folder) == expected_rows(transactions)
    audit = CliRunner().invoke(txtopo, ["audit", str(folder)])
    assert (audit.exit_code, f"1 to {transactions}, each once" in audit.stdout) == (0, True), audit.output


@pytest.mark.slow
@WAYS
def test_at_each_step_of_a_group(tmp_path, disk, config, vectors):
    """The power fails while a group is prepared, decided, written to one table after another, and committed."""
    steps = ("group.decide.before", "group.decide.after", "table.write.after", "group.commit.after")
    lefts = lefts_of_run(disk, config, 24, steps, vectors=vectors)
    group = lefts[-8:]
    assert [name for name, _ in group] == [steps[0], steps[3], steps[1], *[steps[2]] * 4, steps[3]]
    for _, left in group:
        check_left(left, tmp_path / "left", config, 24, vectors=vectors)


@pytest.mark.slow
def test_a_note_that_is_in_a_draft(tmp_path, disk, monkeypatch):
    """A group whose note is too large for the store is decided once the draft of it is durable, and finished from there."""
    keep_notes_beside(monkeypatch, 100)
    lefts = lefts_of_run(disk, CONFIG, 24, ("group.decide.after",))
    check_left(lefts[-1][1], tmp_path / "left", CONFIG, 24)


@pytest.mark.slow
@pytest.mark.covering(1)
@pytest.mark.parametrize("vectors", [False, True], ids=["files", "vectors"])
@pytest.mark.parametrize("are_entries_lucky", [False, True], ids=["nothing more", "log entries too"])
def test_after_upkeep(tmp_path, disk, monkeypatch, are_entries_lucky, vectors):
    """The power fails after checkpoints and merges, and after the next Delta write, which syncs their names."""
    merge_at_once(monkeypatch)
    config = EXECUTORS_CONFIG.with_settings({"topology.group.transactions.max": 1})
    steps = ("group.commit.before", "group.commit.after")
    lefts = lefts_of_run(disk, config, 10, steps, slots=16, vectors=vectors, tier_files=3)
    checkpoints = [len(list(path.glob("*.checkpoint.parquet"))) for path in disk.folder.glob("*/_delta_log")]
    assert min(checkpoints) >= 2  # of a point, and of upkeep
    assert len(checkpoints) == 4
    assert len(list(disk.folder.glob("rows/_data/merged-*"))) == 2
    assert bool(list(disk.folder.glob("folded/_data/merged-*"))) == vectors
    for _, left in lefts[-3:-1]:
        check_left(
            left, tmp_path / "left", config, 10, are_entries_lucky=are_entries_lucky, vectors=vectors, tier_files=3
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [CONFIG, REAL_TIME_CONFIG, EXECUTORS_CONFIG], ids=["driver", "real-time", "executors"]
)
@pytest.mark.parametrize("every", variants(41, long=[5]))
def test_anywhere_while_segments_are_merged(tmp_path, disk, monkeypatch, config, every):
    """The power fails with files of writes, of merges and of deletion vectors on disk, with or without their names."""
    merge_at_once(monkeypatch)
    config = config.with_settings({"topology.group.transactions.max": 2})
    lefts = lefts_of_run(disk, config, 12, STEPS, vectors=True, tier_files=2)
    assert list(disk.folder.glob("*/_data/merged-*"))
    for at, (_, left) in enumerate(lefts[::every]):
        luck = random.Random(at) if at % 3 else None
        check_left(
            left, tmp_path / "left", config, 12, vectors=True, tier_files=2, are_entries_lucky=bool(at % 2), luck=luck
        )


@pytest.mark.parametrize(
    ("config", "noted"),
    [(CONFIG, set()), (REAL_TIME_CONFIG, {"totals", "latest", "folded"})],
    ids=["driver", "real-time"],
)
def test_a_decided_group_is_finished_from_its_note(tmp_path, config, noted):
    """It has the rows of keyed tables in real-time mode, where nothing of them is on the disk yet; else their files."""
    folder = tmp_path / "out"
    with dying("group.decide.after", 2):
        run_inline(topology(folder, 24), config)
    store = SqliteStore(folder / "_txtopo" / STORE)
    known = CoordinatorState(store, None, "interrupted")
    group, committed = known.group(), known.committed().txid
    store.close()
    assert {name for name, note in group.notes.items() if "rows" in note} == noted
    files = {name: list((folder / name / "_data").glob(f"*-{group.last}-*")) for name in group.states}
    assert {name for name in group.states if not files[name]} == noted
    assert tables_in(folder) == expected_rows(committed)
    run_inline(topology(folder, 24), config)
    assert tables_in(folder) == expected_rows(24)


LOOK_SECS = 100
"""By so much the clock goes on at each look: a group takes some minutes."""


def points_in(folder: pathlib.Path, clock: SimulatedClock) -> list[int]:
    """Return the points on record that have not passed yet."""
    store = SqliteStore(folder / "_txtopo" / STORE)
    try:
        known = CoordinatorState(store, None, "interrupted").points()
    finally:
        store.close()
    return [point.txid for point in known.at(int(clock.now_secs * 1000), CONFIG.rewind_hours).points]


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [CONFIG, pytest.param(EXECUTORS_CONFIG, marks=pytest.mark.long)], ids=["driver", "executors"]
)
@pytest.mark.parametrize("every", variants(127, long=[11]))
def test_anywhere_while_history_is_deleted(tmp_path, disk, monkeypatch, config, every):
    """Log entries, checkpoints, files, vectors and parts of the journal go; some deletions last, in any order.

    Each point on record can be read from what is left, and again at the end.
    """
    merge_at_once(monkeypatch)
    config = config.with_settings({"topology.group.transactions.max": 2})
    # Points are by the clock, of which chance must have no part: here one version stays, and a merge of it goes.
    yesterday = time.time() - 24 * 3600
    clock, lefts = SimulatedClock(yesterday - yesterday % 3600 + 57 * 60), []

    def look() -> float:
        clock.go_on(LOOK_SECS)
        return clock.now_secs

    def run(folder):
        with clock.instead_of_the_real_one():
            run_inline(sized_topology(folder, 24, 2, vectors=True), config, wall_secs=look)

    def check_points(folder):
        points = points_in(folder, clock)
        for point in points:
            expected = expected_rows(point)
            assert tables_in(folder, point) == expected
        return points

    def handler(name):
        if name in STEPS:
            lefts.append(disk.left())

    with armed(handler):
        run(disk.folder)
    assert len(check_points(disk.folder)) > 3
    assert not (disk.folder / "folded" / "_delta_log" / f"{1:020d}.json").exists(), "it is deleted"
    for at, left in enumerate(lefts[len(lefts) // 3 :: every]):
        left.lay_out(tmp_path / "left", luck=random.Random(at) if at % 3 else None)
        check_points(tmp_path / "left")
        run(tmp_path / "left")
        assert tables_in(tmp_path / "left") == expected_rows(24)
        check_points(tmp_path / "left")
        audit = CliRunner().invoke(txtopo, ["audit", str(tmp_path / "left")])
        assert audit.exit_code == 0, audit.output


@pytest.mark.slow
@WAYS
def test_what_a_dead_process_has_written_is_synced_before_it_counts(tmp_path, disk, config, vectors):
    """A process dies between a Delta write and its sync; the next one finishes the group; then the power fails."""
    with dying("delta.write.landed", 2):
        run_inline(topology(disk.folder, 24, deletion_vectors=vectors), config)
    lefts = lefts_of_run(disk, config, 24, ("recovery.commit.after",), vectors=vectors)
    assert len(lefts) == 1
    check_left(lefts[0][1], tmp_path / "left", config, 24, vectors=vectors)


def test_so_it_is_with_one_table(tmp_path, disk):
    """What has landed in the only table counts, and is synced before it does."""
    data = make_data(1, 10)
    lefts = []

    def handler(name):
        if name == "recovery.commit.after":
            lefts.append(disk.left())

    def run(folder):
        words = DeltaState(folder / "words", Fields("word: string"), Fields("n: long"))
        run_inline(counting(MemoryTransactionalSpout(data, Fields("word"), 3), words))

    with dying("delta.write.landed"):
        run(disk.folder)
    with armed(handler):
        run(disk.folder)
    lefts[0].lay_out(tmp_path / "left")
    run(tmp_path / "left")
    assert read_words(tmp_path / "left") == counts_of(data)
