"""Tests of journals call commands, too."""

from tests.cli.conftest import command_line

__all__ = ["command_line"]
