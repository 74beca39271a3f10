"""The steps of a commit group come in an order that a crash between any two of them can be finished from."""

from __future__ import annotations

from tests.recovery.divergences import Place
from txtopo.failpoints import armed


def test_the_order_of_a_groups_steps(tmp_path):
    """Journal, then note, then tables, then mark: an entry is there before anything that it tells of is visible."""
    reached: list[str] = []
    with armed(reached.append):
        Place(tmp_path).run(1)
    steps = ("group.stage", "group.journal", "group.begin", "table.write", "group.commit", "group.clear")
    ended = [name.removesuffix(".after") for name in reached if name.startswith(steps) and name.endswith(".after")]
    assert ended == [
        "group.stage",
        "group.stage",
        "group.journal",
        "group.begin",
        "table.write",
        "table.write",
        "group.commit",
        "group.clear",
    ]
