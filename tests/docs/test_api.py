"""The API reference has every public name, and no other."""

from __future__ import annotations

import pkgutil
import re

import committers
import spouts
import state
import txtopo
from tests.docs.test_pages import DOCS

ENTRIES = [
    entry
    for page in (DOCS / "api").glob("*.md")
    for entry in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
]


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
