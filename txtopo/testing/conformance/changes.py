"""The conformance tests of a committer of yours that tells what it changes in its table: a test class to subclass.

::

    class TestMyCommitter(ChangesConformance):
        @pytest.fixture
        def place(self):
            return ChangesPlace(topology, "levels", MyCommitter.changes, lambda folder: read_table(folder / "levels"))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from committers.changes import CHANGES, DIFF
from committers.rows import AppendCommitter
from state import DeltaRows, read_table
from txtopo.api.components.bolt import BasicBolt
from txtopo.api.data.fields import Fields
from txtopo.assembly.report import RunReport
from txtopo.attempts import epoch_and_try
from txtopo.config import Config
from txtopo.errors import FailedException
from txtopo.testing.inline import run_inline
from txtopo.topology.builders.builder import TransactionalTopologyBuilder

_LOG, _SKIPPED = "told changes", 2

ALONE = Config(max_spout_pending=1, group_transactions_max=1)
GROUPED = Config(max_spout_pending=6, group_transactions_max=4)
SKIP = {"topology.transaction.max.attempts": 2, "topology.transaction.max.attempts.policy": "SKIP"}
TRANSACTIONS_MIN = 4


@attrs.frozen
class ChangesPlace:
    """A committer that tells changes, in a topology.

    Args:
        topology: returns the builder of a topology with the committer, all of whose tables are in a folder. Its input
            is the same each time, ends, and makes four transactions or more, which change rows and take some away.
        committer: the committer's component id.
        fields: those of the stream of changes, each with a type; ``diff`` is one of them.
        rows: returns the rows of the table in that folder, as changes show them; other columns make no difference.
        stream: the stream of changes.
    """

    topology: Callable[[Path], TransactionalTopologyBuilder]
    committer: str
    fields: Fields
    rows: Callable[[Path], pa.Table]
    stream: str = CHANGES


class ChangesConformance:
    """The promises of a stream of changes, as tests. Define the fixture ``place``."""

    @pytest.fixture
    def place(self) -> ChangesPlace:
        """Return the committer."""
        raise NotImplementedError

    def test_changes_add_up_to_the_table(self, place: ChangesPlace, tmp_path: Path) -> None:
        """After each transaction, the rows that were told and not taken back are those of the table."""
        for report in _steps(place, tmp_path):
            _compare(
                _emitted_rows(place, tmp_path, report.committed_txid), _shown(place, tmp_path), report.committed_txid
            )
        assert report.committed_txid >= TRANSACTIONS_MIN, "the input makes too few transactions"
        diffs = read_table(tmp_path / _LOG)[DIFF].to_pylist()
        assert min(diffs) < 0 < max(diffs), "the input takes nothing away"

    def test_groups_make_no_difference(self, place: ChangesPlace, tmp_path: Path) -> None:
        """Each transaction tells the same, whatever others are committed with it, and whether its tables are new."""
        alone, grouped = tmp_path / "alone", tmp_path / "grouped"
        for report in _steps(place, alone):
            last = report.committed_txid
        run_inline(_topology(place, grouped), GROUPED)
        for txid in range(1, last + 1):
            _compare(_emitted_rows(place, grouped, txid), _emitted_rows(place, alone, txid), txid)
        assert _shown(place, grouped) == _shown(place, alone), "the table is another one"

    def test_replays_make_no_difference(self, place: ChangesPlace, tmp_path: Path) -> None:
        """A transaction that fails after it has told its changes tells the same when it is replayed."""
        once, replayed = tmp_path / "once", tmp_path / "replayed"
        last = run_inline(_topology(place, once), GROUPED).committed_txid
        report = run_inline(_topology(place, replayed, lambda txid, attempt: attempt == 1 and txid % 2 == 0), GROUPED)
        assert report.failures, "no transaction has told changes"
        for txid in range(1, last + 1):
            _compare(_emitted_rows(place, replayed, txid), _emitted_rows(place, once, txid), txid)
        assert _shown(place, replayed) == _shown(place, once), "the table is another one"

    def test_a_transaction_that_is_skipped(self, place: ChangesPlace, tmp_path: Path) -> None:
        """What it has told and put is as if it had never been; the next ones tell what they change without it."""
        topology = _topology(place, tmp_path, lambda txid, _attempt: txid == _SKIPPED)
        report = run_inline(topology, GROUPED.with_settings(SKIP))
        assert report.dead_letters == 1, "the second transaction has told no changes"
        _compare(_emitted_rows(place, tmp_path, report.committed_txid), _shown(place, tmp_path), report.committed_txid)

    def test_who_reads_makes_no_difference(self, place: ChangesPlace, tmp_path: Path) -> None:
        """The table is the same if nobody reads its changes."""
        read, unread = tmp_path / "read", tmp_path / "unread"
        run_inline(_topology(place, read), GROUPED)
        run_inline(place.topology(unread).build(), GROUPED)
        assert _shown(place, unread) == _shown(place, read), "the table is another one"


class _Fails(BasicBolt):
    """Passes changes on, but fails in some attempts."""

    def __init__(self, fields: Fields, is_failing: Callable[[int, int], bool]) -> None:
        self.output_fields = fields.with_attempt()
        self._names, self._is_failing = list(fields), is_failing

    def execute(self, tuple: Any, collector: Any) -> None:
        """Pass a tuple on."""
        if self._is_failing(tuple.attempt.txid, epoch_and_try(tuple.attempt.attempt)[1]):
            raise FailedException("the conformance test refuses this attempt")
        collector.emit([tuple.attempt, *(tuple[name] for name in self._names)])


def _topology(place: ChangesPlace, folder: Path, is_failing: Callable[[int, int], bool] = lambda *_: False) -> Any:
    """Return the topology with a log of what the committer tells."""
    builder = place.topology(folder)
    builder.set_bolt("fails", _Fails(place.fields, is_failing)).shuffle_grouping(place.committer, place.stream)
    builder.set_bolt("log", AppendCommitter(_LOG)).shuffle_grouping("fails")
    builder.set_state(_LOG, DeltaRows(folder / _LOG, place.fields))
    return builder.build()


def _steps(place: ChangesPlace, folder: Path) -> Iterator[RunReport]:
    committed = 0
    while (report := run_inline(_topology(place, folder), ALONE, until=committed + 1)).transactions:
        committed = report.committed_txid
        yield report


def _emitted_rows(place: ChangesPlace, folder: Path, txid: int) -> Counter[str]:
    """Return the rows that were told up to a transaction and not taken back; how often each."""
    told: Counter[str] = Counter()
    log = read_table(folder / _LOG)
    for row in log.filter(pc.less_equal(log["txid"], txid)).to_pylist():
        told[_text_of(place, row)] += row[DIFF]
    assert not -told, f"up to transaction {txid} rows are taken back that were not there: {-told}"
    return +told


def _shown(place: ChangesPlace, folder: Path) -> Counter[str]:
    return Counter(_text_of(place, row) for row in place.rows(folder).to_pylist())


def _compare(told: Counter[str], expected: Counter[str], txid: int) -> None:
    assert told == expected, (
        f"up to transaction {txid} the changes have {dict(told - expected)} too much, and lack {dict(expected - told)}"
    )


def _text_of(place: ChangesPlace, row: dict[str, Any]) -> str:
    return repr([row[name] for name in place.fields if name != DIFF])
