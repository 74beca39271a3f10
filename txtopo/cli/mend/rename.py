"""``txtopo rename``: give a topology another id, or its states other names."""

from __future__ import annotations

import click

from txtopo.cli.command import Command
from txtopo.cli.mend.agreement import ask, say_done, takes_yes
from txtopo.cli.target import takes_target
from txtopo.engine.renaming import rename as carry_out
from txtopo.topology.user_code.loading import Target
from txtopo.transactional.recovery.plans import NewNames


@click.command(cls=Command)
@takes_target
@click.option("--from", "former_id", metavar="ID", help="Its id before. Needed only for a topology without tables.")
@takes_yes
def rename(target: Target, former_id: str | None, yes: bool) -> None:  # noqa: FBT001 - click's convention
    """Give a topology another id, or its states other names, and keep all that they have.

    MODULE, ATTRIBUTE and --set are as for 'txtopo run'; the code has the new names, and each state the path of its
    table, which knows what it was called. The topology must not be running.

    Tables, coordinator state and journal get the new names; rows and paths stay as they are, and the next run goes on
    where the last one ended. Rewinds, forks, the audit and the like know the transactions before, under the new names.
    If a rename is interrupted, no run begins; the same command finishes it.
    """

    def agree(plan: NewNames, is_unfinished: bool) -> None:  # noqa: FBT001 - one of two facts
        if is_unfinished:
            click.echo(f"finishing an interrupted rename: {plan.rename.text}")
            return
        effect = plan.rename.text or "tables that were left out of an earlier rename get its names"
        ask(f"{effect}; no row changes, and code with the former names is refused from then on", is_agreed=yes)

    if not carry_out(target.plan, target.config, former_id, agree):
        click.echo("nothing to rename: the tables have the names that the code has")
        return
    say_done(target)
