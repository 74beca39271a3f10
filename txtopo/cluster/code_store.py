"""The code of topologies: what it consists of, and where a daemon keeps it.

The code of a topology is a few files: the archive that was submitted, and a description of what to run. A
:class:`Manifest` lists them with size and SHA-256; the leader publishes it in ZooKeeper. Whoever has fetched the files
checks each of them against it, and only then says that it holds the code.

A :class:`CodeStore` is the folder in which a daemon keeps code. A topology's folder appears there in one rename, when
it is complete, checked and synced; so a crash leaves all of it or nothing but a draft, which the next start removes.

::

    FOLDER/ID/manifest.json, code.zip …     complete
    FOLDER/.draft-…/                        on its way
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from txtopo.errors import CodeUnavailable, SubmissionError
from txtopo.files.durable import is_shortage, paths_in, sync_path
from txtopo.files.records import DAMAGE, from_json, to_json

_LOG = logging.getLogger(__name__)

FILES_MAX = 16
"""The most files that the code of a topology may have."""

MANIFEST_NAME = "manifest.json"
_DRAFT = ".draft-"
_CHUNK_BYTES = 1 << 20
"""How much of a file is in memory at a time."""


@attrs.frozen
class CodeFile:
    """A file of a topology's code."""

    name: str
    size_bytes: int
    sha256: str


