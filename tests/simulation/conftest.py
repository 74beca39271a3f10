"""What tests of the simulator share: a way to call commands."""

from __future__ import annotations

from tests.cli.conftest import command_line

__all__ = ["command_line"]
