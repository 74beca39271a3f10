"""The command ``txtopo``."""

from __future__ import annotations

import importlib.metadata
import io
import sys

import click

from txtopo.cli.audit import audit_command
from txtopo.cli.repair import repair
from txtopo.cli.replay import replay_command
from txtopo.cli.run import run
from txtopo.cli.show import show
from txtopo.cli.simulate import simulate
from txtopo.cli.state import state


def _version() -> str:
    try:
        return importlib.metadata.version("txtopo")
    except importlib.metadata.PackageNotFoundError:
        return "unknown: it runs from its sources"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(_version(), prog_name="txtopo", help="Print the version and exit.")
def txtopo() -> None:
    """Run transactional topologies, look at their graphs, and read their tables.

    'txtopo COMMAND --help' says more about each command.
    """


for _command in (audit_command, repair, replay_command, run, show, simulate, state):
    txtopo.add_command(_command)


def main() -> None:
    """Run the command line, whatever characters the output can take."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    txtopo(prog_name="txtopo")
