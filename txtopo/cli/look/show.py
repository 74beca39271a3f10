"""``txtopo show``: print a topology's graph and its phases, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click
from rich.tree import Tree

from txtopo.cli.command import Command, format_option
from txtopo.cli.console import table_console
from txtopo.cli.display.graph import draw_dot, draw_json, draw_mermaid, draw_text
from txtopo.cli.display.plain_graph import draw_plain_dot, draw_plain_json, draw_plain_mermaid, draw_plain_text
from txtopo.cli.target import takes_target
from txtopo.topology.plans.plain_plan import PlainPlan
from txtopo.topology.plans.plan import Plan
from txtopo.topology.topology import PlainTopology
from txtopo.topology.user_code.loading import Target

_TRANSACTIONAL: Mapping[str, Callable[[Plan], Tree | str]] = {
    "text": draw_text,
    "mermaid": draw_mermaid,
    "dot": draw_dot,
    "json": draw_json,
}
_PLAIN: Mapping[str, Callable[[PlainPlan], Tree | str]] = {
    "text": draw_plain_text,
    "mermaid": draw_plain_mermaid,
    "dot": draw_plain_dot,
    "json": draw_plain_json,
}


@click.command(cls=Command)
@takes_target
@format_option(*_TRANSACTIONAL)
def show(target: Target, form: str) -> None:
    """Show a topology's graph: its components, and of a transactional topology the phases and the states.

    MODULE and ATTRIBUTE are as for 'txtopo run'. Nothing is run.
    """
    if isinstance(target.topology, PlainTopology):
        drawing = _PLAIN[form](target.topology.plan)
    else:
        drawing = _TRANSACTIONAL[form](target.plan)
    if isinstance(drawing, str):
        click.echo(drawing)
    else:
        table_console().print(drawing)
