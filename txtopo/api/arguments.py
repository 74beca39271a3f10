"""Arguments that users give: one that is nothing of what its annotation names is refused, in a sentence with its name.

Without that, ``topics=None`` ends in a TypeError somewhere inside, and ``state=5`` in a run that fails.
"""

from __future__ import annotations

import collections.abc
import datetime as dt
import functools
import inspect
import math
import os
import re
import reprlib
import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from txtopo.api.data.fields import Fields
from txtopo.errors import ConfigError, FieldsError
from txtopo.text.printable import escaped
from txtopo.text.secrecy import HIDDEN, is_secret, without_secrets
from txtopo.text.suggestions import did_you_mean

_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C", bound=type)

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200

_UNIONS = frozenset({Union, types.UnionType})

_WORDS: Mapping[Any, tuple[str, str]] = {
    str: ("a string", "strings"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("True or False", "True or False"),
    bytes: ("bytes", "bytes"),
    types.NoneType: ("None", "None"),
    Fields: ("Fields('name: string')", "Fields"),
    os.PathLike: ("a path", "paths"),
    Callable: ("a function", "functions"),
    re.Pattern: ("a compiled pattern", "compiled patterns"),
    dt.timedelta: ("a timedelta", "timedeltas"),
    dt.datetime: ("a datetime", "datetimes"),
}
"""What is asked for, one of it and several."""


def checked_arguments(function: _F) -> _F:
    """Let a function, such as an ``__init__``, refuse each argument that is nothing of what its annotation names.

    Raises:
        FieldsError: the argument should be fields.
        ConfigError: it should be anything else.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError:  # the function itself says it better
            return function(*arguments, **named)
        kinds = _kinds_of(function)
        for name, value in bound.arguments.items():
            if name in kinds and not _fits(value, kinds[name]):
                raise _refusal(name, value, kinds[name])
        return function(*arguments, **named)

    return call  # type: ignore[return-value] # it is called like the function


def check_positive(name: str, value: int) -> None:
    """Raise a ConfigError, which has the argument's name, if a number of things is below 1."""
    if value < 1:
        raise ConfigError(f"{name} is {value!r}; give a whole number, at least 1")


def check_options(kind: type, options: Mapping[str, Any]) -> None:
    """Raise a ConfigError if a table has no such option."""
    known = [
        parameter.name
        for parameter in inspect.signature(kind).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        near = did_you_mean(unknown, known) or f"; it has {', '.join(known)}"
        raise ConfigError(f"a {kind.__name__} has no option {unknown!r}{near}")


def check_secs(name: str, secs: float) -> None:
    """Raise a ConfigError, which has the argument's name, for what is no time to wait: below 0, or without an end."""
    if not 0 <= secs < float("inf"):
        raise ConfigError(f"{name} is {secs!r}; give a number of seconds, at least 0")


def checked_class(cls: _C) -> _C:
    """Let the class, whose ``__init__`` attrs has made, refuse arguments as :func:`checked_arguments` does."""
    cls.__init__ = checked_arguments(cls.__init__)  # type: ignore[misc] # it is the class's own
    return cls


@functools.cache
def _kinds_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    # attrs takes the annotation of a converter, which may be of another module.
    names = {**vars(collections.abc), **vars(sys.modules[function.__module__])}
    kinds = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = parameter.annotation
        if kind is parameter.empty or parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            continue
        while name not in kinds:
            try:
                kinds[name] = eval(kind, names) if isinstance(kind, str) else kind  # noqa: S307 - our annotation
            except NameError as error:
                missing = str(error.name)
                names[missing] = _Unimported(missing, (), {})
    return kinds


class _Unimported(type):
    """A class that is imported for type checkers only, such as PySpark's; what has a class of that name fits."""

    def __instancecheck__(cls, value: object) -> bool:
        return any(base.__name__ == cls.__name__ for base in type(value).__mro__)


def _fits(value: Any, kind: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any or isinstance(kind, TypeVar):
        return True
    if origin in _UNIONS:
        return any(_fits(value, each) for each in inner)
    if kind is None:
        return value is None
    if kind is int or kind is float:
        is_number = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
        return is_number and not math.isnan(value)
    if origin is Callable:
        return callable(value)
    if origin is Literal:
        return value in inner
    if not isinstance(origin, type):
        return not isinstance(kind, type) or isinstance(value, kind)
    if issubclass(origin, Mapping):
        keys, values = inner
        return isinstance(value, Mapping) and all(_fits(k, keys) and _fits(v, values) for k, v in value.items())
    if issubclass(origin, Sequence | Collection):
        is_one = hasattr(value, "__len__") and (hasattr(value, "__getitem__") or not issubclass(origin, Sequence))
        is_other = isinstance(value, str | bytes | Mapping | type)
        return is_one and not is_other and (inner == (Any,) or all(_fits(each, inner[0]) for each in value))
    return isinstance(value, origin)


def _refusal(name: str, value: Any, kind: Any) -> ConfigError | FieldsError:
    kinds = get_args(kind) if get_origin(kind) in _UNIONS else (kind,)
    for each in kinds:
        if isinstance(value, Mapping) and get_origin(each) in {Mapping, dict}:
            of_key, of_value = get_args(each)
            key = next(key for key, its in value.items() if not (_fits(key, of_key) and _fits(its, of_value)))
            if not _fits(key, of_key):
                return _refusal(f"a name in {name}", key, of_key)
            return _refusal(f"{name}[{_short.repr(key)}]", value[key], of_value)
    hides = is_secret(name)
    shown = HIDDEN if hides else without_secrets(escaped(_short.repr(value)))
    what = f"{name} is {shown}, a {type(value).__name__}" if hides else f"{name} is {shown}"
    if Fields in kinds and str not in kinds:
        return FieldsError(f"{what}, which is no Fields; write {name}=Fields('name: string')")
    *others, last = dict.fromkeys(_expected_text(each) for each in kinds)
    error = FieldsError if Fields in kinds else ConfigError
    return error(f"{what}; give {', '.join(others)}{' or ' if others else ''}{last}")


def _expected_text(kind: Any, *, several: bool = False) -> str:
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in _WORDS:
        return _WORDS[origin][several]
    if origin in _UNIONS:
        return " or ".join(_expected_text(each, several=several) for each in inner)
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if kind is Any or kind is object:
        return "values" if several else "a value"
    if isinstance(origin, type) and issubclass(origin, Enum):
        return " or ".join(map(str, origin))
    if inner and issubclass(origin, Mapping):
        keys, values = (_expected_text(each, several=True) for each in inner)
        return f"{'mappings' if several else 'a mapping'} of {keys} to {values}"
    if inner and issubclass(origin, Collection):
        return f"{'lists' if several else 'a list'} of {_expected_text(inner[0], several=True)}"
    name = getattr(origin, "__name__", str(origin))
    return f"{name}s" if several else f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
