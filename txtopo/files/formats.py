"""Format versions: txtopo refuses what another version has written that it would misread, and names a way on.

Coordinator state, journal, table and fork each carry the number of their format and the first version of txtopo that
reads it. The number rises when an older txtopo would misread what a newer one writes, for example because it ignores a
new field. Whatever has no number was written by 0.1.0 and has format 1.

Only the newest format is gone on with: no version before 0.2.0 was released.
"""

from __future__ import annotations

import attrs

from txtopo.errors import StopError


@attrs.frozen
class Format:
    """The format of something durable."""

    number: int
    needs: str
    """The first version of txtopo that reads it."""


FIRST = Format(1, "0.1.0")
"""The format of anything without a number."""

COORDINATOR_STATE = Format(9, "0.2.0")
"""Since 5, the note of a keyed table names the files that it replaces, always. Since 6, an incarnation is named so.
Since 7, metadata and what a spout's coordinator keeps are by spout. Since 8, the plan to go back names the last
transactions of states so. Since 9, the note of a keyed table may have its rows: who looks for files alone would publish
none of them."""

JOURNAL = Format(5, "0.2.0")
"""Since 2, a header records which states were begun empty, and after which transaction. Since 3, a transaction may
have no input, whatever its metadata says, and records when it was planned. Since 4, an incarnation is named so.
Since 5, metadata and input are by spout."""

TABLE = Format(3, "0.2.0")
"""Since 2, a table that was renamed names the application id of its txids. Since 3, an incarnation is named so."""

FORK = Format(3, "0.2.0")
"""Since 2, an incarnation is named so. Since 3, its plan names the last transactions of states so."""


def refuse_newer(name: str, actual: Format, ours: Format) -> None:
    """Raise a StopError if ``name`` (a thing and its place) has a newer format than this version of txtopo knows."""
    if actual.number > ours.number:
        raise StopError(
            f"{name} was written by a newer version of txtopo: it has format {actual.number}, and this version reads "
            f"formats up to {ours.number}. Nothing was written. Use a version that reads it: {actual.needs} or newer"
        )


def refuse_other(name: str, actual: Format, ours: Format) -> None:
    """Raise a StopError if ``name`` has another format than this version of txtopo goes on with."""
    refuse_newer(name, actual, ours)
    if actual.number < ours.number:
        raise StopError(
            f"{name} was written by a version of txtopo before {ours.needs}: it has format {actual.number}, and this "
            f"version goes on with format {ours.number} alone. Nothing was written. Begin in another folder, or go on "
            "with the version that wrote it"
        )
