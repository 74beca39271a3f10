"""The coordinator of growing folders: lists them periodically, and takes complete files.

A file is complete when it has not changed for a while. It is then admitted, and belongs to a transaction once that
transaction's metadata is saved. If a name disappears from the folder, it is removed from the log once its transaction
is committed. So the log is bounded by the number of files in the folder, and a name that comes back is a new file.

A name must not be forgotten before its transaction is committed:

1. Transaction 7 takes file ``a``.
2. Somebody moves ``a`` away.
3. Transaction 7 is replayed, and its emitter stops the run with an error that asks for ``a``.
4. Somebody puts ``a`` back. If step 2 had removed it from the log, it would now be read twice.

Nor is one forgotten that was admitted and not taken: it would be lost without a word.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs

from spouts.files.coordinator import START, FilesCoordinator, FilesOptions, is_same
from spouts.files.file_system import Scan
from spouts.files.listing import FileChangedError, InputFile, describe
from spouts.files.packed import suffix_of
from spouts.files.ranges import Place, Plan, path_of
from spouts.files.taken_log import AdmittedFile
from txtopo.api.components.spout import Lag, Metadata
from txtopo.errors import FailedException, InputError

LOOKING_SHARE = 10
"""The pause after a listing, as a multiple of what the listing took of the processor; it is as long as the listing at
least. Not a multiple of its time: one that waited a second for a core left its folder unlisted for ten."""

CHECKED_MAX = 1_000
"""The number of known files that are checked again at each listing, in rotation."""

logger = logging.getLogger("txtopo.files")


@attrs.frozen
class WatchTimes:
    """The timing of a growing folder; a file is complete when it has not changed for ``settle_secs``."""

    settle_secs: float
    poll_secs: float
    now_secs: Callable[[], float] = time.monotonic
    spent_secs: Callable[[], float] = time.thread_time
    """What a listing must take little of: processor time; in a bucket, where it is requests, time."""


@attrs.frozen
class _SettlingFile:
    """A file that is not complete yet, and the time since which it has not changed."""

    file: InputFile
    since_secs: float


@attrs.frozen
class _Waiting:
    """The admitted files at or after a place, and their bytes, as of the last listing."""

    place: Place
    files: int
    size: int


class WatchingCoordinator(FilesCoordinator):
    """Takes files as they arrive, without end.

    ``list_by_name`` lists the files as a run without ``watch`` does, to resume from such a run's metadata.
    """

    _must_be_moved = True

    def __init__(
        self, options: FilesOptions, times: WatchTimes, list_by_name: Callable[[], Sequence[InputFile]]
    ) -> None:
        super().__init__(options)
        self._times = times
        self._list_by_name = list_by_name
        self._settling: dict[str, _SettlingFile] = {}
        self._next_refresh_secs = self._found_secs = float("-inf")
        self._found = Scan({}, lambda _: None)
        self._check_again_from = 0
        self._elsewhere: set[str] = set()
        self._former_trouble = self._trouble = ""
        self._begun: deque[tuple[int, Place]] = deque()
        self._committed = START
        self._barren: tuple[Place, int] | None = None
        self._waiting: _Waiting | None = None
        if options.format_name is not None:
            self._use_format(options.format_name)

    def cleanup_before(self, txid: int) -> None:
        """Record that the transactions below ``txid`` are committed."""
        while self._begun and self._begun[0][0] < txid:
            _, self._committed = self._begun.popleft()

    def is_ready(self) -> bool:
        """Whether a complete file waits; lists the folders if ``poll_secs`` have passed."""
        self._ensure_resumed(0, None)
        if self._times.now_secs() >= self._next_refresh_secs:
            self._refresh()
        try:
            return self._is_skip_due() or self._has_next()
        except (OSError, FileChangedError) as error:
            raise self._not_now(error) from error

    def lag(self) -> Lag | None:
        """Return what waits of the listed files, those that are not complete yet among them."""
        before, place = self._waiting, self._place
        if before is None:
            return None
        files, size = before.files, before.size
        for file in self._log.entries_from(before.place.number):
            if file.number > place.number:
                break
            files -= file.number < place.number
            size -= _left_of(file, before.place) - _left_of(file, place)
        self._waiting = _Waiting(place, files, size)  # so that each file is passed once
        settling = [seen.file.size for seen in self._settling.values()]
        return Lag(files=max(0, files) + len(settling), bytes=max(0, size) + sum(settling))

    def is_exhausted(self) -> bool:
        """Return False: a growing folder never ends."""
        return False

    def initialize_transaction(self, txid: int, previous_metadata: Metadata) -> Metadata:
        """Take the ranges that follow ``previous_metadata``."""
        try:
            metadata = super().initialize_transaction(txid, previous_metadata)
        except (OSError, FileChangedError) as error:
            raise self._not_now(error) from error
        self._begun.append((txid, self._place))
        return metadata

    def _begin(self, txid: int) -> None:
        self._begun = deque([(txid, self._place)])
        if self._log_place is None:
            raise InputError("a spout with watch=True needs a store for its log: call open_store before resume")
        self._guess_format(file.name for file in self._log.entries_from(self._place.number))

    def _guess_format(self, names: Iterable[str]) -> None:
        """Choose the format by the suffixes of the first admitted files, unless it is known."""
        suffixes = set(map(suffix_of, names)) if self._cutter is None else ()
        if suffixes:
            self._use_format(self._options.guess_format(suffixes))

    def _has_next(self) -> bool:
        """Whether a file has records to take; remembers files without any, such as empty Parquet files."""
        if self._cutter is None:
            return False
        start = self._barren[1] if self._barren is not None and self._barren[0] == self._place else self._place.number
        for file in self._files_from(Place(start, self._place.offset if start == self._place.number else 0)):
            if self._cutter.next_span(file, self._place, 1) is not None:
                return True
            self._barren = self._place, file.number + 1
        return False

    def _files_from(self, place: Place) -> Iterator[AdmittedFile]:
        """Yield the unchanged files from a place on; remove the others from the log."""
        changed: list[int] = []
        for file in self._log.entries_from(place.number):
            now = self._look_at(file.name)
            if is_same(file, now):
                # A place that moves past a file marks it as taken. So a file that is not taken must be durably
                # removed from the log first.
                self._log.remove(changed)
                changed = []
                yield file
            elif file.number == place.number and place.offset:
                raise self._broken_off(file, place, now)
            elif now is None and self._is_away(file):
                break  # it is neither missing nor passed over: it is taken when its folder is back
            else:
                if not self._is_barren(file):
                    self._check_passed_over([file])
                changed.append(file.number)
        self._log.remove(changed)

    def _is_away(self, file: AdmittedFile) -> bool:
        """Whether a file's folder is missing, or another is in its place: all its files look missing then."""
        return not all(map(self._files.is_mounted, self._tops)) or file.folder != self._log.folder_of(self._folders())

    def _is_barren(self, file: AdmittedFile) -> bool:
        return self._barren is not None and self._barren[0] == self._place and file.number < self._barren[1]

    def _broken_off(self, file: AdmittedFile, place: Place, now: InputFile | None) -> InputError:
        path, before = path_of(self._root, file.name), f"{file.size} bytes, mtime_ns {file.mtime_ns}"
        state = "now it is missing" if now is None else f"now it has {describe(now)}"
        return InputError(
            f"{path} is taken up to {place.offset} and has changed since: it had {before}, {state}; put the original "
            "file back, and put new data in a new file"
        )

    def _not_now(self, error: OSError | FileChangedError) -> FailedException:
        if isinstance(error, FileChangedError):
            return FailedException(error.message)  # the next listing sees its new state
        return FailedException(f"{error.filename or self._root} could not be read", cause=str(error))

    def _look_at(self, name: str) -> InputFile | None:
        """Return the file of a name; an object as it was listed, for as long as that is not due again."""
        if name in self._found and self._times.now_secs() <= self._found_secs + self._times.poll_secs:
            return self._found.look_at(name)
        return self._files.look_at(name, path_of(self._root, name))

    def _refresh(self) -> None:
        """List the folders, admit complete files, and forget removed ones."""
        started, spent_before = self._times.now_secs(), self._times.spent_secs()
        self._former_trouble, self._trouble = self._trouble, ""
        try:
            self._found, self._found_secs = scan, _ = self._files.scan(self._options.paths, self._root), started
            folder = self._log.folder_of(self._folders())
            self._admit(self._complete(scan, started), folder)
            self._forget(scan, folder)
            self._check_again(scan)
            waiting = list(self._log.entries_from(self._place.number))
            self._waiting = _Waiting(self._place, len(waiting), sum(_left_of(file, self._place) for file in waiting))
        except OSError as error:
            self._warn_of_trouble(
                f"{error.filename or self._root} cannot be read: {error.strerror or error}; no files are taken "
                "until it can be read"
            )
        ended, spent = self._times.now_secs(), self._times.spent_secs() - spent_before
        pause_secs = max(ended - started, LOOKING_SHARE * spent)
        self._next_refresh_secs = max(started + self._times.poll_secs, ended + pause_secs)

    def _warn_of_trouble(self, text: str) -> None:
        if text != self._former_trouble:
            logger.warning("%s", text)
        self._trouble = text

    def _complete(self, scan: Scan, now_secs: float) -> list[InputFile]:
        """Return the new files that have not changed for long enough, the oldest first."""
        settling: dict[str, _SettlingFile] = {}
        complete: list[InputFile] = []
        for name in scan.paths:
            if name in self._log:
                continue
            file = scan.look_at(name)
            if file is None:
                continue
            settling_file = self._settling.get(name)
            if settling_file is None or settling_file.file != file:
                settling_file = _SettlingFile(file, now_secs)
            if now_secs - settling_file.since_secs >= self._times.settle_secs:
                self._files.check_complete(file)
                complete.append(file)
            else:
                settling[name] = settling_file
        self._settling = settling
        return sorted(complete, key=lambda file: (file.arrival_ns, file.name))

    def _admit(self, files: Sequence[InputFile], folder: int) -> None:
        self._guess_format(file.name for file in files)
        self._log.admit(files, folder)

    def _forget(self, scan: Scan, folder: int) -> None:
        """Remove missing files from the log whose transactions are committed."""
        self._recognize(scan, folder)
        self._elsewhere.difference_update(scan.paths)
        missing = [self._log.of_name(name) for name in self._log.names() if name not in scan]
        numbers = []
        for file in missing:
            if not self._is_committed(file) or file.folder != folder or file.name in self._elsewhere:
                continue
            if self._files.is_there(path_of(self._root, file.name)):  # exists, but is not a name that a listing returns
                self._elsewhere.add(file.name)
            else:
                numbers.append(file.number)
        self._log.remove(numbers)  # from here on, a name that comes back is a new file

    def _recognize(self, scan: Scan, folder: int) -> None:
        """Recognise a folder that was moved or copied by files that are known from their former folder.

        A folder that is not mounted looks empty, so files that are missing in another folder must not be forgotten.
        """
        others = self._log.others_than(folder)
        same = {file.folder for file in others if file.name in scan and is_same(file, scan.look_at(file.name))}
        if same:
            self._log.unite(folder, same)
        missing = sum(file.folder not in same for file in others)
        if missing:
            self._warn_of_trouble(
                f"{self._root} is not the folder that {missing} known files come from (is it mounted?); "
                "they are not read again when they come back"
            )

    def _check_again(self, scan: Scan) -> None:
        """Check whether some of the known files have changed."""
        entries: list[AdmittedFile] = []
        for file in self._log.entries_from(self._check_again_from):
            if len(entries) == CHECKED_MAX:
                self._check_again_from = file.number
                break
            entries.append(file)
        else:
            self._check_again_from = 0
        changed, flagged = [], []
        for file in entries:
            if file.name not in scan and file.name not in self._elsewhere:
                continue
            now = scan.look_at(file.name) if file.name in scan else self._look_at(file.name)
            if now is None:
                self._elsewhere.discard(file.name)
            elif not is_same(file, now):
                if self._is_waiting(file) and not file.is_owed:
                    changed.append(file.number)
                elif self._is_committed(file) and not file.is_flagged:
                    flagged.append(file.number)
                    logger.warning(
                        "%s has changed since it was read: it had %d bytes, mtime_ns %d, now it has %s; it is not read "
                        "again: put new data in a new file",
                        now.path,
                        file.size,
                        file.mtime_ns,
                        describe(now),
                    )
        self._log.remove(changed)
        self._log.flag(flagged)
        if changed:
            self._barren = None

    def _is_waiting(self, file: AdmittedFile) -> bool:
        return file.number > self._place.number or (file.number == self._place.number and not self._place.offset)

    def _is_committed(self, file: AdmittedFile) -> bool:
        return file.number < self._committed.number

    def _files_by_name(self) -> Sequence[InputFile]:
        return self._list_by_name()

    def _check_taken_files(self, place: Place, metadata: Metadata) -> None:
        """Do nothing: later listings find missing and changed files."""

    def _taken_with(self, plan: Plan) -> None:
        del plan

    def _more(self, plan: Plan | None) -> dict[str, Any]:
        return {"numbers": list(plan.numbers) if plan else []}


def _left_of(file: AdmittedFile, place: Place) -> int:
    """Return how many bytes of a file are at or after a place."""
    if file.number < place.number:
        return 0
    return file.size - place.offset if file.number == place.number else file.size
