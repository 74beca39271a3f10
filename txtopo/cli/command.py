"""Shared behaviour of all commands: error messages, exit statuses, ``--debug``, ``--format``.

Exit statuses: 0 success, 1 an error of the run, 2 a mistake in the command line, 130 interrupted by Ctrl-C. Where 1
is an answer, as "different", any error is 2: see :class:`Verdict`.
"""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click
from rich.text import Text

from txtopo.cli.console import Console
from txtopo.errors import InternalError, NoTopology, TxtopoError
from txtopo.files.records import dumped, to_json
from txtopo.text.extras import extra_of, how_to_install
from txtopo.text.secrecy import HIDDEN, is_secret, without_secrets

GIVEN = "txtopo.given"
"""In a context's ``meta``, the settings and parameters whose secrets its errors may quote, by name."""

_PAGE = "txtopo.page"
"""In a context's ``meta``, the file from which the page reads that has begun the command."""

EXIT_INTERRUPTED = 130
"""The exit status of a command that Ctrl-C interrupted, by the convention of shells."""


class CommandLineError(click.ClickException):
    """A mistake in the command line: one line, exit status 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Print the message in red."""
        del file
        print_error(self.message)


@contextlib.contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Import an extra's packages in this context; raise CommandLineError if one is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if extra_of(error) is None:
            raise
        raise CommandLineError(
            f"this needs the package {error.name!r}, which is not installed: {how_to_install(extra)}"
        ) from error


def parse_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """Split each ``name=value``, of which the last counts; raise CommandLineError for one without ``=`` or name."""
    values = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise CommandLineError(f"--set takes name=value, not {pair!r}")
        values[name.strip()] = value
    return values


class WholeNumber(click.IntRange):
    """A whole number with a lower bound."""

    name = "number"

    def __init__(self, low: int) -> None:
        super().__init__(min=low)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a text to the number."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not a whole number, at least {self.min}", param, ctx)


class Command(click.Command):
    """A command that prints txtopo's errors as messages; tracebacks only for internal errors and with ``--debug``."""

    error_status = 1
    """The exit status of an error."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        help_text = "Print the traceback if an error occurs."
        self.params.append(click.Option(["--debug"], is_flag=True, expose_value=False, help=help_text))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Record whether ``--debug`` is given, and parse the arguments."""
        # Before the parsing, whose errors need it, too.
        ctx.meta["txtopo.debug"] = "--debug" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; print its errors and exit."""
        try:
            return super().invoke(ctx)
        except TxtopoError as error:
            if ctx.meta["txtopo.debug"] or isinstance(error, InternalError):
                click.echo(discreet(traceback.format_exc()), err=True, nl=False)
            print_error(str(error))
            ctx.exit(CommandLineError.exit_code if isinstance(error, NoTopology) else self.error_status)
        except OSError as error:  # a place that the user gave, or what this machine lacks
            if error.filename is None or ctx.meta["txtopo.debug"]:
                raise
            print_error(f"{error.filename}: {error.strerror}; --debug shows the traceback")
            ctx.exit(self.error_status)
        except KeyboardInterrupt:
            print_error("interrupted")
            ctx.exit(EXIT_INTERRUPTED)


class Verdict(Command):
    """A command whose exit status 1 is an answer: there is a difference, or a fault."""

    error_status = CommandLineError.exit_code

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a bug in it is no answer."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception:  # noqa: BLE001 - Python would end with status 1
            trace = discreet(traceback.format_exc())
            if not tell_page(error=trace):
                click.echo(trace, err=True, nl=False)
            ctx.exit(self.error_status)


def discreet(text: str) -> str:
    """Return a text, which may quote errors of user code, without secrets: those of the command's settings, too."""
    context = click.get_current_context(silent=True)
    return without_secrets(text, None if context is None else context.meta.get(GIVEN))


def print_error(message: str) -> None:
    """Print a message to standard error: the first line in red, the rest, often a traceback, as it is, but discreet.

    A page that has begun the command is told instead.
    """
    message = discreet(message)
    if tell_page(error=message):
        return
    console = Console(stderr=True, soft_wrap=True)
    first, _, further_lines = message.partition("\n")
    console.print(Text(f"error: {first}", style="bold red"))
    if further_lines:
        console.print(Text(further_lines))


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json`` to a command, for a parameter ``is_json``."""
    return click.option("--json", "is_json", is_flag=True, help="Print one JSON document, for scripts.")(function)


def print_json(document: Mapping[str, Any]) -> None:
    """Print a document in one line, without secrets; what is no ASCII is escaped, so it can't command a terminal."""
    click.echo(dumped(_discreet(document)))


def page_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a hidden option to a command, with which a page begins it: :func:`tell_page` writes to standard output.

    Nothing else does then: what user code prints, and what its processes print, goes to standard error.
    """

    def take_output(ctx: click.Context, _parameter: click.Parameter, is_given: bool) -> None:  # noqa: FBT001 - click's convention
        if is_given:
            ctx.meta[_PAGE] = os.fdopen(os.dup(1), "w", encoding="utf-8")
            os.dup2(2, 1)

    return click.option(
        "--for-page",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        hidden=True,
        callback=take_output,
        help="Tell the page that has begun this what comes, as lines of JSON.",
    )(function)


def tell_page(**line: Any) -> bool:
    """Tell the page that has begun the command a :class:`CheckLine`, without secrets; False if no page has."""
    context = click.get_current_context(silent=True)
    page = None if context is None else context.meta.get(_PAGE)
    if page is None:
        return False
    from txtopo.inspect.audit.report import CheckLine  # noqa: PLC0415 - 15 ms of each command

    print(dumped(_discreet(to_json(CheckLine(**line)))), file=page, flush=True)
    return True


def _discreet(value: Any, name: str = "") -> Any:
    match value:
        case str():
            return HIDDEN if is_secret(name) else discreet(value)
        case Mapping():
            return {discreet(key): _discreet(each, key) for key, each in value.items()}
        case list() | tuple():
            return [_discreet(each, name) for each in value]
        case _:
            return value


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
"""What ``--format`` may name, with a description; a name means the same for every command."""

ALIASES = {"graphviz": "dot", "md": "markdown"}
"""Other names for formats."""


class FormatType(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4 only
    """One of a command's formats, given by name or alias.

    The first name is the default; ``aliases``, of this command only, map further names to formats.
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
    """Return a command's option ``--format`` for a parameter ``form``; names and aliases as for :class:`FormatType`."""
    descriptions = "; ".join(f"{name}: {FORMATS[name]}" for name in names)
    return click.option(
        "--format",
        "form",
        type=FormatType(names, aliases),
        default=names[0],
        metavar="|".join(names),
        help=f"{descriptions[0].upper()}{descriptions[1:]}. The default is {names[0]}.",
    )
