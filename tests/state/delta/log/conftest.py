"""Commands are called here as in the tests of commands."""

from tests.cli.conftest import command_line

__all__ = ["command_line"]
