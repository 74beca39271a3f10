"""Supervision: who is alive, who is started again, and when a run ends. A pure state machine.

Events go in, with the time; a list of actions comes out. :mod:`txtopo.plain.supervision.control` carries them out in
their order.

A worker is in one of these states:

- *starting*: its job was submitted, and it has not said hello.
- *running*: it has said hello and was welcomed.
- *lost*: it is dead, as far as all others are concerned, but its job has not ended. A job holds its slot until then,
  so the next one must wait for it; if the worker is silent rather than gone, or its job does not end by itself, the
  job is cancelled.
- *ended*: its job has ended, and no other will be started.

A death is told to the others at once, with the number of the epoch that follows, long before that one starts:

1. Worker 1, epoch 1, is killed. Its channel closes, so the others are told: 1 is dead, 3 follows.
2. They fail what touched epoch 1, and keep what they have for worker 1 until 3 joins.
3. Spark reports that the job has failed, and the next one is submitted.
4. It says hello and is told that it is epoch 3; the others are told its address.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, assert_never

import attrs

from txtopo.errors import InputError, UserCodeError
from txtopo.plain.transport.messages import (
    Address,
    Hello,
    Peer,
    PeerJoined,
    PeerReplaced,
    SetActive,
    Stop,
    ToWorker,
    Vitals,
    Welcome,
)

SILENCE_SECS = 5.0
"""How long a worker may say nothing: then it is dead, whatever its process does."""

HELD_WORTH_SECS = 10.0
"""From when on it is said that a call keeps a worker's interpreter."""

SLOTS_SECS = 4.0
"""How long a worker may take to start before it is said that slots are missing; Spark itself says nothing."""

REMIND_SECS = 15.0
"""How often that is said again."""

RESTART_SLOTS_SECS = 30.0
"""The same for a worker that is started again: its slot was there before, and is free when Spark has ended its job."""

SAME_ERROR_MAX = 5
"""After how many deaths in a row by the same error a run ends, if no root was acked between them and each worker ran
for less than ``topology.worker.restart.period.secs``: however slowly workers start, the next would fare no better."""

STOP_SECS = 10.0
"""How long workers may take to end in good order before their jobs are cancelled."""


# -- events


@attrs.frozen
class Greeted:
    """A process has said hello on a channel."""

    channel: int
    hello: Hello


@attrs.frozen
class Heard:
    """A worker has said that it lives."""

    channel: int
    vitals: Vitals | None


@attrs.frozen
class Held:
    """A watcher has said that no thread of its worker has come to beat.

    Args:
        worker: the worker.
        epoch: its epoch.
        task: the task that its loop is in; a negative number: none.
        secs: for how long no beat has come.
        is_working: whether the process takes processor time: then it is not frozen.
    """

    worker: int
    epoch: int
    task: int
    secs: float
    is_working: bool


@attrs.frozen
class ErrorTold:
    """A worker has said that it ends by an error."""

    channel: int
    error: Exception
    vitals: Vitals | None


@attrs.frozen
class ByeTold:
    """A worker has said that it ends as it was told to."""

    channel: int
    vitals: Vitals


@attrs.frozen
class ChannelLost:
    """A channel was closed by its worker's end."""

    channel: int


@attrs.frozen
class JobEnded:
    """Spark says that a worker's job has ended: by an error, or without one."""

    worker: int
    job: int
    error: Exception | None


@attrs.frozen
class ActivationAsked:
    """The user wants the workers to go on, or to pause."""

    is_active: bool


@attrs.frozen
class StopAsked:
    """The user wants the run to end.

    Args:
        wait_secs: how long to wait for what is pending.
    """

    wait_secs: float


@attrs.frozen
class Ticked:
    """Time has passed."""


Event = Greeted | Heard | Held | ErrorTold | ByeTold | ChannelLost | JobEnded | ActivationAsked | StopAsked | Ticked


# -- actions


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
    """Close a channel: whoever it belongs to is none of the run's workers any more."""

    channel: int


