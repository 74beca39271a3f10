"""Whole runs over folders that grow: killed, in several stores, simulated, fenced."""

import contextlib
import os
import signal
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from spouts.files.listing import InputFile
from spouts.files.taken_log import AdmittedFile, FileLog, LogPlace
from state import MemoryState, MemoryStore, SqliteStore, read_table, read_tables
from state.stores.zookeeper import ZooKeeperStore
from tests.budgets import examples
from tests.cli.look.test_audit import audited
from tests.processes import ran
from tests.spouts.files.growing import Growing
from tests.spouts.files.run_growing import counting_lines
from tests.transactional.recovery.crashes import CrashError, CrashingLead, Fuse
from txtopo import Config, Fields
from txtopo.api.store import Change, Lead, Put
from txtopo.servers.zookeeper import ZooKeeperServer
from txtopo.testing.inline import run_inline
from txtopo.testing.simulation.schedules import make_subject, run_schedules
from txtopo.topology.user_code.loading import load_target


def arrive(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text(f"{name}\n")


def run_until(folder: Path, output: Path, until: int, *settings: str, failpoints: str = "") -> int:
    """Run in a process of its own; return how it ended."""
    command = ["-m", "tests.spouts.files.run_growing", folder, output, until, *settings]
    return ran(*command, failpoints=failpoints).returncode


def counts_in(output: Path) -> dict[str, int]:
    return {row["line"]: row["n"] for row in read_table(output / "lines").to_pylist()}


@pytest.mark.slow
def test_a_rewind_takes_files_again_unless_they_are_gone(tmp_path: Path, command_line) -> None:
    """The log needs no change: files from the place on are taken again; a file that was moved away is asked for."""
    folder = tmp_path / "in"
    folder.mkdir()
    command_line.write_module(
        "growing",
        """
from state import DeltaState
from tests.spouts.files.run_growing import counting_lines
from txtopo import Fields

def topology():
    return counting_lines("in", DeltaState("out/lines", key=Fields("line: string"), value=Fields("n: long")))
""",
    )

    def run(until: int) -> None:
        run_inline(load_target("growing", {}).topology, Config(group_transactions_max=1), until=until)

    for number, name in enumerate("zyxw", 1):
        arrive(folder, name)
        run(number)
    (folder / "x").rename(tmp_path / "x")
    before = read_tables(tmp_path / "out").txid
    refusal = command_line.refusal("rewind", "growing", "2", "--yes")
    assert f"transactions after 2 took {folder / 'x'}, and these files are missing or have changed" in refusal
    assert read_tables(tmp_path / "out").txid == before == 4
    (tmp_path / "x").rename(folder / "x")
    command_line.told("rewind", "growing", "2", "--yes")
    assert counts_in(tmp_path / "out") == {"z": 1, "y": 1}
    arrive(folder, "a")
    run(5)
    assert counts_in(tmp_path / "out") == dict.fromkeys("zyxwa", 1)
    command_line.told("audit", "out")


KILLS = (
    "spout.keep.before=kill:2",
    "spout.keep.after=kill:1",
    "metadata.save.before=kill:1",
    "metadata.save.after=kill",
)


@pytest.mark.long
@pytest.mark.slow
def test_killed(tmp_path: Path) -> None:
    """``kill -9`` before and after the log is written and before and after the metadata is: each file counts once."""
    folder = tmp_path / "in"
    folder.mkdir()
    names = [f"part-{number * 7 % 31}.txt" for number in range(3 * len(KILLS) + 3)]
    for number, failpoint in enumerate(KILLS):
        arrive(folder, *names[3 * number : 3 * number + 3])
        assert run_until(folder, tmp_path / "out", 1_000, failpoints=failpoint) == -signal.SIGKILL
    arrive(folder, *names[-3:])
    assert run_until(folder, tmp_path / "out", len(names)) == 0
    assert counts_in(tmp_path / "out") == dict.fromkeys(names, 1)
    assert audited(tmp_path / "out").findings == []


@pytest.mark.slow
def test_simulated(tmp_path: Path) -> None:
    """Crashes, zombies and a store that does not answer, at each write of the log too: each file counts once."""
    names = [f"part-{number * 7 % 31}.txt" for number in range(6)]
    arrive(tmp_path, *names)
    subject = make_subject(counting_lines(tmp_path, MemoryState(Fields("line"), Fields("n"))), until=len(names))
    result = run_schedules(subject, range(1, 1 + examples(100)), processes=1)
    assert [failure.violation for failure in result.failures] == []
    assert result.schedules == examples(100)
    assert len(result.faults) >= min(10, examples(100) // 4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("zookeeper", marks=pytest.mark.slow)])
def test_a_log_of_many_names(kind: str, zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """Thirty thousand long names go to the store in records that it takes, and come back from it."""
    stores = {
        "sqlite": lambda: SqliteStore(tmp_path / "coordinator.sqlite"),
        "zookeeper": lambda: ZooKeeperStore(zookeeper.hosts, root="/names", session_timeout_secs=10),
    }
    files = [
        InputFile(f"part-{n:05}-{uuid.UUID(int=n * 7**39 % 2**128)}-c000.parquet", "", n, n) for n in range(30_000)
    ]
    for round_number in range(2):
        store = stores[kind]()
        log = FileLog(LogPlace(store, store.take_lead("topology", "test"), "topology/source"))
        if round_number == 0:
            log.begin("/in", {"/in": 1})
            log.admit(files, 0)
            log.remove(range(0, 30_000, 3))
        assert len(log) == 20_000
        assert log.of_name(files[1].name) == AdmittedFile(1, files[1].name, 1, 1)
        assert (files[0].name in log, log.next_number) == (False, 30_000)
        store.close()


@pytest.fixture
def place() -> LogPlace:
    """Where a log is kept."""
    store = MemoryStore()
    return LogPlace(store, store.take_lead("topology", "test"), "topology/source")


def new_log(place: LogPlace) -> FileLog:
    log = FileLog(place)
    log.begin("/in", {"/in": 1})
    return log


@pytest.mark.parametrize("is_read_back", [False, True])
def test_a_number_is_never_given_twice(place: LogPlace, is_read_back: bool) -> None:
    """A new file never gets the number of one that was taken, also when that has left and the log was compacted."""
    log = new_log(place)
    for number in range(4):
        log.admit([InputFile(f"{number}.txt", "", 1, 1)], 0)
    log.remove([2, 3])
    log.rename("/", "in/")
    log.remove([0, 1])
    log.rename("/in")
    if is_read_back:
        log = FileLog(place)
    assert (len(log), log.next_number) == (0, 4)
    log.admit([InputFile("4.txt", "", 1, 1)], 0)
    assert log.of_name("4.txt").number == 4


def test_a_compaction_keeps_what_is_known_of_a_file(place: LogPlace) -> None:
    """Whether a rewind has promised to read it again, or a warning was logged, wherever its folder is by then."""
    log = new_log(place)
    files = [InputFile(f"{number}.txt", "", number + 1, number) for number in range(3)]
    log.admit(files, 0)
    log.flag([1])
    log.owe([files[2]], 0)
    before = list(log.entries_from(0))
    assert [(file.is_flagged, file.is_owed) for file in before] == [(False, False), (True, False), (False, True)]
    log.rename("/", "in/")
    log.rename("/in")
    again = FileLog(place)
    moved = [attrs.evolve(file, name=f"in/{file.name}") for file in before]
    assert list(log.entries_from(0)) == list(again.entries_from(0)) == moved


def test_what_a_crash_left_of_a_compaction_is_not_read(place: LogPlace) -> None:
    """A store may divide a long write, so a compaction may be cut short: the next one begins anew."""
    log = new_log(place)
    log.admit([InputFile("a.txt", "", 1, 1)], 0)
    folder = place.generation(0)
    records = [place.store.read(f"{folder}/{name}") for name in place.store.children(folder)]
    place.lead.write([Put(place.record(1, 90 + index), record) for index, record in enumerate(records) if record])
    log = FileLog(place)
    log.remove([0])
    log.rename("/")
    assert len(log) == len(FileLog(place)) == 0


@attrs.frozen
class OneByOne(Lead):
    """A lead whose store writes each change in a step of its own, and that dies before a certain one."""

    inner: Lead
    steps: list[Change] = attrs.field(factory=list)
    steps_max: int = 1_000

    @property
    def epoch(self) -> int:
        return self.inner.epoch

    def write(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if len(self.steps) == self.steps_max:
                raise CrashError("before the next step")
            self.inner.write([change])
            self.steps.append(change)

    def is_held(self) -> bool:
        return self.inner.is_held()

    def release(self) -> None:
        self.inner.release()


@pytest.mark.parametrize("steps", range(5))
def test_a_compaction_that_a_store_has_divided(place: LogPlace, steps: int) -> None:
    """Whatever the step of it that a crash comes before, the log has all its entries, under the former head or the new one."""
    log, names = new_log(place), ("a" * 40_000, "b" * 40_000)  # so long that each change has a record of its own
    log.admit([InputFile(name, "", 1, 1) for name in names], 0)
    log = FileLog(attrs.evolve(place, lead=OneByOne(place.lead, steps_max=steps)))
    with contextlib.suppress(CrashError):
        log.rename("/", "in/")
        assert steps == 4, "it writes two records and the head, and removes the former generation"
    found = FileLog(place)
    assert found.head is not None
    prefix = "" if found.head.root == "/in" else "in/"
    assert [entry.name for entry in found.entries_from(0)] == [prefix + name for name in names]
    assert found.next_number == 2


def test_a_log_knows_its_own_metadata(place: LogPlace) -> None:
    """A log that was begun anew is another one, however many records it has had."""
    log = new_log(place)
    reference = log.reference
    assert log.holds(reference)
    log.admit([InputFile("a.txt", "", 1, 1)], 0)
    assert log.holds(reference)
    log.begin("/in", {"/in": 1})
    assert not log.holds(reference)
    assert not log.holds(None)


def test_entries_are_told_apart_by_their_folders() -> None:
    """Those that were found in other folders are known, whichever folder was first, and whatever is removed."""
    log = FileLog(None)
    log.begin("/", {"/in": 1})
    log.admit([InputFile(name, "", 1, 1) for name in ("a", "b", "c")], 0)
    log.remove([2])
    assert log.folder_of({"/in": 2}) == 1
    log.admit([InputFile("d", "", 1, 1), InputFile("e", "", 1, 1)], 1)
    log.remove([4])
    assert [[entry.name for entry in log.others_than(folder)] for folder in (0, 1, 2)] == [
        ["d"],
        ["a", "b"],
        ["a", "b", "d"],
    ]
    log.remove([0, 1])
    assert [len(log.others_than(folder)) for folder in (0, 1, 2)] == [1, 0, 1]
    log.unite(0, [1])
    assert [len(log.others_than(folder)) for folder in (0, 1, 2)] == [0, 1, 1]


def test_a_file_is_not_known_before_that_is_durable(place: LogPlace) -> None:
    """If the store does not take an admission, the file is still new."""
    log = new_log(attrs.evolve(place, lead=CrashingLead(place.lead, Fuse(steps=2))))
    with pytest.raises(CrashError):
        log.admit([InputFile("a.txt", "", 1, 1)], 0)
    assert ("a.txt" in log, log.next_number) == (False, 0)


@pytest.mark.slow
def test_a_look_is_cheap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look lists a folder once, and looks at a bounded number of its files, however many were taken from it."""
    for number in range(5_000):
        (tmp_path / f"part-{number:05}-c000.txt").write_bytes(b"x")
    growing = Growing(tmp_path, options={"batch_files_max": 5_000})
    growing.start()
    growing.wait()
    txid, previous = 0, None
    while growing.coordinator.is_ready():
        txid, previous = txid + 1, growing.coordinator.initialize_transaction(txid + 1, previous)
    growing.coordinator.cleanup_before(txid + 1)
    calls = {"stat": 0, "scandir": 0}
    real = {name: getattr(os, name) for name in calls}

    def counting(name: str) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            return real[name](*arguments, **options)

        return counted

    for name in calls:
        monkeypatch.setattr(os, name, counting(name))
    growing.clock.secs += 60
    assert not growing.coordinator.is_ready()
    assert calls["scandir"] == 1
    assert 1_000 <= calls["stat"] <= 1_010
