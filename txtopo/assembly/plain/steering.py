"""How a running plain topology answers requests: one table of phases and requests. A pure state machine.

Requests and the ends of workers go in; a list of actions comes out, which
:class:`~txtopo.assembly.plain.runner.RunningTopology` carries out in order, in one thread::

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

import attrs

from txtopo.workers.events import ActivationAsked, StopAsked

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

    They are exhausted if every spout is, with nothing pending. Without an error, they ended in good order.
    """

    is_exhausted: bool
    error: Exception | None


Event = StopAsked | ActivationAsked | RebalanceAsked | WorkersEnded


# -- actions, beside StopAsked and ActivationAsked, which are passed on to the workers


@attrs.frozen
class BeginWorkers:
    """Start workers. If that fails, drop the actions after it, and report ``WorkersEnded`` with the error."""

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
    """The state machine of one topology, which starts with ``workers``.

    A rebalance waits up to ``rebalance_secs`` for pending roots.
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

    def handle(self, event: Event) -> list[Action]:  # noqa: C901 - the table of phases and events
        """Take an event, and return the actions."""
        match self._phase, event:
            case Phase.ENDED, RebalanceAsked():
                return [Answer(self._error)]
            case Phase.ENDED, _:
                return []
            case Phase.REBALANCING, StopAsked():  # the callers of the rebalance return
                self._phase = Phase.STOPPING
                return [event, Answer()]
            case _, StopAsked():  # while it stops, the shorter wait counts
                self._phase = Phase.STOPPING
                return [event]
            case Phase.RUNNING, RebalanceAsked(workers):
                self._phase, self._workers = Phase.REBALANCING, workers
                return [StopAsked(self._rebalance_secs)]
            case Phase.REBALANCING, RebalanceAsked(workers):  # the last number that was asked for counts
                self._workers = workers
                return []
            case _, RebalanceAsked():
                return [Answer()]
            case Phase.RUNNING, ActivationAsked(is_active):
                self._is_active = is_active
                return [event]
            case Phase.REBALANCING, ActivationAsked(is_active):  # for the next workers; those that end stay as they are
                self._is_active = is_active
                return []
            case _, ActivationAsked():
                return []
            case Phase.REBALANCING, WorkersEnded(is_exhausted=False, error=None):
                self._phase = Phase.RUNNING
                return [BeginWorkers(self._workers, self._is_active), Answer()]
            case _, WorkersEnded(error=error):
                reason = FAILED if error is not None else STOPPED if self._phase is Phase.STOPPING else EXHAUSTED
                self._phase, self._error = Phase.ENDED, error
                return [Finish(reason, error), Answer(error)]
        raise AssertionError(f"{event} has no answer in {self._phase}")
