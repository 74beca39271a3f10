"""Frames: what one worker sends to another in one message, as bytes.

Tuples travel as columns, by source. ``marshal`` encodes them, and values of other than plain types as pickles of their
own: so if one does not unpickle, it is known who emitted it. ``marshal`` takes 60 ns a
tuple, ``pickle`` 143 (to read it back: 156 and 177 ns). But ``marshal`` silently turns every object with a buffer,
such as a numpy number, into bytes. So the types of all values are checked first, which takes 30 ns a tuple.

A pickle can run any code, so frames are read only from workers that have proved that they know the run's secret.
"""

from __future__ import annotations

import contextlib
import io
import marshal
import pickle
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import attrs

from txtopo.api.data.tuples import TupleSource
from txtopo.errors import UserCodeError
from txtopo.plain.trees.tuples import Edges, Roots

_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})


class Columns:
    """Tuples from one task and stream to one task: their values, roots and edge ids.

    Roots and edge ids are those of :class:`~txtopo.plain.trees.tuples.TreeTuple`. If the columns are short, there
    may be fewer of them than values: the tuples behind them belong to no tree. See :meth:`fill`.
    """

    __slots__ = ("bit", "edges", "is_short", "roots", "source", "taken", "task", "values")

    def __init__(self, source: int, task: int) -> None:
        self.source = source
        self.task = task
        self.bit = 0
        """Before they are sent: the bit of the task's worker; 0: it is this worker."""
        self.taken = 0
        """How many tuples were removed by :meth:`take`."""
        self.is_short = True
        self.values: list[tuple[Any, ...]] = []
        self.roots: list[Any] = []
        self.edges: list[Any] = []

    def add(self, values: tuple[Any, ...], roots: Roots, edges: Edges) -> None:
        """Add a tuple at the end."""
        self.fill()
        self.values.append(values)
        self.roots.append(roots)
        self.edges.append(edges)

    def fill(self) -> None:
        """Give each tuple a root and an edge id: 0 if it belongs to no tree."""
        if self.is_short:
            missing = [0] * (len(self.values) - len(self.roots))
            self.roots += missing
            self.edges += missing
            self.is_short = False

    def part(self, start: int, end: int | None = None) -> Columns:
        """Return some of the tuples, in separate columns."""
        part = Columns(self.source, self.task)
        part.values, part.roots, part.edges = self.values[start:end], self.roots[start:end], self.edges[start:end]
        return part

    def take(self) -> Columns:
        """Remove the tuples, and return them in separate columns."""
        columns = Columns(self.source, self.task)
        columns.values, columns.roots, columns.edges = self.values, self.roots, self.edges
        self.values, self.roots, self.edges = [], [], []
        self.is_short = True
        self.taken += len(columns.values)
        return columns


@attrs.define
class Frame:
    """What one worker sends to another.

    Args:
        tuples: tuples, by task and source.
        acks: columns of roots, of the XOR of each root's edge ids, and of its mask.
        failed: roots that have failed.
        reset: roots whose timeout begins again.
        known: the highest generation that the sender knew of.
    """

    tuples: list[Columns] = attrs.field(factory=list)
    acks: tuple[list[int], list[int], list[int]] = attrs.field(factory=lambda: ([], [], []))
    failed: list[int] = attrs.field(factory=list)
    reset: list[int] = attrs.field(factory=list)
    known: int = -1


def encode(frame: Frame, sources: Sequence[TupleSource] = ()) -> bytes:
    """Return a frame as bytes; raise UserCodeError, naming which ``sources`` emitted it, if a value does not pickle."""
    tuples = [(each.source, each.task, _packed(each, sources), each.roots, each.edges) for each in frame.tuples]
    return marshal.dumps((tuples, frame.acks, frame.failed, frame.reset, frame.known))


def decode(data: bytes, sources: Sequence[TupleSource] = ()) -> Frame:
    """Return the frame that :func:`encode` encoded.

    Raises:
        UserCodeError: a value does not unpickle; the error names which of the ``sources`` emitted it.
        ValueError: the bytes are not a frame.
    """
    try:
        tuples, acks, failed, reset, newest = marshal.loads(data)  # noqa: S302 - of a worker that knows the secret
        parts = [(Columns(source, task), values, roots, edges) for source, task, values, roots, edges in tuples]
    except (EOFError, TypeError, ValueError) as error:
        raise ValueError(f"{len(data)} bytes can't be read as a frame: {type(error).__name__}: {error}") from error
    for columns, values, roots, edges in parts:
        columns.values = _unpickled(values, columns.source, sources) if isinstance(values, bytes) else values
        columns.roots, columns.edges = roots, edges
    return Frame([columns for columns, *_ in parts], acks, failed, reset, newest)


def _packed(columns: Columns, sources: Sequence[TupleSource]) -> list[tuple[Any, ...]] | bytes:
    """Return the values of columns as ``marshal`` takes them: as they are, or pickled."""
    if _PLAIN.issuperset(map(type, chain.from_iterable(columns.values))):
        return columns.values
    try:
        return pickle.dumps(columns.values, 5)
    except Exception as error:  # noqa: BLE001 - a user's value may raise anything while it is pickled
        source = sources[columns.source]
        raise UserCodeError(
            f"task {source.task} emitted a value on stream {source.stream!r} that does not pickle "
            f"({type(error).__name__}: {error}); {_how_to_travel(str(error))}",
            component=source.component,
        ) from None


class _Unpickler(pickle.Unpickler):
    """Remembers the classes and functions that a pickle names."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.names: dict[str, None] = {}

    def find_class(self, module: str, name: str) -> Any:
        self.names[f"{module}.{name}"] = None
        return super().find_class(module, name)


def _unpickled(data: bytes, number: int, sources: Sequence[TupleSource]) -> list[tuple[Any, ...]]:
    try:
        values: list[tuple[Any, ...]] = pickle.loads(data)  # noqa: S301 - of a worker that knows the secret
    except Exception as error:  # pickle may raise anything, and so may the __setstate__ of a value
        unpickler = _Unpickler(data)
        with contextlib.suppress(Exception):
            unpickler.load()
        source = sources[number]
        raise UserCodeError(
            f"task {source.task} emitted a value on stream {source.stream!r} that pickles and does not unpickle "
            f"({type(error).__name__}: {error}); its tuples hold objects of {', '.join(unpickler.names)}, the last of "
            "which is most likely the one; tuples travel between workers, and wait in files: emit plain values, or "
            "give the type a __reduce__ that fits its __init__, and put it into a module that every worker can import",
            component=source.component,
        ) from error
    return values


def _how_to_travel(error: str) -> str:
    """Return the advice for a value that does not pickle, given the message of ``pickle``."""
    script = re.search(r"__main__\.(\w+)", error)
    if script:
        return (
            f"{script[1]!r} is defined in the script that was started, which other workers do not import: put it into "
            "a module of its own, and import it from there"
        )
    return (
        "tuples travel between workers, and wait in files when there are many: emit numbers, strings, bytes, lists, "
        "dicts, or objects whose class is defined at the top of a module that the workers can import"
    )
