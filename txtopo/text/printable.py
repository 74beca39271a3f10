"""Makes foreign text, which may contain anything, safe for a terminal and a log."""

from __future__ import annotations

import codecs
import logging

_ESCAPE = codecs.getencoder("unicode_escape")
"""Looked up here: it is a module of its own, and a log must tell that a process can open no more files."""


def escaped(text: str, *, keep: str = "") -> str:
    """Return a text with unprintable characters and invalid Unicode escaped; the characters in ``keep`` stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _ESCAPE(c)[0].decode() for c in text)


class PrintableFormatter(logging.Formatter):
    """Formats log records for a terminal: records quote what others wrote, such as messages of user code's errors."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record's lines and its traceback."""
        return escaped(super().format(record), keep="\n\t")
