"""Makes foreign text, which may contain anything, safe for a terminal and a log."""

from __future__ import annotations


def escaped(text: str, *, keep: str = "") -> str:
    """Return a text with unprintable characters and invalid Unicode escaped; the characters in ``keep`` stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
