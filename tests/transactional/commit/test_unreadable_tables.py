"""A table that can't be read: tried again as often as a write is, then the run stops and says which file it is."""

import logging
import pathlib
import shutil

import pytest

from spouts import MemoryTransactionalSpout
from state import DeltaState, MemoryState
from state.memory import OpenedMemoryState
from tests.acceptance.topologies import CountTuples
from tests.topologies import committing, run_pausing
from tests.transactional.recovery.divergences import DATA, Place
from txtopo import (
    BatchBolt,
    Config,
    FailedException,
    Fields,
    ReportedFailedException,
)
from txtopo.errors import StateFailure, StopError
from txtopo.testing.inline import run_inline

BOUNDED = Config({"topology.transaction.max.attempts": 20})
"""So that a replay without end fails a test, and does not hang it."""


class Disguise(CountTuples):
    """Raises a failure of its own where its state can't be read."""

    def finish_batch(self):
        try:
            super().finish_batch()
        except FailedException as error:
            raise FailedException("later, perhaps") from error


class Mask(CountTuples):
    """Raises an error of its own without saying what it comes from."""

    def finish_batch(self):
        try:
            super().finish_batch()
        except FailedException:
            raise FailedException("later, perhaps")  # noqa: B904 - as many do


def topology(state, committer: BatchBolt | None = None):
    spout = MemoryTransactionalSpout(DATA, Fields("word"), 4)
    return committing(spout, committer or CountTuples(), name="sum", topology_id="sums", total=state)


def delta(folder: pathlib.Path) -> DeltaState:
    return DeltaState(folder / "total", key=Fields("name: string"), value=Fields("n: long"))


def test_a_data_file_that_is_gone_stops_the_run(tmp_path, caplog):
    """The error names state, table and file; each try before it is logged with its reason."""
    run_inline(topology(delta(tmp_path)), until=2)
    (file,) = (tmp_path / "total" / "_data").glob("*.parquet")
    file.unlink()
    with pytest.raises(StopError) as raised:
        run_pausing(topology(delta(tmp_path)), config=BOUNDED)
    text = str(raised.value)
    assert "could not be read or written in 5 tries" in text
    assert f"state 'total' at {tmp_path / 'total'}" in text
    assert f"its data file {file} is missing" in text
    assert (raised.value.txid, sum("trying again" in message for message in caplog.messages)) == (3, 4)


def test_a_table_that_comes_back_is_read(tmp_path, monkeypatch):
    """It is enough that one try in five works; nothing is processed again for it, and every total is right."""
    run_inline(topology(delta(tmp_path)), until=2)
    (file,) = (tmp_path / "total" / "_data").glob("*.parquet")
    kept = shutil.copy(file, tmp_path / "kept")
    file.unlink()
    pauses: list[float] = []

    def pause(secs):
        pauses.append(secs)
        if len(pauses) == 3:
            shutil.copy(kept, file)

    report = run_pausing(topology(delta(tmp_path)), pause)
    assert (len(pauses), report.failures, report.attempts) == (3, 0, report.transactions)
    assert delta(tmp_path).snapshot()["n"].to_pylist() == [sum(map(len, DATA.values()))]


@pytest.mark.parametrize("kind", [StateFailure, FailedException], ids=["a StateFailure", "a FailedException"])
@pytest.mark.parametrize(
    "committer", [CountTuples(), Disguise(), Mask()], ids=["as it is", "as the bolt's own", "unsaid"]
)
def test_what_is_made_of_it_is_bounded_too(monkeypatch, committer, kind):
    """A bolt that raises a FailedException of its own for it does not make it endless, nor a state of somebody's own."""
    calls = []

    def multi_get(_self, keys):
        calls.append(list(keys))
        raise kind("the disk is on fire")

    monkeypatch.setattr(OpenedMemoryState, "multi_get", multi_get)
    with pytest.raises(StopError, match="the disk is on fire"):
        run_pausing(topology(MemoryState(Fields("name"), Fields("n")), committer), config=BOUNDED)
    assert len(calls) == 5


