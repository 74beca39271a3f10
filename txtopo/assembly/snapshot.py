"""Snapshots: the state of a run in a small file, which ``txtopo explain`` reads while the run continues.

The file is in the metadata directory. It is only for people: nothing is recovered from it, so it need not survive a
power failure, and a run that can't write it continues silently. It is replaced whole. Its first line of JSON holds the
writer and the time, its second the state.

A coordinator that has lost the lead must not overwrite its successor's snapshots:

1. The coordinator of epoch 4 stalls; that of epoch 5 takes the lead and writes snapshots.
2. The coordinator of epoch 4 resumes. It reads the first line of the file, sees a later epoch, and never writes again.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import os
import re
import socket
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from txtopo.api.reference import SeenVersion
from txtopo.errors import ConfigError
from txtopo.files.folder import Folder, LocalFolder
from txtopo.files.objects import ObjectFolder, Version
from txtopo.files.proc import start_of
from txtopo.files.records import DAMAGE, from_json, to_json
from txtopo.journal.entries import JournalHeader
from txtopo.text.secrecy import without_secrets
from txtopo.transactional.core.readings import Reading
from txtopo.transactional.core.record.history import History

logger = logging.getLogger("txtopo")

_NAME = re.compile(r"run-(.*)\.json")

_BUSY_SECS, _IDLE_SECS = 3.0, 60.0
"""How often a snapshot is put in a bucket, where each is a request: while there is news, and without."""

WHY_DEAD = "it was killed, or could not write its last report, as on a full disk"
"""What is known of a process that has died without a word."""


@attrs.frozen
class TransactionSnapshot:
    """One begun, uncommitted transaction."""

    txid: int
    status: str
    """The value of its :class:`txtopo.transactional.core.transitions.Status`."""
    progress_ms: int
    """The last progress of its live attempt, on the coordinator's clock."""
    component: str | None
    """The component whose code is running for it, in the driver or for a while on an executor; None if unknown."""
    history: History
    ranges: Mapping[str, tuple[Any, Any]] = attrs.field(factory=dict)
    """The input that it takes, (start, end) by partition; empty if the spout does not report it, or not yet."""
    references: tuple[SeenVersion, ...] = ()
    """The versions of reference tables that it sees."""


@attrs.frozen
class Snapshot:
    """The state of a run."""

    now_ms: int
    """The time on the coordinator's clock."""
    timeout_ms: int
    """How long an attempt may make no progress."""
    committed: int
    last_begun: int
    tries_max: int | None
    """None for no bound."""
    skips: bool
    """Whether a transaction that has used up its tries goes to the dead letters."""
    transactions: tuple[TransactionSnapshot, ...]
    """The lowest uncommitted ones."""
    ended: str = ""
    """Why the run ended; empty while it runs."""
    failed_txid: int | None = None
    failed_component: str | None = None
    readings: tuple[Reading, ...] = ()
    """The first of what components have counted and measured in the transactions that this run has committed."""


@attrs.frozen
class Writer:
    """The process that wrote a snapshot, and the time."""

    epoch: int
    incarnation: str
    host: str
    pid: int
    process_start: int | None
    """In clock ticks since boot; None if the system does not tell."""
    written_secs: float
    """In seconds since 1970."""
    every_secs: float = 1.0
    """How long it may say nothing while it runs."""

    def wrote(self, header: JournalHeader) -> bool:
        """Whether it is the coordinator that began a part of the journal; an older snapshot is obsolete."""
        return (self.incarnation, self.epoch) == (header.incarnation, header.epoch)

    @property
    def is_alive(self) -> bool | None:
        """Whether the process is still running; None if it is on another machine."""
        if self.host != socket.gethostname():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # another user's process, so it exists
        return self.process_start is None or self.process_start == start_of(self.pid)  # the pid may have been reused


