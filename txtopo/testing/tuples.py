"""Tuples for tests of bolts alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txtopo.api.data.fields import Fields
from txtopo.api.data.tuples import DEFAULT_STREAM, Tuple, TupleSource
from txtopo.plain.trees.tuples import TreeTuple


def make_tuple(
    values: Sequence[Any],
    *,
    fields: Fields | Sequence[str] | None = None,
    component: str = "component",
    stream: str = DEFAULT_STREAM,
    task: int = 1,
) -> Tuple:
    """Return a tuple as a bolt of a plain topology receives it; it belongs to no tuple tree.

    The fields are field1, field2 and so on unless given. ``component``, ``stream`` and ``task`` say where it comes
    from.

    Raises:
        ValueError: there are not as many fields as values.
    """
    names = [f"field{number}" for number in range(1, len(values) + 1)] if fields is None else list(fields)
    if len(names) != len(values):
        raise ValueError(f"{len(values)} values for the {len(names)} fields {', '.join(names)}")
    return TreeTuple(tuple(values), TupleSource(component, stream, task, Fields(*names)), 0, 0)
