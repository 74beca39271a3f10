"""Real bugs, to be put back one at a time: where each goes, and who must find it.

They are listed in ``bugs.txt``, by source file, which a line with ``===`` names. A bug has its name, who looks for it,
the lines without it (``-``) and with it (``+``)::

    a Delta write that replaces a newer marker
      test tests/files/test_folder.py
    -             os.link(draft, place)
    +             draft.replace(place)

``test`` names a file of tests, ``simulate`` subjects of the simulator, which it leaves out if the simulator's own
tables or store replace that code. The lines without the bug must be in the source file exactly once, so a test fails
once the code has moved on.
"""

from collections.abc import Iterator
from pathlib import Path

import attrs

TANGLE = "a plain topology with joins, branches and a cycle"
SUBJECTS = {
    "words": ("words", "words, opaque state", "words, opaque source"),
    "long": ("words, long",),
    "plain": (TANGLE,),
    "real-time": ("words, real-time", "ring, real-time"),
}
"""What the simulator runs, by the word after ``simulate``."""


@attrs.frozen
class Bug:
    """One bug.

    Args:
        name: what goes wrong.
        path: the source file.
        old: its lines without the bug.
        new: its lines with the bug.
        subjects: what the simulator runs to find it.
        tests: the tests that find it otherwise.
    """

    name: str
    path: str
    old: str
    new: str
    subjects: tuple[str, ...]
    tests: tuple[str, ...]


def read_bugs(text: str) -> Iterator[Bug]:
    """Return the bugs that are listed in a text."""
    path = ""
    for part in text.split("\n\n"):
        first, *lines = part.splitlines()
        if first.startswith("=== "):
            path = first.removeprefix("=== ")
            continue
        marks: dict[str, list[str]] = {"  ": [], "- ": [], "+ ": []}
        for line in lines:
            marks[line[:2].ljust(2)].append(line[2:])
        by = [line.split(maxsplit=1) for line in marks["  "]]
        yield Bug(
            name=first,
            path=path,
            old=_joined(marks["- "]),
            new=_joined(marks["+ "]),
            subjects=tuple(subject for how, name in by if how == "simulate" for subject in SUBJECTS[name]),
            tests=tuple(name for how, name in by if how == "test"),
        )


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


BUGS = tuple(read_bugs(Path(__file__).with_suffix(".txt").read_text()))
