"""``txtopo backfill``: give a new state the history that it would have from the start."""

from __future__ import annotations

import contextlib
import functools

import click

from txtopo.assembly.environment import Environment
from txtopo.assembly.report import Progress
from txtopo.backfill.backfill import BackfillNews, backfill
from txtopo.backfill.part import BackfillPart
from txtopo.cli.command import Command, WholeNumber
from txtopo.cli.display.interrupts import Interrupts
from txtopo.cli.display.lines import ProgressLines
from txtopo.cli.look.points import planned_point
from txtopo.cli.target import takes_target
from txtopo.fork.fork import ForkPoint
from txtopo.settings.setting import TopologyKind
from txtopo.text.secrecy import command_line
from txtopo.text.words import count_of
from txtopo.topology.topology import TransactionalTopology
from txtopo.topology.user_code.loading import Target


@click.command("backfill", cls=Command)
@takes_target
@click.argument("state", metavar="STATE")
@click.option(
    "--from",
    "first",
    type=WholeNumber(1),
    metavar="TXID",
    help="Begin with this transaction; the table has nothing of earlier ones.",
)
def backfill_command(target: Target, state: str, first: int | None) -> None:
    """Give a state that is new in a topology the history that it would have from the start.

    MODULE, ATTRIBUTE and --set are as for 'txtopo run', and name the topology with the new state.

    The components that write STATE run all committed transactions again, with the input that they had; what they emit
    is compared with what the topology has recorded of them. Other new states that these components use get their
    history, too. The topology may go on meanwhile, with the code that it has: then the command follows it. Once the
    topology is stopped, the states join it, and 'txtopo run' with the new code goes on from there. If the command is
    stopped or killed, the same command goes on.
    """
    display = ProgressLines()
    interrupts = Interrupts(display.stopping)

    def on_progress(progress: Progress) -> None:
        interrupts.wrap_handlers()  # by the first progress the run has installed its own
        display.update(progress)

    with contextlib.ExitStack() as stack:
        stack.enter_context(interrupts)
        report = backfill(
            TransactionalTopology(target.plan),
            target.config.of_kind(TopologyKind.TRANSACTIONAL),
            _environment(target, display),
            state,
            BackfillNews(_tell_point, functools.partial(_tell_begin, target), _tell_caught_up),
            first=first,
            on_progress=on_progress,
        )
    words = command_line(["txtopo", "run", *target.words])
    if report.joined_at is None:
        again = command_line(["txtopo", "backfill", *target.words, state])
        click.echo(f"stopped after transaction {report.run.committed_txid}; to continue: {again}")
        return
    click.echo(
        f"joined the topology at transaction {report.joined_at}: {_names(report.part.new)}; to continue: {words}"
    )


def _environment(target: Target, display: ProgressLines) -> Environment:
    """Return that of a run on Spark, unless who calls the command gives another one as the context's object."""
    given = click.get_current_context().find_object(Environment)
    if given is not None:
        return given
    from txtopo.spark.jobs.job_runner import spark_job_runner  # noqa: PLC0415 - imports pyspark only if Spark is used
    from txtopo.spark.session.sessions import check_spark  # noqa: PLC0415 - as above

    check_spark(target.config, None, delta_users=target.plan.delta_users)
    runner = functools.partial(spark_job_runner, spark=None, on_stage=display.stage)
    return Environment(runner, on_stage=display.stage)


def _tell_point(point: ForkPoint) -> None:
    for obstacle in point.obstacles:
        click.echo(f"it can't begin later: {obstacle}")
    if point.obstacles:
        moment = planned_point(point.checkpoint.txid, point.checkpoint.planned)
        click.echo(f"it begins after the newest point before: {moment}")


def _tell_begin(target: Target, part: BackfillPart, committed: int) -> None:
    click.echo(
        f"topology {target.plan.topology_id!r}: backfill of {_names(part.new)}, from transaction {committed + 1}"
    )
    click.echo(f"  runs again: {', '.join(part.components)}")
    if part.scratch:
        tables = count_of(len(part.scratch), "scratch table")
        click.echo(f"  {tables} beside the topology's own, for what they read: {', '.join(part.scratch)}")


def _tell_caught_up(txid: int) -> None:
    click.echo(f"caught up at transaction {txid}, and follows the topology; stop it to let the state join it")


def _names(states: tuple[str, ...]) -> str:
    return ", ".join(map(repr, states))