@attrs.frozen
class Manifest:
    """What the code of a topology consists of: enough to fetch and check it. Storm's metafile.

    Args:
        topology: the topology's id in the cluster.
        files: in order of name.
    """

    topology: str
    files: tuple[CodeFile, ...]

    def to_bytes(self) -> bytes:
        """Return it as JSON."""
        return json.dumps(to_json(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Return the manifest that :meth:`to_bytes` wrote; CodeUnavailable if damaged, or a name leaves its folder."""
        try:
            manifest = from_json(json.loads(data), cls)
        except DAMAGE as error:
            raise CodeUnavailable(f"a manifest is damaged: {error!r}") from error
        if not all(is_safe_name(name) for name in (manifest.topology, *(file.name for file in manifest.files))):
            raise CodeUnavailable(f"the manifest of {manifest.topology!r} has names that leave its folder")
        return manifest


def is_safe_name(name: str) -> bool:
    """Whether a name is one of a file in a folder: no path, no hidden file, nothing that leaves the folder."""
    return bool(name) and not name.startswith(".") and not {"/", "\\", "\0"} & set(name) and len(name) <= 200  # noqa: PLR2004 - below what file systems take


def describe(topology: str, folder: Path) -> Manifest:
    """Return the manifest of the files in a folder."""
    paths = sorted(path for path in folder.iterdir() if path.name != MANIFEST_NAME)
    if len(paths) > FILES_MAX:
        raise SubmissionError(f"the code of {topology!r} has {len(paths)} files; at most {FILES_MAX} are allowed")
    return Manifest(topology, tuple(CodeFile(path.name, path.stat().st_size, _sha256(path)) for path in paths))


def damage(manifest: Manifest, folder: Path) -> str | None:
    """Return what is wrong with the files in a folder; None if all have the published size and SHA-256.

    Raises:
        OSError: this machine lacks memory or file descriptors, so nothing is known about the files.
    """
    for file in manifest.files:
        path = folder / file.name
        try:
            if path.stat().st_size != file.size_bytes:
                return f"{file.name} has {path.stat().st_size} bytes, not {file.size_bytes}"
            if _sha256(path) != file.sha256:
                return f"{file.name} does not have the SHA-256 that was published"
        except OSError as error:
            if is_shortage(error):
                raise  # the caller would remove a sound file
            return f"{file.name} cannot be read: {error.strerror or error!r}"
    return None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


class CodeStore:
    """The folder in which a daemon keeps the code of topologies; opening it removes drafts that a crash has left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._checked_at: dict[str, float] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for draft in paths_in(folder, f"{_DRAFT}*"):
            shutil.rmtree(draft, ignore_errors=True)

    def topologies(self) -> list[str]:
        """Return the ids of the topologies whose code is here, in order."""
        return [path.name for path in paths_in(self.folder, "[!.]*") if (path / MANIFEST_NAME).exists()]

    def has(self, topology: str) -> bool:
        """Whether the code of a topology is here; it was checked when it came."""
        return is_safe_name(topology) and (self.folder / topology / MANIFEST_NAME).is_file()

    def manifest(self, topology: str) -> Manifest | None:
        """Return the manifest of what is here; None if nothing is, or if it is damaged."""
        if not is_safe_name(topology):
            return None
        try:
            return Manifest.from_bytes((self.folder / topology / MANIFEST_NAME).read_bytes())
        except CodeUnavailable:
            return None
        except OSError as error:
            if is_shortage(error):
                raise
            return None

    def path(self, topology: str) -> Path:
        """Return the folder of a topology's code."""
        assert is_safe_name(topology), "ids come from manifests and records, which are checked"
        return self.folder / topology

    def file(self, topology: str, name: str) -> Path | None:
        """Return the path of one file for another daemon; None if no sound one is here."""
        manifest = self.manifest(topology)
        if manifest is None or name not in {file.name for file in manifest.files}:
            return None
        return self.folder / topology / name if self.is_sound(topology, name=name) else None

    @contextlib.contextmanager
    def draft(self) -> Iterator[Path]:
        """Yield a new folder to fill, and remove it at the end, unless :meth:`keep` has taken it."""
        folder = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=self.folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def keep(self, draft: Path, manifest: Manifest) -> None:
        """Check a draft, sync it, and name it in one step; raise CodeUnavailable if a file is missing or damaged."""
        wrong = damage(manifest, draft)
        if wrong is not None:
            raise CodeUnavailable(f"the code of {manifest.topology!r} is not as it was published: {wrong}")
        # Files, then their folder, then the rename, then the parent: a folder that appears under an id is whole, even
        # after a power cut. A crash before the rename leaves a draft, which the next start removes.
        (draft / MANIFEST_NAME).write_bytes(manifest.to_bytes())
        for path in draft.iterdir():
            sync_path(path)
        sync_path(draft)
        self.remove(manifest.topology)  # a rename replaces no folder with files in it
        draft.rename(self.folder / manifest.topology)
        sync_path(self.folder)

    def remove(self, topology: str) -> None:
        """Remove the code of a topology, if it is here. A full disk does not hinder that."""
        # A reader never sees half of it, and a crash leaves only a draft.
        moved_folder = self.folder / f"{_DRAFT}{secrets.token_hex(8)}"
        with contextlib.suppress(FileNotFoundError):
            (self.folder / topology).rename(moved_folder)
        shutil.rmtree(moved_folder, ignore_errors=True)

    def check(self, published: Mapping[str, Manifest]) -> None:
        """Read all files here; remove published code that differs. Other code may be of a submission under way."""
        for topology in self.topologies():
            self.is_sound(topology, published.get(topology))

    def check_next(self, published: Mapping[str, Manifest]) -> None:
        """Check the code whose last check is oldest. One topology at a time: the code of all may be gigabytes."""
        held_topologies = [topology for topology in self.topologies() if topology in published]
        self._checked_at = {topology: self._checked_at.get(topology, 0.0) for topology in held_topologies}
        if held_topologies:
            topology = min(held_topologies, key=lambda topology: self._checked_at[topology])
            self._checked_at[topology] = time.monotonic()
            self.is_sound(topology, published[topology])

    def is_sound(self, topology: str, published: Manifest | None = None, name: str | None = None) -> bool:
        """Read a topology's files, or only the file ``name``; if one is damaged, log it and remove all of the code.

        Disks damage files that were sound when they came, so :meth:`has` is not enough where others rely on it.
        ``published`` is the manifest in ZooKeeper; None: trust the one on this disk.
        """
        manifest = self.manifest(topology)
        expected = published or manifest
        if manifest is None or expected is None:
            wrong: str | None = "its manifest is damaged"
        else:
            files = tuple(file for file in expected.files if name in {None, file.name})
            wrong = damage(attrs.evolve(expected, files=files), self.folder / topology)
        if wrong is not None:
            self.remove(topology)
            _LOG.warning("the code of %s on this disk is damaged and was removed: %s", topology, wrong)
        return wrong is None
