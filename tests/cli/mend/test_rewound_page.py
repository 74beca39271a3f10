"""The page of a topology that a command has brought back: it tells what is committed now, and what was undone."""

import contextlib
import time

import pytest

from tests.ui.runs import EVIL, run_in
from txtopo.files.places import folder_at
from txtopo.inspect.backend import FolderBackend
from txtopo.inspect.run.slugs import slug_of

MODULE = """
from pathlib import Path
from tests.ui.runs import CONFIG, topology_in

def topology():
    return topology_in(Path("out"))

def config():
    return CONFIG
"""
SLUG = slug_of(EVIL)


@contextlib.contextmanager
def page(folder):
    with contextlib.closing(FolderBackend(folder_at(folder / "out"))) as backend:
        yield backend


def statuses(backend):
    lines = backend.transactions(SLUG, 0, None, 200, 0).transactions
    return {line.txid: line.status for line in lines}


@pytest.mark.slow
def test_the_page_of_a_rewound_topology(command_line, tmp_path):
    """Before the next run: what was undone is not committed. After it: an undone attempt is none of the new ones."""
    command_line.write_module("job", MODULE)
    run_in(tmp_path / "out")
    with page(tmp_path) as backend:
        assert (backend.header(SLUG).committed, set(statuses(backend).values())) == (6, {"committed"})
    command_line.told("rewind", "job", "4", "--yes")
    assert "2 groups dropped; their transactions run again" in command_line.told("audit", "out")
    rewound_at = time.time()
    with page(tmp_path) as backend:
        found = backend.header(SLUG)
        assert (found.committed, found.begun, backend.topologies().topologies[0].committed) == (4, 4, 4)
        assert statuses(backend) == {**dict.fromkeys(range(1, 5), "committed"), 5: "undone", 6: "undone"}
        assert [attempt.outcome for attempt in backend.transaction(SLUG, 6).attempts] == ["failed", "undone"]
        assert [attempt.outcome for attempt in backend.transaction(SLUG, 4).attempts] == ["visible"]
    run_in(tmp_path / "out", until=5)
    with page(tmp_path) as backend:
        assert backend.header(SLUG).committed == 5
        assert statuses(backend) == {**dict.fromkeys(range(1, 6), "committed"), 6: "undone"}
    run_in(tmp_path / "out")
    with page(tmp_path) as backend:
        assert (backend.header(SLUG).committed, set(statuses(backend).values())) == (6, {"committed"})
        outcomes = [attempt.outcome for attempt in backend.transaction(SLUG, 6).attempts]
        assert outcomes == ["failed", "undone", "failed", "visible"]
        again = backend.transactions(SLUG, 5, None, 200, 0).transactions
        assert [line.attempts for line in again] == [2, 1]
        assert all(line.began_at > rewound_at for line in again)
