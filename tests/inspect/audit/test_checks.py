"""The audit as a pure function: each rule, told by journals and histories made by hand."""

import attrs
import pytest

from txtopo.api.table_history import RowChanges, TableHistory, TableVersion
from txtopo.attempts import attempt_number
from txtopo.inspect.audit.checks import audit
from txtopo.inspect.audit.report import Gap, InFlight
from txtopo.journal.entries import JournalEntry, JournalHeader, JournalPart, JournalTable, JournalTransaction


def group(first, last, *states, epoch=1, tries=0, ranges=None):
    """Return an entry whose transactions each put a row into each of its states."""
    transactions = tuple(
        JournalTransaction(txid, attempt_number(epoch, tries), txid, {}, {"spout": ranges})
        for txid in range(first, last + 1)
    )
    return JournalEntry(dict.fromkeys(states, (1, 0)), transactions)


def part(epoch, committed, *entries, incarnation="life", **states):
    """Return what one coordinator has entered; ``states`` are the last txids that it found."""
    tables = {"t": JournalTable("t", "identity")}
    metadata = committed or None
    header = JournalHeader(
        "top", incarnation, epoch, {"spout": "repeatable"}, committed, metadata, tables, {"t": None, **states}
    )
    return JournalPart(header, entries)


def history(*versions):
    """Return a history that begins with the table's making."""
    first = TableVersion(0, None, None, "CREATE TABLE", touches=True)
    numbered = (attrs.evolve(version, version=number) for number, version in enumerate(versions, 1))
    return {"t": TableHistory("t", "at/t", "identity", (first, *numbered))}


def marker(epoch, txid=None):
    return TableVersion(0, txid, epoch, "WRITE", touches=False, changes=RowChanges(0, None, None, 0))


def write(txid, epoch=1, low=None, put=1, **changes):
    changed = attrs.evolve(RowChanges(put, txid if low is None else low, txid, 0), **changes)
    return TableVersion(0, txid, epoch, "WRITE", touches=True, changes=changed)


def found(parts, versions):
    return [str(finding) for finding in audit(parts, versions).findings]


def test_a_healthy_topology():
    """Groups of two coordinators, one dropped between them: all is proved, and counted."""
    parts = [
        part(1, 0, group(1, 2, "t"), group(3, 3, "t"), group(4, 9, "t")),
        part(3, 3, group(4, 5, "t", epoch=3), group(6, 6, epoch=3), group(7, 7, "t", epoch=3), t=3),
    ]
    versions = history(marker(1), write(2), write(3), marker(2, 3), marker(3, 3), write(5, 3), write(7, 3))
    report = audit(parts, versions)
    assert report.findings == []
    assert (report.first, report.last, report.groups, report.dropped, report.in_flight) == (1, 7, 5, 1, None)
    proof = report.tables[0]
    assert (proof.first, proof.last, proof.groups, proof.rows_put) == (1, 7, 4, 4)


def test_a_group_that_recovery_finished():
    """A table of a group may be written by the coordinator that recovers, and by none after the next one entered."""
    parts = [part(1, 0, group(1, 2, "t")), part(3, 2, t=2)]
    for epoch in (2, 3):
        assert found(parts, history(marker(1), write(2, epoch=epoch))) == []
        assert found(parts, history(marker(1), marker(epoch), write(2, epoch=epoch))) == []
    assert found(parts, history(marker(1), marker(3), marker(4), write(2, epoch=4))) == [
        "transaction 2, state 't', table version 4: epoch 1 entered it, but epoch 4 wrote it"
    ]


def test_a_group_of_a_table_that_was_restored():
    """Restored with the store from before anybody else had opened it, it gets the group from whoever recovers then."""
    parts = [part(1, 0, group(1, 2, "t")), part(3, 2, t=2), part(4, 2, t=2)]
    assert found(parts, history(marker(1), marker(5), write(2, epoch=5))) == []