def test_what_finished_before_is_written(monkeypatch):
    """Of a group, the transactions before the one that could not read are committed; the others come again."""
    state = MemoryState(Fields("name"), Fields("n"))
    multi_get, failing = OpenedMemoryState.multi_get, [True]

    def fail_once(self, keys):
        if "3" in keys and failing:
            failing.clear()
            raise StateFailure("once")
        return multi_get(self, keys)

    class ByOthers(CountTuples):
        def finish_batch(self):
            self.state.update(f"{self.attempt.txid}", lambda _: self.n)

    monkeypatch.setattr(OpenedMemoryState, "multi_get", fail_once)
    report = run_pausing(topology(state, ByOthers()), config=Config(max_spout_pending=8))
    assert (report.failures, report.attempts, not failing) == (0, report.transactions, True)
    assert sum(kept.value for kept in state.items().values()) == sum(map(len, DATA.values()))


def test_a_failure_that_repeats_is_logged_at_growing_intervals(caplog):
    """The 2nd, 4th, 8th … failure of a transaction is a warning with its reason; progress has the last one."""

    class Unlucky(CountTuples):
        def finish_batch(self):
            if self.attempt.txid == 2 and self.attempt.attempt < 10:
                raise FailedException("not yet")
            super().finish_batch()

    state = MemoryState(Fields("name"), Fields("n"))
    with caplog.at_level(logging.INFO, "txtopo"):
        report = run_pausing(topology(state, Unlucky()))
    told = [record for record in caplog.records if "transaction 2 has failed" in record.getMessage()]
    assert [record.getMessage().split(":")[0] for record in told] == [
        "transaction 2 has failed once",
        "transaction 2 has failed 2 times",
        "transaction 2 has failed 4 times",
        "transaction 2 has failed 8 times",
    ]
    assert [record.levelname for record in told] == ["INFO", "WARNING", "WARNING", "WARNING"]
    assert all("not yet" in record.getMessage() for record in told)
    assert (report.failures, report.last_failure) == (
        9,
        "[component 'sum', txid 2, attempt 9, epoch 1] not yet",
    )


@pytest.mark.parametrize("phase", ["processing", "commit"])
def test_a_reported_failure_is_told_once(caplog, phase):
    """Each one is an error in the log, in either phase; the warning that it repeats doesn't tell the reason again."""

    class Unlucky(CountTuples):
        def execute(self, tuple):
            super().execute(tuple)
            self.fail("processing")

        def finish_batch(self):
            self.fail("commit")
            super().finish_batch()

        def fail(self, now):
            if now == phase and self.attempt.txid == 2 and self.attempt.attempt < 4:
                raise ReportedFailedException("not yet")

    state = MemoryState(Fields("name"), Fields("n"))
    with caplog.at_level(logging.WARNING, "txtopo"):
        run_pausing(topology(state, Unlucky()))
    told = [(record.levelname, record.getMessage().partition("\n")[0]) for record in caplog.records]
    assert sorted(told) == [
        *(("ERROR", f"[component 'sum', txid 2, attempt {n}, epoch 1] not yet") for n in (1, 2, 3)),
        ("WARNING", "transaction 2 has failed 2 times"),
    ]


@pytest.mark.parametrize("cut", [0, 10, -3], ids=["empty", "in the first line", "in the last line"])
def test_a_log_file_that_was_cut_off_is_named(tmp_path, cut):
    """At the start, the error names the file and has no native stack frames."""
    place = Place(tmp_path)
    place.run(2)
    log = max((tmp_path / "words" / "_delta_log").glob("*.json"))
    log.write_bytes(log.read_bytes()[:cut])
    with pytest.raises(Exception, match="is damaged") as raised:
        place.run()
    text = str(raised.value)
    assert str(log) in text
    assert "<unknown>" not in text


def test_a_log_file_that_is_cut_off_during_a_run_is_named(tmp_path):
    """The run stops; the error names the file and has no native stack frames."""

    class Saboteur(CountTuples):
        def finish_batch(self):
            super().finish_batch()
            if self.attempt.txid == 3:
                log = max((tmp_path / "total" / "_delta_log").glob("*.json"))
                log.with_name(f"{int(log.stem) + 1:020d}.json").write_bytes(log.read_bytes()[:100])

    with pytest.raises(StopError) as raised:
        run_pausing(topology(delta(tmp_path), Saboteur()), config=Config(group_transactions_max=1))
    text = str(raised.value)
    assert "_delta_log/0000000000000000" in text
    assert "is damaged: line 1 of 1 is not JSON" in text
    assert "<unknown>" not in text
