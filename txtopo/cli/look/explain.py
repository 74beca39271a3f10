"""``txtopo explain``: the state of a transaction, since when, what it waits for, and what happens next."""

from __future__ import annotations

import click
from rich.text import Text

from txtopo.assembly.snapshot import read_snapshot, snapshots_in, topologies_with_snapshot
from txtopo.cli.command import Command, WholeNumber, json_option, print_json
from txtopo.cli.console import Console
from txtopo.cli.target import OutputFolder, module_place, takes_folder_or_target
from txtopo.files.folder import Folder
from txtopo.inspect.past.story import Known, facts_of, story_of
from txtopo.journal.ending import METADATA_DIR, chosen, metadata_dir_below
from txtopo.journal.folders import topologies_with_journal
from txtopo.topology.user_code.loading import Target


@click.command("explain", cls=Command)
@takes_folder_or_target
@click.argument("txid", metavar="TXID", type=WholeNumber(1))
@json_option
def explain_command(target: OutputFolder | Target, txid: int, is_json: bool) -> None:  # noqa: FBT001 - click's convention
    """Show the state of a transaction: since when, what it waits for or failed in, and what happens next.

    OUTPUT is the folder that holds a topology's tables and its folder '_txtopo'; MODULE stands for the folder of that
    topology. Committed transactions are read from the journal; others from a small file that a run keeps beside it,
    which is about a second old. Nothing is run or written.
    """
    known = _known(target)
    story = story_of(known, txid)
    if is_json:
        lines = [" ".join(f"{line.label} {line.text}".split()) for line in story.lines]
        print_json({**facts_of(known, txid), "lines": [story.headline, *lines]})
        return
    console = Console()
    console.print(Text(story.headline, "bold"), soft_wrap=True)
    for line in story.lines:
        console.print(Text(f"  {line.label:<10}{line.text}"), soft_wrap=True)


def _known(target: OutputFolder | Target) -> Known:
    """Read journal and snapshot of a topology's current incarnation; raise ConfigError if there is neither."""
    metadata_dir, topology_id = _metadata_dir(target)
    return Known.of(metadata_dir, topology_id, read_snapshot(snapshots_in(metadata_dir), topology_id))


def _metadata_dir(target: OutputFolder | Target) -> tuple[Folder, str]:
    if isinstance(target, OutputFolder):
        both = (target.folder.below(METADATA_DIR), target.folder)
        with_snapshot = (each for each in both if topologies_with_snapshot(snapshots_in(each)))
        metadata_dir = next(with_snapshot, None) or metadata_dir_below(target.folder)  # a run may keep no journal
        known = {*topologies_with_journal(metadata_dir), *topologies_with_snapshot(snapshots_in(metadata_dir))}
        return metadata_dir, chosen(target.folder, sorted(known), target.topology_id)
    return module_place(target)