def test_a_coordinator_that_lost_its_lead_wrote():
    """A version of an older epoch after a newer one's marker is the end of the fence."""
    parts = [part(1, 0, group(1, 1, "t"), group(2, 2, "t")), part(2, 2, t=2)]
    text = found(parts, history(marker(1), write(1), marker(2, 1), write(2, epoch=1)))
    assert text == ["transaction 2, state 't', table version 4: a coordinator of epoch 1 wrote it after one of epoch 2"]
    again = found(parts, history(marker(1), marker(2), write(1, epoch=1), write(2, epoch=1)))
    assert [text.partition(":")[2] for text in again] == [" a coordinator of epoch 1 wrote it after one of epoch 2"] * 2
    later = [part(2, 0, group(1, 1, "t", epoch=2))]
    text = found(later, history(write(1, epoch=1)))
    assert text == ["transaction 1, state 't', table version 1: epoch 2 entered it, but epoch 1 wrote it"]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([group(1, 2), group(4, 4)], "transaction 3: it is not in the journal: transaction 4 follows 2"),
        ([group(1, 2), group(2, 3)], "transaction 2: it is entered again after transaction 2: twice, or out of order"),
        ([group(2, 2), group(1, 1)], "transaction 1: it is out of order: transaction 2 follows 0"),
        ([group(1, 1, epoch=2)], "transaction 1: attempt 1, epoch 2, was entered by epoch 1"),
    ],
)
def test_the_order_of_groups(entries, expected):
    """Txids follow one another, and attempts are of the epoch that entered them."""
    assert found([part(1, 0, *entries)], {})[0] == expected


def test_what_comes_again_hides_nothing():
    """Behind it the journal goes on where it was, and each attempt is above the one before."""
    text = found([part(1, 0, group(1, 2), group(1, 1, tries=2), group(1, 1, tries=1), group(3, 3))], {})
    assert text[-1] == "transaction 1: attempt 2, epoch 1, follows attempt 3, epoch 1: attempts do not rise"
    assert "journal" not in " ".join(text)


def test_what_a_new_coordinator_found():
    """What it found committed was entered, with the metadata and states that it found; and epochs rise."""
    assert found([part(1, 0, group(1, 2, "t")), part(2, 4, t=2)], {}) == [
        "transaction 3: all from it to 4 are not in the journal: epoch 2 found 4 committed"
    ]
    assert found([part(1, 0, group(1, 2, "t")), part(2, 3, t=2)], {}) == [
        "transaction 3: it is not in the journal: epoch 2 found 3 committed"
    ]
    for first in (1, 3):
        groups = [group(1, 2, "t"), group(3, 4, "t")] if first == 3 else [group(1, 4, "t")]
        assert found([part(1, 0, *groups), part(2, 3)], {})[0] == (
            f"transaction {first}: a later epoch found 3 committed, which is in the middle of group {first} to 4"
        )
    assert found([part(1, 0, group(1, 1)), part(2, 0, group(1, 1, epoch=2, tries=0))], {}) == []
    two_void = [part(1, 0, group(1, 1), group(2, 2)), part(2, 0)]
    assert "but after it group 1 to 1 and further groups were entered" in found(two_void, {})[0]
    other = part(2, 1)
    other = attrs.evolve(other, header=attrs.evolve(other.header, metadata="other"))
    assert found([part(1, 0, group(1, 1)), other], {}) == [
        "transaction 1: epoch 2 found metadata other, but the journal has 1"
    ]
    assert found([part(1, 0, group(1, 1, "t")), part(2, 1, t=None)], {}) == [
        "transaction 1, state 't': epoch 2 found it at transaction None, but its last write in the journal is 1"
    ]
    assert "belongs to incarnation 'b'" in found([part(1, 0), part(2, 0, incarnation="b")], {})[0]
    fell = [part(1, 0, group(1, 1)), part(2, 1), part(3, 0)]
    assert "transaction 1: epoch 3 found 0 committed, but epoch 2 had found 1" in found(fell, {})
    assert found([part(2, 0), part(2, 0)], {}) == ["epoch 2 follows epoch 2: epochs do not rise"]
    assert found([part(2, 0), part(1, 0)], {}) == ["epoch 1 follows epoch 2: epochs do not rise"]


