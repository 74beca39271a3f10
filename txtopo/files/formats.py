"""Format versions: an older txtopo refuses what a newer one has written, and names the version that reads it.

Coordinator state, journal, table and fork each carry the number of their format and the first version of txtopo that
reads it. The number rises when an older txtopo would misread what a newer one writes, for example because it ignores a
new field. Whatever has no number was written by 0.1.0 and has format 1.

Reading never changes a format. The leading coordinator raises it, in a write that it makes anyway, before it writes
anything that needs it. So a new version resumes the folder of an old one, and from then on the old version refuses it.
"""

from __future__ import annotations

import attrs

from txtopo.errors import StopError

__all__ = ["COORDINATOR_STATE", "FIRST", "FORK", "JOURNAL", "TABLE", "Format", "refuse_newer"]


@attrs.frozen
class Format:
    """The format of something durable."""

    number: int
    needs: str
    """The first version of txtopo that reads it."""


FIRST = Format(1, "0.1.0")
"""The format of anything without a number."""

COORDINATOR_STATE = Format(4, "0.2.0")
"""Since 2, the mark of a state records since when the topology has had it, and after which transaction it left. Since
3, a group's note decides it, and a note that is not above the committed mark means nothing. Since 4, when a transaction
was planned follows its metadata, and a transaction may have no input."""

JOURNAL = Format(3, "0.2.0")
"""Since 2, a header records which states were begun empty, and after which transaction. Since 3, a transaction may
have no input, whatever its metadata says, and records when it was planned."""

TABLE = Format(2, "0.2.0")
"""Since 2, a table that was renamed names the application id of its txids; others still have format 1."""

FORK = FIRST


def refuse_newer(what: str, found: Format, known: Format) -> None:
    """Raise a StopError if ``what`` (a thing and its place) has a newer format than this version of txtopo knows."""
    if found.number > known.number:
        raise StopError(
            f"{what} was written by a newer version of txtopo: it has format {found.number}, and this version reads "
            f"formats up to {known.number}. Nothing was written. Use a version that reads it: {found.needs} or newer"
        )
