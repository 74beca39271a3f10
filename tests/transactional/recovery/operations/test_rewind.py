"""The points of a topology are found where the journal says how things stood at them, without a look at the rest."""

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs
import pytest

from tests.journals import entered
from txtopo.api.components.planned import Planned
from txtopo.api.state import TableDescription
from txtopo.errors import ConfigError, StateAccessError
from txtopo.files.folder import LocalFolder
from txtopo.journal.entries import JournalHeader, JournalPart, JournalTable
from txtopo.journal.folders import find_journal
from txtopo.journal.journal import read_journal
from txtopo.journal.search import JournalSearch, SearchSizes
from txtopo.journal.writer import JournalWriter
from txtopo.testing.simulation.tables.table import SimulatedStateTable
from txtopo.transactional.recovery.coordinator_state import CommittedMark
from txtopo.transactional.recovery.divergence import CoordinatorRecord
from txtopo.transactional.recovery.operations.diagnosis import RepairSubject
from txtopo.transactional.recovery.operations.rewind import Past

NAMES = "ab"
PLANNED_MS = 1_000


class Table(SimulatedStateTable):
    """A table that keeps the versions of some transactions."""

    def __init__(self, name: str, last: int, kept: set[int]) -> None:
        self._description = TableDescription("top", name, "life", name, last, 1, 1, misfit=None)
        self._kept = {0, *kept}

    @property
    def address(self) -> str:
        return self._description.state

    def describe(self) -> TableDescription:
        return self._description

    def is_kept(self, txid: int | None) -> bool:
        return (txid or 0) in self._kept

    def all_kept(self) -> set[int]:
        return {*self._kept}

    def kept(self, txids):
        return self._kept.intersection(txids)

    def undone_to(self, epoch: int) -> None:
        """Return None: nobody has gone back."""

    turned_to = undone_to


@attrs.frozen
class Subject(RepairSubject):
    """A topology with such tables."""

    made: dict[str, Table] = attrs.field(factory=dict)
    sizes: SearchSizes = attrs.field(factory=SearchSizes)
    whole: list[JournalPart] | None = None
    """All of the journal, to be given whatever is asked for."""

    def journal(self, is_meant: Callable[[JournalHeader], bool] = lambda _: True) -> JournalSearch:
        return JournalSearch(find_journal(self.metadata_dir, self.topology_id), is_meant, self.sizes)

    def around(self, txids: Iterable[int]) -> list[JournalPart]:
        return super().around(txids) if self.whole is None else self.whole

    def tables(self) -> dict[str, Table]:
        return self.made


def written(folder: Path, draw: random.Random, epochs: int) -> dict[str, list[int]]:
    """Write a journal of many files, by coordinators of which some went back; return the writes of each state."""
    writes, committed = {name: [0] for name in NAMES}, 0
    for epoch in range(1, epochs + 1):
        states = {name: own[-1] or None for name, own in writes.items()}
        tables = {name: JournalTable(name, name) for name in NAMES}
        planned = Planned(committed * PLANNED_MS)
        header = JournalHeader("top", "life", epoch, {"s": "repeatable"}, committed, None, tables, states, {}, planned)
        writer = JournalWriter(find_journal(LocalFolder(folder), "top"), header, 1 << 40, part_bytes_max=8_000)
        for _ in range(80):
            entry = entered(committed + 1, committed + draw.randrange(1, 4), epoch, *draw.choice(["a", "a", "a", "ab"]))
            planned_ones = (attrs.evolve(t, planned=Planned(t.txid * PLANNED_MS)) for t in entry.transactions)
            writer.enter(attrs.evolve(entry, transactions=tuple(planned_ones)))
            committed = entry.last
            for name in entry.states:
                writes[name].append(committed)
        if epoch < epochs and draw.random() < 0.7:
            committed = draw.choice(writes["a"][-60:])
            writes = {name: [txid for txid in own if txid <= committed] for name, own in writes.items()}
    return writes


def test_a_journal_without_a_complete_line_has_no_points(tmp_path):
    """Its first coordinator has died when it had begun the first one: whoever would go back is told so."""
    header = JournalHeader("top", "life", 1, {"s": "repeatable"}, 0, None, {}, {}, {})
    journal = find_journal(LocalFolder(tmp_path), "top")
    JournalWriter(journal, header, 1 << 40)
    (file,) = Path(str(journal)).iterdir()
    file.write_bytes(file.read_bytes()[:9])
    record = CoordinatorRecord("top", "life", 1, CommittedMark(0, None, {}), None)
    with pytest.raises(ConfigError, match="the journal of topology 'top' has no complete line yet"):
        Past.of(Subject("top", {}, {}, LocalFolder(tmp_path), {}), record)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(8))
def test_points_are_those_of_the_whole_journal(tmp_path, seed):
    """With their obstacles, a lost file among them; so is what a transaction or a time that is asked for leads to."""
    draw, is_lost = random.Random(seed), seed % 4 == 1
    writes = written(tmp_path, draw, 1 if is_lost else draw.randrange(1, 4))
    kept = sorted(draw.sample(writes["a"], 6))
    newest_up_to = {name: {max(w for w in own if w <= txid) for txid in kept} for name, own in writes.items()}
    tables = {name: Table(name, own[-1], newest_up_to[name]) for name, own in writes.items()}
    journal = find_journal(LocalFolder(tmp_path), "top")
    if is_lost:
        files = sorted(Path(str(journal)).iterdir())
        lost = draw.choice(range(1, len(files) - 1))
        files[lost].unlink()
    last = writes["a"][-1]
    record = CoordinatorRecord("top", "life", 1, CommittedMark(last, None, {}), None)
    sizes = SearchSizes(bytes=500, near_lines=3, block_bytes=1_000)
    subject = Subject("top", {}, dict.fromkeys(tables), LocalFolder(tmp_path), {}, made=tables, sizes=sizes)
    search = subject.journal()
    parts = search.around(range(last + 1)) if is_lost else read_journal(journal)
    whole = Past.of(attrs.evolve(subject, whole=parts), record)
    past = Past.of(subject, record)
    known = {point.txid: point for point in past.points}
    assert len(known) < len(whole.points) / 2
    assert [point.txid for point in past.standing] == [point.txid for point in whole.standing]
    if is_lost:  # what follows a point before it could not run again
        assert past.standing[-1].txid >= search.headers()[lost].committed
    for point in whole.points:
        if point.txid in known:
            assert attrs.evolve(known[point.txid], first=point.first) == point
    for txid in draw.sample(range(1, last + 1), 8):
        found = [_nearest(each, txid) for each in (whole, Past.of(subject, record, txid))]
        assert found[0] == found[1]
    counting = {point.txid for point in whole.points}
    for txid in () if is_lost else draw.sample(sorted(counting - {0}), 4):
        assert past.at(txid * PLANNED_MS + draw.randrange(PLANNED_MS)) == txid
        assert past.at(txid * PLANNED_MS - 1) == txid - 1 or txid == 1
    undone = [each.txid for each in past.undone(past.points[-1])]
    assert undone == sorted(undone, reverse=True)
    assert undone[0] == last


def _nearest(past: Past, txid: int) -> tuple[int, str] | str:
    """Return the point that a wish leads to, or why to none, and the first reason why it is no later one."""
    try:
        point, reasons = past.nearest(txid)
    except StateAccessError as error:
        return error.message.partition(";")[0]
    return point.txid, "".join(reasons[:1])
