"""The timeline: what a run leaves for the page."""

import os
import threading
import time
from pathlib import Path

import attrs
import pytest

from tests.engine.test_metrics import PROGRESS as PROGRESS_REPORT, REPORT
from tests.ui.runs import CONFIG, EVIL, SCRIPT, SECRET, TRANSACTIONS, run_in, topology_in
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo import Config, Fields, TopologyBuilder
from txtopo.api.components.planned import NEVER
from txtopo.api.components.spout import Lag
from txtopo.assembly.snapshot import read_snapshot, snapshots_in
from txtopo.attempts import TransactionAttempt
from txtopo.engine.timeline.ends import place_of
from txtopo.engine.timeline.observer import Timeline
from txtopo.engine.timeline.records import (
    FILES,
    PAST_BYTES_MAX,
    PROGRESS,
    ROOTS,
    epochs_in,
    past_in,
    past_path,
    path_of,
)
from txtopo.engine.timeline.ring import HEADER_BYTES
from txtopo.errors import RuleError
from txtopo.files.places import folder_at
from txtopo.inspect.backend import FolderBackend
from txtopo.inspect.timeline.series import plots
from txtopo.inspect.timeline.timeline import TimelineReader
from txtopo.testing.redelivering_queue import QueueSpout
from txtopo.transactional.core.actions import AssignedAttempt, Commit, DeadLetter, Process
from txtopo.transactional.core.record.facts import Fact, Trouble, carried_out, of_attempts
from txtopo.transactional.core.record.history import HistoryEvent
from txtopo.transactional.core.record.record import Record


def test_a_run(tmp_path):
    """Every attempt is there with its moments in order, failed ones with their reason, and every write."""
    reader = TimelineReader(run_in(tmp_path))
    for txid in range(1, TRANSACTIONS + 1):
        attempts = reader.attempts(txid)
        assert [attempt.outcome for attempt in attempts] == (["failed", "visible"] if txid % 3 == 0 else ["visible"])
        last = attempts[-1]
        moments = [
            getattr(last, f"{name}_at") for name in ("begun", "metadata", "started", "processed", "grouped", "phases")
        ]
        assert moments == sorted(moments)
        assert last.ended_at >= moments[-1]
        assert [write.state for write in reader.writes(last.epoch, last.group)] == [EVIL]
        if txid % 3 == 0:
            assert attempts[0].component == "fails"
            assert attempts[0].error.startswith(SCRIPT)
    sample = reader.last(PROGRESS)[""]
    assert sample["numbers"][1] == TRANSACTIONS
    assert reader.run().ended == "the spout is exhausted"


def test_the_next_run_goes_on(tmp_path):
    """In files of its own, with the records and errors of the last one; those of the last one are put away."""
    run_in(tmp_path, until=3)
    reader = TimelineReader(run_in(tmp_path))
    assert epochs_in(reader.folder) == [2]
    assert [reader.attempts(txid)[-1].epoch for txid in (1, 4)] == [1, 2]
    assert {error.epoch for error in reader.errors()} == {1, 2}


@pytest.mark.slow
def test_earlier_runs_are_kept(tmp_path):
    """Each with its own records and samples alone, its errors, and why it ended; none can be read by others."""
    for until in (2, 4, None):
        folder = run_in(tmp_path, until=until)
    past = past_in(folder)
    assert list(past) == [2, 1]
    for number, txids in ((1, (1, 2)), (2, (3, 4))):
        reader = TimelineReader(past[number])
        assert [txid for txid in range(1, TRANSACTIONS + 1) if reader.attempts(txid)] == list(txids)
        assert reader.last(PROGRESS)[""]["numbers"][:2].tolist() == [txids[-1], 2]
        assert reader.run().ended == "the requested transaction is committed"
        assert [error.txid for error in reader.errors()] == ([] if number == 1 else [3])
        assert past[number].stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_earlier_runs_are_bounded(tmp_path):
    """The oldest are removed: those that are too many, and those for which there is no room."""
    folder = run_in(tmp_path, until=1)
    for number in range(1, 60):
        past_path(folder, number).mkdir(parents=True)
    run_in(tmp_path, until=2)
    assert list(past_in(folder)) == [*range(59, 9, -1)]
    with (past_path(folder, 30) / "large").open("wb") as file:
        file.truncate(PAST_BYTES_MAX)
    run_in(tmp_path)
    assert list(past_in(folder)) == [*range(60, 30, -1)]


