"""Make output folders of today's code, killed in the middle of a commit group: ``python -m tests.legacy.make VERSION``.

For each way of staging a folder is made, ``VERSION-driver.tar.gz`` and ``VERSION-executors.tar.gz`` in this folder:

1. The topology of :mod:`tests.legacy.interrupted` runs without Spark up to a transaction: the first epoch.
2. It runs again, in a process of its own, and is killed by ``TXTOPO_FAILPOINTS``: a group is decided, and some of its
   four tables are written.
3. The folder is packed. The one place where it names its own path is the first entry of each Delta log, where
   delta-rs tells where the table was made and nobody reads it; there it becomes ``/out``.

Two more folders, ``VERSION-away.tar.gz`` and ``VERSION-gap.tar.gz``, are of :mod:`tests.legacy.changed`: one of its states
was left out of the topology after a transaction, and in the second folder was put back later. Versions that let that
pass have made them so; those that refuse it make neither.

Once made and committed a folder is never made again: it stands for what users have. A change of a persistent format
gets new folders, under a new VERSION, beside the old ones.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import pathlib
import signal
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Callable

import attrs

from state.delta.read.consistent import committed_in_tables
from tests.legacy import changed
from tests.legacy.interrupted import CONFIG, EXECUTORS_CONFIG, topology
from tests.processes import ran
from txtopo.errors import StopError
from txtopo.testing.inline import run_inline
from txtopo.transactional.journal.ending import METADATA_DIR

HERE = pathlib.Path(__file__).parent

FIRST_TXIDS = 60
"""Transactions of the first epoch."""


@attrs.frozen
class Way:
    """A way of making a folder.

    Args:
        name: what it is called by.
        writes: the table writes of the second epoch; then it is killed.
    """

    name: str
    writes: int

    @property
    def config(self):
        """The configuration to run with."""
        return EXECUTORS_CONFIG if self.name == "executors" else CONFIG


CHANGES = {
    "away": ((20, ("always", "sometimes")), (40, ("always",))),
    "gap": ((20, ("always", "sometimes")), (40, ("always",)), (60, ("always", "sometimes"))),
}
"""The runs of each folder of changed states: up to which transaction, with which states."""

WAYS = (Way("driver", 4 * 6 + 2), Way("executors", 4 * 6 + 1))
"""Groups of four tables: killed after two tables of the seventh group, or after one."""


def make(way: Way, output: pathlib.Path) -> None:
    """Make an output folder."""
    run_inline(topology(output), way.config, until=FIRST_TXIDS)
    code = f"from tests.legacy.make import resume; resume({way.name!r}, {str(output)!r})"
    killed = ran("-c", code, failpoints=f"table.write.after=kill:{way.writes}")
    assert killed.returncode == -signal.SIGKILL, killed
    all_in_one_file(output)
    in_all, in_any = committed_in_tables(output / METADATA_DIR, "interrupted")
    assert FIRST_TXIDS < in_all < in_any, "the group is in some of the tables only"


def make_changed(name: str, output: pathlib.Path) -> None:
    """Make an output folder of a topology whose states changed.

    Raises:
        StopError: this version refuses the change.
    """
    for until, states in CHANGES[name]:
        run_inline(changed.topology(output, states), CONFIG, until=until)
    all_in_one_file(output)


def all_in_one_file(output: pathlib.Path) -> None:
    """Move what is in the coordinator state's log into its file."""
    store = sqlite3.connect(output / "_txtopo" / "coordinator.sqlite")
    store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()


def resume(name: str, output: str) -> None:
    """Run on to the end."""
    (way,) = (each for each in WAYS if each.name == name)
    run_inline(topology(output), way.config)


def pack(folder: pathlib.Path, archive: pathlib.Path) -> None:
    """Pack a folder, without owners and times of this machine."""
    for entry in folder.glob("*/_delta_log/00000000000000000000.json"):
        entry.write_text(entry.read_text().replace(f"file://{folder}", "file:///out"))
    for path in folder.rglob("*"):
        if path.is_file():
            found = [text for text in (str(folder), str(HERE)) if text.encode() in path.read_bytes()]
            assert not found, f"{path} names {found}"

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            if not path.name.endswith(".lock"):
                tar.add(path, str(path.relative_to(folder)), recursive=False, filter=anonymous)
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def main() -> None:
    """Make all folders of a version."""
    (version,) = sys.argv[1:]
    for way in WAYS:
        _make_archive(f"{version}-{way.name}", functools.partial(make, way))
    for name in CHANGES:
        with contextlib.suppress(StopError):
            _make_archive(f"{version}-{name}", functools.partial(make_changed, name))


def _make_archive(name: str, make_folder: Callable[[pathlib.Path], None]) -> None:
    archive = HERE / f"{name}.tar.gz"
    assert not archive.exists(), f"{archive} was made before; it stays as it is"
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "out"
        make_folder(output)
        pack(output, archive)
    print(f"{archive.name}: {archive.stat().st_size} bytes")


if __name__ == "__main__":
    main()
