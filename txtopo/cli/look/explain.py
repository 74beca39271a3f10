"""``txtopo explain``: the state of a transaction, since when, what it waits for, and what happens next."""

from __future__ import annotations

import click

from txtopo.assembly.snapshot import read_snapshot, snapshots_in, topologies_with_snapshot
from txtopo.cli.command import Command, WholeNumber, json_option, print_json
from txtopo.cli.console import Console
from txtopo.cli.target import OutputFolder, module_place, takes_folder_or_target
from txtopo.files.folder import Folder
from txtopo.files.records import to_json
from txtopo.inspect.past.explanation import Explanation
from txtopo.inspect.past.story import Known, story_of
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
    if is_json:
        print_json(to_json(Explanation.of(known, txid)))
        return
    story = story_of(known, txid)
    console = Console()
    console.say(story.headline, "bold")
    for line in story.lines:
        console.say(f"  {line.label:<10}{line.text}")


def _known(target: OutputFolder | Target) -> Known:
    """Read journal and snapshot of a topology's current incarnation; raise ConfigError if there is neither."""
    metadata_dir, topology_id = _metadata_dir(target)
    return Known.of(metadata_dir, topology_id, read_snapshot(snapshots_in(metadata_dir), topology_id))


def _metadata_dir(target: OutputFolder | Target) -> tuple[Folder, str]:
    if isinstance(target, OutputFolder):
        folders = (target.folder.below(METADATA_DIR), target.folder)
        with_snapshot = (folder for folder in folders if topologies_with_snapshot(snapshots_in(folder)))
        metadata_dir = next(with_snapshot, None) or metadata_dir_below(target.folder)  # a run may keep no journal
        known = {*topologies_with_journal(metadata_dir), *topologies_with_snapshot(snapshots_in(metadata_dir))}
        return metadata_dir, chosen(target.folder, sorted(known), target.topology_id)
    return module_place(target)
