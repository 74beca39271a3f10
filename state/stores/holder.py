"""The holder of a lead: a record that a process writes so that the error of another process can name it."""

from __future__ import annotations

import functools
import json
import os
import socket
import uuid

import attrs

from txtopo.errors import AlreadyRunning, LostLead
from txtopo.files.proc import machine_id, start_of

GRACE_SECS = 0.5
"""The time that a killed holder may take to die, or that a new holder may take to write its record."""


@attrs.frozen
class Holder:
    """A process that holds, or held, the lead of a topology."""

    owner: str
    """A name of the process for people."""
    pid: int
    host: str
    machine: str
    """Identifies kernel and process-id namespace; empty if the system does not provide it."""
    started: str
    """The start time of the process in the kernel's units; distinguishes it from a later process with its pid."""
    token: str
    """Unique for each lead."""
    session_timeout_secs: float = 0.0
    """The maximum time that the lead outlives a holder that died."""

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
        """Return the holder that :meth:`to_bytes` wrote; None if it is missing or incomplete."""
        try:
            return Holder(**json.loads(data))
        except (ValueError, TypeError):
            return None

    def to_bytes(self) -> bytes:
        """Return the holder as JSON."""
        return json.dumps(attrs.asdict(self), sort_keys=True).encode()

    def is_alive(self) -> bool | None:
        """Whether the process is alive; None if it is on another machine, so that this one cannot know."""
        if not self.machine or not self.started or self.machine != _machine():
            return None
        return _started(self.pid) == self.started


def refusal(topology_id: str, holder: Holder | None) -> AlreadyRunning:
    """Return the error for a process that requests a lead which another one holds."""
    leader = f"{holder.owner!r}, process {holder.pid} on {holder.host}" if holder else "a process that left no name"
    return AlreadyRunning(
        f"topology {topology_id!r} is led by {leader}: stop that one first, or give this topology an id of its own"
    )


def loss(topology_id: str, epoch: int, stored: int | None) -> LostLead:
    """Return the error for a write under a lost lead; ``stored`` is the epoch in the store, None if it has none."""
    if stored is None:
        reason = "the store no longer holds an epoch: somebody has wiped it"
    elif stored == epoch:
        reason = "it was released, or its session has expired, and nobody has taken it since"
    else:
        reason = f"epoch {stored} has taken it since"
    return LostLead(f"the lead of topology {topology_id!r}, epoch {epoch}, is lost: {reason}; nothing was written")


@functools.cache
def _machine() -> str:
    machine = machine_id()
    return f"{machine} {socket.gethostname()}" if machine else ""


@functools.cache
def _own_start(pid: int) -> str:
    return _started(pid) or ""


def _started(pid: int) -> str | None:
    start = start_of(pid)
    return None if start is None else str(start)
