"""What all commands have in common: errors in words, exit statuses, ``--debug``.

Exit statuses: 0 well, 1 an error of the run, 2 a mistake in the command line, 130 ended by Ctrl-C.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from txtopo.errors import InternalError, TxtopoError

EXIT_INTERRUPTED = 130
"""The exit status of a command that Ctrl-C ended, as shells have it."""


class CommandLineError(click.ClickException):
    """A mistake in the command line: one line, exit status 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Print the message in red."""
        del file
        print_error(self.message)


class YourCodeError(click.ClickException):
    """An exception in the module that a command names, outside bolts and spouts: one line, exit status 1."""

    def show(self, file: Any = None) -> None:
        """Print the message in red."""
        del file
        print_error(self.message)


class WholeNumber(click.IntRange):
    """A whole number from some value on."""

    name = "number"

    def __init__(self, low: int) -> None:
        super().__init__(min=low)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not a whole number from {self.min} on", param, ctx)


class Command(click.Command):
    """A command that prints errors of txtopo in words, and tracebacks only where they help."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        help_text = "Print the traceback of an error."
        self.params.append(click.Option(["--debug"], is_flag=True, expose_value=False, help=help_text))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note whether tracebacks are asked for, and parse the rest."""
        ctx.meta["txtopo.debug"] = "--debug" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; print its errors and exit."""
        try:
            return super().invoke(ctx)
        except (TxtopoError, YourCodeError) as error:
            if ctx.meta["txtopo.debug"] or isinstance(error, InternalError):
                traceback.print_exc(file=sys.stderr)
            if isinstance(error, TxtopoError):
                print_error(str(error))
                ctx.exit(1)
            raise
        except KeyboardInterrupt:
            print_error("interrupted")
            ctx.exit(EXIT_INTERRUPTED)


def print_error(message: str) -> None:
    """Print a message on standard error: its first line in red, the rest, a traceback often, as it is."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    first, _, rest = message.partition("\n")
    console.print(Text(f"error: {first}", style="bold red"))
    if rest:
        console.print(Text(rest))
