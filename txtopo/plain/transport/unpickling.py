"""Finds the value that does not unpickle, and the component that emitted it.

A frame and a segment of a file are pickles of many tuples. If one value raises, ``pickle`` does not say which. So the
same bytes are read again, slowly, with a :class:`_Broken` in place of each object that can't be made. Then the values
are searched for one.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from txtopo.api.tuples import TupleSource
from txtopo.errors import UserCodeError

Rows = Iterable[tuple[int, Sequence[Sequence[Any]]]]
"""The values of tuples, by the number of their source."""

_POPPED = {
    pickle.REDUCE: 2,
    pickle.NEWOBJ: 2,
    pickle.NEWOBJ_EX: 3,
    pickle.BUILD: 2,
    pickle.STACK_GLOBAL: 2,
    pickle.APPEND: 2,
    pickle.SETITEM: 3,
}
"""Opcodes that make or change an object, and how many items they take from the stack."""

_COLLECTED = (pickle.APPENDS, pickle.SETITEMS, pickle.ADDITEMS)
"""Opcodes that add everything above a mark to the object below it."""


@attrs.frozen(eq=False)
class _Broken:
    """Stands for an object that can't be made: its type, for people, and the error."""

    kind: str
    error: Exception

    def __call__(self, *_args: Any, **_options: Any) -> _Broken:
        return self


def blamed(
    data: bytes | memoryview, rows_of: Callable[[Any], Rows], sources: Sequence[TupleSource]
) -> Exception | None:
    """Return an error that names who emitted the first value that does not unpickle; None if something else is wrong.

    ``rows_of`` finds the tuples in the unpickled object.
    """
    try:
        for number, rows in rows_of(_Lenient(io.BytesIO(data)).load()):
            for values in rows:
                for field, value in enumerate(values):
                    broken = _broken_in(value)
                    if broken is not None:
                        return _error(sources[number], field, broken)
    except Exception:  # noqa: BLE001 - it is not a pickle, or one of something else
        return None
    return None


def _error(source: TupleSource, field: int, broken: _Broken) -> UserCodeError:
    return UserCodeError(
        f"task {source.task} emitted a value in field {source.fields[field]!r} on stream {source.stream!r}, of or with "
        f"type {broken.kind}, that pickles and does not unpickle ({type(broken.error).__name__}: {broken.error}); "
        "tuples travel between workers, and wait in files: emit plain values, or give the type a __reduce__ that fits "
        "its __init__, and put it into a module that every worker can import",
        component=source.component,
    )


def _broken_in(value: Any) -> _Broken | None:
    """Return the broken object in a value, however deep: ``pickle`` visits every object in it."""
    search = _Search(io.BytesIO(), 5)
    try:
        search.dump(value)
    except Exception as error:  # noqa: BLE001 - half an object may do anything
        kind = type(value)
        return search.found or _Broken(f"{kind.__module__}.{kind.__qualname__}", error)
    return search.found


class _Search(pickle.Pickler):
    found: _Broken | None = None

    def persistent_id(self, obj: Any) -> str | None:
        """Record the first broken object; ``pickle`` does not look into what has an id."""
        if not isinstance(obj, _Broken):
            return None
        self.found = self.found or obj
        return "broken"


def _lenient(opcode: bytes) -> Callable[[Any], None]:
    """Return a function that does what an opcode does, or puts a broken object on the stack if that raises."""
    # Only the unpickler in Python has a table of opcodes, and it is private.
    load, popped = pickle._Unpickler.dispatch[opcode[0]], _POPPED.get(opcode)  # noqa: SLF001

    def run(unpickler: Any) -> None:
        taken = [] if popped is None else unpickler.stack[-popped:]
        below = None if popped is None else len(unpickler.stack) - popped
        try:
            load(unpickler)
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            stack = unpickler.stack
            if below is None:
                taken, below = stack[-1:], len(stack) - 1
            earlier = [each for each in taken if isinstance(each, _Broken)]
            stack[below:] = [earlier[0] if earlier else _Broken(_kind(opcode, taken), error)]

    return run


def _kind(opcode: bytes, taken: Sequence[Any]) -> str:
    if opcode == pickle.STACK_GLOBAL:
        return ".".join(taken)
    made = taken[0] if opcode in {pickle.REDUCE, pickle.NEWOBJ, pickle.NEWOBJ_EX} else type(taken[0])
    return f"{made.__module__}.{made.__qualname__}"


class _Lenient(pickle._Unpickler):  # noqa: SLF001 - the C one tells nothing
    dispatch = {  # noqa: RUF012 - as in the standard library
        **pickle._Unpickler.dispatch,  # noqa: SLF001
        **{opcode[0]: _lenient(opcode) for opcode in (*_POPPED, *_COLLECTED)},
    }