def test_attempts_that_do_not_rise():
    """A transaction that comes again after a dropped group has a higher attempt."""
    again = group(1, 1, epoch=2)
    again = attrs.evolve(again, transactions=(attrs.evolve(again.transactions[0], attempt=1),))
    assert "transaction 1: attempt 1, epoch 1, was entered by epoch 2" in found(
        [part(1, 0, group(1, 1)), part(2, 0, again)], {}
    )
    dropped = [part(1, 0, group(1, 1, epoch=2)), part(3, 0)]
    assert found(dropped, {}) == ["transaction 1: attempt 1, epoch 2, was entered by epoch 1"]
    tries = [part(1, 0, group(1, 1), attrs.evolve(group(1, 1)))]
    assert "transaction 1: attempt 1, epoch 1, follows attempt 1, epoch 1: attempts do not rise" in found(tries, {})


def test_input_ranges():
    """Each partition begins where it ended, over transactions that took nothing from it, too."""

    def entered(*ranges):
        entries = [group(txid, txid, ranges=each) for txid, each in enumerate(ranges, 1)]
        return found([part(1, 0, *entries)], {})

    assert entered({"a": (5, 7)}, {"b": (0, 1)}, None, {"a": (7, 9), "b": (1, 1)}, {"a": (9, 9)}) == []
    assert audit([part(1, 0, group(1, 2), group(3, 3, ranges={}))], {}).input.untold == 2
    assert entered({"a": (5, 7)}, {"b": (0, 1)}, {"a": (8, 9)}) == [
        "transaction 3: a gap in partition a: transaction 1 ended at 7, this one begins at 8"
    ]
    assert entered({"a": (5, 7)}, {"a": (6, 9)})[0].startswith("transaction 2: an overlap in partition a")
    assert entered({"a": ("x", "y")}, {"a": ("z", "z")})[0].startswith("transaction 2: a gap or an overlap")
    assert entered({"a": (5, 4)}) == ["transaction 1: partition a goes back, 5 to 4"]


def test_input_ranges_of_several_spouts():
    """Partitions of the same name are each spout's own, and a finding names the spout; one may report nothing."""

    def entered(*by_spout):
        entries = [
            JournalTransaction(txid, attempt_number(1, 1), txid, {}, each) for txid, each in enumerate(by_spout, 1)
        ]
        return audit([part(1, 0, *(JournalEntry({}, (entry,)) for entry in entries))], {})

    first, second = {"a": {"0": (0, 3)}}, {"a": {"0": (3, 5)}, "b": {"0": (7, 8)}}
    assert entered(first, second, {"a": {}, "b": {"0": (8, 9)}}).findings == []
    (finding,) = entered(first, second, {"a": {"0": (6, 7)}, "b": None}).findings
    assert str(finding) == (
        "transaction 3: a gap in partition 0 of spout 'a': transaction 2 ended at 5, this one begins at 6"
    )
    assert entered(first, {"a": None, "b": {"0": (0, 1)}}).input.untold == 1


