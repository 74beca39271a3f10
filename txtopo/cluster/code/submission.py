"""A submission: a description of what to run, and an archive of the topology's modules.

The archive is a zip; a wheel is one, too. Nimbus neither unpacks it nor imports from it. It only checks the table of
contents: no member leaves the folder, none is a link, and their number and size are bounded.

On disk the code of a topology is two files, which :class:`~txtopo.cluster.code_store.Manifest` lists: ``code.zip`` and
``topology.json``, a :class:`Submission`. A driver puts ``code.zip`` on its ``sys.path`` and builds the topology by
``module`` and ``attribute``.
"""

from __future__ import annotations

import json
import re
import stat
import zipfile
from pathlib import Path, PurePosixPath

import attrs

from txtopo.errors import SubmissionError
from txtopo.files.records import DAMAGE, from_request, read_json, to_json
from txtopo.settings.setting import TopologyKind

ARCHIVE_NAME = "code.zip"
DESCRIPTION_NAME = "topology.json"

MEMBERS_MAX = 20_000
"""Each member becomes a file on every machine; a large library has some thousand."""
UNPACKED_BYTES_MAX = 1 << 30
"""What an archive may hold: several large Python environments, and too little to fill a disk at once."""
_NAME_CHARACTERS_MAX = 100
"""Names are in paths, whose parts may have 255 bytes, with more than the name."""
_NAME_BYTES_MAX = 200
"""An id adds a number and a time to the name, and must be a file name: at most 255 bytes."""
# ZooKeeper refuses them in names of nodes: its checks see only halves of what is above U+FFFF.
_FORBIDDEN = re.compile(r"[/\\.:\s\ufff0-\U0010ffff]")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@attrs.frozen
class Submission:
    """What to run, and under which name.

    Args:
        name: the name in the cluster.
        topology_id: the builder's id, which the client has found by building the topology.
        module: the module to import from the archive.
        attribute: the topology in it, or a function that returns one.
        settings: what ``--set`` gave, as texts by name: arguments of the function, and settings of the topology.
        wait_secs: the wait of a kill or rebalance that gives none: ``topology.message.timeout.secs``.
        is_active: whether it begins ACTIVE, or INACTIVE.
        kind: ``transactional`` or ``plain``; to show.
        version: of the txtopo that submits.
    """

    name: str
    topology_id: str
    module: str
    attribute: str = "topology"
    settings: dict[str, str] = attrs.field(factory=dict)
    wait_secs: float = 30.0
    is_active: bool = True
    kind: str = "transactional"
    version: str = ""

    def to_bytes(self) -> bytes:
        """Return it as one line of JSON."""
        return json.dumps(to_json(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Submission:
        """Return the submission that :meth:`to_bytes` wrote; SubmissionError if it is damaged, or a name is bad."""
        try:
            submission = from_request(read_json(data), cls)
        except DAMAGE as error:
            raise SubmissionError(f"the description of the submission cannot be read: {error!r:.300}") from error
        check_name(submission.name)
        try:
            # A lone surrogate is valid JSON, but no file and no node takes it.
            "".join([submission.topology_id, *submission.settings, *submission.settings.values()]).encode()
        except UnicodeEncodeError as error:
            raise SubmissionError(f"the submission has a text that is not Unicode: {error}") from error
        if not submission.topology_id or not _MODULE.fullmatch(submission.module):
            raise SubmissionError(f"the submission names no module or topology id: {submission.module!r}")
        if not _MODULE.fullmatch(submission.attribute):
            raise SubmissionError(f"the submission names no attribute of {submission.module}: {submission.attribute!r}")
        if submission.kind not in {kind.value for kind in TopologyKind}:
            raise SubmissionError(f"there is no kind {submission.kind!r} of topologies")
        if not 0 <= submission.wait_secs < float("inf"):
            raise SubmissionError(f"the wait of {submission.name!r} is {submission.wait_secs} s")
        return submission


def check_name(name: str) -> None:
    r"""Check the name of a topology in the cluster: it is part of names of files and of nodes in ZooKeeper.

    Raises:
        SubmissionError: it is blank, too long, or has one of ``/ . : \``, white space, what cannot be printed, or an
            emoji or the like, above U+FFEF, in it.
    """
    is_short = 0 < len(name) <= _NAME_CHARACTERS_MAX
    if not is_short or not name.isprintable() or _FORBIDDEN.search(name) or len(name.encode()) > _NAME_BYTES_MAX:
        raise SubmissionError(
            f"a topology cannot be named {name!a}: give it 1 to {_NAME_CHARACTERS_MAX} characters without "
            "slashes, dots, colons, white space and emoji"
        )


def check_archive(path: Path, *, members_max: int = MEMBERS_MAX, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> None:
    """Check an archive's table of contents.

    Raises:
        SubmissionError: it is not a zip, a member leaves the folder or is a link, or there is too much in it.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise SubmissionError(f"the archive is not a zip file: {error}") from error
    if len(members) > members_max or sum(member.file_size for member in members) > unpacked_bytes_max:
        raise SubmissionError(
            f"the archive has more than {members_max} members, or more than {unpacked_bytes_max >> 20} MiB unpacked"
        )
    for member in members:
        name = PurePosixPath(member.filename.replace("\\", "/"))
        drive = len(member.filename) > 1 and member.filename[1] == ":"
        if name.is_absolute() or ".." in name.parts or drive or "\0" in member.orig_filename:
            raise SubmissionError(f"the archive's member {member.filename!r} leaves its folder")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise SubmissionError(f"the archive's member {member.filename!r} is a link")