@attrs.frozen
class Warn:
    """Say something to the user."""

    text: str


@attrs.frozen
class KeepVitals:
    """Keep what a lost worker said last: nobody can ask it any more."""

    vitals: Vitals


@attrs.frozen
class Finish:
    """The run is over.

    Args:
        error: why, if it has failed.
    """

    error: Exception | None


Action = StartJob | CancelJob | Send | Close | Warn | KeepVitals | Finish


class WorkerState(enum.Enum):
    """What is known of a worker."""

    STARTING = "starting"
    RUNNING = "running"
    LOST = "lost"
    ENDED = "ended"


class RunPhase(enum.Enum):
    """What the run is at."""

    WORKING = "working"
    DRAINING = "draining"
    """Nothing new begins; what is pending is waited for."""
    STOPPING = "stopping"
    """The workers were told to end."""
    OVER = "over"


@attrs.define(eq=False)
class _Worker:
    """A worker, through all its epochs."""

    number: int
    epoch: int
    since: float
    state: WorkerState = WorkerState.STARTING
    job: int = 0
    channel: int | None = None
    address: Address | None = None
    heard_at: float = 0.0
    held_in: str = ""
    """What its loop is in, if no beat comes."""
    held_said: bool = False
    is_cancelled: bool = False
    said_bye: bool = False
    reminded_at: float = -math.inf
    vitals: Vitals | None = None
    before: Vitals | None = None
    """The vitals before those."""
    error: Exception | None = None
    """What its current epoch said that it ends by; or the one before, until another has started."""

    @property
    def peer(self) -> Peer:
        return Peer(self.number, self.epoch, self.address)

    @property
    def is_quiet(self) -> bool:
        """Whether it has done nothing between the last two times that it said how it is, and nothing waits in it."""
        vitals, before = self.vitals, self.before
        return (
            self.state is WorkerState.RUNNING
            and vitals is not None
            and before is not None
            and vitals.is_idle
            and vitals.activity == before.activity
        )


