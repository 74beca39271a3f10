"""Collects the commands. ``python -m txtopo`` is ``txtopo``, too."""

from __future__ import annotations

import difflib
import importlib
import io
import os
import sys
from typing import Any, cast

import click

from txtopo.text.extras import version

_COMMANDS = {
    "activate": "cluster.asking:activate",
    "audit": "look.audit:audit_command",
    "backfill": "mend.backfill:backfill_command",
    "blame": "look.blame:blame_command",
    "bucket": "run.bucket:bucket",
    "cluster": "cluster.dev:cluster",
    "deactivate": "cluster.asking:deactivate",
    "diff": "look.diff:diff",
    "evolve": "mend.evolve:evolve",
    "explain": "look.explain:explain_command",
    "fork": "mend.fork:fork",
    "kafka": "run.kafka:kafka",
    "kill": "cluster.asking:kill",
    "leader": "cluster.asking:leader",
    "list": "cluster.asking:list_command",
    "logs": "cluster.asking:logs",
    "nimbus": "cluster.daemons:nimbus",
    "rebalance": "cluster.asking:rebalance",
    "rename": "mend.rename:rename",
    "replan": "mend.going_on:replan",
    "repair": "mend.repair:repair",
    "replay": "look.replay:replay_command",
    "rewind": "mend.rewind:rewind",
    "run": "run.run:run",
    "settings": "look.settings_command:settings_command",
    "show": "look.show:show",
    "simulate": "run.simulate:simulate",
    "skip": "mend.going_on:skip",
    "forgo": "mend.going_on:forgo",
    "state": "look.state:state",
    "submit": "cluster.submit:submit",
    "supervisor": "cluster.daemons:supervisor",
    "ui": "txtopo.main.ui:ui",
}
"""Module and attribute of each command, imported on use, so that no command waits for imports of another."""


_EXIT_INTERRUPTED = 130
"""As :data:`txtopo.cli.command.EXIT_INTERRUPTED`, which may not be imported yet."""

_HIDDEN = {"driver": "cluster.driver:driver"}
"""Commands that daemons run."""


class _Commands(click.Group):
    """The commands, imported one by one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS and cmd_name not in _HIDDEN:
            return None
        module, _, attribute = {**_COMMANDS, **_HIDDEN}[cmd_name].partition(":")
        module = module if module.startswith("txtopo.") else f"txtopo.cli.{module}"
        return cast("click.Command", getattr(importlib.import_module(module), attribute))

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
