"""Every block of code in the documentation runs, and prints what the page says."""

import pathlib
import re
import time

import pytest

from tests.docs.blocks import READ, RUN, blocks_of
from txtopo.api.state import CanBeRepaired, StateTable

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def names_of(pages):
    return [str(page.relative_to(DOCS)) for page in pages]


@pytest.mark.parametrize("page", PAGES, ids=names_of(PAGES))
def test_blocks_have_a_known_language(page):
    """No block is left out of the run by a slip: each is run, or is in a language that is only read."""
    for block in blocks_of(page.read_text(encoding="utf-8")):
        assert block.language in {*RUN, *READ}, f"{page.name}:{block.line}: {block.language!r}"


RUN_PAGES = [page for page in PAGES if any(b.language in RUN for b in blocks_of(page.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("page", RUN_PAGES, ids=names_of(RUN_PAGES))
def test_blocks_run(page, page_run, spark):
    """In their order, in one namespace a page."""
    page_run.namespace["spark"] = spark
    began = time.perf_counter()
    for block in blocks_of(page.read_text(encoding="utf-8")):
        if block.language in RUN and block.reason is None:
            page_run.run(block)
    print(f"{page.name}: {time.perf_counter() - began:.1f} s")


def test_methods_of_a_table_that_goes_back_are_there() -> None:
    """The guide tells who writes a state of their own which methods to write: nothing runs that table."""
    section = (
        (DOCS / "guides" / "write-a-state.md").read_text(encoding="utf-8").partition("### A table that goes back")[2]
    )
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in re.findall(r"`(\w+)", row)]
    assert "roll_back" in names
    assert [name for name in names if not hasattr(StateTable, name) and not hasattr(CanBeRepaired, name)] == []
