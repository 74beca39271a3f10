"""What others wrote, such as records in error messages, is shown and commands no terminal."""

import io
import logging
import math
import shlex
import subprocess
import sys
from datetime import UTC, datetime

import attrs
import pytest
from rich.live import Live
from rich.table import Table
from rich.text import Text

from state import DeltaState, TransactionalValue
from tests.processes import environment
from txtopo import Fields
from txtopo.api.data.utc import EPOCH, words_at
from txtopo.assembly.report import Progress
from txtopo.cli.command import print_error
from txtopo.cli.console import Console
from txtopo.cli.display.live import LiveDisplay
from txtopo.text.printable import PrintableFormatter, escaped
from txtopo.transactional.core.readings import Reading, ReadingKind

HOSTILE = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x9b2J\u202ereversed"
SHOWN = r"\x1b[2J\x1b[31mred\x9b2J\u202ereversed"
"""Without its beginning: Rich leaves out the bell."""


@pytest.mark.parametrize("printed", [HOSTILE, Text(HOSTILE, "bold red"), Text(f"\t{HOSTILE}\nmore")])
def test_control_characters_of_texts_are_escaped(printed):
    """Rich's own stay, such as those of a style; so do tabs and ends of lines."""
    console = Console(force_terminal=True, color_system="standard", width=200)
    with console.capture() as capture:
        console.print(printed)
    out = capture.get()
    assert SHOWN in out
    assert not any(each in out for each in ("\x1b]", "\x1b[2J", "\x9b", "\u202e"))
    if isinstance(printed, Text):
        assert ("\x1b[1;31m" in out) == bool(printed.style)
        assert ("\nmore" in out) == ("\n" in printed.plain)


@pytest.mark.parametrize("text", ["[/bold]", "[/x]", "[red]x", "data[old]", ":smile:", "[link=https://a.b]c[/link]"])
def test_a_text_is_no_markup(text):
    """Whatever others have named something, also in a cell."""
    console = Console(force_terminal=True, width=80)
    table = Table(text, title=Text(text))
    table.add_row(text)
    with console.capture() as capture:
        console.print(text)
        console.print(table)
    assert capture.get().count(text) == 4


@pytest.mark.parametrize("text", ["[/bold]", "[red]x", "a[old]", "two\nlines"])
def test_foreign_names_of_a_run(text):
    """The names of a topology and of its components are in the live display as they are, each on its line."""
    console = Console(file=io.StringIO(), force_terminal=True, width=84, color_system=None)
    progress = Progress(text, 40, 1, 1, 1, 1, "committing", 30, 0, 30_000, 3, 65.0)
    with LiveDisplay(console, 32) as display:
        display.stage(text)
        reading = Reading(text, text, ReadingKind.COUNT, 1)
        display.update(attrs.evolve(progress, last_failure=text, readings=(reading,)))
        display._live.refresh()
    shown = escaped(text)
    assert f"─ {shown} 1:05 ─" in console.file.getvalue()
    assert f" {shown}  " in console.file.getvalue()


@pytest.mark.parametrize(
    ("secs", "words"),
    [
        (0, "1970-01-01 00:00:00 UTC"),
        (253_402_300_799.0, "9999-12-31 23:59:59 UTC"),
        ((datetime.max.replace(tzinfo=UTC) - EPOCH).total_seconds(), "after 9999"),
        (9e12, "after 9999"),
        (-1e12, "before the year 1"),
        (math.inf, "after 9999"),
        (math.nan, "no time"),
    ],
)
def test_times_that_python_cannot_say(secs, words):
    """The watermark of an input that has ended is after all times."""
    assert words_at(secs) == words


@pytest.mark.slow
def test_standard_output_that_is_closed():
    """Another file must not get its number, and a run ends well."""
    command = f"{shlex.quote(sys.executable)} -m txtopo show examples.global_count >&-"
    ended = subprocess.run(["sh", "-c", command], env=environment(), capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_error_that_quotes_a_record(capsys):
    """Its traceback keeps its lines."""
    print_error(f"ValueError: cannot do {HOSTILE}\nTraceback:\n  {HOSTILE}")
    first, second, third = capsys.readouterr().err.splitlines()
    assert (first.endswith(SHOWN), second, third.endswith(SHOWN)) == (True, "Traceback:", True)
    assert "\x1b" not in first + third


def test_a_log_record_that_quotes_a_record():
    """So does a warning that a worker died, with the traceback that it carries."""
    raised = ValueError, ValueError(HOSTILE), None
    record = logging.LogRecord("txtopo", logging.WARNING, "", 0, "worker 0 died: %s", (HOSTILE,), raised)
    text = PrintableFormatter("%(message)s").format(record)
    assert text.splitlines()[0].endswith(SHOWN)
    assert text.splitlines()[-1].endswith(SHOWN)
    assert "\x1b" not in text


def test_rows_of_a_state(command_line, tmp_path):
    """A column is as wide as what is shown, so that nothing is cut off."""
    path = tmp_path / "words"
    state = DeltaState(path, key=Fields("word: string"), value=Fields("n: long")).open("t", "words", "life", 1)
    state.write(1, {HOSTILE: TransactionalValue(1, 1), "two\nlines": TransactionalValue(1, 2)})
    state.close()
    result = command_line("state", str(path))
    _, first, second = result.stdout.splitlines()
    assert first.split() == [rf"\x1b]0;title\x07{SHOWN}", "1", "1"]
    assert second.split() == [r"two\nlines", "2", "1"]


def test_the_cursor_stays():
    """Who kills a run by SIGKILL, as the README bids, has a terminal with a cursor: nobody could show it again."""
    out = io.StringIO()
    with Live("running", console=Console(file=out, force_terminal=True), refresh_per_second=1):
        pass
    assert "running" in out.getvalue()
    assert "\x1b[?25" not in out.getvalue()