class Supervisor:
    """The state machine of one run.

    Args:
        workers: how many workers there are.
        restarts_max: how many restarts are allowed in a period.
        period_secs: the period.
        is_active: whether the workers work from the beginning.
        now: the time.
        held_secs_max: how long one call may keep a worker from beating.
        component_of: the component of each task.
        finished: how much a worker has finished, by what its body says of itself.
    """

    def __init__(  # noqa: PLR0913 - what a run is given
        self,
        workers: int,
        *,
        restarts_max: int,
        period_secs: float,
        is_active: bool,
        now: float,
        held_secs_max: float = math.inf,
        component_of: Mapping[int, str] | None = None,
        finished: Callable[[Any], int] = lambda _: 0,
    ) -> None:
        self._workers = [_Worker(number, number, now) for number in range(workers)]
        self._next_epoch = workers
        self._restarts_max = restarts_max
        self._period_secs = period_secs
        self._held_secs_max = held_secs_max
        self._component_of = component_of or {}
        self._restarts: deque[float] = deque()
        self._is_active = is_active
        self._phase = RunPhase.WORKING
        self._deadline = 0.0
        self._error: Exception | None = None
        self._now = now
        self._actions: list[Action] = []
        self._finished = finished
        self._same_error: tuple[str, ...] = ()
        """What the deaths in a row have in common."""
        self._same_deaths = 0
        self.restarts = 0
        """How many workers were started again."""
        self.killed = 0
        """How many workers died without a last word."""
        self.last_error = ""
        """What the last worker that died by itself has died of; empty if none has."""
        self.is_exhausted = False
        """Whether every worker was done when the run ended: it would begin from the start if it were started again."""

    @property
    def phase(self) -> RunPhase:
        """What the run is at."""
        return self._phase

    @property
    def vitals(self) -> list[Vitals | None]:
        """How the workers are, as they last said."""
        return [worker.vitals for worker in self._workers]

    @property
    def running(self) -> int:
        """How many workers run."""
        return sum(worker.state is WorkerState.RUNNING for worker in self._workers)

    def begin(self) -> list[Action]:
        """Return what to do first."""
        return [StartJob(worker.number, worker.job) for worker in self._workers]

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take an event and return what to do, in this order.

        Args:
            event: what has happened.
            now: when, in seconds of any clock that never goes back.
        """
        self._now = now
        self._actions = []
        if self._phase is not RunPhase.OVER:
            self._take(event)
            self._go_on()
        return self._actions

    def _take(self, event: Event) -> None:  # noqa: C901, PLR0912 - one case for each event
        match event:
            case Greeted(channel, hello):
                self._greet(channel, hello)
            case Heard(channel, vitals):
                self._hear(channel, vitals)
            case Held():
                self._hold(event)
            case ErrorTold(channel, error, vitals):
                self._hear(channel, vitals)
                for worker in self._on(channel):
                    self._blame(worker, error)
            case ByeTold(channel, vitals):
                self._hear(channel, vitals)
                for worker in self._on(channel):
                    worker.said_bye = True
            case ChannelLost(channel):
                for worker in self._on(channel):
                    self._lose(worker)
            case JobEnded(number, job, error):
                self._end_job(self._workers[number], job, error)
            case ActivationAsked(is_active):
                self._set_active(is_active=is_active)
            case StopAsked(wait_secs):
                self._drain(wait_secs)
            case Ticked():
                self._tick()
            case _:
                assert_never(event)

    def _on(self, channel: int) -> Iterator[_Worker]:
        """Yield the worker that a channel belongs to; none, if it is of an epoch that is dead."""
        yield from [worker for worker in self._workers if worker.channel == channel]

    def _greet(self, channel: int, hello: Hello) -> None:
        known = 0 <= hello.worker < len(self._workers)
        if not known or self._phase is RunPhase.STOPPING or hello.job != self._workers[hello.worker].job:
            self._do(Close(channel))
            return
        worker = self._workers[hello.worker]
        if worker.state is WorkerState.RUNNING:  # Spark has started the task again before the channel's end was seen
            self._lose(worker)
        if worker.state is WorkerState.ENDED or worker.is_cancelled:
            self._do(Close(channel))
            return
        worker.state, worker.since, worker.error = WorkerState.RUNNING, self._now, None
        worker.channel, worker.address, worker.heard_at = channel, hello.address, self._now
        peers = tuple(each.peer for each in self._workers if each is not worker)
        self._do(Send(channel, Welcome(worker.epoch, peers, self._is_active)))
        self._tell_others(worker, PeerJoined(worker.peer))

    def _hear(self, channel: int, vitals: Vitals | None) -> None:
        for worker in self._on(channel):
            worker.heard_at, worker.held_in, worker.held_said = self._now, "", False
            if vitals is not None:
                worker.before, worker.vitals = worker.vitals, vitals
                before = 0 if worker.before is None else self._finished(worker.before.body)
                if self._finished(vitals.body) > before:
                    self._same_deaths = 0

    def _blame(self, worker: _Worker, error: Exception) -> None:
        """Take note of what a worker ends by, and how often in a row it was the same."""
        worker.error = error
        self.last_error = f"{type(error).__name__}: {_first_line(error)}"
        same, has_lasted = _where(error), self._now - worker.since > self._period_secs
        self._same_deaths = self._same_deaths + 1 if same == self._same_error and not has_lasted else 1
        self._same_error = same

    def _hold(self, held: Held) -> None:
        """Let a worker live that works and can't say so, up to a limit: then what it is in is to blame."""
        worker = self._workers[held.worker]
        if worker.state is not WorkerState.RUNNING or worker.epoch != held.epoch:
            return
        component = self._component_of.get(held.task, "")
        worker.held_in = f"task {held.task} of {component!r}" if component else ""
        if not held.is_working:
            return
        worker.heard_at = self._now
        if held.secs >= self._held_secs_max:
            error = _kept_error(held, component, self._held_secs_max)
            self._blame(worker, error)
            self._do(Warn(f"worker {worker.number} is ended: {_first_line(error)}"))
            self._lose(worker)
            self._cancel(worker)
        elif held.secs >= HELD_WORTH_SECS and not worker.held_said:
            worker.held_said = True
            self._do(
                Warn(
                    f"{worker.held_in or _NO_TURN} has kept the interpreter of worker {worker.number} for "
                    f"{held.secs:.0f} s; it is ended after {self._held_secs_max:g} s"
                )
            )

    def _lose(self, worker: _Worker) -> None:
        """Count a worker as dead, and tell the others who follows."""
        if worker.state is not WorkerState.RUNNING:
            return
        if worker.said_bye:
            worker.channel = None
            return
        self.killed += worker.error is None
        dead, worker.epoch = worker.epoch, self._next_epoch
        self._next_epoch += 1
        if worker.channel is not None:
            self._do(Close(worker.channel))
        if worker.vitals is not None:
            self._do(KeepVitals(worker.vitals))
        worker.state, worker.since = WorkerState.LOST, self._now
        worker.held_in, worker.held_said = "", False
        worker.channel = worker.address = worker.vitals = worker.before = None
        self._tell_others(worker, PeerReplaced(dead, worker.peer))

    def _end_job(self, worker: _Worker, job: int, error: Exception | None) -> None:
        if job != worker.job or worker.state is WorkerState.ENDED:
            return
        self._lose(worker)
        cause = worker.error or error
        if worker.said_bye or self._phase is not RunPhase.WORKING:
            worker.state = WorkerState.ENDED
            if worker.error is not None:
                self._do(Warn(f"worker {worker.number} did not end in good order: {_first_line(worker.error)}"))
            return
        self._restarts.append(self._now)
        while self._restarts[0] <= self._now - self._period_secs:
            self._restarts.popleft()
        # Input that can't be read, or a source that refuses us, is the same for the next worker.
        is_in_vain = isinstance(worker.error, InputError)
        is_hopeless = worker.error is not None and self._same_deaths >= SAME_ERROR_MAX
        if is_in_vain or is_hopeless or len(self._restarts) > self._restarts_max:
            self._error = cause or RuntimeError(f"worker {worker.number} ends again and again without an error")
            worker.state = WorkerState.ENDED
            self._stop()
            return
        self.restarts += 1
        what = "ended" if cause is None else f"died: {_first_line(cause)}"
        self._do(Warn(f"worker {worker.number} {what}; it is started again"))
        worker.state, worker.since, worker.error, worker.is_cancelled = WorkerState.STARTING, self._now, None, False
        worker.job += 1
        self._do(StartJob(worker.number, worker.job))

    def _set_active(self, *, is_active: bool) -> None:
        if self._phase is not RunPhase.WORKING:  # nothing new begins any more
            return
        self._is_active = is_active
        for worker in self._workers:
            self._send(worker, SetActive(is_active))

    def _drain(self, wait_secs: float) -> None:
        """Let nothing new begin, and wait for what is pending."""
        if self._phase is RunPhase.WORKING:
            self._set_active(is_active=False)
            self._phase = RunPhase.DRAINING
            self._deadline = self._now + wait_secs
        else:
            self._deadline = min(self._deadline, self._now + wait_secs)

    def _stop(self) -> None:
        self._phase = RunPhase.STOPPING
        self._deadline = self._now + STOP_SECS
        for worker in self._workers:
            self._send(worker, Stop())
            if worker.state is WorkerState.STARTING:  # it would be closed at its hello
                self._cancel(worker)

    def _tick(self) -> None:
        for worker in self._workers:
            if worker.state is WorkerState.RUNNING and self._now - worker.heard_at > SILENCE_SECS:
                where = f", in {worker.held_in}" if worker.held_in else ""
                self._do(
                    Warn(
                        f"worker {worker.number} has said nothing for {SILENCE_SECS:g} s{where}; it is counted as dead"
                    )
                )
                self._lose(worker)
                self._cancel(worker)
            elif worker.state is WorkerState.LOST and self._now - worker.since > SILENCE_SECS:
                self._cancel(worker)
            elif worker.state is WorkerState.STARTING:
                self._remind_of_slots(worker)

    def _remind_of_slots(self, worker: _Worker) -> None:
        secs = SLOTS_SECS if worker.job == 0 else RESTART_SLOTS_SECS
        due = max(worker.since + secs, worker.reminded_at + REMIND_SECS)
        if self._now < due or any(each.reminded_at + REMIND_SECS > self._now for each in self._workers):
            return
        worker.reminded_at = self._now
        self._do(
            Warn(
                f"{self.running} of {len(self._workers)} workers have started: each needs a slot of Spark for as long "
                "as the topology runs; if it has no more to give, stop other jobs, lower topology.workers, or give the "
                "session more cores"
            )
        )

    def _go_on(self) -> None:
        """Move the run from one phase to the next if it can."""
        if self._phase is RunPhase.WORKING and self._is_settled() and all(w.vitals.is_done for w in self._told()):
            self._drain(0.0)
        if self._phase is RunPhase.DRAINING and (
            self._now >= self._deadline or (self._is_settled() and not any(w.vitals.pending for w in self._told()))
        ):
            self.is_exhausted = all(w.vitals is not None and w.vitals.is_done for w in self._workers)
            self._stop()
        if self._phase is RunPhase.STOPPING:
            if self._now >= self._deadline:
                for worker in self._workers:
                    self._cancel(worker)
            if all(worker.state is WorkerState.ENDED for worker in self._workers):
                self._phase = RunPhase.OVER
                self._do(Finish(self._error))

    def _told(self) -> list[_Told]:
        return [_Told(w, w.vitals) for w in self._workers if w.vitals is not None and w.state is not WorkerState.ENDED]

    def _is_settled(self) -> bool:
        """Whether every worker that is left does nothing, and no frame is on the way between two of them."""
        left = [worker for worker in self._workers if worker.state is not WorkerState.ENDED]
        if not all(worker.is_quiet for worker in left):
            return False
        told = self._told()
        return all(
            one.vitals.sent.get(other.worker.epoch, 0) == other.vitals.received.get(one.worker.epoch, 0)
            for one in told
            for other in told
            if one is not other
        )

    def _cancel(self, worker: _Worker) -> None:
        if worker.state is not WorkerState.ENDED and not worker.is_cancelled:
            worker.is_cancelled = True
            self._do(CancelJob(worker.number, worker.job))

    def _tell_others(self, worker: _Worker, message: ToWorker) -> None:
        for other in self._workers:
            if other is not worker:
                self._send(other, message)

    def _send(self, worker: _Worker, message: ToWorker) -> None:
        if worker.state is WorkerState.RUNNING and worker.channel is not None:
            self._do(Send(worker.channel, message))

    def _do(self, action: Action) -> None:
        self._actions.append(action)


@attrs.frozen
class _Told:
    """A worker that has said how it is."""

    worker: _Worker
    vitals: Vitals


_NO_TURN = "a thread of a component, or an offloaded call,"
"""What holds the interpreter while no task has its turn."""


def _kept_error(held: Held, component: str, secs_max: float) -> UserCodeError:
    who = f"task {held.task}: one call" if component else f"{_NO_TURN} while no task had its turn:"
    return UserCodeError(
        f"{who} has kept Python's interpreter lock for longer than topology.message.timeout.secs = {secs_max:g}; a "
        "regular expression or another C function does so: bound its input, or call it in a process of its own",
        component=component,
    )


def _where(error: Exception) -> tuple[str, ...]:
    """Return what two errors have in common that are the same, though they name other values: kind, component, line."""
    component, cause = getattr(error, "component", None), getattr(error, "cause", None)
    lines = [line.strip() for line in str(cause or "").splitlines() if line.lstrip().startswith("File ")]
    return type(error).__name__, str(component), lines[-1] if lines else _first_line(error)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
