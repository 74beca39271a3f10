"""Turns: which of them are kept, and what a table shares with what has gone through them."""

import attrs
import pytest

from state.delta.log.entries import undone_to
from txtopo.api.state import TableDescription
from txtopo.journal.turns import Timeline, Turn

FIRST, SECOND = Turn(3, 5, ("a",)), Turn(6, 2, ("a",))


@attrs.frozen
class Table:
    """Says what it was undone to, and where the topology went back to."""

    undone: int | None = None
    turned: int | None = None

    def undone_to(self, _epoch):
        return self.undone

    def turned_to(self, _epoch):
        return self.turned


def described(epoch, identity="a"):
    return TableDescription("t", "s", "life", identity, 8, epoch, 9, None)


def test_a_turn_that_goes_further_back_hides_the_earlier_ones():
    """The list stays short: whatever the earlier turn undid, the later one did, too."""
    assert Timeline(1).after(FIRST).after(SECOND) == Timeline(6, (SECOND,))
    assert Timeline(1).after(SECOND).after(attrs.evolve(FIRST, epoch=8)).turns == (SECOND, attrs.evolve(FIRST, epoch=8))


@pytest.mark.parametrize(
    ("table", "description", "shared"),
    [
        (Table(), described(6), None),
        (Table(), described(5), 2),
        (Table(), described(5, "another table"), None),
        (Table(4), described(6), 4),
        (Table(1), described(5), 1),
        (Table(8), described(6), None),
        (Table(8, turned=9), described(6), None),
        (Table(8, turned=8), described(6), 8),
        (Table(5, turned=8), described(6), 5),
    ],
)
def test_what_a_table_shares(table, description, shared):
    """A turn counts that the table has and the record lacks, and one that should have opened the table and has not.

    At transaction 9, the last one of which the table has anything is 8.
    """
    assert Timeline(6, (SECOND,)).shared_until(table, description, 9, 8) == shared


def test_a_table_that_was_never_rolled_back_reads_no_log():
    """Each start asks; a table without turns costs nothing."""
    assert undone_to([], 10_000, 0, None, lambda _: 0) is None
