"""Finds the topology that ``MODULE[:ATTRIBUTE]`` names, for commands and for drivers of a cluster."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from txtopo.config import Config
from txtopo.errors import ConfigError, LoadError, NoTopology, RuleError, TxtopoError
from txtopo.text.extras import extra_of, how_to_install
from txtopo.text.suggestions import did_you_mean
from txtopo.topology.plans.plan import Plan
from txtopo.topology.topology import Topology, TransactionalTopology
from txtopo.topology.user_code.arguments import DividedSettings, all_arguments, divide, settable_parameters
from txtopo.topology.user_code.blame import text_of
from txtopo.topology.user_code.modules import refuse_twins, why_hidden
from txtopo.topology.user_code.place import Place, locate

DEFAULT_ATTRIBUTE = "topology"


class NoModule(NoTopology):
    """There is no module of that name; ``near`` is a suggestion, as the end of the message, or empty."""

    def __init__(self, name: str, near: str) -> None:
        super().__init__(f"there is no module {name!r}{near or f' in {Path.cwd()}, nor an installed one'}")
        self.near = near


@attrs.frozen
class Target:
    """A topology, the module it comes from, and what it was made with."""

    text: str
    """``MODULE`` or ``MODULE:ATTRIBUTE``."""
    values: Mapping[str, str]
    """The values of its function's parameters and of its settings that were given, as texts."""
    module: ModuleType
    topology: Topology
    config: Config
    arguments: dict[str, Any]
    """The arguments of the topology's function, including defaults."""
    fork: str | None = None
    """The folder of the fork that the topology was moved to; None if it is the one that the module declares."""

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments that name it on a command line."""
        settings = (word for name, value in self.values.items() for word in ("--set", f"{name}={value}"))
        return (self.text, *settings, *(() if self.fork is None else ("--fork", self.fork)))

    @property
    def plan(self) -> Plan:
        """The plan of a transactional topology; a ConfigError if the topology is a plain one."""
        if not isinstance(self.topology, TransactionalTopology):
            raise ConfigError(
                f"{self.topology.id!r} is a plain topology, which has no transactions; this command is for "
                "transactional ones"
            )
        return self.topology.plan

    def call_hook(self, name: str, *positional: Any) -> None:
        """Call a function of the module, if it exists, with those of the topology's arguments that it accepts.

        It knows where the tables of the topology are, but not those of a fork, so for one it is not called.
        """
        hook = getattr(self.module, name, None)
        if hook is not None and self.fork is None:
            keywords = {n: self.arguments[n] for n in settable_parameters(hook) if n in self.arguments}
            _call(f"{self.module.__name__}.{name}()", hook, *positional, **keywords)


def load_target(text: str, values: Mapping[str, str], folder: Path | None = None) -> Target:
    """Import the module that ``text`` names, and make its topology.

    Args:
        text: ``MODULE`` or ``MODULE:ATTRIBUTE``.
        values: parameters of the function that makes the topology, and settings, as texts by name.
        folder: where modules are searched for first; None: the current folder.

    Raises:
        NoTopology: there is no such module or attribute, or it is not a topology.
        LoadError: the module or its function raises an exception.
        TxtopoError: the graph or the configuration has a mistake.
    """
    if "://" in text:
        raise NoTopology(f"{text} is an address, not the name of a module; name the module of the topology")
    name, _, attribute = text.partition(":")
    module = import_module(name, folder)
    # A folder without __init__.py is a namespace package: importing it succeeds, but it has no attributes.
    if getattr(module, "__file__", None) is None and hasattr(module, "__path__"):
        names = [each.name for each in pkgutil.iter_modules(module.__path__, f"{name}.")]
        advice = f"; its modules are {', '.join(names)}" if names else "; give the topology's module"
        raise NoTopology(f"{name!r} is a folder, not a module{advice}")
    attribute_found = find_attribute(module, attribute or DEFAULT_ATTRIBUTE)
    function = attribute_found if callable(attribute_found) and not isinstance(attribute_found, Topology) else None
    arguments = divide(values, function, _defaults(module))
    topology = attribute_found if function is None else _make(text, function, arguments)
    if not isinstance(topology, Topology):
        verb = "is" if function is None else "returns something"
        missing = "" if topology is not None else "; a 'return' may be missing"
        raise NoTopology(
            f"{module.__name__}:{attribute or DEFAULT_ATTRIBUTE} {verb} of type {type(topology).__name__}; "
            f"it must be a Topology, as build() returns it, or a function that returns one{missing}"
        )
    return Target(text, values, module, topology, arguments.config, all_arguments(function, arguments.arguments))


def import_module(name: str, first: Path | None = None) -> ModuleType:
    """Import a module, with a folder first on the search path; None: the current one.

    Raises:
        NoTopology: there is no module of that name.
        LoadError: importing it raises an exception.
    """
    folder = str(first or Path.cwd())
    if not sys.path or (sys.path[0] or str(Path.cwd())) != folder:
        sys.path.insert(0, folder)
    if name.endswith(".py") or os.sep in name:
        raise NoTopology(_no_path(name, folder))
    refuse_twins(Path(folder))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Either this module is missing, or one that it imports.
        hidden = why_hidden(error.name or "", Path(folder))
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise LoadError(_explain(f"module {name} cannot be imported", error, hidden)) from error
        raise NoModule(name, hidden or _near_module(name, error.name)) from error
    except RuleError as error:
        locate(error)
        raise
    except TxtopoError:
        raise
    except (TypeError, ValueError) as error:  # importlib refuses empty and relative names by these
        if not name or name.startswith("."):
            raise NoTopology(f"{name!r} is not a module name; give one as 'package.module'") from error
        raise LoadError(_explain(f"module {name} cannot be imported", error)) from error
    except (Exception, SystemExit) as error:  # a program without a main guard would end the command
        hidden = why_hidden(error.name or "", Path(folder)) if isinstance(error, ImportError) else ""
        raise LoadError(_explain(f"module {name} cannot be imported", error, hidden)) from error


def _no_path(name: str, folder: str) -> str:
    """Return the message for a path that is given instead of a module name."""
    path = Path(name.removesuffix(".py"))
    if path.is_absolute() and path.is_relative_to(folder):
        path = path.relative_to(folder)
    if path.is_absolute() or not all(part.isidentifier() for part in path.parts):
        return f"{name!r} is a path, not the name of a module" + (
            "" if Path(name).exists() else "; there is no such file or folder either"
        )
    return f"{name!r} is a path; name the module: {'.'.join(path.parts)}"


def find_attribute(module: ModuleType, name: str) -> Any:
    """Return an attribute of a module; raise NoTopology, with the nearest name, if there is none."""
    try:
        return getattr(module, name)
    except AttributeError as error:
        names = [
            each
            for each, value in vars(module).items()
            if isinstance(value, Topology)
            or (inspect.isfunction(value) and value.__module__ == module.__name__ and not each.startswith("_"))
        ]
        raise NoTopology(f"module {module.__name__} has no {name!r}{_near(name, names)}") from error


def _defaults(module: ModuleType) -> Config:
    hook = getattr(module, "config", None)
    if not inspect.isfunction(hook):
        return Config()
    config = _call(f"{module.__name__}.config()", hook)
    if not isinstance(config, Config):
        raise NoTopology(f"{module.__name__}.config() returns a {type(config).__name__}, not a Config")
    return config


def _make(text: str, function: Callable[..., Any], arguments: DividedSettings) -> Any:
    return _call(f"the function that makes topology {text}", function, **arguments.arguments)


def _call(function_name: str, function: Callable[..., Any], *positional: Any, **named: Any) -> Any:
    """Call a function of the user's module; turn exceptions that are not txtopo's into a LoadError of one line."""
    try:
        return function(*positional, **named)
    except RuleError as error:
        locate(error)
        raise
    except TxtopoError:
        raise
    except (Exception, SystemExit) as error:
        raise LoadError(_explain(f"{function_name} failed", error)) from error


def _explain(function_name: str, error: BaseException, hidden: str = "") -> str:
    """Return a message with the error and its place, the innermost line of the user's.

    ``hidden`` is its end if it is known why the module is missing.
    """
    if isinstance(error, SyntaxError):
        where = f" ({error.filename}, line {error.lineno})"
        return f"{function_name}: {type(error).__name__}: {error.msg}{where}"
    place = Place.of(error)
    where = "" if place is None else f" ({place.file}, line {place.line})"
    extra = extra_of(error) if isinstance(error, ImportError) else None
    remedy = "--debug shows the traceback" if extra is None else how_to_install(extra)
    return f"{function_name}: {type(error).__name__}: {text_of(error)}{where}{hidden or f'; {remedy}'}"


def _near_module(name: str, missing: str) -> str:
    """Return a suggestion for the part of a module name that was not found."""
    package, _, _ = missing.rpartition(".")
    if package:
        paths = getattr(sys.modules.get(package), "__path__", [])
        return _near(name, [found.name for found in pkgutil.iter_modules(paths, f"{package}.")])
    folders = [path.name for path in Path.cwd().iterdir() if path.is_dir() and path.name.isidentifier()]
    module_names = {*folders, *(found.name for found in pkgutil.iter_modules())}
    close = difflib.get_close_matches(missing, sorted(module_names), n=1, cutoff=0.7)
    return f"; did you mean {close[0] + name.removeprefix(missing)!r}?" if close else ""


def _near(name: str, candidates: Iterable[str]) -> str:
    names = sorted(candidates)
    return did_you_mean(name, names) or (f"; there are: {', '.join(names)}" if names else "")
