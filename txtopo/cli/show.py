"""``txtopo show``: print a topology's graph and its phases, without Spark."""

from __future__ import annotations

import click
from rich.console import Console
from rich.tree import Tree

from txtopo.cli.command import Command
from txtopo.cli.formats import format_option
from txtopo.cli.graphs.plain import draw_plain_dot, draw_plain_json, draw_plain_mermaid, draw_plain_text
from txtopo.cli.graphs.transactional import draw_dot, draw_json, draw_mermaid, draw_text
from txtopo.cli.target import Target, takes_target
from txtopo.topology.plain_plan import PlainPlan
from txtopo.topology.topology import PlainTopology

PIPE_WIDTH = 1000
"""The width when the output is no terminal: lines are not wrapped, so that they can be searched."""


@click.command(cls=Command)
@takes_target
@format_option("text", "mermaid", "dot", "json")
def show(target: Target, form: str) -> None:
    """Show a topology's graph: its components, and of a transactional topology the phases and the states.

    MODULE and ATTRIBUTE are as for 'txtopo run'. Nothing is run.
    """
    if isinstance(target.topology, PlainTopology):
        _show_plain(target.topology.plan, form)
        return
    plan = target.plan
    match form:
        case "mermaid":
            click.echo(draw_mermaid(plan))
        case "dot":
            click.echo(draw_dot(plan))
        case "json":
            click.echo(draw_json(plan))
        case _:
            _print_tree(draw_text(plan))


def _show_plain(plan: PlainPlan, form: str) -> None:
    match form:
        case "mermaid":
            click.echo(draw_plain_mermaid(plan))
        case "dot":
            click.echo(draw_plain_dot(plan))
        case "json":
            click.echo(draw_plain_json(plan))
        case _:
            _print_tree(draw_plain_text(plan))


def _print_tree(tree: Tree) -> None:
    is_terminal = Console().is_terminal
    Console(highlight=False, width=None if is_terminal else PIPE_WIDTH).print(tree)