def test_a_crash_while_an_earlier_run_is_put_away(tmp_path):
    """Its files may be apart then; the next run brings them together."""
    folder = run_in(tmp_path, until=3)
    own = past_path(folder, 1)
    own.mkdir(parents=True)
    path_of(folder, 1, "samples").rename(path_of(own, 1, "samples"))
    run_in(tmp_path)
    assert list(past_in(folder)) == [1]
    assert sorted(file.name for file in own.iterdir()) == [f"0000000001.{what}" for what in sorted(FILES)]


def test_no_room_for_earlier_runs(tmp_path):
    """A run goes on without them."""
    folder = run_in(tmp_path, until=2)
    (folder / "past").touch()
    run_in(tmp_path)
    assert epochs_in(folder) == [2]
    assert past_in(folder) == {}


def test_secrets_stay_out(tmp_path):
    """Of settings by their name, and of what errors quote."""
    folder = run_in(tmp_path)
    assert all(SECRET.encode() not in file.read_bytes() for file in folder.iterdir())


@pytest.mark.slow
def test_stalled_predecessor(tmp_path):
    """One that has lost the lead before it has begun its files leaves those of its successor alone."""
    folder = run_in(tmp_path, until=3)
    run_in(tmp_path)
    before = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    incarnation = TimelineReader(folder).run().writer.incarnation
    with Timeline(topology_in(tmp_path), CONFIG, folder) as stalled:
        stalled.leads(incarnation, 1)
    assert {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()} == before


def assigned(txid, tries=1):
    return AssignedAttempt(TransactionAttempt(txid, tries), {}, NEVER)


class Observed:
    """A timeline that is told of a run's facts, each as it happens."""

    def __init__(self, timeline):
        self.timeline = timeline
        self._record = Record()
        timeline.began(self._record, lambda: 0)

    def begin(self, *txids):
        self._note(Fact(time.monotonic(), HistoryEvent.BEGUN, txids, planned_ms=(0,) * len(txids)))

    def acted(self, action):
        self._note(carried_out(time.monotonic(), action))

    def happened(self, what, attempt):
        self._note(of_attempts(time.monotonic(), what, (attempt,), tuples=(1,)))

    def failed(self, what, attempt, **how):
        txids = () if what is HistoryEvent.STOPPED else (attempt.txid,)
        self._note(Trouble(time.monotonic(), what, txids, (attempt,), **how))

    def _note(self, fact):
        self._record.add(fact)
        self.timeline.recorded(fact)


@attrs.define
class Told:
    """A timeline, and what a reader sees once it is closed."""

    folder: object

    def outcomes(self, txid):
        return [attempt.outcome for attempt in TimelineReader(self.folder).attempts(txid)]


@pytest.fixture
def timeline(tmp_path):
    found = Timeline(topology_in(tmp_path), CONFIG, tmp_path / "timeline", 0.01)
    found.leads("a", 1)
    return Observed(found)


def test_what_is_stuck_shows(timeline, tmp_path):
    """An attempt that is open for over a second is recorded as open, with what it has reached."""
    timeline.begin(1)
    timeline.acted(Process(1, (assigned(1),), {}))
    reader = TimelineReader(tmp_path / "timeline")
    wait_for("the attempt is recorded", lambda: reader.attempts(1))
    with timeline.timeline:
        pass
    (found,) = reader.attempts(1)
    assert (found.outcome, found.processed_at) == ("open", None)
    assert found.started_at is not None


def test_hung_disk(tmp_path, monkeypatch):
    """If writing a timeline hangs, that thread alone does: the run commits everything, and ends."""
    hangs, released, threads = threading.Event(), threading.Event(), set()
    whole = os.pwrite

    def hang(file, data, offset):
        if "timeline-" in str(Path(f"/proc/self/fd/{file}").readlink()) and offset >= HEADER_BYTES and data:
            threads.add(threading.current_thread().name)
            hangs.set()
            released.wait()
        return whole(file, data, offset)

    monkeypatch.setattr(os, "pwrite", hang)
    try:
        folder = run_in(tmp_path)
        assert hangs.wait(DEADLINE_SECS)
        found = read_snapshot(snapshots_in(folder_at(tmp_path / "_txtopo")), EVIL)
        assert found is not None
        assert (found[1].committed, found[1].ended) == (TRANSACTIONS, "the spout is exhausted")
        assert threads == {"txtopo-timeline"}
        assert TimelineReader(folder).attempts(1) == []
    finally:
        released.set()


