"""What the supervisor of workers wants done; :data:`Action` is any of it."""

from __future__ import annotations

from typing import Any

import attrs

from txtopo.workers.messages import Health, ToWorker


@attrs.frozen
class StartJob:
    """Submit the job of a worker."""

    worker: int
    job: int


@attrs.frozen
class CancelJob:
    """Cancel the job of a worker."""

    worker: int
    job: int


@attrs.frozen
class Send:
    """Send a message on a channel."""

    channel: int
    message: ToWorker


@attrs.frozen
class Close:
    """Close a channel: its other side is no longer a worker of the run."""

    channel: int


@attrs.frozen
class Warn:
    """Log a warning."""

    text: str


@attrs.frozen
class KeepLast:
    """Keep the last health of a worker that has died, for the counts of the run."""

    health: Health


@attrs.frozen
class ReportJoined:
    """Tell the owner that a generation has joined."""

    worker: int
    generation: int


@attrs.frozen
class ReportLost:
    """Tell the owner that a generation is lost; ``error`` is empty if it reported none."""

    worker: int
    generation: int
    error: str


@attrs.frozen
class Deliver:
    """Give the owner what a body has told it."""

    worker: int
    generation: int
    message: Any = attrs.field(repr=False)


@attrs.frozen
class Finish:
    """The run is over; it has failed if there is an error."""

    error: Exception | None


Action = StartJob | CancelJob | Send | Close | Warn | KeepLast | ReportJoined | ReportLost | Deliver | Finish
