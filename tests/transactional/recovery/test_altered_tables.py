"""A table that somebody else has altered is refused by name, and a repair makes it as it was."""

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.crashes import dying
from tests.transactional.recovery.altered_tables import ALTERATIONS, put_entry, with_features
from tests.transactional.recovery.divergences import TRANSACTIONS, Place
from txtopo.errors import DivergenceError, StateFailure


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def alter(place: Place, what: str, name: str = "words") -> None:
    ALTERATIONS[what](DeltaTable(place.folder / name))


def as_it_was(place: Place, before: DeltaTable) -> None:
    """Check that the table is what a handle has, for other readers, too."""
    table = DeltaTable(place.folder / "words")
    assert (table.protocol(), table.schema()) == (before.protocol(), before.schema())
    assert table.metadata().configuration == before.metadata().configuration
    old, new = (pl.scan_delta(each).collect().sort("word") for each in (before, table))
    assert old.equals(new)


@pytest.mark.slow
@pytest.mark.parametrize("what", ALTERATIONS)
def test_what_others_have_altered_is_taken_back(place, what):
    """Columns, properties, features and rows are as before, no plan is left behind, and the run goes on."""
    place.run(3)
    before = DeltaTable(place.folder / "words")
    alter(place, what)
    with pytest.raises(DivergenceError) as refusal:
        place.run()
    assert what in str(refusal.value)
    diagnosis = place.repair()
    assert (diagnosis.rolled_back, diagnosis.adopt, diagnosis.is_safe) == (("words",), None, False)
    as_it_was(place, before)
    assert place.diagnosis().is_sound
    place.finish(TRANSACTIONS - 3)


@pytest.mark.slow
def test_several_tables_are_taken_back_at_once(place):
    """Each of them, whichever comes first."""
    place.run(3)
    before = DeltaTable(place.folder / "words")
    for name in ("words", "total"):
        alter(place, "a change data feed", name)
    place.repair()
    as_it_was(place, before)
    assert place.diagnosis().is_sound
    place.finish(TRANSACTIONS - 3)


@pytest.mark.slow
def test_rows_that_came_with_it_are_taken_back(place):
    """What was written before and after the alteration goes with it."""
    place.run(3)
    before = DeltaTable(place.folder / "words")
    place.append_word("early")
    alter(place, "a change data feed")
    rows = before.to_pyarrow_table().slice(0, 1)
    write_deltalake(place.folder / "words", rows, mode="append")
    place.repair()
    as_it_was(place, before)
    place.finish(TRANSACTIONS - 3)


@pytest.mark.slow
def test_a_table_without_a_transaction(tmp_path):
    """A table that only was created is as it was created."""
    place = Place(tmp_path)
    with dying("table.write.before"):
        place.run()
    alter(place, "a change data feed")
    place.repair()
    place.finish()


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    ["repair.alteration.after", "repair.table.after", "repair.begin.before", "repair.begin.after", "repair.end.before"],
)
def test_a_crash_while_it_is_taken_back(place, point):
    """Whatever was done, the next repair does the rest."""
    place.run(3)
    before = DeltaTable(place.folder / "words")
    alter(place, "the table feature 'deletionVectors'")
    with dying(point):
        place.repair()
    with pytest.raises(DivergenceError):
        place.run()
    place.repair()
    as_it_was(place, before)
    place.finish(TRANSACTIONS - 3)


@pytest.mark.slow
def test_a_table_that_is_also_behind(place):
    """The other tables go back to where the altered one was, by one plan."""
    place.run(2)
    place.back_up("words")
    place.run(4)
    place.restore("words")
    alter(place, "column mapping by name")
    assert place.repair().go_to.txid == 2
    place.finish(TRANSACTIONS - 2)


@pytest.mark.slow
def test_what_came_before_is_gone(place):
    """If a file of the version before is gone, no plan is made, nothing is recorded, and all can be begun anew."""
    place.run(3)
    alter(place, "a change data feed")
    next((place.folder / "words" / "_data").glob("*.parquet")).unlink()
    seen = place.seen()
    diagnosis = place.diagnosis()
    assert (diagnosis.go_to, diagnosis.adopt) == (None, None)
    assert "a change data feed" in "; ".join(divergence.text for divergence in diagnosis.divergences)
    assert place.seen() == seen
    place.repair(lambda each: each.anew)
    place.finish(TRANSACTIONS)


def test_a_feature_of_readers_that_nobody_knows(place):
    """It says that there is no way back, and what to do."""
    place.run(3)
    table = DeltaTable(place.folder / "words")
    put_entry(table, with_features("fancy"))
    for what in (place.run, place.diagnosis):
        with pytest.raises(StateFailure, match=r"no way back.*Drop the feature") as refusal:
            what()
        assert "fancy" in str(refusal.value)
