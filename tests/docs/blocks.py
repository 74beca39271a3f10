"""The fenced blocks of a page of the documentation, and how they are run.

A page is run in a folder of its own, in order, in one namespace:

- a ``python`` block is executed; a ``text`` block right below it is what it prints;
- a ``python`` block with ``title="words.py"`` is written to that file;
- a ``console`` block holds commands, ``$ txtopo …`` and ``$ pytest …``, each followed by what it prints;
- other blocks are for reading: ``sh`` for commands of a machine of your own, ``text`` on its own, ``json``.

``…`` in an expected line stands for any text, and on a line of its own for any lines. A block below ``<!-- not run: REASON -->`` is not run.
"""

import contextlib
import io
import pathlib
import re
import shlex

import attrs
import pytest
from click.testing import CliRunner

from txtopo.main.group import txtopo

RUN = ("python", "console")
READ = ("text", "sh", "json", "sql")

_FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+) -->\n\n?)?```(?P<language>\w*)(?P<options>[^\n]*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_TITLE = re.compile(r'title="([^"]+)"')


@attrs.frozen
class Block:
    """One fenced block.

    Args:
        language: what stands behind the opening fence.
        text: its lines.
        line: where it begins in the page, from 1.
        title: the file that it is, if it has a title.
        reason: why it is not run; None if it is.
        output: what it prints, where the page says so.
    """

    language: str
    text: str
    line: int
    title: str | None = None
    reason: str | None = None
    output: str | None = None


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page in their order; the output of a ``python`` block is part of that block."""
    blocks: list[Block] = []
    end = 0
    for match in _FENCE.finditer(page):
        is_next = not page[end : match.start()].strip()
        end = match.end()
        last = blocks[-1] if blocks else None
        if match["language"] == "text" and is_next and last is not None and last.language == "python":
            blocks[-1] = attrs.evolve(last, output=match["text"])
            continue
        title = _TITLE.search(match["options"])
        line = page.count("\n", 0, match.start("language")) + 1
        name = title[1] if title else None
        blocks.append(Block(match["language"], match["text"], line, name, match["reason"]))
    return blocks


@attrs.define
class PageRun:
    """Runs the blocks of one page.

    Args:
        name: the page, for messages.
        folder: the working directory, which files are written to.
    """

    name: str
    folder: pathlib.Path
    namespace: dict[str, object] = attrs.field(factory=lambda: {"__name__": "__main__"})

    def run(self, block: Block) -> None:
        """Run a block and compare what it prints, if the page says what that is."""
        if block.language == "console":
            self._run_commands(block)
        elif block.title is not None:
            self.folder.joinpath(block.title).write_text(block.text, encoding="utf-8")
        else:
            printed = io.StringIO()
            code = compile("\n" * block.line + block.text, self.name, "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, self.namespace)
            if block.output is not None:
                self._compare(block, printed.getvalue(), block.output)

    def _run_commands(self, block: Block) -> None:
        first, *commands = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
        assert not first, f"{self.name}:{block.line}: a console block begins with '$ '"
        for command in commands:
            line, _, expected = command.partition("\n")
            program, *arguments = shlex.split(line)
            printed = RUNNERS[program](arguments)
            self._compare(block, printed, expected)

    def _compare(self, block: Block, printed: str, expected: str) -> None:
        pattern = "".join(map(_pattern, _plain(expected).splitlines()))
        assert re.fullmatch(pattern, f"{_plain(printed)}\n"), (
            f"{self.name}:{block.line} prints\n{printed}\nand not\n{expected}"
        )


def _pattern(line: str) -> str:
    """Return what an expected line matches, its end included."""
    return r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"


def _plain(text: str) -> str:
    """Return a text without spaces at the ends of its lines, and without blank lines at its end."""
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip()


def _txtopo(arguments: list[str]) -> str:
    result = CliRunner().invoke(txtopo, arguments, prog_name="txtopo")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.output


def _pytest(arguments: list[str]) -> str:
    printed = io.StringIO()
    folder = pathlib.Path.cwd()
    with contextlib.redirect_stdout(printed):
        pytest.main([*arguments, "-p", "no:cacheprovider", "--rootdir", str(folder), "--color=no"])
    return printed.getvalue()


RUNNERS = {"txtopo": _txtopo, "pytest": _pytest}
