"""How a running plain topology answers requests: one table of phases and requests. A pure state machine.

Requests and the ends of workers go in, in their order; a list of actions comes out, to be carried out in its order.
:class:`~txtopo.plain.run.runner.RunningTopology` does so in one thread::

                 rebalance          the workers have ended
      RUNNING ─────────────▶ REBALANCING ─────────────▶ RUNNING
         │ stop                   │ stop
         └────────▶ STOPPING ◀────┘
      any of them ── the workers have ended, and nothing follows ──▶ ENDED

If the topology ends while a rebalance waits for its workers (by a stop, by an error, or because every spout is
exhausted), the rebalance is dropped. Its caller gets the error, if there is one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from txtopo.plain.supervision.supervisor import ActivationAsked, StopAsked

STOPPED = "stopped"
EXHAUSTED = "every spout is exhausted"
FAILED = "it has failed"


class Phase(enum.Enum):
    """The phase of a topology."""

    RUNNING = "running"
    REBALANCING = "rebalancing"
    """Its workers end, and others will follow."""
    STOPPING = "stopping"
    """Its workers end, and no others will follow."""
    ENDED = "ended"


# -- events, beside StopAsked and ActivationAsked


@attrs.frozen
class RebalanceAsked:
    """The user wants another number of workers."""

    workers: int


@attrs.frozen
class WorkersEnded:
    """All workers have ended, or could not be started.

    Args:
        is_exhausted: whether every spout was exhausted, with nothing pending.
        error: the error that ended them; None if they ended in good order.
    """

    is_exhausted: bool
    error: Exception | None


Event = StopAsked | ActivationAsked | RebalanceAsked | WorkersEnded


# -- actions, beside StopAsked and ActivationAsked, which are passed on to the workers


@attrs.frozen
class BeginWorkers:
    """Start workers. If that fails, drop the actions behind it, and report ``WorkersEnded`` with the error."""

    workers: int
    is_active: bool


@attrs.frozen
class Answer:
    """Let all callers of ``rebalance`` return, or raise the error if there is one."""

    error: Exception | None = None


@attrs.frozen
class Finish:
    """The topology has ended, for a reason in words; it has failed if there is an error."""

    reason: str
    error: Exception | None


Action = StopAsked | ActivationAsked | BeginWorkers | Answer | Finish


class Steering:
    """The state machine of one topology.

    Args:
        workers: how many workers it starts with.
        rebalance_secs: how long a rebalance waits for pending roots.
        is_active: whether it starts active.
    """

    def __init__(self, workers: int, *, rebalance_secs: float, is_active: bool) -> None:
        self._workers = workers
        self._rebalance_secs = rebalance_secs
        self._is_active = is_active
        self._phase = Phase.RUNNING
        self._error: Exception | None = None

    @property
    def phase(self) -> Phase:
        """The phase of the topology."""
        return self._phase

    def handle(self, event: Event) -> list[Action]:
        """Take an event, and return the actions."""
        return ANSWERS[self._phase][type(event)](self, event)

    def _stop(self, event: StopAsked) -> list[Action]:
        self._phase = Phase.STOPPING
        return [event]

    def _stop_instead(self, event: StopAsked) -> list[Action]:
        """Stop during a rebalance; its callers return."""
        return [*self._stop(event), Answer()]

    def _rebalance(self, event: RebalanceAsked) -> list[Action]:
        self._phase, self._workers = Phase.REBALANCING, event.workers
        return [StopAsked(self._rebalance_secs)]

    def _rebalance_otherwise(self, event: RebalanceAsked) -> list[Action]:
        """The last number that was asked for counts."""
        self._workers = event.workers
        return []

    def _activate(self, event: ActivationAsked) -> list[Action]:
        self._is_active = event.is_active
        return [event]

    def _activate_later(self, event: ActivationAsked) -> list[Action]:
        """The next workers start with it; those that end stay as they are."""
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
        StopAsked: Steering._stop,  # noqa: SLF001 - the shorter wait counts
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
"""For each phase, the answer to each event."""
