"""Commands are called here as in the tests of commands."""

from __future__ import annotations

from tests.cli.conftest import command_line

__all__ = ["command_line"]
