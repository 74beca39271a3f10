"""What tasks count, added up."""

from __future__ import annotations

from txtopo.plain.tasks.metrics import Counts, by_component


def test_sum():
    """Sums go by stream and by kind."""
    one = Counts({"default": 1, "side": 2}, 5, 1, 2, 3)
    other = Counts({"default": 10}, 1, 1, 1, 1)
    assert one + other == Counts({"default": 11, "side": 2}, 6, 2, 3, 4)


def test_by_component():
    """The tasks of a component are added up, those of others are not."""
    counts = [("a", Counts(acked=1)), ("b", Counts(failed=1)), ("a", Counts(acked=2, executed=5))]
    assert by_component(counts) == {"a": Counts(executed=5, acked=3), "b": Counts(failed=1)}
    assert by_component([]) == {}
