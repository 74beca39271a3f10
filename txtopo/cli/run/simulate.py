"""``txtopo simulate``: run a topology through thousands of simulated disasters, without Spark."""

from __future__ import annotations

from collections.abc import Callable

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from txtopo.cli.command import CommandLineError, Verdict, WholeNumber, discreet
from txtopo.cli.console import Console
from txtopo.cli.target import takes_target
from txtopo.errors import AnchorError, TxtopoError, UserCodeError
from txtopo.testing.simulation.plain.world import make_plain_subject
from txtopo.testing.simulation.schedule import Kinds, Simulated
from txtopo.testing.simulation.schedules import (
    FAULTLESS,
    Failure,
    faults_unlogged,
    make_subject,
    run_schedule,
    run_schedules,
    shrink,
)
from txtopo.text.secrecy import command_line
from txtopo.topology.topology import PlainTopology, TransactionalTopology
from txtopo.topology.user_code.loading import Target
from txtopo.topology.user_code.output import user_output_logged

INVARIANT = "check_state"
UNTIL = 12
HELD = Text("every promise held", "bold green")


@click.command(cls=Verdict)
@takes_target
@click.option("--seeds", type=WholeNumber(1), default=1_000, show_default=True, help="The number of schedules.")
@click.option("--first-seed", type=WholeNumber(1), default=1, show_default=True, help="The first seed.")
@click.option(
    "--seed", type=WholeNumber(0), help="Run only this schedule, and print every step of it; 0: without faults."
)
@click.option(
    "--real-time",
    is_flag=True,
    help="Process transactions in simulated workers of real-time mode; so does topology.processing.mode=real-time.",
)
@click.option("--faults", metavar="N,N,…", help="With --seed: inject only these of its faults.")
@click.option("--only", "kinds", multiple=True, metavar="WORKLOAD", help="Draw only this kind of fault; repeatable.")
@click.option(
    "--until",
    type=WholeNumber(1),
    default=UNTIL,
    show_default=True,
    metavar="N",
    help="Simulate the input up to this transaction, or this many roots: many short schedules find more than a few "
    "long ones.",
)
@click.option("--processes", type=WholeNumber(1), help="The number of processes; by default one per core.")
@click.pass_context
def simulate(  # noqa: PLR0913, PLR0917 - the options of a command
    context: click.Context,
    target: Target,
    seeds: int,
    first_seed: int,
    seed: int | None,
    real_time: bool,  # noqa: FBT001 - click's convention
    faults: str | None,
    kinds: tuple[str, ...],
    until: int,
    processes: int | None,
) -> None:
    """Run a topology's spouts and bolts through seeded disasters, and check that every promise holds.

    Of a transactional topology the coordinator, the recovery and the commit phase are the real ones; tables, store,
    clock and executors are simulated, so nothing is written and nothing waits. Processes crash at every step; jobs and
    answers are lost, delayed and duplicated; bolts fail; writes succeed without an answer; the lead passes to a second
    coordinator while the first one continues. Every version of every table must be as if nothing had happened.

    In real-time mode (--real-time) the pool and the bodies of its workers are the real ones, too. Workers die, or count
    as dead and work on; what they say comes twice. Each attempt is answered once or lost once, and tables are those of
    micro-batches.

    Of a plain topology the workers with their ackers and the state machine that supervises them are the real ones;
    network, clock and Spark's jobs are simulated. Workers die, stand still and raise errors; frames are lost and come
    twice; bolts fail and time passes. Every root is acked or failed once at most in one life of its spout task, acked
    only when its whole tree was, and failed for a reason; one whose tree has touched a dead worker fails at once;
    nothing is left in any map. Slow calls of bolts (context.offload), such as the writes of sinks, are not made: they
    end well or by an error. Bolts must settle each input once, after they have emitted what it leads to. KafkaSpout
    needs a txtopo.testing.MemoryLog; nothing is connected to a broker.

    First comes schedule 0, without faults. Of a source that never ends, the input is what it gives in this one before
    it gives nothing more for a while.

    If the module of a transactional topology has a function check_state(tables), it is called with
    {state: {key: value}} after every settled transaction; for a table of rows it gets {row: number of occurrences}. The
    first schedule that fails is shrunk, and the command that replays it is printed. The exit status is 1 then; it is 2
    if nothing could be simulated.
    """
    context.with_resource(faults_unlogged())
    context.with_resource(user_output_logged({}))
    console = Console(soft_wrap=True)
    command = ["txtopo", "simulate", *target.words]
    command += [option for kind in kinds for option in ("--only", kind)]
    command += ["--until", str(until)] if until != UNTIL else []
    command += ["--real-time"] if real_time else []
    try:
        subject = _subject(target, until, click.echo if seed == FAULTLESS else None, real_time=real_time)
    except click.ClickException:
        raise
    except Exception as error:
        if isinstance(error, TxtopoError) and not isinstance(error, (UserCodeError, AnchorError)):
            raise  # the user must mend that first; it is no broken promise
        failure: Failure | None = Failure.of(FAULTLESS, (), error)
    else:
        for warning in subject.warnings:
            console.print(Text.assemble(("warning:", "yellow"), f" {warning}"))
        drawn = _kinds(subject, kinds)
        if seed == FAULTLESS:
            failure = None
        elif seed is not None:
            _, failure = run_schedule(subject, seed, drawn, _numbers(faults), click.echo)
        else:
            failure = _run(subject, range(first_seed, first_seed + seeds), drawn, processes, console)
    if failure is None:
        console.print(HELD)
        return
    if context.meta["txtopo.debug"] or (seed is not None and not failure.says_all):
        console.print(discreet(failure.trace))
    _print_failure(console, failure, None if seed else command)
    context.exit(1)


