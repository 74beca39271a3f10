"""A loss of power at any moment: what was synced is left, nothing else."""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import pytest

STORE = "coordinator.sqlite"


@attrs.define(eq=False)
class Disk:
    """Remembers what was synced below a folder: the content of files, and the names in folders, by their inodes.

    SQLite syncs by itself and is not watched: what it has written counts as synced.

    Args:
        folder: the folder; its own name is durable.
    """

    folder: pathlib.Path
    contents: dict[int, bytes] = attrs.field(factory=dict)
    names: dict[int, dict[str, int]] = attrs.field(factory=dict)
    held: list[int] = attrs.field(factory=list)
    """Descriptors of what was synced, so that no inode comes twice."""
    lock: threading.Lock = attrs.field(factory=threading.Lock)
    """Files are put side by side: of two syncs of a folder, the later one has the last word on what it has."""

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take note of each sync from now on."""
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._noting(getattr(os, name)))

    @classmethod
    @contextmanager
    def watched(cls, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
        """Make a folder, and take note of its syncs while the context lasts."""
        folder.mkdir()
        disk = cls(folder)
        with monkeypatch.context() as patched:
            disk.watch(patched)
            yield disk
        disk.close()

    def left(self) -> Left:
        """Return what a loss of power would leave now."""
        entries = {path.stat().st_ino: path.read_bytes() for path in self.folder.rglob("_delta_log/*.json")}
        stores = {
            path.relative_to(self.folder): path.read_bytes()
            for path in self.folder.rglob(f"{STORE}*")
            if not path.name.endswith(".lock")
        }
        with self.lock:
            now = {
                path.stat().st_ino: _names_in(path) for path in [self.folder, *self.folder.rglob("*")] if path.is_dir()
            }
            return Left(self.folder.stat().st_ino, dict(self.contents), dict(self.names), now, entries, stores)

    def close(self) -> None:
        for descriptor in self.held:
            os.close(descriptor)

    def _noting(self, sync):
        def noting(descriptor):
            with self.lock:
                note(descriptor)

        def note(descriptor):
            sync(descriptor)
            path = pathlib.Path(f"/proc/self/fd/{descriptor}").readlink()
            if not path.is_relative_to(self.folder):
                return
            inode = os.fstat(descriptor).st_ino
            if inode not in self.contents and inode not in self.names:
                self.held.append(os.dup(descriptor))
            if path.is_dir():
                self.names[inode] = _names_in(path)
                for each in os.scandir(path):
                    if each.is_dir():  # a folder that was never synced itself is empty
                        self.names.setdefault(each.inode(), {})
            else:
                self.contents[inode] = path.read_bytes()

        return noting


@attrs.frozen
class Left:
    """What is left after a loss of power."""

    root: int
    contents: dict[int, bytes]
    names: dict[int, dict[str, int]]
    now: dict[int, dict[str, int]]
    """The names that were in folders, synced or not."""
    entries: dict[int, bytes]
    """Entries of Delta logs, synced or not."""
    stores: dict[pathlib.Path, bytes]
    """The files of coordinator states, by their paths."""

    def lay_out(
        self, folder: pathlib.Path, *, are_entries_lucky: bool = False, luck: random.Random | None = None
    ) -> None:
        """Make it a folder; a file whose content was not synced is empty.

        Args:
            folder: where.
            are_entries_lucky: whether the system happens to have written what Delta logs have, and nothing else.
            luck: draws which of the names that have come, gone or changed since the last sync of their folder the
                system happens to have written; None: none of them.
        """
        shutil.rmtree(folder, ignore_errors=True)
        lucky = self.entries if are_entries_lucky else {}
        for path, inode in self._files(folder, self.root, luck):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.contents.get(inode, lucky.get(inode, b"")))
        for path, content in self.stores.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)

    def _files(
        self, folder: pathlib.Path, inode: int, luck: random.Random | None
    ) -> Iterator[tuple[pathlib.Path, int]]:
        for name, below in self._names(inode, luck):
            if below in self.names:
                yield from self._files(folder / name, below, luck)
            elif below not in self.now and not name.startswith(STORE):
                yield folder / name, below

    def _names(self, inode: int, luck: random.Random | None) -> Iterator[tuple[str, int]]:
        synced, now = self.names.get(inode, {}), self.now.get(inode, {})
        for name in sorted({*synced, *(now if luck else ())}):
            which = luck.choice([synced, now]) if luck else synced
            if name in which:
                yield name, which[name]


def _names_in(folder: pathlib.Path) -> dict[str, int]:
    return {each.name: each.inode() for each in os.scandir(folder)}
