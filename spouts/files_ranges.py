"""Which ranges of which files a transaction holds, and how a later one knows where to go on.

Files are taken in the order of their names. So all that is taken can be told by one position, *name and
offset*, plus a digest of the names and sizes up to it: whatever joins, leaves or grows among them changes
the digest, and is refused instead of being lost or emitted twice. What sorts after the position is
simply what comes next, also when it arrives between two runs.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from bisect import bisect_right
from collections.abc import Sequence

import attrs

from spouts.files_format import FileFormat, FileRange, Span
from spouts.files_listing import InputFile, Listing, describe
from txtopo.errors import InputError

RANGE_BYTES_MIN = 4 * 1024
"""A range is not cut into pieces smaller than this."""

NAMES_BYTES_MAX = 128 * 1024
"""The most bytes of file names in one transaction's metadata, one more name aside."""

NAMED_MAX = 10
"""The most files that an error names."""


@attrs.frozen
class Position:
    """How far the files have been taken: all before ``name``, and ``name`` up to before ``offset``."""

    name: str
    offset: int
    mtime_ns: int


@attrs.frozen
class Taken:
    """What the files up to a position were when they were taken."""

    count: int
    digest: int


@attrs.frozen
class Plan:
    """A new transaction: its ranges, and how far the files are taken with it."""

    ranges: Sequence[FileRange]
    position: Position
    taken: Taken


@attrs.frozen
class Place:
    """A position in a listing: the index of a file, and an offset in it."""

    index: int
    offset: int


class Inventory:
    """A listing that transactions are cut from.

    Args:
        listing: the files.
        files_format: how they are cut.
    """

    def __init__(self, listing: Listing, files_format: FileFormat) -> None:
        self._files = listing.files
        self._names = [file.name for file in listing.files]
        self._format = files_format
        digests = (_digest(file) for file in listing.files)
        self._digests = list(itertools.accumulate(digests, int.__xor__, initial=0))

    def place(self, position: Position | None, taken: Taken | None) -> Place:
        """Return where a position is in this listing.

        Raises:
            InputError: the files up to the position are not those that were taken.
        """
        if position is None or taken is None:
            return Place(0, 0)
        count = bisect_right(self._names, position.name)
        if Taken(count, self._digests[count]) != taken:
            raise InputError(self._explain(position, taken, count))
        place = Place(count - 1, position.offset)
        file = self._files[place.index]
        if file.mtime_ns != position.mtime_ns and self._format.next_span(file, position.offset, 1) is not None:
            raise InputError(
                f"{file.path} is taken up to {position.offset} and was written since (mtime_ns was "
                f"{position.mtime_ns}, is {file.mtime_ns}); put the former file back",
            )
        return place

    def is_at_end(self, place: Place) -> bool:
        """Whether nothing follows a place."""
        return self._next(place, 1) is None

    def plan(self, place: Place, *, batch_bytes: int, files_max: int, tasks: int) -> Plan | None:
        """Plan a new transaction; None if nothing is left for it.

        Args:
            place: where it begins.
            batch_bytes: how much it holds, at most, unless the first span alone is larger.
            files_max: how many files it touches, at most.
            tasks: into about how many ranges it is cut.
        """
        spans: list[tuple[InputFile, Span]] = []
        left, names_left = batch_bytes, NAMES_BYTES_MAX
        while left > 0 and names_left > 0 and len(spans) < files_max:
            found = self._next(place, left)
            if found is None:
                break
            index, span = found
            if spans and span.size_bytes > left:
                break
            spans.append((self._files[index], span))
            left -= span.size_bytes
            names_left -= len(self._names[index].encode())
            place = Place(index, span.end)
        if not spans:
            return None
        last, span = spans[-1]
        position = Position(last.name, span.end, last.mtime_ns)
        taken = Taken(place.index + 1, self._digests[place.index + 1])
        return Plan(self._cut(spans, tasks), position, taken)

    def _next(self, place: Place, bytes_max: int) -> tuple[int, Span] | None:
        offset = place.offset
        for index in range(place.index, len(self._files)):
            span = self._format.next_span(self._files[index], offset, bytes_max)
            if span is not None:
                return index, span
            offset = 0
        return None

    def _cut(self, spans: Sequence[tuple[InputFile, Span]], tasks: int) -> list[FileRange]:
        total = sum(span.size_bytes for _, span in spans)
        share_bytes = max(RANGE_BYTES_MIN, -(-total // tasks))
        return [
            FileRange(file.name, piece.start, piece.end, file.size, file.mtime_ns)
            for file, span in spans
            for piece in self._format.cut(file, span, max(1, round(span.size_bytes / share_bytes)))
        ]

    def _explain(self, position: Position, taken: Taken, count: int) -> str:
        """Say what differs among the files up to a position, as far as a digest tells."""
        files = self._files[:count]
        difference = self._digests[count] ^ taken.digest
        extra = count - taken.count
        until = f"the {taken.count} files up to {position.name!r} are taken"
        if extra < 0:
            return f"{until}, and {count} of them are there now; put the others back, as they were"
        newest = sorted(files, key=_arrival_ns, reverse=True)
        added = [file for file in files if _digest(file) == difference] if extra == 1 else newest[:extra]
        if extra and _xor(added) == difference:
            return (
                f"{until}, and files came since that sort before it and so would be lost: {_list(added)}; "
                f"remove them, or give them names that sort after {position.name!r}"
            )
        return (
            f"{until}, and there are {count} now, some of them new, renamed or of another size; the latest "
            f"are {_list(newest)}; put back what was there, and give new files names that sort after "
            f"{position.name!r}"
        )


def check_unchanged(path: str, piece: FileRange) -> None:
    """Check that a file is what it was when its range was planned.

    Raises:
        InputError: it is gone, or was written since.
    """
    planned = InputFile(piece.name, path, piece.size, piece.mtime_ns)
    try:
        status = os.stat(path)  # noqa: PTH116 - the same call as on a handle
    except FileNotFoundError as error:
        raise InputError(f"{path} is gone; it had {describe(planned)} when it was planned; put it back") from error
    now = attrs.evolve(planned, size=status.st_size, mtime_ns=status.st_mtime_ns)
    if now != planned:
        raise InputError(
            f"{path} was written since its transaction was planned: it had {describe(planned)}, it has "
            f"{describe(now)}; put the former file back, and give new data a file of its own",
        )


def _digest(file: InputFile) -> int:
    return int.from_bytes(hashlib.sha256(f"{file.name}\0{file.size}".encode()).digest()[:16], "big")


def _xor(files: Sequence[InputFile]) -> int:
    digest = 0
    for file in files:
        digest ^= _digest(file)
    return digest


def _arrival_ns(file: InputFile) -> int:
    """Return when a file came to have this name, as well as the file system knows."""
    try:
        return os.stat(file.path).st_ctime_ns  # noqa: PTH116 - as above
    except OSError:
        return 0


def _list(files: Sequence[InputFile]) -> str:
    named = ", ".join(repr(file.name) for file in files[:NAMED_MAX])
    return f"{named} and {len(files) - NAMED_MAX} more" if len(files) > NAMED_MAX else named
