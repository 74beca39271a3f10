"""``--format``: one option for all commands, so that a format name means the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

FORMATS = {
    "text": "a drawing for the terminal",
    "table": "a table for the terminal",
    "mermaid": "a Mermaid flowchart for Markdown",
    "dot": "Graphviz' dot",
    "json": "JSON",
    "jsonl": "one JSON object per line",
    "csv": "CSV",
    "markdown": "a Markdown page",
}
"""A description of every format."""

ALIASES = {"graphviz": "dot", "md": "markdown"}
"""Other names for formats."""


class FormatType(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4 only
    """One of a command's formats, given by name or alias.

    Args:
        names: the command's formats, the default first.
        aliases: further aliases, for this command only: the format's name by alias.
    """

    name = "format"

    def __init__(self, names: tuple[str, ...], aliases: dict[str, str]) -> None:
        self.names = names
        self.aliases = {**ALIASES, **aliases}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the format's name."""
        name = str(value).lower()
        name = self.aliases.get(name, name)
        if name not in self.names:
            self.fail(f"there is no format {value!r}; there are {', '.join(self.names)}", param, ctx)
        return name


def format_option(*names: str, **aliases: str) -> Callable[[Any], Any]:
    """Return the option ``--format`` of a command, for a parameter ``form``.

    Args:
        *names: its formats, the default first.
        **aliases: aliases for this command only: the format's name by alias.
    """
    descriptions = "; ".join(f"{name}: {FORMATS[name]}" for name in names)
    return click.option(
        "--format",
        "form",
        type=FormatType(names, aliases),
        default=names[0],
        metavar="|".join(names),
        help=f"{descriptions[0].upper()}{descriptions[1:]}. The default is {names[0]}.",
    )
