"""``txtopo fork``: begin a second topology from a committed transaction of another one."""

from __future__ import annotations

import uuid

import attrs
import click

from txtopo.attempts import transactions_words
from txtopo.cli.command import Command, CommandLineError, WholeNumber
from txtopo.cli.look.points import planned_point, point_lines
from txtopo.cli.target import takes_target
from txtopo.files.places import folder_at
from txtopo.fork.fork import Fork, ForkPoint, find_fork
from txtopo.fork.forking import fork_points, make_fork
from txtopo.text.secrecy import command_line
from txtopo.text.words import count_of
from txtopo.topology.user_code.loading import Target


@click.command(cls=Command)
@takes_target
@click.argument("txid", metavar="[TXID]", type=WholeNumber(0), required=False)
@click.argument("output", metavar="[OUTPUT]", required=False)
@click.option("--id", "topology_id", metavar="ID", help="The fork's id. Default: the topology's, followed by '-fork'.")
def fork(target: Target, txid: int | None, output: str | None, topology_id: str | None) -> None:
    """Begin a second topology in the folder OUTPUT that goes on after transaction TXID of the first one.

    MODULE, ATTRIBUTE and --set are as for 'txtopo run'. The topology is only read, and may be running. TXID is a
    committed transaction, or 0 for the beginning; if no table version ends there, the fork goes on from the newest
    transaction before it that all tables keep. Files are shared by hard links, or copied where that is impossible.

    Run the fork with the same module and --fork OUTPUT, which every command that takes a MODULE has. The transactions
    that the topology has begun by now get the same input in the fork; from then on each goes its own way through the
    same source. The fork writes only to OUTPUT, and publishes no offsets to a consumer group. An interrupted fork is
    made anew by the same command.
    """
    if txid is None:
        points = fork_points(target.plan, target.config)
        standing = {checkpoint.txid for checkpoint in points.standing}
        click.echo(f"topology {target.plan.topology_id!r} can be forked at {count_of(len(standing - {0}), 'point')}:")
        ends = [checkpoint for checkpoint in reversed(points.checkpoints) if checkpoint.txid]
        for line in point_lines(
            (planned_point(checkpoint.txid, checkpoint.planned), checkpoint.txid in standing) for checkpoint in ends
        ):
            click.echo(line)
        for name in points.unversioned:
            click.echo(f"state {name!r} keeps no versions: it begins empty in a fork")
        return
    if output is None:
        raise CommandLineError("the folder of the fork is missing: give OUTPUT after TXID")
    before = None if target.fork is None else find_fork(folder_at(target.fork))
    declared = target.plan.topology_id if before is None else before.declared
    topology_id = topology_id or f"{target.plan.topology_id}-fork"
    forked = Fork(topology_id, uuid.uuid4().hex, declared)
    made = make_fork(target.plan, target.config, txid, folder_at(output), forked, _tell_point)
    click.echo(
        f"topology {target.plan.topology_id!r} is forked after transaction {made.plan.txid}, as {topology_id!r} in "
        f"{output}"
    )
    for name, state in made.states.items():
        if name in made.empty:
            click.echo(f"  state {name!r}: begins empty, because it {made.empty[name]}")
            continue
        last = f"at transaction {made.marks[name].txid or 0}" if name in made.marks else "none, it is new"
        place = f"{output.rstrip('/')}/{made.fork.tables[name]}" if name in made.fork.tables else state.address
        click.echo(f"  table of state {name!r}: {last}, {place}")
    if made.begun:
        again = transactions_words(made.begun[0].txid, made.begun[-1].txid)
        click.echo(f"the same input again: {again}")
    click.echo(f"to run it: {command_line(['txtopo', 'run', *attrs.evolve(target, fork=output).words])}")


def _tell_point(point: ForkPoint) -> None:
    for obstacle in point.obstacles:
        click.echo(f"a later transaction is not possible: {obstacle}")
    if point.obstacles:
        click.echo(
            f"it is forked at the newest point before: {planned_point(point.checkpoint.txid, point.checkpoint.planned)}"
        )
