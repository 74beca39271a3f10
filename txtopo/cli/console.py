"""The console that all commands print to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from txtopo.text.printable import escaped

_PIPE_WIDTH = 1000
"""Whoever reads the pipe breaks lines, not Rich at 80 columns."""


class Console(rich.console.Console):
    """Rich's console, but control characters in texts are escaped.

    Texts hold what others wrote, such as records in the messages of user code's errors, and could otherwise command the
    terminal. Rich itself lets the escape character pass. For the same reason a text is no markup, whatever is in
    brackets or between colons: what has a style is a :class:`~rich.text.Text`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def say(self, text: str, style: str = "") -> None:
        """Print a line, which stays one however narrow the terminal is."""
        self.print(Text(text, style), soft_wrap=True)

    def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002, FBT001, FBT002 - Rich's
        """Leave the cursor as it is: a display that hides it can't show it again if its process is killed."""
        return False

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield what is printed; Rich's commands to the terminal are segments of their own, and stay."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(escaped(segment.text, keep="\n\t"), segment.style)


def table_console() -> Console:
    """Return a console for tables; if the output is no terminal, it is so wide that their lines can be searched."""
    console = Console()
    return console if console.is_terminal else Console(width=_PIPE_WIDTH)
