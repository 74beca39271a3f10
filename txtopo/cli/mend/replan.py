"""``txtopo replan``: plan transactions again whose version of a reference table is gone."""

from __future__ import annotations

from collections.abc import Sequence

import click

from txtopo.api.reference import SeenVersion
from txtopo.assembly.assembly import replan
from txtopo.cli.command import Command
from txtopo.cli.mend.agreement import ask, say_done, takes_yes
from txtopo.cli.target import takes_target
from txtopo.topology.user_code.loading import Target


@click.command("replan", cls=Command)
@takes_target
@takes_yes
def replan_command(target: Target, yes: bool) -> None:  # noqa: FBT001 - click's convention
    """Let transactions that are not committed see the newest versions of the reference tables.

    MODULE, ATTRIBUTE and --set are as for 'txtopo run'. The topology must not be running. It is for a version that was
    vacuumed before its transaction ran. What is committed stays as it is; journal, 'txtopo explain' and 'txtopo audit'
    say which transactions were planned again, and with which version first.
    """
    asked: list[SeenVersion] = []

    def agree(versions: Sequence[SeenVersion]) -> None:
        asked.extend(versions)
        for seen in versions:
            click.echo(f"reference {seen.words}")
        ask("Transactions that are not committed will see these versions. Plan them again?", is_agreed=yes)

    replan(target.plan, target.config, agree)
    if not asked:
        click.echo("nothing to do: no transaction that is not committed sees another version than the newest")
        return
    say_done(target)
