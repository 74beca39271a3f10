"""Seconds of a core that this process, its JVM and Spark's Python workers take. Linux only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import attrs

_TICKS = os.sysconf("SC_CLK_TCK")
_COMPILERS = ("C1 Compiler", "C2 Compiler")
"""How Linux shows the names of the threads in which a JVM compiles; they must not end meanwhile."""


@attrs.frozen
class CoreSecs:
    """What each process has taken so far, by its id.

    Args:
        python: of this process and of those below it that are no JVM.
        jvm: of the JVMs below it, without their compilers, which a long run does not need.
    """

    python: Mapping[int, float]
    jvm: Mapping[int, float]

    @classmethod
    def now(cls) -> CoreSecs:
        """Look at all processes."""
        this, every = os.getpid(), _entries(Path("/proc"))
        python: dict[int, float] = {}
        jvm: dict[int, float] = {}
        for pid, entry in every.items():
            if not _is_below(this, pid, every):
                continue
            if entry.name == "java":
                threads = _entries(Path("/proc", str(pid), "task")).values()
                jvm[pid] = entry.secs - sum(thread.secs for thread in threads if thread.name.startswith(_COMPILERS))
            else:  # workers that have ended count to the daemon that forked them
                python[pid] = entry.secs + (entry.children_secs if pid != this else 0.0)
        return cls(python, jvm)

    def since(self, before: CoreSecs) -> tuple[float, float]:
        """Return the seconds of Python and of the JVM after an earlier look; a process that has ended took none."""
        return _difference(self.python, before.python), _difference(self.jvm, before.jvm)


@attrs.frozen
class _Entry:
    """A process or a thread."""

    name: str
    parent: int
    secs: float
    children_secs: float
    """Those of its children that have ended."""


def _entries(folder: Path) -> Mapping[int, _Entry]:
    entries = {}
    for path in folder.glob("[0-9]*"):
        try:
            text = (path / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended
            continue
        name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        user, system, children_user, children_system = map(int, fields[11:15])
        entries[int(path.name)] = _Entry(
            name, int(fields[1]), (user + system) / _TICKS, (children_user + children_system) / _TICKS
        )
    return entries


def _is_below(ancestor: int, pid: int, every: Mapping[int, _Entry]) -> bool:
    while pid != ancestor and pid in every:
        pid = every[pid].parent
    return pid == ancestor


def _difference(after: Mapping[int, float], before: Mapping[int, float]) -> float:
    return sum(secs - before.get(process, 0.0) for process, secs in after.items())
