"""Converts texts into arguments of the function that makes a topology, and into settings."""

from __future__ import annotations

import collections.abc
import contextlib
import enum
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import attrs

from txtopo.config import Config
from txtopo.errors import ConfigError
from txtopo.text.suggestions import did_you_mean

_TRUE, _FALSE, _NONE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}, {"", "none"}


@attrs.frozen
class DividedSettings:
    """The converted values: a function's arguments, and a configuration."""

    arguments: dict[str, Any]
    config: Config


def divide(values: Mapping[str, str], function: Callable[..., Any] | None, defaults: Config) -> DividedSettings:
    """Divide texts, given by name, into arguments of the function and settings, and convert them.

    ``function`` is None if the topology exists already. The settings are added to ``defaults``.

    Raises:
        ConfigError: a name is unknown, a value does not fit, or a parameter without default is not given.
    """
    parameters = settable_parameters(function)
    arguments = {name: convert(text, parameters[name]) for name, text in values.items() if name in parameters}
    missing = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty and n not in arguments]
    if missing:
        options = " ".join(f"--set {name}=…" for name in missing)
        raise ConfigError(f"the topology needs a value for {', '.join(missing)}; add {options}")
    try:
        config = defaults.with_settings({n: text for n, text in values.items() if n not in parameters})
    except ConfigError as error:
        if not parameters or not str(error).startswith("there is no setting"):
            raise
        raise ConfigError(_with_parameters(str(error), values, parameters)) from error
    return DividedSettings(arguments, config)


def _with_parameters(message: str, values: Mapping[str, str], parameters: Mapping[str, inspect.Parameter]) -> str:
    """Return the message for an unknown name, with the nearest parameter, or else with all of them."""
    for name in values:
        near = did_you_mean(name, parameters, cutoff=0.7)
        if near and name not in parameters:
            return f"there is no setting or parameter {name!r}{near}"
    return f"{message}; the parameters of the topology are {', '.join(map(repr, parameters))}"


def settable_parameters(function: Callable[..., Any] | None) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function that can be passed by name, with annotations resolved to types."""
    if function is None:
        return {}
    by_name = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    parameters = inspect.signature(function).parameters
    module = vars(sys.modules.get(getattr(function, "__module__", ""), types))
    return {n: p.replace(annotation=_evaluated(p, module)) for n, p in parameters.items() if p.kind in by_name}


def _evaluated(parameter: inspect.Parameter, names: Mapping[str, Any]) -> Any:
    """Return an annotation as a type; empty if it can't be evaluated, such as a name for type checkers only."""
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    try:
        return eval(parameter.annotation, dict(names))  # noqa: S307 - the text is from the user's module
    except Exception:  # noqa: BLE001 - any failure leaves the type unknown; the default's type is used then
        return inspect.Parameter.empty


def all_arguments(function: Callable[..., Any] | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call: those given, and defaults for the other parameters."""
    defaults = {name: parameter.default for name, parameter in settable_parameters(function).items()}
    return {**defaults, **arguments}


def convert(text: str, parameter: inspect.Parameter) -> Any:
    """Convert a text to the type that a parameter is annotated with.

    Supports str, int, float, bool, Path, Literal, Enum, unions of these, None beside another type, and lists, tuples
    and sets of these, separated by commas. Without an annotation, the type of the default is used. ``none`` is None if
    the annotation allows None and does not allow str.

    Raises:
        ConfigError: the text is not such a value, or no text can be converted to the type.
    """
    kind = parameter.annotation
    if kind is inspect.Parameter.empty:
        if parameter.default is inspect.Parameter.empty or parameter.default is None:
            return text
        kind = _type_of_default(parameter.default)
    try:
        return _converted(text, kind)
    except ValueError:
        raise ConfigError(f"{parameter.name} is {text!r}; it must be of type {_name_of(kind)}") from None
    except TypeError:
        raise ConfigError(
            f"{parameter.name} is of type {_name_of(kind)}, which --set can't make from a text; "
            "let the function take a string or a number and convert it"
        ) from None


def _type_of_default(default: Any) -> Any:
    if isinstance(default, (list, tuple, set, frozenset)):
        kinds = {type(item) for item in default}
        item = kinds.pop() if len(kinds) == 1 else str
        return tuple[item, ...] if isinstance(default, tuple) else type(default)[item]  # type: ignore[valid-type,index]
    return Path if isinstance(default, Path) else type(default)


def _converted(text: str, kind: Any) -> Any:
    """Convert a text to a type; raise ValueError if this text can't be converted, TypeError if none can."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        return _one_of(text, arguments)
    if origin is typing.Annotated:
        return _converted(text, arguments[0])
    if origin is typing.Literal:
        return _one_literal(text, arguments)
    collection = _COLLECTIONS.get(origin or kind)
    if collection is not None:
        items = [item.strip() for item in text.split(",")] if text.strip() else []
        if collection is tuple and arguments and arguments[-1] is not Ellipsis:
            return tuple(_converted(item, kind) for item, kind in zip(items, arguments, strict=True))
        return collection(_converted(item, arguments[0] if arguments else str) for item in items)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _one_member(text, kind)
    if kind not in _PLAIN:
        raise TypeError
    return _PLAIN[kind](text)


def _as_none(text: str) -> None:
    if text.lower() not in _NONE:
        raise ValueError


def _as_flag(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError


_PLAIN: Mapping[Any, Callable[[str], Any]] = {
    **dict.fromkeys((Any, object, str), str),
    **{kind: kind for kind in (int, float, Path, PurePath)},
    bool: _as_flag,
    types.NoneType: _as_none,
}

_COLLECTIONS: Mapping[Any, Callable[[Iterable[Any]], Any]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
}


def _one_of(text: str, kinds: Sequence[Any]) -> Any:
    """Convert a text to the first of several types that it fits, the strictest first: every text is a str."""
    if str in kinds:
        kinds = [kind for kind in kinds if kind is not types.NoneType]  # the string "none" may be meant
    order = [types.NoneType, bool, int, float, Path]
    ranked = sorted(kinds, key=lambda kind: order.index(kind) if kind in order else 100 if kind is str else 50)
    is_possible = False
    for kind in ranked:
        try:
            return _converted(text, kind)
        except ValueError:
            is_possible = True
        except TypeError:  # not one of the types that a text can become
            continue
    if is_possible:
        raise ValueError
    raise TypeError


def _one_literal(text: str, values: Sequence[Any]) -> Any:
    for value in values:
        with contextlib.suppress(ValueError, TypeError):  # not of this value's type; the next may be of another one
            if _converted(text, type(value)) == value:
                return value
    raise ValueError


def _one_member(text: str, kind: type[enum.Enum]) -> enum.Enum:
    for member in kind:
        if text.lower() in {member.name.lower(), str(member.value).lower()}:
            return member
    raise ValueError


def _name_of(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        names = sorted(_name_of(argument) for argument in arguments if argument is not types.NoneType)
        return " or ".join([*names, *(["none"] if types.NoneType in arguments else [])])
    if origin is typing.Annotated:
        return _name_of(arguments[0])
    if origin is typing.Literal:
        return " or ".join(map(repr, arguments))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return f"{kind.__name__}: {', '.join(member.name for member in kind)}"
    if kind is bool:
        return "bool: true or false"
    return kind.__name__ if isinstance(kind, type) and origin is None else str(kind)
