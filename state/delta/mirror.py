"""The driver's mirror of a table: the rows of its head, in memory or, where there is no room, in mapped files.

A data file is read once: when the mirror is loaded, beside what comes before its first use, or when another writer has
added the file. What a coordinator itself writes and merges is held without being read. How rows are found is up to the
kind of table: :class:`~state.delta.keyed.segments.Segments` have one row a key and an index of the keys,
:class:`~state.delta.expiring.runs.Runs` are in the order of their times.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from typing import Generic, Protocol, TypeVar

import pyarrow as pa
from pyroaring import BitMap64

from state.delta.log.data_files import DataFile
from state.delta.log.ownership import WORLD_ERRORS
from txtopo.columnar.progress_probe import ProgressProbe, current_probe
from txtopo.errors import FailedException, StateFailure

_WAIT_SECS = 1.0
"""How often who waits for rows to be loaded shows that they are."""

Read = Callable[[DataFile], tuple[Iterable[pa.Table], BitMap64]]
"""Returns rows of a file in portions, which need not be taken, and the positions of those of them that are dead."""


class Mirrored(Protocol):
    """What a mirror is of."""

    @property
    def version(self) -> int:
        """The version to read."""

    @property
    def files(self) -> Mapping[str, DataFile]:
        """Its data files, by path."""


class MirroredRows(Protocol):
    """The rows of a version, as a kind of table has them."""

    def hold(self, files: Mapping[str, DataFile], read: Read) -> None:
        """Hold the rows of some files, and read those that are not held yet; *txtopo* clears all if it fails."""

    def prepare(self) -> None:
        """Make what the first use would make."""

    def clear(self) -> None:
        """Drop everything."""


H = TypeVar("H", bound=MirroredRows)


class Mirror(Generic[H]):
    """The rows that a coordinator holds of one table, valid for exactly one version.

    ``make`` returns what holds no rows yet, given the most bytes in memory: ``bytes_max`` where no run says otherwise.
    """

    def __init__(self, make: Callable[[int], H], read: Read, bytes_max: int) -> None:
        self._make = make
        self._read = read
        self._loading: Loading[H] | None = None
        self.held = make(bytes_max)
        """The rows; of ``version``, if it is known."""
        self.version: int | None = None
        """The version whose rows are held; None if they are not known to be of one."""

    def load_in_background(self, source: Mirrored, bytes_max: int) -> None:
        """Begin to load the version's rows in a thread, into so much memory; the next use waits, or meets the error."""
        self.clear()
        self.held = self._make(bytes_max)
        if source.files:
            self._loading = Loading(self._make(bytes_max), source.version, dict(source.files), self._read)

    def of(self, source: Mirrored) -> H:
        """Return the rows of the source's version; those that are not held are read."""
        loading, self._loading = self._loading, None
        if loading is not None and loading.ended():
            self.held, self.version = loading.held, loading.version
        if self.version != source.version:
            self.version, version = None, source.version
            with self._whole():
                self.held.hold(source.files, self._read)
            self.version = version
        return self.held

    def turned(self, version: int, hold: Callable[[H], None] | None) -> None:
        """Take note of a version of the coordinator's own, whose rows ``hold`` makes; None if they are read anew."""
        is_known, self.version = hold is not None and self.version == version - 1, None
        if hold is not None and is_known:
            # If there is no disk for a file, the write is made all the same; the next use meets that.
            with contextlib.suppress(StateFailure):
                with self._whole():
                    hold(self.held)
                self.version = version

    def clear(self) -> None:
        """Drop everything, and load no further."""
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        self.held.clear()
        self.version = None

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Hold no rows if not all of them can be held."""
        try:
            yield
        except BaseException:
            self.held.clear()
            raise


class Loading(Generic[H]):
    """The rows of one version, which are loaded in a thread into ``held``; nobody uses that meanwhile."""

    def __init__(self, held: H, version: int, files: Mapping[str, DataFile], read: Read) -> None:
        self.held = held
        self.version = version
        self._files = files
        self._read = read
        self._probe = ProgressProbe()
        self._is_cancelled = threading.Event()
        self._thread = ThreadPoolExecutor(1, "txtopo-load")
        self._under_way = self._thread.submit(self._load)
        self._thread.shutdown(wait=False)

    def ended(self) -> bool:
        """Wait until they are loaded, with progress; return whether they are."""
        version = -1
        while not wait([self._under_way], _WAIT_SECS).done:
            if self._probe.steps != version:
                current_probe().step()
                version = self._probe.steps
        try:
            self._under_way.result()
        except (FailedException, *WORLD_ERRORS):
            return False
        return True

    def cancel(self) -> None:
        """End it after the file that it reads, and wait for that."""
        self._is_cancelled.set()
        wait([self._under_way])

    def _load(self) -> None:
        with self._probe.current():
            self.held.hold(self._files, self._portions_of)
            self.held.prepare()

    def _portions_of(self, file: DataFile) -> tuple[Iterator[pa.Table], BitMap64]:
        portions, dead = self._read(file)
        return self._until_cancelled(portions), dead

    def _until_cancelled(self, portions: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for portion in portions:
            if self._is_cancelled.is_set():
                raise CancelledError
            yield portion
