"""Rewinds, forks, backfills and new fields in any order, with deaths in between: a short run of what the soak does."""

from pathlib import Path

import pytest

from tests.harness.soak.changes.story import Story, Undisturbed, tell
from tests.variants import variants

STEPS = 8

pytestmark = pytest.mark.slow


# The first ones have found bugs: a second rewind below a join, a fork from before the tables grew, a difference that
# was looked for within a group of a backfill, and a fork by code that lacks a state of the last group. So have 106, a
# rewind to where a backfill had died before it joined, and 3027, a difference to a fork without the table of a backfill.
@pytest.mark.parametrize(
    "seed",
    variants(3, long=[18, 1000, 2000, *range(100, 120), 3027]),
)
def test_tables_are_those_of_an_undisturbed_topology(undisturbed: Undisturbed, tmp_path: Path, seed: int) -> None:
    """Whatever has happened, and wherever it died: all tables are exact, and the audit finds nothing."""
    assert isinstance(tell(tmp_path, undisturbed, seed, STEPS), Story)


@pytest.mark.parametrize("seed", variants(long=[3, 18, *range(100, 106), 1000, 2000]))
def test_points_are_enough(undisturbed: Undisturbed, tmp_path: Path, seed: int) -> None:
    """The same where all versions between points go at once."""
    assert isinstance(tell(tmp_path, undisturbed, seed, STEPS, look_secs=60), Story)
