"""The lists of the API reference, made from docstrings: ``python -m tests.docs.api`` writes them.

An entry of a page is a line ``::: NAME``, from which MkDocs makes a full description; options may follow it. So that a
page says something as text, too, each run of entries has a list above it: each name with the first line of its
docstring.
"""

import inspect
import pathlib
import pkgutil
import re

API = pathlib.Path(__file__).parents[2] / "docs" / "api"

ENTRY = re.compile(r"^::: (\S+)$", re.MULTILINE)
_RUN = re.compile(r"(?:(?:^- `\w+`: .*\n)+\n)?((?:^::: \S+\n(?: {4}\S.*\n)*\n*)+)", re.MULTILINE)
_ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")


def with_lists(page: str) -> str:
    """Return a page with a list above each run of entries, in place of the one that is there."""

    def listed(run: re.Match[str]) -> str:
        lines = "".join(f"- `{entry.rpartition('.')[2]}`: {summary_of(entry)}\n" for entry in ENTRY.findall(run[1]))
        return f"{lines}\n{run[1]}"

    return _RUN.sub(listed, page)


def summary_of(entry: str) -> str:
    """Return the first line of the docstring of a name, as Markdown."""
    text = inspect.getdoc(pkgutil.resolve_name(entry)) or ""
    return _ROLE.sub(r"`\1`", text.partition("\n")[0]).replace("``", "`")


if __name__ == "__main__":
    for path in sorted(API.glob("*.md")):
        path.write_text(with_lists(path.read_text(encoding="utf-8")), encoding="utf-8")