TWO = [part(1, 0, group(1, 2, "t"), group(3, 4, "t")), part(2, 4, t=4)]


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ([write(2), write(3), write(4)], "transaction 3, state 't', table version 2: the table went to 3, but no group"),
        ([write(4)], "transaction 1, state 't', table version 1: group 1 to 2 wrote it, but the table went from 0 to 4"),
        ([write(2)], "transaction 3, state 't': group 3 to 4 wrote it, but the table ends at 2"),
        ([write(2), write(4), write(5)], "transaction 5, state 't', table version 3: the table went to 5, but no group"),
        ([write(2), write(4), marker(2, 3)], "transaction 3, state 't', table version 3: its last transaction is 3"),
        ([write(2, put=2), write(4)], "the journal records 1 rows put, but the table gained 2"),
        ([write(2), write(4, put=0)], "the journal records 1 rows put, but the table gained 0"),
        ([write(2), write(4, removed=1)], "the journal records 0 keys removed, but the table lacks 1"),
        ([write(2), write(4, low=2)], "a row has transaction 2, but the group begins at 3"),
        ([write(2, put_high=3), write(4)], "a row has transaction 3, but the table is at 2"),
        ([write(2), write(4, unexplained=("x became y",))], "rows changed without a transaction above 2: x became y"),
        ([write(2), write(4, doubled=("x",))], "keys occur more than once: x"),
        (
            [write(2), write(2, put=0, removed=1, put_high=None), write(4)],
            "1 keys are gone, but no transaction removed them",
        ),
        (
            [write(2), TableVersion(0, 2, None, "DELETE", touches=True), write(4)],
            "another writer made this version (DELETE); the table was at 2",
        ),
    ],
)  # fmt: skip
def test_a_table_beside_the_journal(versions, expected):
    """Txids are the groups', rows are the journal's, and nobody else wrote."""
    assert expected in found(TWO, history(*versions))[0]


def test_every_group_that_a_table_lacks_is_named():
    """Not only the first of those that one version has left out."""
    groups = [group(first, first + 1, "t") for first in (1, 3, 5)]
    text = found([part(1, 0, *groups)], history(write(6)))
    assert [each.partition(",")[0] for each in text] == ["transaction 1", "transaction 3"]


def test_a_table_that_was_replaced():
    """Another table in the same place is not looked at further."""
    versions = history(write(2), write(4))
    other = {"t": attrs.evolve(versions["t"], identity="other")}
    assert found(TWO, other) == ["state 't': the table at at/t is not the one in the journal"]


def test_what_changes_no_row_is_nobodys_business():
    """A vacuum, or a compaction, of somebody else."""
    assert found(TWO, history(write(2), TableVersion(0, 2, None, "OPTIMIZE", touches=False), write(4))) == []


def test_what_was_moved_and_cannot_be_compared_is_told():
    """An OPTIMIZE whose old files are gone may have changed rows: nobody can know, and the proof says so."""
    moved = TableVersion(0, 2, None, "OPTIMIZE", touches=False, moves=True)
    seen = attrs.evolve(moved, changes=RowChanges(0, None, None, 0))
    report = audit(TWO, history(write(2), moved, seen, write(4)))
    assert ([proof.believed for proof in report.tables], report.findings) == ([1], [])


def test_a_group_in_flight():
    """The last group may be in no table, or in some: it is told, and not counted."""
    parts = [part(1, 0, group(1, 2, "t"), group(3, 4, "t"))]
    report = audit(parts, history(write(2)))
    assert (report.findings, report.in_flight, report.last, report.groups) == ([], InFlight(3, 4, (), ("t",)), 2, 1)
    assert audit(parts, history(write(2), write(4))).in_flight is None
    assert audit([part(1, 0, group(1, 2))], history()).in_flight == InFlight(1, 2)
    two = part(1, 0, group(1, 2, "t", "u"), u=None)
    two = attrs.evolve(two, header=attrs.evolve(two.header, tables={n: JournalTable(n, "identity") for n in "tu"}))
    behind = attrs.evolve(history()["t"], state="u")
    report = audit([two], {**history(write(2)), "u": behind})
    assert (report.findings, report.in_flight) == ([], InFlight(1, 2, ("t",), ("u",)))


def test_a_table_that_has_lost_a_reported_group():
    """What a run has reported as committed is not in flight: a table that ends before it was restored."""
    parts = [part(1, 0, group(1, 2, "t"), group(3, 4, "t"))]
    report = audit(parts, history(write(2)), committed=4)
    assert report.in_flight is None
    assert list(map(str, report.findings)) == [
        "transaction 3, state 't': group 3 to 4 wrote it, but the table ends at 2"
    ]


