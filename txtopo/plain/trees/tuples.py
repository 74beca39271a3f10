"""Tuples of plain topologies: what a bolt receives, with its place in the tuple trees that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any

from txtopo.api.data.tuples import Tuple, Tuples, TupleSource
from txtopo.attempts import TransactionAttempt


class _Settled:
    """Stands in for a tuple's roots once the tuple was acked or failed."""

    def __repr__(self) -> str:
        return "settled"


SETTLED = _Settled()

Roots = int | tuple[int, ...] | _Settled
"""The roots of a tuple: 0 for none, the root itself for one, a tuple for several."""

Edges = int | dict[int, int]
"""The edge id of a tuple; with several roots, one for each root."""


class TreeTuple(Tuple):
    """A tuple with its place in tuple trees.

    Most tuples have one root, so that case is the cheap one: two plain numbers. While a bolt works on the tuple,
    ``edges`` becomes the XOR of its own edge id and those of the tuples that are anchored to it, and ``mask`` collects
    the bits of the workers that these are sent to. Both are the content of its ack.
    """

    __slots__ = ("edges", "mask", "roots")

    roots: Roots
    edges: Edges
    mask: int

    def __init__(self, values: Sequence[Any], source: TupleSource, roots: Roots, edges: Edges) -> None:
        self.values = values
        self.source = source
        self.roots = roots
        self.edges = edges
        self.mask = 0

    @property
    def attempt(self) -> TransactionAttempt:
        """Raise AttributeError: a tuple of a plain topology belongs to no attempt."""
        raise AttributeError("a tuple of a plain topology has no attempt: there are no transactions")


class TreeTuples(Tuples):
    """Tuples that a bolt takes at once, as columns. They become objects when the bolt looks at one of them."""

    __slots__ = ("_parts", "edges", "roots")

    _tuples: list[TreeTuple] | None
    roots: Sequence[Roots]
    edges: Sequence[Edges]

    def __init__(
        self,
        parts: Sequence[tuple[TupleSource, int]],
        values: Sequence[Sequence[Any]],
        roots: Sequence[Roots],
        edges: Sequence[Edges],
    ) -> None:
        """Hold tuples as columns; ``parts`` are their sources in order, each with its number of tuples."""
        self._tuples = None
        self._parts = parts
        self.source = parts[0][0]
        self.values = values
        self.roots = roots
        self.edges = edges

    @property
    def is_made(self) -> bool:
        """Whether the tuples are objects. Then these have the edges, masks and roots, and the columns are stale."""
        return self._tuples is not None

    def settle(self) -> None:
        """Mark all tuples as acked or failed, before any of them is an object."""
        self.roots = [SETTLED] * len(self.values)

    def __iter__(self) -> Iterator[TreeTuple]:
        return iter(self._objects())

    def _objects(self) -> Sequence[TreeTuple]:
        if self._tuples is None:
            sources = chain.from_iterable(repeat(source, count) for source, count in self._parts)
            self._tuples = list(map(TreeTuple, self.values, sources, self.roots, self.edges))
        return self._tuples
