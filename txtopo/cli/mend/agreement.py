"""What commands that mend have in common: they ask before they change anything, and say how to go on."""

from __future__ import annotations

import sys

import click

from txtopo.errors import StopError
from txtopo.text.secrecy import command_line
from txtopo.text.words import NOTHING_CHANGED
from txtopo.topology.user_code.loading import Target

takes_yes = click.option("--yes", "-y", is_flag=True, help="Answer yes to the question.")


def ask(text: str, *, is_agreed: bool) -> None:
    """Print what is to be done, and ask for agreement unless it is given; raise StopError without it."""
    click.echo(f"needs your agreement: {text}")
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise StopError(f"there is no terminal to ask on; agree with --yes; {NOTHING_CHANGED}")
    if not click.confirm("do it?"):
        raise StopError(NOTHING_CHANGED)


def say_done(target: Target) -> None:
    """Print that all is done, and the command with which the topology goes on."""
    click.echo(f"done; to continue: {command_line(['txtopo', 'run', *target.words])}")
