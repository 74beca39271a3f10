"""What Python workers print when Spark leaves them: a traceback each, of Spark's own code, which tells nobody anything.

A job that is lost or cancelled leaves tasks of its own behind. Spark closes their connections, and their workers print
how they have found out, several at once: lines of their tracebacks come in turns.
"""

from __future__ import annotations

import re

_HEADER = b"Traceback (most recent call last):"
_PARTING = re.compile(
    rb'Traceback \(most recent call last\):|  File "[^"]*(?:/pyspark/|pyspark\.zip)|    '
    rb"|(?:EOFError|BrokenPipeError|ConnectionResetError)\b"
)
_LINES_MAX = 400
"""Lines that are held back while tracebacks are not at their ends."""


class PartingWords:
    """Leaves these tracebacks out of lines; others stay whole."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._open = 0
        """Tracebacks that have begun and not ended."""

    def without(self, line: bytes) -> list[bytes]:
        """Return what is to be printed now that this line has come."""
        if line.startswith(_HEADER):
            self._open += 1
        elif not self._open:
            return [line]
        elif not line[:1].isspace():
            self._open -= 1
        self._held.append(line)
        if self._open and len(self._held) < _LINES_MAX:
            return []
        is_parting = all(_PARTING.match(held) for held in self._held)
        held = self.rest()
        return [] if is_parting else held

    def rest(self) -> list[bytes]:
        """Return what is held back, at the end of all lines."""
        held, self._held, self._open = self._held, [], 0
        return held
