"""Collects the commands. ``python -m txtopo`` is ``txtopo``, too."""

from __future__ import annotations

import difflib
import io
import os
import sys
from typing import Any, cast

import click

from txtopo import main as commands
from txtopo.text.extras import version

_COMMANDS = {
    "activate": "Let a deactivated topology go on.",
    "audit": "Prove from journal and tables that every transaction was committed once, in order, without a gap.",
    "backfill": "Give a state that is new in a topology the history that it would have from the start.",
    "blame": "Show which transactions wrote a key: when, in which epoch, from which input, and the value after each.",
    "bucket": "Run a server of buckets for development.",
    "cluster": "Run a whole cluster.",
    "deactivate": "Let a topology begin no transaction; those in flight are committed.",
    "diff": "Compare the tables of two outputs, for example of a topology and its fork, as of the same transaction.",
    "evolve": "Make a topology's tables as declared, once: with the columns of new fields, and deletion "
    "vectors or none.",
    "explain": "Show the state of a transaction: since when, what it waits for or failed in, and what happens next.",
    "forgo": "Go on without files that a rewind has promised to read again and that are lost for good.",
    "fork": "Begin a second topology in the folder OUTPUT that goes on after transaction TXID of the first one.",
    "kafka": "Run a Kafka broker for development.",
    "kill": "Kill a topology: its driver stops in good order, and after the wait the topology is removed.",
    "leader": "Print the address of the nimbus that leads.",
    "list": "List the topologies of a cluster; or show all of the topology NAME, with the whole reason of a failure.",
    "logs": "Print the end of the log of a topology's driver.",
    "nimbus": "Run a nimbus, one of the daemons that take submissions and lead a cluster.",
    "rebalance": "Deactivate a topology, and after the wait start it anew, perhaps elsewhere and with changed "
    "settings.",
    "rename": "Give a topology another id, or its states other names, and keep all that they have.",
    "repair": "Make coordinator state and tables agree again if a run refuses to begin.",
    "replan": "Let transactions that are not committed see the newest versions of the reference tables.",
    "replay": "Run committed transactions again, write nothing, and report whether the results are the same.",
    "rewind": "Bring a topology back to an earlier transaction; the later ones run again, with the code that "
    "is there then.",
    "run": "Run a topology, transactional or plain, until its input is exhausted.",
    "settings": "List all settings, or describe the setting NAME.",
    "show": "Show a topology's graph: its components, and of a transactional topology the phases and the states.",
    "simulate": "Run a topology's spouts and bolts through seeded disasters, and check that every promise holds.",
    "skip": "Set one transaction aside: it is given up, and the next run goes on behind it.",
    "state": "Show the keys and values of a state's Delta table, each with the last transaction that touched it.",
    "submit": "Submit a topology to a cluster, which keeps it running.",
    "supervisor": "Run a supervisor, the daemon that runs topologies' drivers on its machine.",
    "ui": "Show a page of what a topology does and did: its transactions, plots, graph, states, errors and settings.",
}
"""What each command does: the first sentence of its help, which no list of them has to import."""

_HIDDEN = ("driver",)
"""Commands that daemons run."""

_EXIT_INTERRUPTED = 130
"""As :data:`txtopo.cli.command.EXIT_INTERRUPTED`, which may not be imported yet."""


class _Commands(click.Group):
    """The commands, imported one by one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS and cmd_name not in _HIDDEN:
            return None
        attribute = f"{cmd_name}_command" if f"{cmd_name}_command" in commands.__all__ else cmd_name
        return cast("click.Command", getattr(commands, attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([*_COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            if not close:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{close[0]}'?", ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; report a Ctrl-C during its imports as :class:`Command` does later."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.secho("error: interrupted", fg="red", bold=True, err=True)
            ctx.exit(_EXIT_INTERRUPTED)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(version(), prog_name="txtopo", help="Print the version and exit.")
def txtopo() -> None:
    """Run topologies, here or on a cluster, look at their graphs, and read their tables.

    'txtopo COMMAND --help' describes a command.
    """


def main() -> None:
    """Run the command line; characters that the output's encoding lacks are replaced."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller; another file would get its number
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123 - open as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    txtopo(prog_name="txtopo")
