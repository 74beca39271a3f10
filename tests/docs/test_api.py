"""The API reference has every public name, and no other."""

import pkgutil

import pytest

import committers
import spouts
import state
import txtopo
from tests.docs.api import API, ENTRY, summary_of, with_lists

PAGES = sorted(API.glob("*.md"))
ENTRIES = [entry for page in PAGES for entry in ENTRY.findall(page.read_text(encoding="utf-8"))]


def test_every_public_name_is_in_the_reference():
    """Once: a name that two packages export has its entry in one of them."""
    public = {name for package in (txtopo, spouts, committers, state) for name in package.__all__}
    shown = [entry.rpartition(".")[2] for entry in ENTRIES]
    assert sorted(public - set(shown)) == []
    assert len(shown) == len(set(shown))


def test_every_entry_exists():
    """What the reference names can be imported under that name."""
    for entry in ENTRIES:
        pkgutil.resolve_name(entry)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_its_names_are(page):
    """As text, too: each name with the first line of its docstring; ``python -m tests.docs.api`` writes them."""
    text = page.read_text(encoding="utf-8")
    assert text == with_lists(text)
    for entry in ENTRY.findall(text):
        assert f"\n- `{entry.rpartition('.')[2]}`: {summary_of(entry)}\n" in text
        assert summary_of(entry).endswith("."), entry
