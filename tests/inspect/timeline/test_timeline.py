"""What a timeline's files say: attempts and samples at the bounds of a look, a plot and a run."""

import json
import struct
from pathlib import Path

import attrs
import pytest

from txtopo.engine.timeline.records import ATTEMPT, DRIVER, FAILED, PROGRESS, VISIBLE, OfProgress, path_of
from txtopo.engine.timeline.ring import RingHeader, RingWriter
from txtopo.inspect.timeline.series import plots
from txtopo.inspect.timeline.timeline import TimelineReader

HEADER = RingHeader(64, "a", 1, 1_000)
EVENT, SAMPLE = struct.Struct("<QIIIIQQ8qQ"), struct.Struct("<qQ12d")


def attempted(writer: RingWriter, txid: int, outcome: int, *, epoch: int = 1, number: int = 1) -> None:
    writer.put(ATTEMPT, outcome, number, EVENT.pack(txid, epoch, 1, 1, 1, 0, 0, *range(1, 9), 0))
    writer.flush()


def ring(folder: Path, what: str, epoch: int = 1) -> RingWriter:
    """Begin a ring of a run, after that of the run before."""
    header = attrs.evolve(HEADER, epoch=epoch)
    return RingWriter(path_of(folder, epoch, what), header, path_of(folder, epoch - 1, what) if epoch > 1 else None)


def sampled(writer: RingWriter, secs: int, transactions: int) -> None:
    numbers = [0.0] * 12
    numbers[OfProgress.TRANSACTIONS], numbers[OfProgress.LAG] = transactions, secs
    writer.put(PROGRESS, 0, 0, SAMPLE.pack(secs * 1_000_000, 0, *numbers))
    writer.put(DRIVER, 0, 0, SAMPLE.pack(secs * 1_000_000, 0, *([0.0] * 12)))
    writer.flush()


@pytest.fixture
def reader(tmp_path):
    reader = TimelineReader(tmp_path)
    yield reader
    reader.close()


def test_what_comes_after_the_last_that_is_gone(tmp_path, reader) -> None:
    """Whoever has all up to there has missed nothing."""
    writer = ring(tmp_path, "records")
    for txid in range(100):
        attempted(writer, txid, VISIBLE)
    for before, is_lost in ((0, False), (1, True)):
        answer = json.loads(reader.since(writer.seq - HEADER.slots - before, 0.0))
        assert (answer["lost"], answer["attempts"]["txid"]) == (is_lost, [*range(36, 100)])


def test_attempts_of_two_epochs(tmp_path, reader) -> None:
    """Each counts from 1, and all are told; of one that was written twice, what it was at last."""
    writer = ring(tmp_path, "records")
    for epoch, outcome in ((1, FAILED), (2, FAILED), (2, VISIBLE)):
        attempted(writer, 7, outcome, epoch=epoch)
    assert [(attempt.epoch, attempt.outcome) for attempt in reader.attempts(7)] == [(1, "failed"), (2, "visible")]


def test_a_range_of_transactions(tmp_path, reader) -> None:
    """Its first and last are in it."""
    writer = ring(tmp_path, "records")
    for txid in range(1, 8):
        attempted(writer, txid, VISIBLE)
    found = reader.transactions(3, 5, 9, failed=False)
    assert ([transaction.txid for transaction in found.transactions], found.is_cut) == ([5, 4, 3], False)
    found = reader.transactions(3, 5, 2, failed=False)
    assert ([transaction.txid for transaction in found.transactions], found.is_cut) == ([5, 4], True)


def test_samples_of_an_earlier_run_are_not_the_last(tmp_path, reader) -> None:
    """They are for plots alone, to the very last."""
    ring(tmp_path, "records")
    former = ring(tmp_path, "samples")
    sampled(former, 100, 5)
    assert [*reader.last(DRIVER)] == [""]
    ring(tmp_path, "records", 2)
    writer = ring(tmp_path, "samples", 2)
    reader._refreshed_at = 0.0
    assert (writer.seq, reader.last(DRIVER), reader.last(PROGRESS)) == (former.seq, {}, {})
    assert len(reader.samples(DRIVER)) == 1
    reader._refreshed_at = 0.0
    sampled(writer, 101, 0)
    assert [*reader.last(DRIVER)] == [""]


def test_the_ends_of_a_plot(tmp_path, reader) -> None:
    """A sample at the end of a step is of that step, the first one too, and another run counts from 0."""
    ring(tmp_path, "records")
    writer = ring(tmp_path, "samples")
    for secs, count in ((100, 5), (101, 8), (102, 11), (103, 2), (104, 4), (105, 4)):
        sampled(writer, secs, count)
    found = plots(reader, 5, None, 105.5, is_over=False)
    lines = {plot.name: plot.lines for plot in found.plots}
    assert found.at == [101, 102, 103, 104, 105]
    assert lines["committed"]["committed"] == [3, 3, None, 2, 0]
    assert lines["lag"]["lag"] == [101, 102, 103, 104, 105]
