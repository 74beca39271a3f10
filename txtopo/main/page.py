"""``txtopo ui``: serve the page for an output folder, or for a cluster."""

from __future__ import annotations

import click

from txtopo.cli.cluster.asking import Connect, takes_cluster
from txtopo.cli.command import Command, needs_extra
from txtopo.engine.page import BESIDE, Address, PageOptions
from txtopo.files.places import folder_at

_PATIENCE_SECS = 3.0
"""How long the page's server goes on asking while nobody leads: the browser asks again by itself."""


@click.command("ui", cls=Command)
@click.argument("output", metavar="[OUTPUT]", required=False)
@click.option("--cluster", "is_cluster", is_flag=True, help="Show a cluster: its daemons, and all its topologies.")
@click.option(
    "--at",
    "address",
    type=Address(),
    default="0",
    metavar="[HOST:]PORT",
    help="Serve it at this port of 127.0.0.1, or of HOST. Default: a free port.",
)
@click.option(BESIDE, "is_beside", is_flag=True, hidden=True, help="Serve it for a run, which writes what it knows.")
@takes_cluster
def ui(
    connect: Connect,
    output: str | None,
    is_cluster: bool,  # noqa: FBT001 - an option
    address: tuple[str, int],
    is_beside: bool,  # noqa: FBT001 - an option
) -> None:
    """Show a page of what a topology does and did: its transactions, plots, graph, states, errors and settings.

    OUTPUT is the folder that holds a topology's tables and its folder '_txtopo'. The topology may be running, have
    ended, or have been killed. With --cluster there is no OUTPUT: the page shows a cluster, and goes on when the nimbus
    dies that leads it. The command prints an address, which works once: it lets one browser in.
    """
    if (output is not None) is is_cluster:
        raise click.UsageError("give either OUTPUT or --cluster")
    with needs_extra("cluster" if is_cluster else "ui"):
        from txtopo.ui.serving import served, served_cluster  # noqa: PLC0415 - the extra, when it is needed
    if output is None:
        with connect(patience_secs=_PATIENCE_SECS) as client:
            served_cluster(client, *address, announce=click.echo)
    else:
        options = PageOptions.from_stdin() if is_beside else None
        storage_options = None if options is None else options.storage_options
        served(folder_at(output, storage_options), *address, options, announce=click.echo)
