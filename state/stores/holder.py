"""The holder of a lead: what a process leaves behind so that another one can be told who is in its way."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import uuid
from pathlib import Path

import attrs

from txtopo.errors import AlreadyRunning, LostLead

__all__ = ["GRACE_SECS", "Holder", "loss", "refusal"]

GRACE_SECS = 0.5
"""How long a holder may take to die once it is killed, or to leave its name once it has a lead."""


@attrs.frozen
class Holder:
    """A process that holds, or held, the lead of a topology."""

    owner: str
    """What names the process to people."""
    pid: int
    host: str
    machine: str
    """Tells apart kernels and process-id namespaces; empty where the system does not say."""
    started: str
    """When the process started, in the kernel's own count; tells a process from a later one with its pid."""
    token: str
    """Differs for each lead that is taken."""
    session_timeout_secs: float = 0.0
    """How long the lead outlives a holder that died, at most."""

    @staticmethod
    def of_this_process(owner: str, session_timeout_secs: float = 0.0) -> Holder:
        """Return a new holder for this process."""
        pid = os.getpid()
        return Holder(
            owner=owner,
            pid=pid,
            host=socket.gethostname(),
            machine=_machine(),
            started=_own_start(pid),
            token=uuid.uuid4().hex,
            session_timeout_secs=session_timeout_secs,
        )

    @staticmethod
    def from_bytes(data: bytes) -> Holder | None:
        """Return the holder that :meth:`to_bytes` wrote, or None where it is not (or not fully) written."""
        try:
            return Holder(**json.loads(data))
        except (ValueError, TypeError):
            return None

    def to_bytes(self) -> bytes:
        """Return the holder as JSON."""
        return json.dumps(attrs.asdict(self), sort_keys=True).encode()

    def is_alive(self) -> bool | None:
        """Whether the process is alive; None where that cannot be known from here (another machine)."""
        if not self.machine or not self.started or self.machine != _machine():
            return None
        return _started(self.pid) == self.started


def refusal(topology_id: str, holder: Holder | None) -> AlreadyRunning:
    """Return the error for a process that asks for a lead which another one holds."""
    who = f"{holder.owner!r}, process {holder.pid} on {holder.host}" if holder else "a process that left no name"
    return AlreadyRunning(
        f"topology {topology_id!r} is led by {who}: stop that one first, or give this topology an id of its own"
    )


def loss(topology_id: str, epoch: int, stored: int | None) -> LostLead:
    """Return the error for a write of a lead that is held no more.

    Args:
        topology_id: the topology.
        epoch: the epoch of the lead that wrote.
        stored: the epoch in the store; None if there is none.
    """
    if stored is None:
        reason = "the store holds no epoch any more: somebody has wiped it"
    elif stored == epoch:
        reason = "it was released, or its session has expired, and nobody has taken it since"
    else:
        reason = f"epoch {stored} has been taken since"
    return LostLead(f"the lead of topology {topology_id!r}, epoch {epoch}, is lost: {reason}; nothing was written")


@functools.cache
def _machine() -> str:
    # A boot id alone is shared by all containers of a machine, whose process ids are not comparable.
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()} {socket.gethostname()}"
    return ""


@functools.cache
def _own_start(pid: int) -> str:
    return _started(pid) or ""


def _started(pid: int) -> str | None:
    # Fields of /proc/PID/stat after the command, which may hold anything but is the last thing in
    # parentheses: state first, the start time twentieth (proc(5)). Z and X are dead but not yet buried.
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in {"Z", "X"} else fields[19]
    return None
