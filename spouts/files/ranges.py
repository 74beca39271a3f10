"""Which ranges of which files a transaction holds, and how far the files are taken with it.

Files are taken in the order of their numbers in the log (:mod:`spouts.files.taken_log`), so one place, *number and
offset*, tells all that is taken. A transaction's metadata has that place, and beside it what tells the same
without the log where the files were taken in the order of their names: the last file's name, and a digest of the names
and sizes of all that was taken. Metadata from before there was a log has only the latter.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import attrs

from spouts.files.format import FileFormat, Span
from spouts.files.listing import FileRange, InputFile
from spouts.files.taken_log import Admitted
from txtopo.errors import InputError

RANGE_BYTES_MIN = 4 * 1024
"""A range is not cut into pieces smaller than this."""

NAMES_BYTES_MAX = 128 * 1024
"""The most bytes of file names in one transaction's metadata, one more name aside."""

NAMED_MAX = 10
"""The most files that an error names."""


@attrs.frozen
class Position:
    """How far the files have been taken, by name: up to before ``offset`` in the file taken last."""

    name: str
    offset: int
    mtime_ns: int


@attrs.frozen
class Taken:
    """What the files up to a position were when they were taken."""

    count: int
    digest: int


@attrs.frozen
class Place:
    """How far the files have been taken, by number: all below ``number``, and that one up to before ``offset``."""

    number: int
    offset: int


@attrs.frozen
class Plan:
    """A new transaction: its ranges, each with its file's number, and how far the files are taken with it."""

    ranges: Sequence[FileRange]
    numbers: Sequence[int]
    position: Position
    last: Admitted
    place: Place


@attrs.frozen
class Cutter:
    """Cuts transactions from files.

    Args:
        root: the folder that the files are below.
        files_format: how they are cut.
        batch_bytes: how much a transaction holds, at most, unless its first span alone is larger.
        files_max: how many files it touches, at most.
        tasks: into about how many ranges it is cut.
    """

    root: str
    files_format: FileFormat
    batch_bytes: int
    files_max: int
    tasks: int

    def plan(self, files: Iterable[Admitted], place: Place) -> Plan | None:
        """Plan a new transaction; None if nothing is left for it.

        Args:
            files: the files from a place on, in their order.
            place: where it begins.
        """
        spans: list[tuple[Admitted, Span]] = []
        left, names_left = self.batch_bytes, NAMES_BYTES_MAX
        for file in files:
            span = self.next_span(file, place, left)
            while span is not None and not (spans and span.size_bytes > left):
                spans.append((file, span))
                left -= span.size_bytes
                names_left -= len(file.name.encode())
                if left <= 0 or names_left <= 0 or len(spans) == self.files_max:
                    return self._plan(spans)
                span = self.files_format.next_span(self.input_file(file), span.end, left)
            if span is not None:
                break
        return self._plan(spans) if spans else None

    def next_span(self, file: Admitted, place: Place, bytes_max: int) -> Span | None:
        """Return what comes next in a file at or after a place."""
        start = place.offset if file.number == place.number else 0
        return self.files_format.next_span(self.input_file(file), start, bytes_max)

    def input_file(self, file: Admitted) -> InputFile:
        """Return a file with its path."""
        return InputFile(file.name, path_of(self.root, file.name), file.size, file.mtime_ns)

    def place_behind(self, file: Admitted, offset: int) -> Place:
        """Return the place behind what was taken from a file: in it if something is left, or behind it."""
        is_finished = self.files_format.next_span(self.input_file(file), offset, 1) is None
        return Place(file.number + 1, 0) if is_finished else Place(file.number, offset)

    def _plan(self, spans: Sequence[tuple[Admitted, Span]]) -> Plan:
        last, span = spans[-1]
        position = Position(last.name, span.end, last.mtime_ns)
        pieces = self._cut(spans)
        numbers = [file.number for file, _ in pieces]
        return Plan([piece for _, piece in pieces], numbers, position, last, self.place_behind(last, span.end))

    def _cut(self, spans: Sequence[tuple[Admitted, Span]]) -> list[tuple[Admitted, FileRange]]:
        total = sum(span.size_bytes for _, span in spans)
        share_bytes = max(RANGE_BYTES_MIN, -(-total // self.tasks))
        return [
            (file, FileRange(file.name, piece.start, piece.end, file.size, file.mtime_ns))
            for file, span in spans
            for piece in self.files_format.cut(
                self.input_file(file), span, max(1, round(span.size_bytes / share_bytes))
            )
        ]


def path_of(root: str, name: str) -> str:
    """Return the path of a file by its name."""
    return os.path.join(root, name)  # noqa: PTH118 - no Path for each of 100,000 names


def taken_by_name(files: Sequence[InputFile], position: Position, taken: Taken) -> list[InputFile]:
    """Return the files that are taken, where they were taken in the order of their names.

    Files that have come since and sort before the position are told by their digests.

    Args:
        files: the files there are now, by name.
        position: how far they are taken.
        taken: what was taken.

    Raises:
        InputError: the files up to the position are not those that were taken, or can't be told from new ones.
    """
    count = bisect_right([file.name for file in files], position.name)
    until = list(files[:count])
    digest = digest_of(until)
    if Taken(count, digest) == taken:
        return until
    extra, difference = count - taken.count, digest ^ taken.digest
    newest = sorted(until, key=_arrival_ns, reverse=True)
    added = [file for file in until if _digest(file) == difference] if extra == 1 else newest[: max(0, extra)]
    if extra > 0 and digest_of(added) == difference and all(file.name != position.name for file in added):
        names = {file.name for file in added}
        return [file for file in until if file.name not in names]
    said = f"the {taken.count} files up to {position.name!r} are taken"
    if extra < 0:
        raise InputError(f"{said}, and {count} of them are there now; put the others back, as they were")
    raise InputError(
        f"{said}, and there are {count} now, some of them new, renamed or of another size; the latest "
        f"are {_list([file.name for file in newest])}; put back what was there, and give new files names that sort "
        f"after {position.name!r}"
    )


def check_taken(root: str, taken: Iterable[Admitted], there: Iterable[InputFile]) -> None:
    """Check that files that were taken are there, and as long as they were.

    Raises:
        InputError: one is gone, or was written since.
    """
    sizes = {file.name: file.size for file in there}
    entries = list(taken)
    gone = [file.name for file in entries if file.name not in sizes]
    if gone:
        raise InputError(
            f"{len(gone)} of the {len(entries)} files that are taken from {root} are gone: {_list(gone)}; put them "
            "back, or give the spout watch=True, which lets files go that are taken"
        )
    for file in entries:
        if sizes[file.name] != file.size:
            raise InputError(
                f"{path_of(root, file.name)} is taken and was written since: it had {file.size} bytes, it has "
                f"{sizes[file.name]}; put the former file back, and give new data a file of its own"
            )


def digest_of(files: Iterable[InputFile | Admitted]) -> int:
    """Return a digest of files' names and sizes, whatever their order."""
    digest = 0
    for file in files:
        digest ^= _digest(file)
    return digest


def _digest(file: InputFile | Admitted) -> int:
    return int.from_bytes(hashlib.sha256(f"{file.name}\0{file.size}".encode()).digest()[:16], "big")


def _arrival_ns(file: InputFile) -> int:
    """Return when a file came to have this name, as well as the file system knows."""
    try:
        return os.stat(file.path).st_ctime_ns  # noqa: PTH116 - as above
    except OSError:
        return 0


def _list(names: Sequence[str]) -> str:
    named = ", ".join(repr(name) for name in names[:NAMED_MAX])
    return f"{named} and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else named
