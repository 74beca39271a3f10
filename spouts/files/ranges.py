"""Plan the ranges of a transaction, and check which files are taken.

Files are taken in the order of their numbers in the log (:mod:`spouts.files.taken_log`), so one place, *number and
offset*, describes everything that is taken. A transaction's metadata has that place. If the files were taken in the
order of their names, the metadata also has the same information without the log: the last file's name, and a digest of
the names and sizes of all files taken. Metadata of versions without a log has only the latter.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import attrs

from spouts.files.formats.format import FileFormat, Span
from spouts.files.listing import FileRange, InputFile
from spouts.files.taken_log import AdmittedFile
from txtopo.errors import InputError

NAMED_MAX = 10
"""The maximum number of files that an error names."""


@attrs.frozen
class Position:
    """The place up to which files are taken, by name: before ``offset`` in the file taken last."""

    name: str
    offset: int
    mtime_ns: int


@attrs.frozen
class TakenFiles:
    """The number of files up to a position when they were taken, and the digest of their names and sizes."""

    count: int
    digest: int


@attrs.frozen
class Place:
    """The place up to which files are taken, by number: all below ``number``, and that one before ``offset``."""

    number: int
    offset: int


@attrs.frozen
class Plan:
    """A new transaction: its ranges, the number of each range's file, and the place that it ends at."""

    ranges: Sequence[FileRange]
    numbers: Sequence[int]
    position: Position
    last: AdmittedFile
    place: Place


@attrs.frozen
class Cutter:
    """Cuts transactions of at most ``batch_bytes``, or one span, and about ``tasks`` ranges, where formats allow it."""

    root: str
    files_format: FileFormat
    batch_bytes: int
    files_max: int
    tasks: int

    def plan(self, files: Iterable[AdmittedFile], place: Place) -> Plan | None:
        """Plan the transaction that begins at a place; return None if nothing is left.

        *You* give the files from that place on, in order of their numbers.
        """
        spans: list[tuple[AdmittedFile, Span]] = []
        bytes_left, names_left = self.batch_bytes, self.files_format.limits.names_bytes
        for file in files:
            span = self.next_span(file, place, bytes_left)
            while span is not None and not (spans and span.size_bytes > bytes_left):
                spans.append((file, span))
                bytes_left -= span.size_bytes
                names_left -= len(file.name.encode())
                if bytes_left <= 0 or names_left <= 0 or len(spans) == self.files_max:
                    return self._plan(spans)
                span = self.files_format.next_span(self.input_file(file), span.end, bytes_left)
            if span is not None:
                break
        return self._plan(spans) if spans else None

    def next_span(self, file: AdmittedFile, place: Place, bytes_max: int) -> Span | None:
        """Return the next span of a file at or after a place."""
        start = place.offset if file.number == place.number else 0
        return self.files_format.next_span(self.input_file(file), start, bytes_max)

    def input_file(self, file: AdmittedFile) -> InputFile:
        """Return a file with its path."""
        return InputFile(file.name, path_of(self.root, file.name), file.size, file.mtime_ns)

    def place_behind(self, file: AdmittedFile, offset: int) -> Place:
        """Return the place after ``offset`` of a file: in the file if something is left, otherwise after it."""
        is_finished = self.files_format.next_span(self.input_file(file), offset, 1) is None
        return Place(file.number + 1, 0) if is_finished else Place(file.number, offset)

    def _plan(self, spans: Sequence[tuple[AdmittedFile, Span]]) -> Plan:
        last, span = spans[-1]
        position = Position(last.name, span.end, last.mtime_ns)
        pieces = self._cut(spans)
        numbers = [file.number for file, _ in pieces]
        return Plan([piece for _, piece in pieces], numbers, position, last, self.place_behind(last, span.end))

    def _cut(self, spans: Sequence[tuple[AdmittedFile, Span]]) -> list[tuple[AdmittedFile, FileRange]]:
        total = sum(span.size_bytes for _, span in spans)
        share_bytes = max(self.files_format.limits.range_bytes, -(-total // self.tasks))
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


def taken_by_name(files: Sequence[InputFile], position: Position, taken: TakenFiles) -> list[InputFile]:
    """Return which of the current files, sorted by name, were taken if files were taken in the order of their names.

    The digest identifies files that have arrived since and sort before the position.

    Raises:
        InputError: the files up to the position are not those that were taken, or can't be told from new ones.
    """
    count = bisect_right([file.name for file in files], position.name)
    until = list(files[:count])
    digest = digest_of(until)
    if TakenFiles(count, digest) == taken:
        return until
    extra, difference = count - taken.count, digest ^ taken.digest
    newest = sorted(until, key=_arrival_ns, reverse=True)
    added = [file for file in until if _digest(file) == difference] if extra == 1 else newest[: max(0, extra)]
    if extra > 0 and digest_of(added) == difference and all(file.name != position.name for file in added):
        names = {file.name for file in added}
        return [file for file in until if file.name not in names]
    taken_text = f"the {taken.count} files up to {position.name!r} are taken"
    if extra < 0:
        raise InputError(f"{taken_text}, but only {count} of them exist now; put the others back unchanged")
    raise InputError(
        f"{taken_text}, but there are {count} now, some of them new, renamed or of another size; the latest "
        f"are {_list([file.name for file in newest])}; restore the original files, and give new files names that sort "
        f"after {position.name!r}"
    )


def check_taken(root: str, taken: Iterable[AdmittedFile], files: Iterable[InputFile]) -> None:
    """Raise InputError if a file that was taken is missing or has another length."""
    sizes = {file.name: file.size for file in files}
    entries = list(taken)
    lost = [file.name for file in entries if file.name not in sizes]
    if lost:
        raise InputError(
            f"{len(lost)} of the {len(entries)} files that are taken from {root} are missing: {_list(lost)}; put them "
            "back, or give the spout watch=True, which allows taken files to be removed"
        )
    for file in entries:
        if sizes[file.name] != file.size:
            raise InputError(
                f"{path_of(root, file.name)} is taken and has changed since: it had {file.size} bytes, now it has "
                f"{sizes[file.name]}; put the original file back, and put new data in a new file"
            )


def digest_of(files: Iterable[InputFile | AdmittedFile]) -> int:
    """Return a digest of files' names and sizes, whatever their order."""
    digest = 0
    for file in files:
        digest ^= _digest(file)
    return digest


def _digest(file: InputFile | AdmittedFile) -> int:
    return int.from_bytes(hashlib.sha256(f"{file.name}\0{file.size}".encode()).digest()[:16], "big")


def _arrival_ns(file: InputFile) -> int:
    """Return the ctime of a file in nanoseconds, the best estimate of when it got its name."""
    try:
        return os.stat(file.path).st_ctime_ns  # noqa: PTH116 - as above
    except OSError:  # an object, too
        return file.arrival_ns


def _list(names: Sequence[str]) -> str:
    named = ", ".join(repr(name) for name in names[:NAMED_MAX])
    return f"{named} and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else named
