"""Text of others that may contain anything, made safe for a terminal and a log."""

from __future__ import annotations


def escaped(text: str, *, keep: str = "") -> str:
    """Return a text with every character escaped that is not printable, also invalid Unicode.

    Args:
        text: the text.
        keep: characters that stay although they are not printable, such as tabs.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