def test_dead_letter_rollback_and_return(timeline, tmp_path):
    """A dead letter, an attempt that was rolled back, and one that returned from its group are told apart."""
    timeline.begin(1, 2, 3)
    timeline.acted(Process(1, (assigned(1), assigned(2), assigned(3)), {}))
    one, two, three = (TransactionAttempt(txid, 1) for txid in (1, 2, 3))
    timeline.happened(HistoryEvent.PROCESSED, one)
    timeline.happened(HistoryEvent.PROCESSED, three)
    timeline.failed(HistoryEvent.FAILED, one, component="split", reason="gave up", times=1)
    timeline.acted(DeadLetter(1, assigned(1, 2), 1, "gave up"))
    timeline.happened(HistoryEvent.DEAD_LETTER_WRITTEN, TransactionAttempt(1, 2))
    timeline.failed(HistoryEvent.ROLLED_BACK, two)
    timeline.acted(Commit(2, (assigned(3),)))
    timeline.failed(HistoryEvent.RETURNED, three)
    timeline.acted(Commit(3, (assigned(3),)))
    timeline.happened(HistoryEvent.COMMITTED, three)
    with timeline.timeline:
        pass
    told = Told(tmp_path / "timeline")
    assert [told.outcomes(txid) for txid in (1, 2, 3)] == [["failed", "dead letter"], ["returned"], ["visible"]]
    assert TimelineReader(tmp_path / "timeline").attempts(3)[0].group == 3


def test_what_stops_a_run(timeline, tmp_path):
    """The error, with its component and transaction; and the run is known to have failed."""
    timeline.begin(1)
    timeline.acted(Process(1, (assigned(1),), {}))
    error = RuleError("a bug", txid=1, attempt=1, component="split")
    attempt = TransactionAttempt(1, 1)
    with pytest.raises(RuleError), timeline.timeline:
        timeline.failed(HistoryEvent.STOPPED, attempt, component="split", reason=str(error))
        timeline.failed(HistoryEvent.FAILED, attempt, component="split", reason=str(error))
        raise error
    reader = TimelineReader(tmp_path / "timeline")
    assert (reader.run().ended, reader.run().is_failed) == ("RuleError: a bug", True)
    assert [each.outcome for each in reader.attempts(1)] == ["failed"]
    assert [(each.component, each.txid) for each in reader.errors()] == [("split", 1)]


def test_no_place(tmp_path):
    """A topology without a metadata directory keeps none; a folder that can't be written stops nothing."""
    topology = topology_in(tmp_path)
    place = place_of(topology, Config())
    assert place is not None
    assert place.parent == tmp_path / "_txtopo"
    (tmp_path / "file").touch()
    with Timeline(topology, CONFIG, tmp_path / "file" / "timeline") as timeline:
        timeline.leads("a", 1)
        Observed(timeline).begin(1)
    assert (tmp_path / "file").read_bytes() == b""


def test_killed_workers_of_a_plain_topology(tmp_path):
    """Its samples say how many workers were killed, and so does its page."""
    builder = TopologyBuilder("plain")
    builder.set_spout("numbers", QueueSpout(("localhost", 1), Fields("n: long")))
    folder = tmp_path / "_txtopo" / "timeline-plain"
    with Timeline(builder.build(), Config(), folder, 0.01) as found:
        found.progressed(attrs.evolve(REPORT, workers_killed=3))
    backend = FolderBackend(folder_at(tmp_path))
    assert backend.header("plain").workers.killed == 3
    backend.close()


def test_several_sources(tmp_path):
    """Plots of the lag have a line for each; one that is not known has none."""
    folder = tmp_path / "_txtopo" / "timeline-words"
    lags = {"orders": Lag(7), "clicks": Lag(3), "files": Lag(None, 2, 1 << 20), "rows": Lag()}
    with Timeline(topology_in(tmp_path), CONFIG, folder, 0.01) as found:
        found.leads("a", 1)
        found.progressed(attrs.evolve(PROGRESS_REPORT, lags=lags))
    found = plots(TimelineReader(folder), 60, None, time.time(), is_over=True)
    last = {plot.name: {name: line[-1] for name, line in plot.lines.items()} for plot in found.plots}
    assert last["lag"] == {"orders": 7, "clicks": 3}
    assert (last["lag files"], last["lag bytes"]) == ({"files": 2}, {"files": 1})


def test_no_samples_of_the_other_kind(tmp_path):
    """A transactional topology has no roots."""
    assert TimelineReader(run_in(tmp_path)).last(ROOTS) == {}
