"""A journal that is cut to what the oldest point needs: commands, readers, a rewind and a repair stand on what is left."""

import itertools

import pytest

from state import read_tables
from tests.cli.mend.test_repair import MODULE
from tests.crashes import dying
from tests.journals import opened_journal
from tests.transactional.recovery.divergences import TRANSACTIONS, Place
from txtopo import Config
from txtopo.journal.journal import read_journal
from txtopo.testing.inline import run_inline

BEGAN_SECS = 20_000 * 24 * 3600
HOURS = 3
"""How far back points reach."""


class Hourly(Place):
    """A topology that commits a transaction each hour."""

    def run_to(self, txid, **settings):
        """Run up to a transaction, each by a run of its own."""
        for number in range(max(self.txids().values(), default=0) + 1, txid + 1):
            secs = BEGAN_SECS + number * 3600
            config = Config({"topology.group.transactions.max": 1, "topology.rewind.hours": HOURS, **settings})
            run_inline(self.topology(), config, until=number, wall_secs=lambda secs=secs: secs)

    def first(self):
        """Return the first transaction that the journal has."""
        return min(part.header.committed for part in read_journal(opened_journal(self.folder))) + 1


@pytest.fixture
def place(command_line, tmp_path):
    command_line.write_module("counting", MODULE)
    return Hourly(tmp_path)


@pytest.mark.slow
def test_it_is_cut_to_the_oldest_point(command_line, place):
    """What is left is proved, explained and read; what is gone is named; a rewind goes to the oldest point."""
    place.run_to(TRANSACTIONS)
    oldest = TRANSACTIONS - HOURS - 1  # which stood until the next one was committed
    assert place.first() == oldest + 1
    assert f"journal     {HOURS + 1} transactions, {oldest + 1} to {TRANSACTIONS}, each once" in command_line.told(
        "audit", "."
    )
    assert f"it begins with transaction {oldest + 1}: earlier ones are before the oldest point" in command_line.told(
        "explain", ".", "1"
    )
    assert "group" in command_line.told("explain", ".", str(oldest + 1))
    assert read_tables(place.folder).txid == TRANSACTIONS
    command_line.told("rewind", "counting", str(oldest), "--yes")
    assert set(place.txids().values()) == {oldest}
    place.finish(HOURS + 1)
    command_line.told("audit", ".")


@pytest.mark.slow
def test_it_stays_where_every_version_does(place):
    """Without points, nothing says what is needed."""
    place.run_to(TRANSACTIONS, **{"topology.history.recent.secs": None})
    assert place.first() == 1


@pytest.mark.slow
def test_a_store_that_is_wiped_is_rebuilt_from_what_is_left(command_line, place):
    """The header of the first file says what came before."""
    place.run_to(TRANSACTIONS - 1)
    assert place.first() > 1
    place.wipe_store()
    command_line.told("repair", "counting", "--yes")
    place.finish(1)
    command_line.told("audit", ".")


@pytest.mark.slow
@pytest.mark.parametrize("failpoint", ["journal.cut.before", "journal.cut.after"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_cut_that_dies(command_line, place, failpoint, times):
    """The journal has no gap, the next run removes the rest, and goes on as if nothing had been."""
    place.run_to(TRANSACTIONS - 1, **{"topology.rewind.hours": 1000})
    with dying(failpoint, times):
        place.run_to(TRANSACTIONS)
    command_line.told("audit", ".")
    place.finish()
    command_line.told("audit", ".")
    assert place.txids() == {"words": TRANSACTIONS, "total": TRANSACTIONS}


@pytest.mark.slow
def test_a_young_topology_has_all_of_it(command_line, place):
    """Until points are as old as they become, it can go back to its beginning."""
    place.run_to(TRANSACTIONS, **{"topology.rewind.hours": TRANSACTIONS + 1})
    assert place.first() == 1
    command_line.told("rewind", "counting", "0", "--yes")
    place.finish(TRANSACTIONS)


def test_a_run_that_goes_on_cuts_it(place):
    """It begins a file each hour, and removes them as its points go."""
    secs = itertools.count(BEGAN_SECS, 900)
    run_inline(
        place.topology(),
        Config({"topology.group.transactions.max": 1, "topology.rewind.hours": 1}),
        wall_secs=lambda: next(secs),
    )
    assert place.first() > 1
