"""The acker: what was sent on each edge must be what was received."""

import pytest

from txtopo.transactional.tasks.edge_tally import EdgeTally, total


def test_nothing_sent_is_settled() -> None:
    """An edge on which nothing was sent is settled."""
    assert EdgeTally().agrees


@pytest.mark.parametrize(
    ("tally", "agrees"),
    [
        (EdgeTally(sent=2, sent_ids=0b11, received=2, received_ids=0b11), True),
        (EdgeTally(sent=2, sent_ids=0b11, received=1, received_ids=0b01), False),  # lost
        (EdgeTally(sent=1, sent_ids=0b01, received=2, received_ids=0b11), False),  # more than was sent
        (EdgeTally(sent=1, sent_ids=0b01, received=1, received_ids=0b10), False),  # another one
        (EdgeTally(sent=1, sent_ids=0b01, received=3, received_ids=0b01), False),  # doubled: XOR does not show it
    ],
)
def test_an_edge(tally: EdgeTally, *, agrees: bool) -> None:
    """Both the number of tuples and the XOR of their ids must agree."""
    assert tally.agrees is agrees


def test_all_places_together() -> None:
    """Each place saw a part; only the sum over all places, edge by edge, tells."""
    here = {0: EdgeTally(sent=3, sent_ids=0b101), 1: EdgeTally(received=1, received_ids=0b1)}
    there = {0: EdgeTally(received=2, received_ids=0b110), 2: EdgeTally(sent=1)}
    elsewhere = {0: EdgeTally(received=1, received_ids=0b011)}
    sums = total([here, there, elsewhere])
    assert sums == {
        0: EdgeTally(sent=3, sent_ids=0b101, received=3, received_ids=0b101),
        1: EdgeTally(received=1, received_ids=0b1),
        2: EdgeTally(sent=1),
    }
    assert [sums[edge].agrees for edge in range(3)] == [True, False, False]


def test_what_is_added_up_is_left_alone() -> None:
    """The tallies of the places are not changed by adding them up."""
    bindings = {0: EdgeTally(sent=1, sent_ids=0b1)}
    total([bindings, bindings])
    assert bindings == {0: EdgeTally(sent=1, sent_ids=0b1)}
