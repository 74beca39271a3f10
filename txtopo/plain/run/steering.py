"""What a running plain topology answers to whom: one table of phases and requests. A pure state machine.

Requests and the ends of workers go in, in the order in which they came; a list of actions comes out, to be carried out
in this order. :class:`~txtopo.plain.run.runner.RunningTopology` does so in one thread::

                 rebalance          the workers have ended
      RUNNING ─────────────▶ REBALANCING ─────────────▶ RUNNING
         │ stop                   │ stop
         └────────▶ STOPPING ◀────┘
      any of them ── the workers have ended, and nothing follows ──▶ ENDED

A rebalance is not carried out if the topology ends with the workers that it waits for: by a stop, by an error, or
because every spout is exhausted. Whoever has asked for it is told of the error, if there is one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from txtopo.plain.supervision.supervision import ActivationAsked, StopAsked

STOPPED = "stopped"
EXHAUSTED = "every spout is exhausted"
FAILED = "it has failed"


class Phase(enum.Enum):
    """What a topology is at."""

    RUNNING = "running"
    REBALANCING = "rebalancing"
    """Its workers end; others follow."""
    STOPPING = "stopping"
    """Its workers end; nothing follows."""
    ENDED = "ended"


# -- events, beside StopAsked and ActivationAsked


@attrs.frozen
class RebalanceAsked:
    """The user wants another number of workers."""

    workers: int


@attrs.frozen
class WorkersEnded:
    """All workers have ended, or could not begin.

    Args:
        is_exhausted: whether every spout was exhausted, with nothing pending.
        error: why they have failed; None if they have not.
    """

    is_exhausted: bool
    error: Exception | None


Event = StopAsked | ActivationAsked | RebalanceAsked | WorkersEnded


# -- actions


@attrs.frozen
class EndWorkers:
    """Ask the workers to end, sooner if they were asked already.

    Args:
        wait_secs: how long to wait for what is pending.
    """

    wait_secs: float


@attrs.frozen
class BeginWorkers:
    """Start workers; if they cannot be started, drop the actions that follow, and say that they have ended."""

    workers: int
    is_active: bool


@attrs.frozen
class TellWorkers:
    """Activate or deactivate the workers."""

    is_active: bool


@attrs.frozen
class Answer:
    """Let all go on that have asked for a rebalance.

    Args:
        error: what to raise there; None: nothing.
    """

    error: Exception | None = None


@attrs.frozen
class Finish:
    """The topology has ended.

    Args:
        reason: why, in words.
        error: why, if it has failed.
    """

    reason: str
    error: Exception | None


Action = EndWorkers | BeginWorkers | TellWorkers | Answer | Finish


class Steering:
    """The state machine of one topology.

    Args:
        workers: how many workers it begins with.
        rebalance_secs: how long a rebalance waits for what is pending.
        is_active: whether it is active from the beginning.
    """

    def __init__(self, workers: int, *, rebalance_secs: float, is_active: bool) -> None:
        self._workers = workers
        self._rebalance_secs = rebalance_secs
        self._is_active = is_active
        self._phase = Phase.RUNNING
        self._error: Exception | None = None

    @property
    def phase(self) -> Phase:
        """What the topology is at."""
        return self._phase

    def handle(self, event: Event) -> list[Action]:
        """Take an event, and return what to do, in this order."""
        return ANSWERS[self._phase][type(event)](self, event)

    def _stop(self, event: StopAsked) -> list[Action]:
        self._phase = Phase.STOPPING
        return [EndWorkers(event.wait_secs)]

    def _stop_instead(self, event: StopAsked) -> list[Action]:
        """Stop a topology that was being rebalanced; its workers end already."""
        return [*self._stop(event), Answer()]

    def _rebalance(self, event: RebalanceAsked) -> list[Action]:
        self._phase, self._workers = Phase.REBALANCING, event.workers
        return [EndWorkers(self._rebalance_secs)]

    def _rebalance_otherwise(self, event: RebalanceAsked) -> list[Action]:
        """Let the last number that was asked for be the one."""
        self._workers = event.workers
        return []

    def _activate(self, event: ActivationAsked) -> list[Action]:
        self._is_active = event.is_active
        return [TellWorkers(event.is_active)]

    def _activate_later(self, event: ActivationAsked) -> list[Action]:
        """Let the next workers begin so; those that end stay as they are."""
        self._is_active = event.is_active
        return []

    def _begin_again(self, event: WorkersEnded) -> list[Action]:
        if event.is_exhausted or event.error is not None:
            return self._end(event)
        self._phase = Phase.RUNNING
        return [BeginWorkers(self._workers, self._is_active), Answer()]

    def _end(self, event: WorkersEnded) -> list[Action]:
        reason = EXHAUSTED
        if event.error is not None:
            reason = FAILED
        elif self._phase is Phase.STOPPING:
            reason = STOPPED
        self._phase, self._error = Phase.ENDED, event.error
        return [Finish(reason, event.error), Answer(event.error)]

    def _refuse(self, _: RebalanceAsked) -> list[Action]:
        return [Answer(self._error)]

    def _ignore(self, _: Event) -> list[Action]:
        return []


ANSWERS: Mapping[Phase, Mapping[type[Event], Callable[[Steering, Any], list[Action]]]] = {
    Phase.RUNNING: {
        StopAsked: Steering._stop,  # noqa: SLF001 - the table is part of the class
        RebalanceAsked: Steering._rebalance,  # noqa: SLF001
        ActivationAsked: Steering._activate,  # noqa: SLF001
        WorkersEnded: Steering._end,  # noqa: SLF001
    },
    Phase.REBALANCING: {
        StopAsked: Steering._stop_instead,  # noqa: SLF001
        RebalanceAsked: Steering._rebalance_otherwise,  # noqa: SLF001
        ActivationAsked: Steering._activate_later,  # noqa: SLF001
        WorkersEnded: Steering._begin_again,  # noqa: SLF001
    },
    Phase.STOPPING: {
        StopAsked: Steering._stop,  # noqa: SLF001 - the wait that is over first counts
        RebalanceAsked: Steering._refuse,  # noqa: SLF001
        ActivationAsked: Steering._ignore,  # noqa: SLF001
        WorkersEnded: Steering._end,  # noqa: SLF001
    },
    Phase.ENDED: {
        StopAsked: Steering._ignore,  # noqa: SLF001
        RebalanceAsked: Steering._refuse,  # noqa: SLF001
        ActivationAsked: Steering._ignore,  # noqa: SLF001
        WorkersEnded: Steering._ignore,  # noqa: SLF001 - told twice
    },
}
"""What each request, or end of workers, leads to in each phase."""
