"""The recording in the documentation can be read everywhere, and shows what its maker saw on a terminal."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tests.docs.recording import PICTURE, picture, screen_of, without_results

BYTES_MAX = 64 * 1024


def texts_of(svg):
    """Return all that a picture shows, without its spaces."""
    texts = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return "".join("".join(text for element in texts for text in element.itertext()).split())


def test_only_the_last_frame_is_seen():
    """A display that is drawn anew over itself is on the screen once, as in a terminal, and a prompt comes below it."""
    printed = io.StringIO()
    console = Console(file=printed, force_terminal=True, width=40)
    with Live(Text("first\nframe"), console=console, auto_refresh=False) as live:
        live.update(Text("second\nframe"), refresh=True)
    shown = screen_of(f"$ run\n{printed.getvalue()}$ ".encode()).plain()
    assert [line.rstrip() for line in shown.splitlines()] == ["$ run", "second", "frame", "$"]


def test_results_are_left_out():
    """What the example prints from its pace on is "…", up to the next command."""
    rows = [
        "$ txtopo run",
        "  failures 0",
        "  time 3 s",
        "word count",
        "$ txtopo audit examples.transactional_words",
        "✔",
    ]
    assert without_results(rows) == [*rows[:2], "…", *rows[4:]]


def test_a_picture_shows_its_lines():
    """With their text, whatever its colours."""
    assert "killedandgoneon" in texts_of(picture(["\x1b[32mkilled\x1b[0m and", "gone on"]))


def test_the_picture_tells_the_story():
    """It is small, asks nothing of other hosts, and shows the kill, the second run, and the audit that finds all."""
    svg = PICTURE.read_text(encoding="utf-8")
    assert len(svg.encode()) <= BYTES_MAX
    assert "url(http" not in svg
    texts = texts_of(svg)
    assert texts.count("$txtoporunexamples.transactional_words") == 2
    assert "Killed" in texts
    assert "✔everytransactionwascommittedonce,inorder,withoutagap" in texts
