"""``txtopo show``: print a topology's graph and its phases, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click
from rich.tree import Tree

from txtopo.cli.command import Command, format_option
from txtopo.cli.console import table_console
from txtopo.cli.display.graph import AnyPlan, draw_dot, draw_json, draw_mermaid, draw_text
from txtopo.cli.target import takes_target
from txtopo.topology.topology import PlainTopology
from txtopo.topology.user_code.loading import Target

_DRAWINGS: Mapping[str, Callable[[AnyPlan], Tree | str]] = {
    "text": draw_text,
    "mermaid": draw_mermaid,
    "dot": draw_dot,
    "json": draw_json,
}


@click.command(cls=Command)
@takes_target
@format_option(*_DRAWINGS)
def show(target: Target, form: str) -> None:
    """Show a topology's graph: its components, and of a transactional topology the phases and the states.

    MODULE and ATTRIBUTE are as for 'txtopo run'. Nothing is run.
    """
    drawing = _DRAWINGS[form](target.topology.plan if isinstance(target.topology, PlainTopology) else target.plan)
    if isinstance(drawing, str):
        click.echo(drawing)
    else:
        table_console().print(drawing)
