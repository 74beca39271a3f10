"""The picture at the top of the README: a terminal in which a run is killed, and goes on.

``python -m tests.docs.recording`` types the commands into a real shell, kills the first run, and draws what the terminal then
shows into ``docs/recordings``. It takes about a minute on a quiet machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pathlib
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Sequence

import attrs
from rich.console import Console
from rich.text import Text

PICTURE = pathlib.Path(__file__).parents[2] / "docs" / "recordings" / "killed.svg"

COLUMNS, LINES = 120, 40
RUN = "txtopo run examples.transactional_words"
AUDIT = "txtopo audit examples.transactional_words"
PROMPT = "$ "
COMMITTED_MIN = 60
"""The first run is killed when it shows that so many transactions are committed."""
DEADLINE_SECS = 600

_PIECE = re.compile(r"\x1b\[(?P<number>[\d;?]*)(?P<letter>[A-Za-z])|(?P<end>\n)|(?P<text>[^\x1b\r\n]+)")
_COMMITTED = re.compile(r"committed\W+(\d+) transactions")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")

# rich's own form asks another host for a font; this one takes the reader's.
_FORM = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>txtopo run is killed by kill -9, is started again, and goes on; txtopo audit finds every transaction once</title>
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


@attrs.define
class Screen:
    """The lines that a terminal shows, with their colours, for programs that only draw whole lines anew."""

    rows: list[str] = attrs.field(factory=lambda: [""])
    _row: int = 0

    def feed(self, text: str) -> None:
        """Take what programs have printed, in whole escape sequences."""
        for piece in _PIECE.finditer(text):
            if piece["text"] is not None:
                self.rows[self._row] += piece["text"]
            elif piece["end"] is not None:
                self._row += 1
                if self._row == len(self.rows):
                    self.rows.append("")
            elif piece["letter"] == "A":
                self._row = max(self._row - int(piece["number"] or 1), 0)
            elif piece["letter"] == "K":
                self.rows[self._row] = ""
            elif piece["letter"] == "m":
                self.rows[self._row] += piece[0]

    def plain(self) -> str:
        """Return the lines without colours."""
        return _COLOUR.sub("", "\n".join(self.rows))


def screen_of(printed: bytes) -> Screen:
    """Return what the terminal shows after all of this."""
    screen = Screen()
    screen.feed(printed.decode("utf-8", "ignore"))
    return screen


def picture(rows: Sequence[str]) -> str:
    """Return a terminal with these lines as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    for row in rows:
        console.print(Text.from_ansi(row.rstrip()), soft_wrap=True)
    drawn = console.export_svg(title="txtopo", code_format=_FORM, unique_id="killed")
    return "\n".join(line.strip() for line in drawn.splitlines() if line.strip()) + "\n"


@attrs.define
class Shell:
    """A shell in a terminal.

    Args:
        folder: where it starts.
    """

    _process: int
    _terminal: int
    printed: bytes = b""

    @classmethod
    def start(cls, folder: str) -> Shell:
        """Start bash, without anybody's settings, in the environment of this Python."""
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(folder)
            path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
            environment = {**os.environ, "PATH": path, "PS1": PROMPT, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], environment)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        return cls(process, terminal)

    def type(self, line: str) -> None:
        """Type a line."""
        os.write(self._terminal, f"{line}\n".encode())

    def wait(self, until: Callable[[str], bool]) -> None:
        """Wait until the screen shows something.

        Raises:
            TimeoutError: it does not.
        """
        deadline = time.monotonic() + DEADLINE_SECS
        while not until(screen_of(self.printed).plain()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the terminal shows only\n{screen_of(self.printed).plain()}")
            if select.select([self._terminal], [], [], 1)[0]:
                self.printed += os.read(self._terminal, 1 << 20)

    def kill_program(self) -> None:
        """Kill the program that runs in the foreground, as ``kill -9`` does: the process that the shell has started."""
        os.kill(os.tcgetpgrp(self._terminal), signal.SIGKILL)

    def end(self) -> None:
        """End the shell."""
        os.close(self._terminal)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._process, 0)


def waits_after(command: str, times: int) -> Callable[[str], bool]:
    """Return whether a screen shows a command so many times, and the prompt that comes after it."""

    def has_ended(shown: str) -> bool:
        return shown.count(command) == times and shown.rstrip("\n").endswith("\n" + PROMPT)

    return has_ended


def is_to_be_killed(shown: str) -> bool:
    """Return whether enough transactions are committed."""
    last = _COMMITTED.findall(shown)
    return bool(last) and int(last[-1]) >= COMMITTED_MIN


def without_results(rows: Sequence[str]) -> list[str]:
    """Return the lines of a session with "…" in place of what the example prints about its results and the machine's pace."""
    plain = [_COLOUR.sub("", row) for row in rows]
    first = next(index for index, row in enumerate(plain) if row.lstrip().startswith("time "))
    last = next(index for index, row in enumerate(plain) if row.startswith(PROMPT + AUDIT))
    return [*rows[:first], "…", *rows[last:]]


def main() -> None:
    """Run the session and draw it."""
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell.start(folder)
        shell.wait(lambda shown: shown.endswith(PROMPT))
        shell.type(RUN)
        shell.wait(is_to_be_killed)
        shell.kill_program()
        shell.wait(waits_after(RUN, 1))
        shell.type(RUN)
        shell.wait(waits_after(RUN, 2))
        shell.type(AUDIT)
        shell.wait(waits_after(AUDIT, 1))
        shell.end()
    rows = screen_of(shell.printed).rows
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(without_results(rows)[:-1]), encoding="utf-8")


if __name__ == "__main__":
    main()
