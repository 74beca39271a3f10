"""``txtopo fork``: begin a second topology from a committed transaction of another one."""

from __future__ import annotations

import uuid
from pathlib import Path

import attrs
import click

from txtopo.attempts import transactions_words
from txtopo.cli.command import Command, WholeNumber
from txtopo.cli.target import takes_target
from txtopo.secrecy import command_line
from txtopo.topology.loading import Target
from txtopo.transactional.recovery.fork import Fork, find_fork
from txtopo.transactional.run.forking import make_fork


@click.command(cls=Command)
@takes_target
@click.argument("txid", metavar="TXID", type=WholeNumber(0))
@click.argument("output", metavar="OUTPUT")
@click.option("--id", "topology_id", metavar="ID", help="The fork's id. Default: the topology's, followed by '-fork'.")
def fork(target: Target, txid: int, output: str, topology_id: str | None) -> None:
    """Begin a second topology in the folder OUTPUT that goes on after transaction TXID of the first one.

    MODULE, ATTRIBUTE and --set are as for 'txtopo run'. The topology is only read, and may be running. TXID is a
    committed transaction, or 0 for the beginning; if no table version ends there, the fork goes on from the newest
    transaction before it that all tables keep. Files are shared by hard links, or copied where that is impossible.

    Run the fork with the same module and --fork OUTPUT, which every command that takes a MODULE has. The transactions
    that the topology has begun by now get the same input in the fork; from then on each goes its own way through the
    same source. The fork writes only to OUTPUT, and publishes no offsets to a consumer group. An interrupted fork is
    made anew by the same command.
    """
    before = None if target.fork is None else find_fork(target.fork)
    declared = target.plan.topology_id if before is None else before.declared
    topology_id = topology_id or f"{target.plan.topology_id}-fork"
    made, obstacles = make_fork(
        target.plan, target.config, txid, Path(output), Fork(topology_id, uuid.uuid4().hex, declared)
    )
    for obstacle in obstacles:
        click.echo(f"a later transaction is not possible: {obstacle}")
    click.echo(
        f"topology {target.plan.topology_id!r} is forked after transaction {made.plan.txid}, as {topology_id!r} in "
        f"{output}"
    )
    for name, state in made.states.items():
        last = f"at transaction {made.marks[name].txid or 0}" if name in made.marks else "none, it is new"
        click.echo(f"  table of state {name!r}: {last}, {state.address}")
    if made.begun:
        again = transactions_words(made.begun[0].txid, made.begun[-1].txid)
        click.echo(f"the same input again: {again}")
    click.echo(f"to run it: {command_line(['txtopo', 'run', *attrs.evolve(target, fork=output).words])}")