def test_histories_that_begin_late():
    """What is before the table's log, or before the journal, is not proved, and that is said."""
    late = history(write(2), write(4))["t"]
    late = {"t": attrs.evolve(late, versions=late.versions[1:])}
    report = audit(TWO, late)
    assert (report.findings, report.tables[0].first, report.tables[0].groups) == ([], 3, 1)
    report = audit([part(1, 2, group(3, 4, "t"), t=2)], history(write(1), write(2), write(4)))
    assert (report.findings, report.first, report.tables[0].first) == ([], 3, 3)
    rollback = TableVersion(0, 2, 2, "WRITE", touches=True, is_rollback=True, changes=RowChanges(0, None, None, 0))
    late = history(write(2), write(4), rollback, write(3, 2))["t"]
    late = {"t": attrs.evolve(late, versions=late.versions[2:])}
    back = part(2, 2, group(3, 3, "t", epoch=2), t=2)
    assert found([part(1, 0, group(1, 2, "t"), group(3, 4, "t")), back], late) == []


def test_points():
    """Groups between two of them are counted, and compared as one; whatever does not fit is found."""
    parts = [part(1, 0, group(1, 2, "t"), group(3, 4, "t"), group(5, 6, "t"), group(7, 8, "t"))]
    after = lambda **changes: attrs.evolve(write(8, low=5, put=2), **{"follows": False, **changes})
    report = audit(parts, history(write(2), write(4), after()))
    assert (report.findings, report.tables[0].groups, report.tables[0].between) == ([], 4, 1)
    assert audit(parts, history(write(2), write(4), after(changes=None))).tables[0].unread == 1
    changed = [
        (RowChanges(3, 5, 8, 0), "the journal records 2 rows put, but the table gained 3"),
        (RowChanges(2, 5, 8, 1), "the journal records 0 keys removed, but the table lacks 1"),
        (RowChanges(2, 4, 8, 0), "a row has transaction 4, but the group begins at 5"),
        (RowChanges(1, 8, 8, 0, ("x became y",)), "rows changed without a transaction above 4: x became y"),
    ]
    for changes, text in changed:
        assert text in found(parts, history(write(2), write(4), after(changes=changes)))[0]
    assert found(parts, history(write(2), write(4), after(changes=RowChanges(1, 8, 8, 0)))) == []
    assert "went from 4 to 8" in found(parts, history(write(2), write(4), after(follows=True)))[0]


def test_a_rollback_to_a_version_that_is_gone():
    """The version that restored it takes its place: it comes after a gap behind the point before."""
    rollback = TableVersion(0, 4, 3, "WRITE", touches=True, is_rollback=True, changes=RowChanges(1, 3, 4, 0))
    parts = [
        part(1, 0, group(1, 2, "t"), group(3, 4, "t"), group(5, 6, "t")),
        part(3, 4, group(5, 8, "t", epoch=3), t=4),
    ]
    report = audit(parts, history(write(2), rollback, write(8, 3)))
    assert (report.findings, report.last, report.tables[0].groups, report.tables[0].between) == ([], 8, 3, 0)
    wrong = attrs.evolve(rollback, changes=RowChanges(1, 4, 4, 0, ("x became y",)))
    assert "x became y" in found(parts, history(write(2), wrong, write(8, 3)))[0]


