"""``txtopo ui``: serve the page for an output folder."""

from __future__ import annotations

from pathlib import Path

import click

from txtopo.cli.command import Command, needs_extra
from txtopo.cli.page import BESIDE, Address, Beside


@click.command("ui", cls=Command)
@click.argument("output", metavar="OUTPUT", type=click.Path(path_type=Path))
@click.option(
    "--at",
    "address",
    type=Address(),
    default="0",
    metavar="[HOST:]PORT",
    help="Serve it at this port of 127.0.0.1, or of HOST. Default: a free port.",
)
@click.option(BESIDE, "is_beside", is_flag=True, hidden=True, help="Serve it for a run, which writes what it knows.")
def ui(output: Path, address: tuple[str, int], is_beside: bool) -> None:  # noqa: FBT001 - an option
    """Show a page of what a topology does and did: its transactions, plots, graph, states, errors and settings.

    OUTPUT is the folder that holds a topology's tables and its folder '_txtopo'. The topology may be running, have
    ended, or have been killed. The command prints an address, which works once: it lets one browser in.
    """
    with needs_extra("ui"):
        from txtopo.ui.serving import served  # noqa: PLC0415 - the extra, when it is needed
    beside = Beside.from_stdin() if is_beside else None
    served(output, *address, beside, announce=click.echo)
