"""``--set name=value``: parameters of a topology's function, and settings of its configuration."""

from __future__ import annotations

import difflib
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from txtopo.cli.command import CommandLineError
from txtopo.config import Config
from txtopo.errors import ConfigError

_TRUE, _FALSE, _NONE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}, {"", "none"}


@attrs.frozen
class Given:
    """What ``--set`` gave: a function's arguments, and a configuration."""

    arguments: dict[str, Any]
    config: Config


def parse_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """Split each ``name=value``; the last one of a name counts.

    Raises:
        CommandLineError: there is no ``=``.
    """
    values = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise CommandLineError(f"--set takes name=value, not {pair!r}")
        values[name.strip()] = value
    return values


def divide(values: Mapping[str, str], function: Callable[..., Any] | None, defaults: Config) -> Given:
    """Tell the function's parameters from settings, and convert them.

    Args:
        values: texts by name.
        function: what makes the topology; None if it is there already.
        defaults: the configuration to start from.

    Raises:
        ConfigError: a name is unknown, a value does not fit, or a parameter without default is not given.
    """
    parameters = settable_parameters(function)
    arguments = {name: convert(text, parameters[name]) for name, text in values.items() if name in parameters}
    missing = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty and n not in arguments]
    if missing:
        options = " ".join(f"--set {name}=…" for name in missing)
        raise ConfigError(f"the topology needs a value for {', '.join(missing)}; give {options}")
    try:
        config = defaults.with_settings({n: text for n, text in values.items() if n not in parameters})
    except ConfigError as error:
        if not parameters or not str(error).startswith("there is no setting"):
            raise
        raise ConfigError(_with_parameters(str(error), values, parameters)) from error
    return Given(arguments, config)


def _with_parameters(message: str, values: Mapping[str, str], parameters: Mapping[str, inspect.Parameter]) -> str:
    """Return what to say of an unknown name: the nearest parameter if one is near, else all of them."""
    for name in values:
        close = difflib.get_close_matches(name, parameters, n=1, cutoff=0.7)
        if close and name not in parameters:
            return f"there is no setting or parameter {name!r}; did you mean {close[0]!r}?"
    return f"{message}; the parameters of the topology are {', '.join(map(repr, parameters))}"


def settable_parameters(function: Callable[..., Any] | None) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function that can be given by name, their annotations as types."""
    if function is None:
        return {}
    by_name = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError:  # an annotation of what is imported for type checkers only
        signature = inspect.signature(function)
    return {name: p for name, p in signature.parameters.items() if p.kind in by_name}


def all_arguments(function: Callable[..., Any] | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a function is called with: the arguments, and defaults for the other parameters."""
    defaults = {name: parameter.default for name, parameter in settable_parameters(function).items()}
    return {**defaults, **arguments}


def convert(text: str, parameter: inspect.Parameter) -> Any:
    """Return a text as the type that a parameter is annotated with: str, int, float, bool or Path.

    Without an annotation, the default's type counts. ``none`` is None where the annotation has it, and the
    type is not a text.

    Raises:
        ConfigError: it is no such value.
    """
    kinds = _kinds_of(parameter)
    if types.NoneType in kinds and text.lower() in _NONE and str not in kinds:
        return None
    for kind in (bool, int, float, Path):
        if kind in kinds:
            try:
                return _as_flag(text) if kind is bool else kind(text)
            except ValueError:
                continue
    if str in kinds or not kinds - {types.NoneType}:
        return text
    names = " or ".join(sorted(kind.__name__ for kind in kinds - {types.NoneType}))
    raise ConfigError(f"{parameter.name} is {text!r}; it must be of type {names}")


def _kinds_of(parameter: inspect.Parameter) -> set[type]:
    kind = parameter.annotation
    if kind is inspect.Parameter.empty:
        known = (bool, int, float, str, Path)
        return {type(parameter.default)} if isinstance(parameter.default, known) else set()
    union = typing.get_origin(kind) in {typing.Union, types.UnionType}
    return {each for each in (typing.get_args(kind) if union else (kind,)) if isinstance(each, type)}


def _as_flag(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError
