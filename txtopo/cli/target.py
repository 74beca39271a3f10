"""The arguments ``MODULE[:ATTRIBUTE]``, ``--set``, ``--fork`` and ``OUTPUT`` of commands."""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import click

from txtopo.cli.command import GIVEN, parse_pairs
from txtopo.errors import ConfigError, NoTopology
from txtopo.files.durable import is_folder, paths_in
from txtopo.files.folder import Folder
from txtopo.files.places import folder_at, is_address
from txtopo.journal.ending import METADATA_DIR, journal_below, metadata_dir_with_journal
from txtopo.text.secrecy import secrets_kept
from txtopo.topology.user_code.loading import NoModule, Target, load_target

_FOLDERS_NAMED_MAX = 5


@attrs.frozen
class OutputFolder:
    """A folder that holds a topology's tables and, in ``_txtopo``, what its runs have recorded."""

    folder: Folder
    topology_id: str | None
    """The value of ``--topology``; None where it is not given."""


def journal_place(target: OutputFolder | Target) -> tuple[Folder, str]:
    """Return the metadata directory with a target's journal, and the topology; raise ConfigError without just one."""
    if isinstance(target, OutputFolder):
        return journal_below(target.folder, target.topology_id)
    metadata_dir, topology_id = module_place(target)
    return metadata_dir_with_journal(metadata_dir, topology_id), topology_id


def module_place(target: Target) -> tuple[Folder, str]:
    """Return the metadata directory of a module's topology, and the topology."""
    from txtopo.assembly.storage import metadata_dir_of  # noqa: PLC0415 - a third of the time to look into a folder

    return metadata_dir_of(target.plan, target.config), target.topology.id


def takes_target(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``MODULE[:ATTRIBUTE]``, ``--set`` and ``--fork`` to a command, which receives the :class:`Target`."""
    return _takes("MODULE[:ATTRIBUTE]", _target, function)


def takes_folder_or_target(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like :func:`takes_target`; the command may also receive an :class:`OutputFolder`."""
    option = click.option(
        "--topology",
        "topology_id",
        metavar="ID",
        help="The topology's id. Needed only if OUTPUT has records of several topologies.",
    )

    @functools.wraps(function)
    def command(target: Folder | Target, topology_id: str | None, **options: Any) -> Any:
        if not isinstance(target, Target):
            return function(target=OutputFolder(target, topology_id), **options)
        if topology_id is not None:
            raise ConfigError("--topology is for an OUTPUT folder; a MODULE names its topology itself")
        return function(target=target, **options)

    return option(_takes("MODULE[:ATTRIBUTE]|OUTPUT", _folder_or_target, command))


def _takes(
    metavar: str, load: Callable[[str, tuple[str, ...], str | None], Any], function: Callable[..., Any]
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
    @click.option(
        "--fork",
        metavar="FOLDER",
        help="The topology of MODULE as it was forked into this folder by 'txtopo fork', instead of itself.",
    )
    @functools.wraps(function)
    def command(target: str, pairs: tuple[str, ...], fork: str | None, **options: Any) -> Any:
        given = click.get_current_context().meta[GIVEN] = dict(parse_pairs(pairs))  # errors of loading quote them, too
        found = load(target, pairs, fork)
        if isinstance(found, Target):
            given.update({**found.arguments, **found.config.given, **given})
        with secrets_kept(given):
            return function(target=found, **options)

    return command


def _target(target: str, pairs: Sequence[str], fork: str | None) -> Target:
    found = load_target(target, parse_pairs(pairs))
    if fork is None:
        return found
    from txtopo.fork.forking import moved  # noqa: PLC0415 - as above
    from txtopo.topology.topology import TransactionalTopology  # noqa: PLC0415 - as above

    plan, config = moved(found.plan, found.config, folder_at(fork))
    return attrs.evolve(found, topology=TransactionalTopology(plan), config=config, fork=fork)


def _folder_or_target(target: str, pairs: tuple[str, ...], fork: str | None) -> Folder | Target:
    """Return the output folder or the topology, whichever ``target`` names."""
    if is_address(target) or is_folder(Path(target)):
        if pairs or fork is not None:
            raise ConfigError(f"{target} is a folder; {'--set' if pairs else '--fork'} needs a MODULE")
        return folder_at(target)
    near = _near_folder(Path(target))
    if os.sep in target and not target.endswith(".py"):
        advice = near or "; give a module, or the folder that holds a topology's tables"
        raise ConfigError(f"there is no folder {target}{advice}")
    try:
        return _target(target, pairs, fork)
    except NoModule as error:
        raise NoTopology(
            f"there is neither a folder nor a module {target!r}{near or error.near or _folders_with_records()}"
        ) from error


def _near_folder(path: Path) -> str:
    """Suggest a folder of a similar name beside one that does not exist; empty if there is none."""
    if not is_folder(path.parent):
        return ""
    close = difflib.get_close_matches(path.name, sorted(each.name for each in path.parent.iterdir() if each.is_dir()))
    return f"; did you mean the folder {str(path.with_name(close[0]))!r}?" if close else ""


def _folders_with_records() -> str:
    try:
        found = [path.name for path in paths_in(Path.cwd()) if is_folder(path / METADATA_DIR)][:_FOLDERS_NAMED_MAX]
    except OSError as error:
        return f"; this folder can't be read ({error.strerror})"
    return f"; runs have left records in {', '.join(found)}" if found else ""
