"""Static checks that find mistakes in a component's code before anything runs.

They find methods with the wrong number of parameters, methods in Storm's spelling, and tuples emitted on undeclared
streams. They skip code whose source is not available; a run then reports its mistakes.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import attrs

from txtopo.api.data.tuples import DEFAULT_STREAM
from txtopo.topology.builders.kinds import KINDS, PLAIN_KINDS, rules_of

_DECLARATION = {"declare_output_fields": ("declarer",)}

_EMITS = frozenset({"emit", "emit_direct", "emit_batch"})
_STREAM_AT = {"emit": 1, "emit_direct": 2, "emit_batch": 1}
"""The position of the stream among the arguments."""

_known_emissions: WeakKeyDictionary[type, Sequence[tuple[str, str]]] = WeakKeyDictionary()
"""A cache of :func:`_emissions`: parsing a class takes milliseconds, and simulations build a topology many times."""


def _methods_called(component: object) -> Mapping[str, Sequence[str]]:
    rules = rules_of(component, (*KINDS, *PLAIN_KINDS))
    return {} if rules is None else rules.methods


def signature_mistakes(component_id: str, component: object) -> Iterator[str]:
    """Find methods that do not accept txtopo's arguments, and methods that misspell the name of one."""
    expected = {**_methods_called(component), **_DECLARATION}
    name = type(component).__name__
    for method, arguments in expected.items():
        function = getattr(component, method, None)
        signature = f"def {method}({', '.join(('self', *arguments))})"
        if not callable(function):
            yield f"{component_id!r}: {name} has no method {method}(); write {signature}"
        elif not _takes(function, len(arguments)):
            yield (
                f"{component_id!r}: {name}.{method}{_shown(function)} cannot be called with {_count(len(arguments))}; "
                f"write {signature}"
            )
    by_letters = {_letters(method): method for method in expected}
    for owner in _own_classes(component):
        for attribute, value in vars(owner).items():
            method = by_letters.get(_letters(attribute), attribute)
            if isinstance(value, types.FunctionType) and method != attribute and not attribute.startswith("_"):
                yield f"{component_id!r}: {owner.__name__}.{attribute}() is never called; rename it to {method}()"


def undeclared_streams(
    component_id: str, component: object, streams: Mapping[str, object], example: str = "Fields('attempt', …)"
) -> Iterator[str]:
    """Find calls that emit on a stream that the bolt does not declare."""
    if "execute" not in _methods_called(component):
        return
    for method, stream in _emissions(component):
        if stream in streams:
            continue
        where = f"{component_id!r}: {type(component).__name__}.{method}()"
        if stream == DEFAULT_STREAM:
            remedy = f"set output_fields = {example}"
        else:
            remedy = f"declare it in declare_output_fields(): declarer.declare_stream({stream!r}, Fields(…))"
        yield f"{where} emits on stream {stream!r}, which is not declared; {remedy}"


@attrs.frozen
class SharedDefault:
    """A mutable class attribute of a bolt, which all attempts in a process share."""

    owner: type
    name: str
    kind: str

    @property
    def text(self) -> str:
        """The warning, with its remedy."""
        return (
            f"{self.owner.__module__}.{self.owner.__qualname__}.{self.name} is a class attribute of type {self.kind}, "
            f"which all attempts and tasks in a process share: the next attempt sees what a failed one left in it; set "
            f"self.{self.name} in prepare(), or write its name in capitals if it is a constant"
        )


def shared_defaults(component: object) -> Iterator[SharedDefault]:
    """Find lists, dictionaries and sets among class attributes, but constants and what the object overrides."""
    instance_attributes = getattr(component, "__dict__", {})
    hidden: set[str] = set()
    for owner in _own_classes(component):
        for name, value in vars(owner).items():
            is_mutable = isinstance(value, (list, dict, set, deque, bytearray))
            is_hidden = name in hidden or name in instance_attributes or name.startswith("__")
            hidden.add(name)
            if is_mutable and not is_hidden and name.upper() != name:
                yield SharedDefault(owner, name, type(value).__name__)


def _takes(method: Any, count: int) -> bool:
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # not written in Python
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _shown(method: Any) -> str:
    names = [str(parameter) for parameter in inspect.signature(method).parameters.values()]
    return f"({', '.join(['self', *names])})"


def _count(arguments: int) -> str:
    return "no argument" if arguments == 0 else "1 argument" if arguments == 1 else f"{arguments} arguments"


def _letters(name: str) -> str:
    """Return a name's letters, which are the same for ``finish_batch`` and ``finishBatch``."""
    return name.replace("_", "").lower()


def _own_classes(component: object) -> list[type]:
    """Return the user's classes among a component's base classes, in method resolution order."""
    return [base for base in type(component).__mro__ if base is not object and not _is_ours(base)]


def _is_ours(kind: type) -> bool:
    return kind.__module__.split(".")[0] in {"txtopo", "abc", "typing"}


def _emissions(component: object) -> Sequence[tuple[str, str]]:
    kind = type(component)
    cached = _known_emissions.get(kind)
    if cached is None:
        emissions = (
            (method, _stream_of(call, collectors))
            for method, tree, collectors in _methods(component)
            for call in ast.walk(tree)
        )
        cached = list(dict.fromkeys((method, stream) for method, stream in emissions if stream is not None))
        _known_emissions[kind] = cached
    return cached


def _methods(component: object) -> Iterator[tuple[str, ast.AST, set[str]]]:
    """Yield (name, syntax tree, names of the collector in it) for each method of the user's."""
    names: set[str] = set()
    for owner in _own_classes(component):
        for name, value in vars(owner).items():
            if name in names or not isinstance(value, types.FunctionType):
                continue
            names.add(name)
            tree = _source_of(value)
            if tree is not None and not _reads_output_fields(tree):
                yield name, tree, _collectors_of(component, name, value)


def _source_of(function: types.FunctionType) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError, ValueError):  # no source, or none that parses by itself
        return None


def _reads_output_fields(tree: ast.AST) -> bool:
    """Return whether a method reads ``output_fields``: then it may emit only if fields are declared."""
    return any(isinstance(each, ast.Attribute) and each.attr == "output_fields" for each in ast.walk(tree))


def _collectors_of(component: object, name: str, function: types.FunctionType) -> set[str]:
    names = {"collector", "_collector"}
    arguments = ("self", *_methods_called(component).get(name, ()))
    position = arguments.index("collector") if "collector" in arguments else function.__code__.co_argcount
    if position < function.__code__.co_argcount:
        names.add(function.__code__.co_varnames[position])
    return names


def _stream_of(call: ast.AST, collectors: set[str]) -> str | None:
    """Return the stream that a call of a collector emits on; None for other calls, and if the stream is no literal."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in _EMITS:
        return None
    on = call.func.value
    holder = on.attr if isinstance(on, ast.Attribute) else on.id if isinstance(on, ast.Name) else None
    if holder not in collectors:
        return None
    position = _STREAM_AT[call.func.attr]
    argument: ast.AST | None = next((keyword.value for keyword in call.keywords if keyword.arg == "stream"), None)
    # * and ** may hold the stream.
    if any(keyword.arg is None for keyword in call.keywords) or any(
        isinstance(each, ast.Starred) for each in call.args
    ):
        return None
    if argument is None and len(call.args) > position:
        argument = call.args[position]
    if argument is None:
        return DEFAULT_STREAM
    return argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else None
