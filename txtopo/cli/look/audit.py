"""``txtopo audit``: prove offline that every transaction was committed once, in order, without a gap."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from txtopo.api.components.partitioned import spout_as_written
from txtopo.api.components.spout import AnySpout, PartitionedTransactionalSpout
from txtopo.cli.command import Verdict, json_option, page_option, print_json, tell_page
from txtopo.cli.console import Console
from txtopo.cli.target import OutputFolder, journal_place, takes_folder_or_target
from txtopo.files.records import to_json
from txtopo.inspect.audit.evidence import audited
from txtopo.inspect.audit.report import AuditProgress, AuditReport
from txtopo.inspect.audit.wording import OF_ALL, OF_ONE, lines_of, table_line, verdict_of
from txtopo.topology.user_code.loading import Target

FINDINGS_SHOWN = 20


@click.command("audit", cls=Verdict)
@takes_folder_or_target
@click.option("--quick", is_flag=True, help="Do not compare the rows of each table version.")
@click.option("--progress", "is_telling", is_flag=True, help="Tell once a second how far it is.")
@json_option
@page_option
@click.pass_context
def audit_command(
    ctx: click.Context,
    target: OutputFolder | Target,
    quick: bool,  # noqa: FBT001 - click's convention
    is_telling: bool,  # noqa: FBT001 - click's convention
    is_json: bool,  # noqa: FBT001 - click's convention
) -> None:
    """Prove from journal and tables that every transaction was committed once, in order, without a gap.

    OUTPUT is the folder that holds a topology's tables and its folder '_txtopo'; MODULE stands for the folder of that
    topology. Nothing is run or written, and the topology may be running. The command prints what it has proved. If a
    check fails, it names the fault and the exit status is 1; it is 2 if that can't be told.
    """
    metadata_dir, topology_id = journal_place(target)
    report = audited(metadata_dir, topology_id, with_rows=not quick, tell=_Progress(is_shown=is_telling))
    if is_json:
        print_json(to_json(report))
    elif not tell_page(audit=report.shortened()):
        spouts = () if isinstance(target, OutputFolder) else target.plan.spouts
        _show(report, [spout_as_written(spout.component) for spout in spouts])
    ctx.exit(0 if report.is_proved else 1)


class _Progress:
    """Tells a page, or on standard error who has asked for it, how far an audit is, at most once a second."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._told = time.monotonic()

    def __call__(self, progress: AuditProgress) -> None:
        if time.monotonic() - self._told >= 1.0:
            self._told = time.monotonic()
            if not tell_page(progress=progress) and self._is_shown:
                click.echo(f"… {progress}", err=True)


def _show(report: AuditReport, spouts: Sequence[AnySpout]) -> None:
    """Print what an audit has found or proved of a topology with these spouts, if they are known."""
    say = Console().say
    for line in lines_of(report, *_method(spouts)):
        say(f"{line.label:<12}{line.text}")
    for finding in report.findings[:FINDINGS_SHOWN]:
        say(f"✘ {finding}", "bold red")
    if len(report.findings) > FINDINGS_SHOWN:
        say(f"✘ and {len(report.findings) - FINDINGS_SHOWN} more", "bold red")
    if report.is_proved:
        for proof in report.tables:
            say(f"table       {table_line(proof)}")
        say(f"✔ {verdict_of(report)}", "bold green")


def _method(spouts: Sequence[AnySpout]) -> Sequence[str]:
    """Return the method by which the only spout would report each transaction's input."""
    if len(spouts) != 1:
        return ()
    (spout,) = spouts
    method = OF_ONE if isinstance(spout, PartitionedTransactionalSpout) else OF_ALL
    return (f"{method}; {type(spout).__name__} does not have it",)