def test_repairs():
    """What a repair has rolled back does not count any more, and what it has adopted is no damage."""
    parts = [
        part(1, 0, group(1, 2, "t"), group(3, 4, "t"), group(5, 6, "t")),
        part(2, 6, t=6),
        part(3, 2, t=2),
        part(4, 2, group(3, 6, "t", epoch=4), t=2),
    ]
    rollback = TableVersion(0, 2, 3, "WRITE", touches=True, is_rollback=True, changes=RowChanges(0, None, None, 0))
    foreign = TableVersion(0, 2, None, "UPDATE", touches=True, changes=RowChanges(0, None, None, 0, ("x",)))
    versions = [write(2), write(4), write(6), marker(2, 6), rollback, marker(4, 2)]
    report = audit(parts, history(*versions, write(6, 4)))
    assert (report.findings, report.last, report.dropped, report.tables[0].repairs) == ([], 6, 2, 1)
    assert len(found(parts, history(*versions, foreign, write(6, 4)))) == 2
    adoption = attrs.evolve(marker(4, 2), is_adoption=True)
    assert found(parts, history(*versions, foreign, adoption, write(6, 4))) == []
    taken_back = attrs.evolve(rollback, epoch=4)
    assert found(parts, history(*versions, foreign, taken_back, write(6, 4))) == []
    wrong = attrs.evolve(rollback, changes=RowChanges(0, None, None, 0, ("x became y",)))
    assert "x became y" in found(parts, history(*versions[:4], wrong, write(6, 4)))[0]


def test_a_repair_explains_nothing_that_came_later():
    """What a later coordinator has lost, or found committed, is found, although a repair rolled back before it."""
    rollback = TableVersion(0, 2, 2, "WRITE", touches=True, is_rollback=True, changes=RowChanges(0, None, None, 0))
    versions = history(write(2), write(4), rollback)
    before = [part(1, 0, group(1, 2, "t"), group(3, 4, "t")), part(2, 2, t=2)]
    assert found(before, versions) == []
    void = [part(3, 2, group(3, 3, "t", epoch=3), group(4, 4, "t", epoch=3), t=2), part(4, 2, t=2)]
    assert "but after it group 3 to 3 and further groups were entered" in found([*before, *void], versions)[0]
    assert any(
        "epoch 3 found 1 committed, but epoch 2 had found 2" in text
        for text in found([*before, part(3, 1, t=1)], versions)
    )


WITHOUT = "without this state, so the table lacks their part, and nothing says so"


def of_states(epoch, committed, *entries, begun_after=None, **states):
    """Return a part whose topology has these states only, each with the last txid that was found."""
    header = JournalHeader("top", "life", epoch, {"spout": "repeatable"}, committed, committed or None, {}, states)
    return JournalPart(attrs.evolve(header, begun_after=begun_after or {}), entries)


def test_a_state_must_have_been_there_all_the_time():
    """It was away for a while, or came later; a transaction that put nothing into it is no gap."""
    first = of_states(1, 0, group(1, 2, "t"), group(3, 4, "u"), t=None, u=None)
    without = of_states(2, 4, group(5, 6, "u", epoch=2), group(7, 7, "u", epoch=2), u=4)
    again = of_states(3, 7, group(8, 8, "t", epoch=3), t=2, u=7)
    assert found([first, without, again], {}) == [
        f"transaction 5, state 't': the topology ran transactions 5 to 7 {WITHOUT}",
    ]
    assert found([first, without, of_states(3, 7, t=2, u=7)], {}) != [], "it is back, although nothing is committed"
    assert found([first, without], {}) == [], "it has left"
    assert audit([first, without], {}).not_proved == {"u": None, "t": 4}
    assert found([without, again], {})[0].startswith("transaction 5, state 't'"), "the journal begins without it"
    assert found([first, of_states(2, 4, u=4), of_states(3, 4, group(5, 5, "t", epoch=3), t=2, u=4)], {}) == []


def test_a_state_that_was_begun_empty():
    """It must have been there from then on; each header says so, and what it had before is not asked for."""
    first = of_states(1, 0, group(1, 4, "t"), t=None, u=None)
    without = of_states(2, 4, group(5, 6, "u", epoch=2), u=None)
    begun = of_states(3, 6, group(7, 7, "t", epoch=3), t=None, u=6, begun_after={"t": 6})
    later = of_states(4, 7, group(8, 8, "u", epoch=4), t=7, u=6, begun_after={"t": 6})
    assert found([first, without, begun, later], {}) == []
    at_once = of_states(2, 4, t=None, u=None, begun_after={"t": 4})
    assert found([first, at_once], {}) == []
    too_early = of_states(3, 6, group(7, 7, "t", epoch=3), t=None, u=6, begun_after={"t": 5})
    assert found([first, without, too_early], {}) == [
        f"transaction 5, state 't': the topology ran transactions 5 to 6 {WITHOUT}",
    ]


