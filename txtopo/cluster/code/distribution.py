"""How code gets from the leader to the other nimbuses and to supervisors: the contract, and two implementations."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote

import attrs
import httpx
import pyarrow as pa
from pyarrow import fs

from txtopo.cluster.code_store import CodeFile, CodeStore, Manifest
from txtopo.cluster.logs import RepeatedWarning
from txtopo.cluster.settings import ClusterConfig
from txtopo.cluster.state import ClusterState
from txtopo.errors import CodeUnavailable, ConfigError, Unreachable
from txtopo.files.durable import is_shortage, sync_path

_LOG = logging.getLogger(__name__)
_TIMEOUT_SECS = 10.0
"""A nimbus that is silent for so long is gone; another one may hold the code."""
_CHUNK_BYTES = 1 << 20
"""How much of a file is in memory at a time."""
_BYTES_PER_SEC_MIN = 64 << 10
"""A file that comes more slowly is given up, ``_TIMEOUT_SECS`` aside."""


@attrs.frozen
class CodeAccess:
    """What a distributor is given.

    Args:
        state: the state of the cluster, with the holders of each topology's code.
        address: this daemon's ``host:port``.
        token: the cluster's token, which requests to other nimbuses need; ``repr`` hides it.
    """

    state: ClusterState
    address: str
    token: str = attrs.field(repr=False)


class CodeDistributor(ABC):
    """Brings the code of topologies to every daemon that needs it. Subclass it for another way than files over HTTP.

    *You* must deliver files exactly as they were uploaded, or raise CodeUnavailable; be callable from several threads
    once prepared; and give up within a time that does not grow with the number of nimbuses that are away for long.
    *txtopo* checks size and SHA-256 of all that was downloaded before it says that a nimbus holds it, never asks for a
    topology that was not uploaded, and calls :meth:`cleanup` on the leader when a topology is removed.
    """

    access: CodeAccess
    """What :meth:`prepare` was given."""

    def prepare(self, access: CodeAccess) -> None:
        """Get ready; called once, first."""
        self.access = access

    def upload(self, folder: Path, manifest: Manifest) -> None:
        """Make the files of a new topology available to other daemons; durable when it returns.

        Args:
            folder: where the files are, in this nimbus' code store. They stay there.
            manifest: lists them.
        """

    @abstractmethod
    def download(self, manifest: Manifest, folder: Path) -> list[Path]:
        """Fetch all files of a topology.

        Args:
            manifest: what was published.
            folder: an empty folder for the files.

        Returns:
            Their paths, in order of the manifest.

        Raises:
            CodeUnavailable: at least one file cannot be had now, or has another size or content.
        """

    def get_replication_count(self, topology: str) -> int:
        """Return how many copies of a topology's whole code there are, the leader's among them; 0 if none.

        A copy counts when its holder has said in ZooKeeper that it has checked it, and is alive. A holder that is away
        stays recorded, for its disk may come back with it, but may never return.
        """
        return len(self.access.state.live_holders_of(topology))

    def cleanup(self, topology: str) -> None:
        """Remove what :meth:`upload` has put outside of the daemons' folders; called again after a failure."""

    def close(self) -> None:
        """Give back all resources; a second call does nothing."""


class LocalCodeDistributor(CodeDistributor):
    """Files on the disks of the nimbuses, which serve them over HTTP: ``/api/v1/code/ID/FILE``. The default."""

    def prepare(self, access: CodeAccess) -> None:
        """Open a client."""
        super().prepare(access)
        self._client = _client(access.token)

    def download(self, manifest: Manifest, folder: Path) -> list[Path]:
        """Fetch each file from one of the holders, the live ones first."""
        live = self.access.state.nimbuses()
        holders = self.access.state.holders_of(manifest.topology) - {self.access.address}
        # Dead ones last, for each may cost a timeout; but a nimbus without ZooKeeper counts as dead and still serves.
        order = sorted(holders, key=lambda holder: (holder not in live, holder))
        return fetch_from(self._client, order, manifest, folder)

    def close(self) -> None:
        """Close the client."""
        self._client.close()


