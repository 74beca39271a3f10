"""``MODULE[:ATTRIBUTE]``: find the topology that a command names, the current folder first."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import click

from txtopo.cli.command import CommandLineError, YourCodeError
from txtopo.cli.settings import Given, all_arguments, divide, parse_pairs, settable_parameters
from txtopo.config import Config
from txtopo.errors import ConfigError, TxtopoError
from txtopo.extras import extra_of, how_to_install
from txtopo.topology.plan import Plan
from txtopo.topology.topology import Topology, TransactionalTopology
from txtopo.transactional.journal.ending import METADATA_DIR

DEFAULT_ATTRIBUTE = "topology"

_FOLDERS_NAMED_MAX = 5


class NoModuleError(CommandLineError):
    """There is no module of that name.

    Args:
        name: the name.
        near: a suggestion, as the end of the message; empty if nothing is near.
    """

    def __init__(self, name: str, near: str) -> None:
        super().__init__(f"there is no module {name!r}{near}")
        self.near = near


@attrs.frozen
class Target:
    """A topology, the module it comes from, and the values of ``--set``."""

    words: tuple[str, ...]
    """The words that name it on the command line, including ``--set``."""
    module: ModuleType
    topology: Topology
    config: Config
    arguments: dict[str, Any]
    """The arguments of the topology's function, including defaults."""

    @property
    def plan(self) -> Plan:
        """The plan of a transactional topology.

        Raises:
            ConfigError: the topology is a plain one.
        """
        if not isinstance(self.topology, TransactionalTopology):
            raise ConfigError(
                f"{self.topology.id!r} is a plain topology, which has no transactions; this command is for "
                "transactional ones"
            )
        return self.topology.plan

    def call_hook(self, name: str, *positional: Any) -> None:
        """Call a function of the module, if it exists, with those arguments that it accepts."""
        hook = getattr(self.module, name, None)
        if hook is not None:
            taken = {n: self.arguments[n] for n in settable_parameters(hook) if n in self.arguments}
            _call(f"{self.module.__name__}.{name}()", hook, *positional, **taken)


@attrs.frozen
class OutputFolder:
    """A folder that holds a topology's tables and, in ``_txtopo``, what its runs have recorded."""

    path: Path
    topology_id: str | None
    """The value of ``--topology``; None where it is not given."""

    def choose(self, topologies: Sequence[str]) -> str | None:
        """Return the topology that is meant, of those that the folder has records of; None if it has none.

        Raises:
            ConfigError: there are several and none is named, or the named one is not among them.
        """
        listed = ", ".join(repr(topology_id) for topology_id in topologies)
        if self.topology_id is not None and self.topology_id not in topologies:
            known = f"; it has records of {listed}" if topologies else ""
            raise ConfigError(f"{self.path} has no record of a topology {self.topology_id!r}{known}")
        if self.topology_id is None and len(topologies) > 1:
            raise ConfigError(f"{self.path} has records of several topologies: {listed}; choose one with --topology")
        return self.topology_id or next(iter(topologies), None)


def load_target(text: str, pairs: Sequence[str], folder: Path | None = None) -> Target:
    """Import the module that ``text`` names, and make its topology.

    Args:
        text: ``MODULE`` or ``MODULE:ATTRIBUTE``.
        pairs: the values of ``--set``, each ``name=value``.
        folder: where modules are searched for first; None: the current folder.

    Raises:
        CommandLineError: there is no such module or attribute, or it is not a topology.
        YourCodeError: the module or its function raises an exception.
        TxtopoError: the graph or the configuration has a mistake.
    """
    values = parse_pairs(pairs)
    name, _, attribute = text.partition(":")
    module = import_module(name, folder)
    if getattr(module, "__file__", None) is None and hasattr(module, "__path__"):
        names = [each.name for each in pkgutil.iter_modules(module.__path__, f"{name}.")]
        advice = f"; its modules are {', '.join(names)}" if names else "; give the topology's module"
        raise CommandLineError(f"{name!r} is a folder, not a module{advice}")
    found = find_attribute(module, attribute or DEFAULT_ATTRIBUTE)
    function = found if callable(found) and not isinstance(found, Topology) else None
    given = divide(values, function, _defaults(module))
    topology = found if function is None else _make(text, function, given)
    if not isinstance(topology, Topology):
        what = "is" if function is None else "returns something"
        raise CommandLineError(
            f"{module.__name__}:{attribute or DEFAULT_ATTRIBUTE} {what} of type {type(topology).__name__}; "
            "it must be a Topology, as build() returns it, or a function that returns one"
        )
    words = (text, *(word for pair in pairs for word in ("--set", pair)))
    return Target(words, module, topology, given.config, all_arguments(function, given.arguments))


