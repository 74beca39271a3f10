"""``txtopo show``: print a topology's graph and its phases, without Spark."""

from __future__ import annotations

import click
from rich.console import Console

from txtopo.cli.command import Command
from txtopo.cli.formats import format_option
from txtopo.cli.graph import draw_dot, draw_json, draw_mermaid, draw_text
from txtopo.cli.target import Target, takes_target

PIPE_WIDTH = 1000
"""The width when the output is no terminal: lines are not wrapped, so that they can be searched."""


@click.command(cls=Command)
@takes_target
@format_option("text", "mermaid", "dot", "json")
def show(target: Target, form: str) -> None:
    """Show a topology's graph: the components of the processing phase and of the commit phase, and the states.

    MODULE and ATTRIBUTE are as for 'txtopo run'. Nothing is run.
    """
    plan = target.topology.plan
    match form:
        case "mermaid":
            click.echo(draw_mermaid(plan))
        case "dot":
            click.echo(draw_dot(plan))
        case "json":
            click.echo(draw_json(plan))
        case _:
            is_terminal = Console().is_terminal
            Console(highlight=False, width=None if is_terminal else PIPE_WIDTH).print(draw_text(plan))