class SharedFolderCodeDistributor(CodeDistributor):
    """A folder that all daemons reach: a mounted one, or whatever ``pyarrow.fs`` opens, such as ``s3://bucket/code``.

    While the folder is there, any nimbus can fetch any code, whoever else is alive.

    Args:
        uri: the folder; created if it does not exist.
    """

    def __init__(self, uri: str) -> None:
        try:
            self._files, self._base = fs.FileSystem.from_uri(uri if "://" in uri else str(Path(uri).absolute()))
        except (pa.ArrowInvalid, OSError) as error:
            raise ConfigError(f"nimbus.code.distributor.folder is {uri!r}: {error}") from error

    def prepare(self, access: CodeAccess) -> None:
        """Make the folder."""
        super().prepare(access)
        self._files.create_dir(self._base, recursive=True)

    def upload(self, folder: Path, manifest: Manifest) -> None:
        """Copy the files into the folder."""
        self._files.create_dir(f"{self._base}/{manifest.topology}", recursive=True)
        for file in manifest.files:
            with (
                (folder / file.name).open("rb") as source,
                self._files.open_output_stream(self._path(manifest.topology, file.name)) as target,
            ):
                shutil.copyfileobj(source, target, _CHUNK_BYTES)
            self._sync(self._path(manifest.topology, file.name))
        self._sync(f"{self._base}/{manifest.topology}")
        self._sync(self._base)

    def download(self, manifest: Manifest, folder: Path) -> list[Path]:
        """Copy the files from the folder."""
        paths = []
        for file in manifest.files:
            try:
                with self._files.open_input_stream(self._path(manifest.topology, file.name)) as source:
                    paths.append(receive(file, folder, iter(partial(source.read, _CHUNK_BYTES), b"")))
            except OSError as error:
                if is_shortage(error):
                    raise  # of this machine, where the file is written
                raise CodeUnavailable(f"{file.name} of {manifest.topology!r} cannot be read: {error}") from error
        return paths

    def cleanup(self, topology: str) -> None:
        """Remove the topology's folder."""
        path = f"{self._base}/{topology}"
        if self._files.get_file_info(path).type == fs.FileType.Directory:
            self._files.delete_dir(path)

    def _path(self, topology: str, name: str) -> str:
        return f"{self._base}/{topology}/{name}"

    def _sync(self, path: str) -> None:
        """Sync a file or folder of a file system; an object store has it durable already."""
        if isinstance(self._files, fs.LocalFileSystem):
            sync_path(path)


def _client(token: str) -> httpx.Client:
    return httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=_TIMEOUT_SECS, trust_env=False)


def fetch_from(client: httpx.Client, holders: Sequence[str], manifest: Manifest, folder: Path) -> list[Path]:
    """Fetch each file into an empty folder, from the first holder with a sound one; CodeUnavailable if none has."""
    return [_fetched(client, holders, manifest.topology, file, folder) for file in manifest.files]


def _fetched(client: httpx.Client, holders: Sequence[str], topology: str, file: CodeFile, folder: Path) -> Path:
    wrong = []
    path = f"/api/v1/code/{quote(topology, safe='')}/{quote(file.name, safe='')}"
    for holder in holders:
        try:
            with client.stream("GET", f"http://{holder}{path}") as answer:
                answer.raise_for_status()
                return receive(file, folder, answer.iter_bytes())  # as they come: a slow one must be seen
        except (httpx.HTTPError, CodeUnavailable) as error:
            wrong.append(f"{holder}: {str(error) or type(error).__name__}")
    tried = "; ".join(wrong) or "no other daemon holds it"
    raise CodeUnavailable(f"{file.name} of {topology!r} cannot be fetched: {tried}")


def receive(file: CodeFile, folder: Path, chunks: Iterable[bytes]) -> Path:
    """Write a file from chunks, and sync it; stop at the published size, for a broken peer may send without end.

    Raises:
        CodeUnavailable: size or content are not as published, or it comes too slowly: another holder may be faster.
    """
    path, size_bytes, digest = folder / file.name, 0, hashlib.sha256()
    end = time.monotonic() + _TIMEOUT_SECS + file.size_bytes / _BYTES_PER_SEC_MIN
    with path.open("wb") as target:
        for chunk in chunks:
            if time.monotonic() > end:
                raise CodeUnavailable(f"{file.name} comes too slowly: {size_bytes} of {file.size_bytes} bytes so far")
            size_bytes += len(chunk)
            if size_bytes > file.size_bytes:
                raise CodeUnavailable(f"{file.name} has more than the {file.size_bytes} bytes that were published")
            digest.update(chunk)
            target.write(chunk)
    if (size_bytes, digest.hexdigest()) != (file.size_bytes, file.sha256):
        raise CodeUnavailable(f"{file.name} is not as it was published: {size_bytes} bytes of {file.size_bytes}")
    sync_path(path)
    return path