class SnapshotWriter:
    """Writes the snapshots of one run."""

    def __init__(
        self,
        folder: Folder,
        header: JournalHeader,
        settings: Mapping[str, object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._clock = clock
        # Most texts of a snapshot are those of the one before.
        self._hide = functools.lru_cache(1024)(functools.partial(without_secrets, settings=settings))
        self._path = _path_of(header.topology)
        self._epoch = header.epoch
        self._incarnation = header.incarnation
        self._process_start = start_of(os.getpid())
        self._has_begun = False
        self._is_over = False
        self._bucket = folder if isinstance(folder, ObjectFolder) else None
        self._version: Version | None = None
        """That of its last file in a bucket."""
        self._last: Snapshot | None = None
        self._put_secs = -math.inf

    def write(self, snapshot: Snapshot) -> None:
        """Replace the file; do nothing if it can't be written, or in a bucket if that can wait."""
        if self._is_over or (self._bucket is not None and self._can_wait(snapshot)):
            return
        writer = Writer(
            self._epoch,
            self._incarnation,
            socket.gethostname(),
            os.getpid(),
            self._process_start,
            time.time(),
            1.0 if self._bucket is None else _IDLE_SECS,
        )
        content = f"{json.dumps(to_json(writer))}\n{json.dumps(_discreet(to_json(snapshot), self._hide))}\n"
        try:
            self._is_over = not self._is_put(content.encode())
            self._has_begun = True
        except OSError as error:  # not worth stopping the run; a missing metadata directory stops it elsewhere
            logger.debug("a snapshot of the run could not be written: %s", error)

    def _can_wait(self, snapshot: Snapshot) -> bool:
        content, secs = attrs.evolve(snapshot, now_ms=0), self._clock()
        if not snapshot.ended and secs - self._put_secs < (_IDLE_SECS if content == self._last else _BUSY_SECS):
            return True
        self._last, self._put_secs = content, secs
        return False

    def _is_put(self, content: bytes) -> bool:
        """Replace the file, unless a later coordinator has; the first one of a run, which leads now, in any case."""
        if self._bucket is not None and self._version is not None:
            # Nobody has written since: it need not be read whose the file is.
            self._version = self._bucket.replace(self._path, content, self._version)
            if self._version is not None:
                return True
        if self._has_begun and self._is_succeeded():
            return False
        if self._bucket is None:
            self._folder.put(self._path, content, is_durable=False)
        else:
            self._version = self._bucket.replace(self._path, content, self._bucket.version(self._path))
        return True

    def _is_succeeded(self) -> bool:
        """Whether a later coordinator has written a snapshot; a file that can't be read is written over."""
        with contextlib.suppress(OSError, *DAMAGE):
            writer = from_json(json.loads(self._folder.get(self._path).partition(b"\n")[0]), Writer)
            return writer.incarnation == self._incarnation and writer.epoch > self._epoch
        return False


def _discreet(content: Any, hide: Callable[[str], str]) -> Any:
    """Return JSON without secrets: anybody may read the file, and errors in it may quote settings."""
    match content:
        case str():
            return hide(content)
        case dict():
            return {name: _discreet(value, hide) for name, value in content.items()}
        case list() | tuple():
            return [_discreet(value, hide) for value in content]
        case _:
            return content


def snapshots_in(metadata_dir: Folder) -> Folder:
    """Return the folder of the snapshots, which is not made anew if it was removed while a topology runs."""
    return attrs.evolve(metadata_dir, makes_folders=False) if isinstance(metadata_dir, LocalFolder) else metadata_dir


def topologies_with_snapshot(folder: Folder) -> tuple[str, ...]:
    """Return the ids of the topologies whose runs have left a snapshot, sorted."""
    names = (_NAME.fullmatch(file.path) for file in folder.list())
    return tuple(sorted(urllib.parse.unquote(name[1]) for name in names if name is not None))


def read_snapshot(folder: Folder, topology_id: str) -> tuple[Writer, Snapshot] | None:
    """Return the last snapshot and its writer, None if there is none; raise ConfigError if it is of another version."""
    path = _path_of(topology_id)
    try:
        first, second = folder.get(path).decode().splitlines()
        return from_json(json.loads(first), Writer), from_json(json.loads(second), Snapshot)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, *DAMAGE) as error:
        raise ConfigError(
            f"the snapshot {folder}/{path} can't be read ({error}); remove it: nothing depends on it"
        ) from error


def remove_snapshot(metadata_dir: Folder, topology_id: str) -> None:
    """Remove the last snapshot of a topology, if there is one."""
    snapshots_in(metadata_dir).delete(_path_of(topology_id))


def _path_of(topology_id: str) -> str:
    return f"run-{urllib.parse.quote(topology_id, safe='')}.json"