def _subject(target: Target, until: int, log: Callable[[str], None] | None, *, real_time: bool) -> Simulated:
    if isinstance(target.topology, PlainTopology):
        if real_time:
            raise CommandLineError("a plain topology is processed tuple by tuple in any case; leave --real-time out")
        return make_plain_subject(target.topology, target.config, until, log)
    plan = target.plan
    if plan.dataframes:
        raise CommandLineError("a topology with DataFrame components needs Spark and can't be simulated")
    invariant = getattr(target.module, INVARIANT, None)
    is_real_time = real_time or target.config.is_real_time
    return make_subject(
        TransactionalTopology(plan), until=until, invariant=invariant, is_real_time=is_real_time, log=log
    )


def _kinds(subject: Simulated, names: tuple[str, ...]) -> Kinds:
    known = {kind.value: kind for kind in subject.kinds}
    unknown = [name for name in names if name.lower() not in known]
    if unknown:
        raise CommandLineError(f"there is no workload {unknown[0]!r}; there are {', '.join(known)}")
    return [known[name.lower()] for name in names] or subject.kinds


def _numbers(faults: str | None) -> frozenset[int] | None:
    try:
        return None if faults is None else frozenset(int(number) for number in faults.split(",") if number)
    except ValueError as error:
        raise CommandLineError(f"--faults {faults!r} is not a list of numbers, such as 3,7") from error


def _run(subject: Simulated, seeds: range, kinds: Kinds, processes: int | None, console: Console) -> Failure | None:
    """Run schedules, print how many faults struck, and return the first failure with the faults that matter."""
    columns = (TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(seeds))
        result = run_schedules(
            subject, seeds, kinds, processes=processes, on_progress=lambda done: progress.update(task, completed=done)
        )
    struck = ", ".join(f"{count:,} {name}" for name, count in result.faults.most_common())
    console.print(f"{result.schedules:,} schedules in {result.elapsed_secs:.0f} s; faults: {struck or 'none'}")
    return shrink(subject, result.failures[0], kinds) if result.failures else None


def _print_failure(console: Console, failure: Failure, command: list[str] | None) -> None:
    """Print a broken promise, the faults that led to it, and how to replay it; ``command`` is None in a replay."""
    if command is None:
        console.print(Text.assemble(("broken: ", "bold red"), discreet(failure.violation)))
        return
    replay = [*command, "--seed", str(failure.seed)]
    without = ", without faults," if failure.seed == FAULTLESS else ""
    head = f"schedule {failure.seed}{without} is broken: "
    console.print(Text.assemble((head, "bold red"), discreet(failure.violation)))
    if failure.seed != FAULTLESS:
        replay += ["--faults", ",".join(str(number) for number, _ in failure.faults)]
        console.print(f"with {len(failure.faults)} faults:" if failure.faults else "without faults")
    for number, fault in failure.faults:
        console.print(f"  {number}: {fault}")
    console.print(f"to replay it: {command_line(replay)}")
