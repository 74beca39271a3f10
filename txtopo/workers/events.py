"""What the supervisor of workers is told; :data:`Event` is any of it."""

from __future__ import annotations

from typing import Any

import attrs

from txtopo.workers.messages import FromWorker


@attrs.frozen
class Received:
    """A message has arrived on a channel of a worker."""

    channel: int
    message: FromWorker


@attrs.frozen
class Stalled:
    """A watcher reports that its worker has sent no heartbeat for ``secs``."""

    worker: int
    generation: int
    task: int
    """The task that has its turn; a negative number: none."""
    secs: float
    is_working: bool
    """Whether the process takes processor time; if not, it is frozen."""


@attrs.frozen
class ChannelLost:
    """A worker's end of a channel was closed."""

    channel: int


@attrs.frozen
class JobEnded:
    """Spark reports that a worker's job has ended: by an error, or without one."""

    worker: int
    job: int
    error: Exception | None


@attrs.frozen
class ActivationAsked:
    """The user activates or deactivates the topology."""

    is_active: bool


@attrs.frozen
class StopAsked:
    """The user stops the topology, and waits up to ``wait_secs`` for pending roots."""

    wait_secs: float


@attrs.frozen
class TellAsked:
    """The owner has something to say to the body of a generation."""

    worker: int
    generation: int
    message: Any = attrs.field(repr=False)


@attrs.frozen
class EndAsked:
    """The owner wants a generation to end at once, whatever it is at; another one follows."""

    worker: int
    generation: int
    reason: str


@attrs.frozen
class Excused:
    """A generation has died at the owner's work, or dies of it: that does not count against the restarts."""

    worker: int
    generation: int


@attrs.frozen
class Ticked:
    """Time has passed."""


Event = (
    Received | Stalled | ChannelLost | JobEnded | ActivationAsked | StopAsked | TellAsked | EndAsked | Excused | Ticked
)
