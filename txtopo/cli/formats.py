"""``--format``: one kind of option for all commands that have it, so that a name means the same everywhere."""

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
    "jsonl": "a JSON object a line",
    "csv": "CSV",
    "markdown": "a page in Markdown",
}
"""Every format that some command has, and what it is."""

ALIASES = {"graphviz": "dot", "md": "markdown"}
"""Other names of formats."""


class FormatType(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4 only
    """One of a command's formats, by its name or another one of the same thing.

    Args:
        names: the command's formats, the default first.
        aliases: what else a name may stand for in this command.
    """

    name = "format"

    def __init__(self, names: tuple[str, ...], aliases: dict[str, str]) -> None:
        self.names = names
        self.aliases = {**ALIASES, **aliases}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the format's own name."""
        name = str(value).lower()
        name = self.aliases.get(name, name)
        if name not in self.names:
            self.fail(f"there is no format {value!r}; there are {', '.join(self.names)}", param, ctx)
        return name


def format_option(*names: str, **aliases: str) -> Callable[[Any], Any]:
    """Return the option ``--format`` of a command, for a parameter ``form``.

    Args:
        *names: its formats, the default first.
        **aliases: names that stand for one of them in this command alone.
    """
    told = "; ".join(f"{name}: {FORMATS[name]}" for name in names)
    return click.option(
        "--format",
        "form",
        type=FormatType(names, aliases),
        default=names[0],
        metavar="|".join(names),
        help=f"{told[0].upper()}{told[1:]}. The default is {names[0]}.",
    )
