"""What tests of the simulator share: a way to call commands."""

from tests.cli.conftest import command_line

__all__ = ["command_line"]
