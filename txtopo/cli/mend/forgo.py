"""``txtopo forgo``: go on without input that a rewind has promised to read again and that is lost for good."""

from __future__ import annotations

import click

from txtopo.assembly.storage import store_place
from txtopo.cli.command import Command
from txtopo.cli.mend.agreement import ask, say_done, takes_yes
from txtopo.cli.target import takes_target
from txtopo.topology.user_code.loading import Target
from txtopo.transactional.recovery.operations.going_back import forgo as go_on_without


@click.command(cls=Command)
@takes_target
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@takes_yes
def forgo(target: Target, files: tuple[str, ...], yes: bool) -> None:  # noqa: FBT001 - click's convention
    """Go on without files that a rewind has promised to read again and that are lost for good.

    MODULE, ATTRIBUTE and --set are as for 'txtopo run'. The topology must not be running. Each FILE is a path, as the
    error of the run names it. What a file held counts nowhere: the next transaction records it as skipped, and the
    audit names it. A file that is there as it was can't be forgone, and another one that is in its place is read.
    """

    def agree(lines: list[str]) -> None:
        for line in lines:
            click.echo(line)
        ask("What they held will count nowhere. Go on without them?", is_agreed=yes)

    plan, config = target.plan, target.config
    go_on_without(plan, config, store_place(plan, config).open, files, agree)
    say_done(target)
