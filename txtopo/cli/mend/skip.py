"""``txtopo skip``: set one transaction aside, so that those behind it go on."""

from __future__ import annotations

import click

from txtopo.assembly.assembly import SetAside, skip as set_aside
from txtopo.attempts import transactions_words
from txtopo.cli.command import Command, WholeNumber
from txtopo.cli.mend.agreement import ask, say_done, takes_yes
from txtopo.cli.target import takes_target
from txtopo.topology.user_code.loading import Target


@click.command(cls=Command)
@takes_target
@click.argument("txid", metavar="TXID", type=WholeNumber(1))
@click.option("--reason", default="set aside by 'txtopo skip'", show_default=True, help="The error in its dead letter.")
@takes_yes
def skip(target: Target, txid: int, reason: str, yes: bool) -> None:  # noqa: FBT001 - click's convention
    """Set one transaction aside: it is given up, and the next run goes on behind it.

    MODULE, ATTRIBUTE and --set are as for 'txtopo run'. The topology must not be running. TXID is the first transaction
    that is not committed. Its input counts nowhere; its dead letter, with its metadata, goes into the table into which
    topology.transaction.max.attempts.policy = SKIP would put it, in the transaction's place in the order. The journal
    and the audit know it.
    """

    def agree(found: SetAside) -> None:
        click.echo(f"{transactions_words(txid, txid)} is given up; its dead letter goes to {found.table}")
        for partition, (start, end) in found.ranges.items():
            click.echo(f"  its input: {partition}: {start} to {end}")
        ask("Its input will count nowhere. Set it aside?", is_agreed=yes)

    set_aside(target.plan, target.config, txid, reason, agree)
    say_done(target)
