"""``txtopo replay``: run a committed transaction again without writing, and compare the results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import click

from txtopo.cli.command import CommandLineError, Verdict, WholeNumber, page_option, tell_page
from txtopo.cli.console import Console
from txtopo.cli.target import journal_place, takes_target
from txtopo.config import Config
from txtopo.inspect.audit.replay import RangeReport, Replay, Tally
from txtopo.inspect.audit.replayable import ReplayedPart
from txtopo.inspect.audit.report import ReplayReport
from txtopo.inspect.audit.wording import state_words
from txtopo.journal.folders import find_journal
from txtopo.journal.journal import read_journal
from txtopo.text.words import count_of
from txtopo.topology.plans.plan import Plan
from txtopo.topology.user_code.loading import Target
from txtopo.topology.user_code.output import user_output_logged
from txtopo.transactional.jobs.inline_runner import InlineJobRunner
from txtopo.transactional.jobs.job_runner import JobRunner
from txtopo.transactional.tasks.factory import prototypes_of


@click.command("replay", cls=Verdict)
@takes_target
@click.argument("txid", metavar="TXID", type=WholeNumber(1), required=False)
@click.option(
    "--from", "first", type=WholeNumber(1), metavar="N", help="Replay all transactions from this one to that of --to."
)
@click.option("--to", "last", type=WholeNumber(1), metavar="M", help="The last transaction to replay, with --from.")
@page_option
@click.pass_context
def replay_command(ctx: click.Context, target: Target, txid: int | None, first: int | None, last: int | None) -> None:
    """Run committed transactions again, write nothing, and report whether the results are the same.

    If they are not, the command names the first component whose output differs (a spout whose source is not repeatable,
    or a bolt that is not deterministic or whose code has changed), and the exit status is 1; it is 2 if that
    can't be told. The topology may be running meanwhile.

    A group runs on the tables as they were before it. If they keep no version of that, all transactions since the
    nearest point before run, and the command says so. What depends on a state that keeps no versions, or that the
    topology did not have, is left out, and named.

    With --from and --to it replays all transactions from one to another, with the code that is here: the first that
    differs is shown in full, and the others are counted by component and state. Each commit group runs on the tables as
    they were before it, so a difference in one group does not carry over to the next.
    """
    if (txid is None) == (first is None) or (first is None) != (last is None):
        raise CommandLineError("give either a TXID, or both --from and --to")
    if first is not None and last is not None and last < first:
        raise CommandLineError(f"--from {first} is after --to {last}")
    config = target.config
    parts = read_journal(find_journal(*journal_place(target)))
    part = ReplayedPart.of(target.plan, parts, first or txid or 1, last or txid or 1)
    prototypes = prototypes_of(part.plan)
    with user_output_logged(config.given), _runner(part.plan, config, prototypes) as runner:
        replay = Replay(part, parts, config, prototypes, runner, has_edge_tallies=config.acker_executors > 0)
        with contextlib.closing(replay):
            if txid is None:
                found = replay.run_range(first or 1, last or 1)
                is_same = found.earliest is None
                _print_range(found, _console(part))
            else:
                report = replay.run(txid)
                is_same = report.difference is None
                if not tell_page(replay=report):
                    _print(report, _console(part))
    if not is_same:
        ctx.exit(1)


@contextlib.contextmanager
def _runner(plan: Plan, config: Config, prototypes: Mapping[str, bytes]) -> Iterator[JobRunner]:
    """Yield a job runner: Spark if the topology has DataFrame components, this process otherwise."""
    if not plan.dataframes:
        runner: JobRunner = InlineJobRunner(plan, config, prototypes, slots=1)
        with contextlib.closing(runner):
            yield runner
        return
    from txtopo.spark.jobs.job_runner import spark_job_runner  # noqa: PLC0415 - pyspark only where Spark runs

    with spark_job_runner(plan, config, prototypes) as on_spark:
        yield on_spark


def _console(part: ReplayedPart) -> Console:
    """Return a console on which stands what can't be judged."""
    console = Console()
    for text in part.left_out:
        console.say(text)
    return console


def _print_range(report: RangeReport, console: Console) -> None:
    if report.earliest is not None:
        console.say("the first that differs:")
        _print(report.earliest, console)
        console.print()
    replayed = report.transactions.compared
    given_up = f", {report.given_up:,} given up and not replayed" if report.given_up else ""
    head = f"transactions {report.first} to {report.last}: {replayed:,} in {count_of(report.groups, 'group')}{given_up}"
    console.say(head, "bold")
    for name in report.changed:
        console.say(f"  {name}: no longer in the topology")
    tallies = {**report.components, **{f"state {name}": tally for name, tally in report.states.items()}}
    for name, tally in tallies.items():
        console.say(f"  {name}: {_tally_text(tally)}", "red" if tally.differing else "")
    if report.earliest is None:
        console.say("✔ the same", "bold green")
    else:
        console.say(f"✘ {_tally_text(report.transactions)}", "bold red")


def _tally_text(tally: Tally) -> str:
    if not tally.differing:
        return f"{count_of(tally.compared, 'transaction')}, the same"
    verb = "differs" if tally.differing == 1 else "differ"
    return f"{tally.differing:,} of {count_of(tally.compared, 'transaction')} {verb}, first {tally.first}"


def _print(report: ReplayReport, console: Console) -> None:
    together = f", committed together with {report.first} to {report.last}" if report.first < report.last else ""
    forward = f", run from transaction {report.run_from} on" if report.run_from < report.first else ""
    head = f"transaction {report.txid}: attempt {report.try_}, epoch {report.epoch}{together}{forward}"
    console.say(head, "bold")
    for component in report.components:
        mark = "the same" if component.is_same else "differs"
        tuples = count_of(component.tuples_then, "tuple")
        if component.tuples_now != component.tuples_then:
            tuples = f"{tuples} then, {component.tuples_now:,} now"
        text = f"  {component.component}: {tuples}, {mark}, by {component.comparison.value}"
        console.say(text, "" if component.is_same else "red")
    for state in report.states:
        text = f"  state {state.state}: {state_words(state)}"
        console.say(text, "" if state.difference is None else "red")
    if report.difference is None:
        console.say("✔ the same", "bold green")
    else:
        console.say(f"✘ {report.difference}", "bold red")
