"""The timelines of topologies whose other files are in a bucket.

A timeline is written in place four times a second, which no object store does. So such a run has it in a folder of this
machine, which only its user can read, and puts it beside its other files when it ends: one object for the last run.
The page shows the one that is here; of a run elsewhere that has ended, it brings that object here. A run that is killed
puts none.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import stat
import tempfile
import threading
import zipfile
from pathlib import Path

from txtopo.assembly.storage import metadata_dir_of, said_metadata_dir
from txtopo.config import Config
from txtopo.engine.timeline.records import FILES, epochs_in, folder_of, path_of
from txtopo.engine.timeline.ring import HEADER_BYTES, RECORD_BYTES, read_header
from txtopo.errors import TxtopoError
from txtopo.files.durable import write_whole
from txtopo.files.folder import Folder, LocalFolder
from txtopo.files.objects import ObjectFolder
from txtopo.files.places import file_name
from txtopo.topology.topology import Topology, TransactionalTopology

_ENDED = "ended"
"""The folder, in a timeline's, of one that was brought here."""
_PUT_SECS = 5.0
"""How long the end of a run waits for a bucket: it is only for people."""
_PRIVATE = 0o700
_LOG = logging.getLogger("txtopo")


def place_in(metadata_dir: Folder, topology_id: str) -> Path | None:
    """Return the folder of a topology's timeline on this machine; None if there can be none."""
    if isinstance(metadata_dir, LocalFolder):
        return folder_of(metadata_dir.root, topology_id)
    folder = Path(tempfile.gettempdir(), f"txtopo-{os.getuid()}")
    try:
        folder.mkdir(_PRIVATE, exist_ok=True)
        status = folder.lstat()
    except OSError:  # a disk that can't be written
        return None
    # Anybody may make a folder of that name there.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        return None
    return folder_of(folder / file_name(str(metadata_dir)), topology_id)


def metadata_dir_if_any(topology: Topology, config: Config) -> Folder | None:
    """Return the metadata directory of a topology, beside which its runs keep their timeline; None if it has none."""
    if not isinstance(topology, TransactionalTopology):
        return None
    states = topology.plan.states.values()
    if said_metadata_dir(topology.plan, config) is None and all(state.address is None for state in states):
        return None
    return metadata_dir_of(topology.plan, config)


def place_of(topology: Topology, config: Config) -> Path | None:
    """Return where a topology's runs keep their timeline on this machine; None if they keep none."""
    metadata_dir = metadata_dir_if_any(topology, config)
    return None if metadata_dir is None else place_in(metadata_dir, topology.id)


def put_end(metadata_dir: ObjectFolder, place: Path, topology_id: str, epoch: int) -> None:
    """Put the timeline of a run that has ended into the bucket, in place of that of the run before."""
    ends = metadata_dir.below(folder_of(Path(), topology_id).name)

    def write() -> None:
        try:
            ends.put(_object_of(epoch), _packed(place, epoch), is_durable=False)
            for name in ends.names():
                if name < _object_of(epoch):
                    ends.delete(name)
        except (OSError, TxtopoError) as error:
            _LOG.debug("the timeline could not be put into the bucket: %s", error)

    thread = threading.Thread(target=write, name="txtopo-timeline-end", daemon=True)
    thread.start()
    thread.join(_PUT_SECS)


def ended_in(place: Path) -> Path:
    """Return the folder into which :func:`bring_end` puts the timeline of a run that was elsewhere."""
    return place / _ENDED


def bring_end(metadata_dir: ObjectFolder, place: Path, topology_id: str, epoch: int | None) -> None:
    """Bring the timeline of a run that has ended here, if it has put one, and forget the one before.

    ``epoch`` is that of the run, None if it has not ended.
    """
    folder = ended_in(place)
    shutil.rmtree(folder, ignore_errors=True)
    if epoch is None:
        return
    with contextlib.suppress(OSError, TxtopoError, zipfile.BadZipFile):
        content = metadata_dir.below(folder_of(Path(), topology_id).name).get(_object_of(epoch))
        folder.mkdir(_PRIVATE, parents=True)
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            for name in (file for file in FILES if file in packed.namelist()):
                path = path_of(folder, epoch, name)
                write_whole(path, packed.read(name), 0o600)
                header = read_header(path)
                if header is not None:
                    os.truncate(path, HEADER_BYTES + header.slots * RECORD_BYTES)


def _object_of(epoch: int) -> str:
    return f"{epoch:010}.zip"


def _packed(place: Path, epoch: int) -> bytes:
    if epoch not in epochs_in(place):
        raise FileNotFoundError(f"{place} has no timeline of epoch {epoch}")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for name in FILES:
            with contextlib.suppress(FileNotFoundError):
                # A ring ends with the records that it has no more of: whoever unpacks it knows its length.
                packed.writestr(name, path_of(place, epoch, name).read_bytes().rstrip(b"\0"))
    return content.getvalue()