def test_a_table_that_has_more_than_it_was_begun_with():
    """A table with a transaction before its begin was not begun empty."""
    begun = part(1, 4, group(5, 5, "t"), t=None)
    begun = attrs.evolve(begun, header=attrs.evolve(begun.header, begun_after={"t": 4}))
    assert found([begun], history(marker(1), write(5))) == []
    assert found([begun], history(marker(1), write(3), write(5))) == [
        "transaction 3, state 't', table version 2: the table has it, but was begun empty after transaction 4"
    ]
    late = history(write(4), write(5))["t"]
    late = {"t": attrs.evolve(late, versions=late.versions[1:])}
    assert found([begun], late) == [
        "transaction 4, state 't', table version 1: the table has it, but was begun empty after transaction 4"
    ]


def test_states_of_txtopo_may_come_and_go():
    """What they are for is not needed while they are away; a state of that name with other writes is no such one."""
    parts = [
        of_states(1, 0, group(1, 1, "t"), t=None),
        of_states(2, 1, group(2, 2, "t", epoch=2), **{"t": 1, "dead-letters": None, "spout.bad-records": None}),
    ]
    assert found(parts, {}) == []
    other = of_states(2, 1, group(2, 2, "dead-letters", epoch=2), **{"t": 1, "dead-letters": None})
    assert "state 'dead-letters': the topology ran transaction 1 without" in found([parts[0], other], {})[0]


def test_skipped_input_is_told_and_no_finding():
    """It is part of the range, and listed by partition."""
    entry = group(1, 1, "t", ranges={"p": (0, 10)})
    skipping = attrs.evolve(
        entry, transactions=(attrs.evolve(entry.transactions[0], skipped={"spout": {"p": ((2, 5),)}}),)
    )
    report = audit([part(1, 0, skipping)], {})
    assert (report.findings, report.skipped) == ([], {"p": [Gap(1, 2, 5)]})


def test_states_that_nobody_looked_at_are_said():
    """A state in memory, or one that the topology no longer has."""
    assert audit([part(1, 0, group(1, 1, "gone"))], {}).not_proved == {"gone": None}


def test_a_rewind_to_before_a_shortened_journal():
    """What came before the rewind is undone, whatever the journal has lost of it: nothing was entered twice."""
    undone = part(1, 6, group(7, 8, "t"), t=6)
    turn = part(2, 0, t=0)
    turn = attrs.evolve(turn, header=attrs.evolve(turn.header, undone_until=8))
    again = part(3, 0, group(1, 2, "t", epoch=3), group(3, 4, "t", epoch=3), t=0)
    rolled_back = attrs.evolve(marker(2, 0), is_rollback=True)
    versions = [write(2, 3, low=1), write(4, 3, low=3)]
    report = audit([undone, turn, again], history(write(8, low=7), rolled_back, *versions))
    assert ([*map(str, report.findings)], report.first, report.last) == ([], 1, 4)
    assert any("found 0 committed" in each for each in found([undone, again], history(*versions)))


def test_doubled_keys_are_seen_where_nothing_else_is_kept():
    """The newest version is read for itself: the one before it may be vacuumed."""
    parts = [part(1, 0, group(1, 2, "t"))]
    told = attrs.evolve(history(attrs.evolve(write(2, low=1), changes=None))["t"], doubled=("k=1",))
    assert found(parts, {"t": told}) == ["transaction 2, state 't', table version 1: keys occur more than once: k=1"]