def distributor_of(config: ClusterConfig) -> CodeDistributor:
    """Return the code distributor that ``nimbus.code.distributor`` names."""
    name, folder = config["nimbus.code.distributor"], config["nimbus.code.distributor.folder"]
    if name == "local":
        return LocalCodeDistributor()
    if name == "shared":
        if folder is None:
            raise ConfigError("nimbus.code.distributor is shared: set nimbus.code.distributor.folder, too")
        return SharedFolderCodeDistributor(folder)
    distributor: CodeDistributor = config.make("nimbus.code.distributor", CodeDistributor)
    return distributor


@attrs.frozen
class ClusterConnection:
    """A daemon's connection to its cluster: state, its folder for this cluster, code store and prepared distributor."""

    state: ClusterState
    folder: Path
    store: CodeStore
    distributor: CodeDistributor
    _address: str
    _client: httpx.Client
    _reminder: RepeatedWarning = attrs.field(factory=lambda: RepeatedWarning(_LOG), init=False)

    def fetch(self, manifest: Manifest) -> None:
        """Fetch the code of a topology by the distributor; if that fails, from supervisors that have run it.

        So a topology survives the loss of every nimbus' disk.

        Raises:
            CodeUnavailable: nobody alive has a sound copy.
            OSError: the disk here does not take it.
        """
        try:
            with self.store.draft() as draft:
                self.distributor.download(manifest, draft)
                self.store.keep(draft, manifest)
        except (CodeUnavailable, httpx.HTTPError) as error:
            supervisors = sorted(
                {supervisor.address for supervisor in self.state.supervisors().values()} - {self._address}
            )
            try:
                with self.store.draft() as draft:  # a new one: the first may hold some of the files
                    fetch_from(self._client, supervisors, manifest, draft)
                    self.store.keep(draft, manifest)
            except CodeUnavailable as last:
                raise CodeUnavailable(f"{error}; nor from supervisors: {last}") from error
            _LOG.warning("the code of %s was fetched from a supervisor: %s", manifest.topology, error)

    @contextlib.contextmanager
    def tries_again(self, topology: str) -> Iterator[None]:
        """Log, at most once a minute, why code cannot be fetched; swallow that error, for the next look tries again."""
        try:
            yield
        except (CodeUnavailable, Unreachable) as error:
            self._reminder.warn(topology, "%s; it is tried again", error)
        except OSError as error:
            if not is_shortage(error):
                raise
            self._reminder.warn(topology, "the code of %s cannot be kept here: %s; it is tried again", topology, error)
        else:
            self._reminder.clear(topology)

    def close(self) -> None:
        """Close what the daemon was given."""
        self._client.close()
        self.distributor.close()
        self.state.close()


def locked_home(home: Path) -> int:
    """Make a daemon's folder, and lock it until this process ends; return the lock's descriptor.

    Two supervisors on one folder would launch the same drivers, and two nimbuses remove each other's code.

    Raises:
        ConfigError: another daemon uses it.
    """
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)  # over HTTP code and logs need the token; the disk must not be a way round it
    lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ConfigError(f"another {home.name} uses {home}: give this one a storm.local.dir of its own") from None
    return lock


def open_cluster(config: ClusterConfig, home: Path, address: str, token: str) -> ClusterConnection:
    """Connect a daemon to its cluster; its files for this cluster go below ``home``, in a folder of the cluster's id.

    Raises:
        ConfigError: a setting does not fit.
        Unreachable: ZooKeeper does not answer.
        StopError: the nodes in ZooKeeper have a layout that this version does not know.
    """
    distributor = distributor_of(config)  # first: a wrong setting then leaves no open session
    state = ClusterState(
        config.zookeeper_hosts,
        config["storm.zookeeper.root"],
        config["storm.zookeeper.session.timeout.secs"],
        config["storm.zookeeper.auth"],
    )
    folder = home / state.cluster_id
    distributor.prepare(CodeAccess(state, address, token))
    return ClusterConnection(state, folder, CodeStore(folder / "code"), distributor, address, _client(token))
