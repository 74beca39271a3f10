"""What others wrote, such as records in error messages, is shown and commands no terminal."""

from __future__ import annotations

import logging

import pytest
from rich.text import Text

from state import DeltaState, TransactionalValue
from txtopo import Fields
from txtopo.cli.command import print_error
from txtopo.cli.console import Console
from txtopo.printable import PrintableFormatter

HOSTILE = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x9b2J\u202ereversed"
SHOWN = r"\x1b[2J\x1b[31mred\x9b2J\u202ereversed"
"""Without its beginning: Rich leaves out the bell."""


@pytest.mark.parametrize("printed", [HOSTILE, Text(HOSTILE, "bold red"), Text(f"\t{HOSTILE}\nmore")])
def test_control_characters_of_texts_are_escaped(printed):
    """Rich's own stay, such as those of a style; so do tabs and ends of lines."""
    console = Console(force_terminal=True, color_system="standard", width=200, markup=False, highlight=False)
    with console.capture() as capture:
        console.print(printed)
    out = capture.get()
    assert SHOWN in out
    assert not any(each in out for each in ("\x1b]", "\x1b[2J", "\x9b", "\u202e"))
    if isinstance(printed, Text):
        assert ("\x1b[1;31m" in out) == bool(printed.style)
        assert ("\nmore" in out) == ("\n" in printed.plain)


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
    state.write(1, {HOSTILE: TransactionalValue(1, 1)})
    state.close()
    result = command_line("state", str(path))
    assert result.stdout.splitlines()[1].split() == [rf"\x1b]0;title\x07{SHOWN}", "1", "1"]
