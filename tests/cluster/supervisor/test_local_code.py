"""Code is fetched and checked, whatever other topologies' code does."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.cluster.supervisor import local_code
from txtopo.cluster.supervisor.local_code import LocalCode


class ClusterConnection:
    """A cluster whose code comes at once, that of ``slow…`` once it is let go."""

    folder = Path("folder")

    def __init__(self) -> None:
        self.store = self.state = self
        self.here: set[str] = set()
        self.fetched: Counter[str] = Counter()
        self.let_go = threading.Event()

    def has(self, topology: str) -> bool:
        return topology in self.here

    def path(self, topology: str) -> Path:
        return Path(topology)

    def manifest(self, topology: str) -> str:
        return topology

    def fetch(self, manifest: str) -> None:
        self.fetched[manifest] += 1
        if manifest.startswith("slow"):
            assert self.let_go.wait(DEADLINE_SECS)
        self.here.add(manifest)

    @contextlib.contextmanager
    def tries_again(self, _topology: str) -> Iterator[None]:
        yield


def test_one_slow_fetch_blocks_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither other fetches nor checks of other code; whoever needs the slow code waits for the one fetch of it."""
    monkeypatch.setattr(local_code, "check_code", lambda path, *_, **__: f"built {path}")
    connection, failures = ClusterConnection(), []
    code = LocalCode(connection, 60.0, lambda: None, failures.append)  # type: ignore[arg-type]
    for topology in ("slow", "slow too"):
        code.begin_fetch(topology)
    wait_for("the slow fetches", lambda: connection.fetched["slow"] and connection.fetched["slow too"])
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(code.check("slow", None, Path())))
    waiting.start()
    code.begin_fetch("quick")
    wait_for("a quick fetch", lambda: connection.has("quick"))
    assert code.check("another", None, Path()) == "built another"
    assert answers == []
    connection.let_go.set()
    waiting.join(DEADLINE_SECS)
    assert (answers, connection.fetched["slow"], failures) == (["built slow"], 1, [])
    code.close()
