"""``txtopo skip``, ``forgo`` and ``replan``: go on without a transaction or lost files, or with other references."""

from __future__ import annotations

from collections.abc import Sequence

import click

from txtopo.api.reference import SeenVersion
from txtopo.assembly.going_on import SetAside, replan as plan_again, skip as set_aside
from txtopo.assembly.storage import store_place
from txtopo.attempts import transactions_words
from txtopo.cli.command import Command, WholeNumber
from txtopo.cli.mend.agreement import ask, say_done, takes_yes
from txtopo.cli.target import takes_target
from txtopo.topology.user_code.loading import Target
from txtopo.transactional.recovery.operations.going_back import forgo as go_on_without


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


@click.command(cls=Command)
@takes_target
@takes_yes
def replan(target: Target, yes: bool) -> None:  # noqa: FBT001 - click's convention
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

    plan_again(target.plan, target.config, agree)
    if not asked:
        click.echo("nothing to do: no transaction that is not committed sees another version than the newest")
        return
    say_done(target)
