"""Pickles users' objects: prototypes, of which every task gets a copy, and bolts between the two phases.

Only an object's state is pickled; the receiver uses its own class, which is smaller, faster, and keeps the identity of
classes. Objects that belong to the task (its collector, context and state handles) are pickled as references and
replaced by those of the new task.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import cloudpickle

from txtopo.api.data.copying import UNCHANGEABLE, culprit
from txtopo.errors import TxtopoError, UserCodeError


@attrs.frozen
class LocalReference:
    """A reference to an object that belongs to a task, in the pickled state of a bolt."""

    role: str
    name: str = ""

    def __reduce__(self) -> tuple[type[LocalReference], tuple[str, str]]:
        return LocalReference, (self.role, self.name)


class Local:
    """Base class of objects that belong to a task: they pickle as ``local_reference``, or normally if that is None."""

    local_reference: LocalReference | None


Bindings = Mapping[LocalReference, Any]
"""The targets of references in one task."""


def dump_object(value: Any) -> bytes:
    """Return an object's pickled state.

    Raises:
        UserCodeError: an attribute does not pickle; the message names it.
        TxtopoError: raised by the object's ``__getstate__`` or ``__reduce__``.
    """
    try:
        return _dump(_state_of(value))
    except TxtopoError:
        raise
    except Exception as error:  # a user's attribute may raise anything while it is pickled
        raise UserCodeError(
            f"{type(value).__name__}{culprit(value, _dump)} does not pickle ({error}); txtopo sends objects between "
            "processes: create objects that do not pickle in prepare(), and exclude them in __getstate__()"
        ) from error


def load_object(kind: type, frozen: bytes, bindings: Bindings) -> Any:
    """Return a new object of ``kind``, the class in this process, with a state from :func:`dump_object`."""
    is_complete, state = _load(frozen, bindings)
    if is_complete:
        return state
    loaded: Any = object.__new__(kind)
    _restore(loaded, state)
    return loaded


@functools.lru_cache(maxsize=256)
def maker_of(kind: type, frozen: bytes) -> Callable[[], Any]:
    """Return a function that creates objects as :func:`load_object`, unpickling an immutable state only once."""
    is_complete, state = _load(frozen, {})
    attributes = {} if state is None else state
    is_bare = not is_complete and type(attributes) is dict and not hasattr(kind, "__setstate__")
    if not is_bare or not UNCHANGEABLE.issuperset(map(type, attributes.values())):
        return lambda: load_object(kind, frozen, {})

    def make() -> Any:
        copy: Any = object.__new__(kind)
        _restore(copy, attributes)
        return copy

    return make


def _load(frozen: bytes, bindings: Bindings) -> tuple[bool, Any]:
    unpickler = _BindingsUnpickler(io.BytesIO(frozen))
    unpickler.bindings = bindings
    loaded: tuple[bool, Any] = unpickler.load()
    return loaded


def _state_of(value: Any) -> tuple[bool, Any]:
    kind = type(value)
    # Such a class decides itself how its objects are made, so the object is pickled as a whole.
    customized = any(getattr(kind, name) is not getattr(object, name) for name in ("__reduce__", "__reduce_ex__"))
    if customized or hasattr(value, "__getnewargs__") or hasattr(value, "__getnewargs_ex__"):
        return True, value
    return False, value.__getstate__()


def _restore(loaded: Any, state: Any) -> None:
    if hasattr(loaded, "__setstate__"):
        loaded.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)  # noqa: PLR2004
    for name, value in {**(attributes or {}), **(slots or {})}.items():
        object.__setattr__(loaded, name, value)


def _dump(content: Any) -> bytes:
    buffer = io.BytesIO()
    # The C pickler raises for lambdas and local classes, and only names what a script defines, in __main__, which is
    # another module elsewhere. cloudpickle, which is slower, takes along what they are.
    with contextlib.suppress(pickle.PicklingError, AttributeError, TypeError):
        _BindingsPickler(buffer, protocol=5).dump(content)
        dumped = buffer.getvalue()
        if b"__main__" not in dumped:
            return dumped
    buffer = io.BytesIO()
    _BindingsCloudPickler(buffer, protocol=5).dump(content)
    return buffer.getvalue()


def _of_these_bindings(reference: LocalReference) -> Any:
    """Mark a reference in the pickle; the unpickler replaces this function by a lookup in its bindings."""
    raise AssertionError(f"{reference} was unpickled outside of any task")


# Not persistent_id(), which pickle calls for every single number and string.
class _BindingsPickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        reference = obj.local_reference if isinstance(obj, Local) else None
        return NotImplemented if reference is None else (_of_these_bindings, (reference,))


class _BindingsCloudPickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        reference = obj.local_reference if isinstance(obj, Local) else None
        if reference is not None:
            return _of_these_bindings, (reference,)
        return super().reducer_override(obj)


class _BindingsUnpickler(pickle.Unpickler):
    bindings: Bindings

    def find_class(self, module: str, name: str) -> Any:
        class_found = super().find_class(module, name)
        return self.bindings.__getitem__ if class_found is _of_these_bindings else class_found
