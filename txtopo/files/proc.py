"""What Linux tells of processes in ``/proc``: the one place that reads it (proc(5)).

Elsewhere each answer is that nothing is known. A process is told from a later one with its pid by its start in the
kernel's ticks, which a clock that is set doesn't change; psutil's ``create_time`` is in seconds of that clock.

A watcher's program has this file's source, too, so it imports only the standard library.
"""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

_STATE, _USER_TICKS, _SYSTEM_TICKS, _START = 0, 11, 12, 19
"""Positions among the fields of ``stat`` after the command, which ends at the last ")" and may hold anything before."""


def start_of(pid: int) -> int | None:
    """Return the start of a living process, in ticks since boot; None if it is dead, or nothing is known."""
    fields = _fields(pid)
    # Z and X are dead, although whoever started them has not asked for their end yet.
    return int(fields[_START]) if fields and fields[_STATE] not in {"Z", "X"} else None


def cpu_ticks(pid: int) -> int | None:
    """Return the processor time of a process, in ticks of the kernel's clock; None if nothing is known."""
    fields = _fields(pid)
    return int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS]) if fields else None


def memory_bytes() -> int | None:
    """Return the resident memory of this process; None if it isn't known."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return None


def machine_id() -> str:
    """Return what processes have in common whose pids can be compared; empty if it isn't known."""
    # All containers of a machine share its boot id, but their process ids are not comparable.
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def _fields(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return []