def takes_target(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments ``MODULE[:ATTRIBUTE]`` and ``--set`` to a command, which receives the :class:`Target`."""
    return _takes("MODULE[:ATTRIBUTE]", load_target, function)


def takes_folder_or_target(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like :func:`takes_target`; the command may also receive an :class:`OutputFolder`."""
    option = click.option(
        "--topology",
        "topology_id",
        metavar="ID",
        help="The topology's id. Needed only if OUTPUT has records of several topologies.",
    )

    @functools.wraps(function)
    def command(target: Path | Target, topology_id: str | None, **options: Any) -> Any:
        if isinstance(target, Path):
            return function(target=OutputFolder(target, topology_id), **options)
        if topology_id is not None:
            raise ConfigError("--topology is for an OUTPUT folder; a MODULE names its topology itself")
        return function(target=target, **options)

    return option(_takes("MODULE[:ATTRIBUTE]|OUTPUT", _folder_or_target, command))


def _takes(
    metavar: str, load: Callable[[str, tuple[str, ...]], Any], function: Callable[..., Any]
) -> Callable[..., Any]:
    @click.argument("target", metavar=metavar)
    @click.option(
        "--set",
        "pairs",
        multiple=True,
        metavar="NAME=VALUE",
        help="A parameter of the topology's function, or a setting, as in 'max_spout_pending=8' or "
        "'topology.spark.log.level=WARN'; names that begin with 'spark.' go to Spark. May be given several times.",
    )
    @functools.wraps(function)
    def command(target: str, pairs: tuple[str, ...], **options: Any) -> Any:
        return function(target=load(target, pairs), **options)

    return command


def _folder_or_target(target: str, pairs: tuple[str, ...]) -> Path | Target:
    """Return the folder that holds a topology's tables, or the topology, whichever ``target`` names.

    Args:
        target: a folder, or ``MODULE[:ATTRIBUTE]``.
        pairs: the values of ``--set``, which only a module takes.

    Raises:
        ConfigError: ``target`` names neither.
    """
    if Path(target).is_dir():
        if pairs:
            raise ConfigError(f"{target} is a folder; --set needs a MODULE")
        return Path(target)
    near = _near_folder(Path(target))
    if os.sep in target and not target.endswith(".py"):
        advice = near or "; give a module, or the folder that holds a topology's tables"
        raise ConfigError(f"there is no folder {target}{advice}")
    try:
        return load_target(target, pairs)
    except NoModuleError as error:
        raise CommandLineError(
            f"there is neither a folder nor a module {target!r}{near or error.near or _folders_with_records()}"
        ) from error


def _near_folder(path: Path) -> str:
    """Return a suggestion for a folder that does not exist; empty if none beside it has a similar name."""
    if not path.parent.is_dir():
        return ""
    close = difflib.get_close_matches(path.name, sorted(each.name for each in path.parent.iterdir() if each.is_dir()))
    return f"; did you mean the folder {str(path.with_name(close[0]))!r}?" if close else ""


def _folders_with_records() -> str:
    found = sorted(each.parent.name for each in Path.cwd().glob(f"*/{METADATA_DIR}"))[:_FOLDERS_NAMED_MAX]
    return f"; runs have left records in {', '.join(found)}" if found else ""


def import_module(name: str, first: Path | None = None) -> ModuleType:
    """Import a module, with a folder first on the search path; None: the current one.

    Raises:
        CommandLineError: there is no module of that name.
        YourCodeError: importing it raises an exception.
    """
    folder = str(first or Path.cwd())
    if not sys.path or sys.path[0] not in {"", folder}:
        sys.path.insert(0, folder)
    if name.endswith(".py") or os.sep in name:
        raise CommandLineError(_no_path(name, folder))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise YourCodeError(_explain(f"module {name} cannot be imported", error)) from error
        raise NoModuleError(name, _near_module(name, error.name)) from error
    except TxtopoError:
        raise
    except (TypeError, ValueError) as error:
        if not name or name.startswith("."):
            raise CommandLineError(f"{name!r} is not a module name; give one as 'package.module'") from error
        raise YourCodeError(_explain(f"module {name} cannot be imported", error)) from error
    except (
        Exception,
        SystemExit,
    ) as error:  # a program without a main guard would end the command
        raise YourCodeError(_explain(f"module {name} cannot be imported", error)) from error


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
    """Return an attribute of a module.

    Raises:
        CommandLineError: there is no attribute of that name.
    """
    try:
        return getattr(module, name)
    except AttributeError as error:
        own = [
            each
            for each, value in vars(module).items()
            if isinstance(value, Topology)
            or (inspect.isfunction(value) and value.__module__ == module.__name__ and not each.startswith("_"))
        ]
        raise CommandLineError(f"module {module.__name__} has no {name!r}{_near(name, own)}") from error


def _defaults(module: ModuleType) -> Config:
    hook = getattr(module, "config", None)
    if not inspect.isfunction(hook):
        return Config()
    config = _call(f"{module.__name__}.config()", hook)
    if not isinstance(config, Config):
        raise CommandLineError(f"{module.__name__}.config() returns a {type(config).__name__}, not a Config")
    return config


def _make(text: str, function: Callable[..., Any], given: Given) -> Any:
    return _call(f"the function that makes topology {text}", function, **given.arguments)


def _call(what: str, function: Callable[..., Any], *positional: Any, **named: Any) -> Any:
    """Call a function of the user's module; turn exceptions other than txtopo's into one line."""
    try:
        return function(*positional, **named)
    except TxtopoError:
        raise
    except (Exception, SystemExit) as error:
        raise YourCodeError(_explain(f"{what} failed", error)) from error


def _explain(what: str, error: BaseException) -> str:
    """Return a message with the error and its place: the innermost frame outside the import system."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    if isinstance(error, SyntaxError):
        where = f" ({error.filename}, line {error.lineno})"
        return f"{what}: {type(error).__name__}: {error.msg}{where}"
    outside = [frame for frame in frames if not frame.filename.startswith(str(Path(__file__).parent))]
    where = f" ({outside[-1].filename}, line {outside[-1].lineno})" if outside else ""
    extra = extra_of(error) if isinstance(error, ImportError) else None
    remedy = "--debug shows the traceback" if extra is None else how_to_install(extra)
    return f"{what}: {type(error).__name__}: {error}{where}; {remedy}"


def _near_module(name: str, missing: str) -> str:
    """Return a suggestion for the part of a module name that was not found."""
    package, _, _ = missing.rpartition(".")
    if package:
        paths = getattr(sys.modules.get(package), "__path__", [])
        return _near(name, [found.name for found in pkgutil.iter_modules(paths, f"{package}.")])
    folders = [path.name for path in Path.cwd().iterdir() if path.is_dir() and path.name.isidentifier()]
    known = {*folders, *(found.name for found in pkgutil.iter_modules())}
    close = difflib.get_close_matches(missing, sorted(known), n=1, cutoff=0.7)
    return f"; did you mean {close[0] + name.removeprefix(missing)!r}?" if close else ""


def _near(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are: {', '.join(names)}" if names else ""
