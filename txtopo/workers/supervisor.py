"""The supervisor decides which workers are alive, which start again, and when a run ends. A pure state machine.

Events go in, with the time; a list of actions comes out. :mod:`txtopo.workers.control` carries them out in
order.

A worker is in one of these states:

- *starting*: its job was submitted, and it has not said hello.
- *running*: it has said hello and was welcomed.
- *lost*: all others count it as dead, but its job has not ended. Until then the job holds its slot, so the next job
  waits. If the worker is silent rather than gone, or the job does not end by itself, the job is cancelled.
- *ended*: its job has ended, and no other follows.

The others learn of a death at once, with the number of the next generation, long before that one starts:

1. Worker 1, generation 1, is killed. Its channel closes, so the others are told: 1 is dead, 3 follows.
2. They fail the roots that touched generation 1, and keep new tuples for worker 1 until 3 joins.
3. Spark reports that the job has failed, and the next one is submitted.
4. It says hello and is told that it is generation 3; the others are told its address.

A channel between two workers may break while both live. What was on its way is lost then, and each end knows at most
that something is. So the ends tell, and one of the two is counted as dead, which the others know how to live with:

1. The channel from worker 0 to worker 2 breaks. Both tell it, or one.
2. If worker 2 has died, its own channel ends, too, and it is replaced as above. So the driver waits for a second.
3. Both still run: worker 2, the younger generation, is ended by name. If more channels of worker 0 have broken, worker
   0 is, and no other.

The workers of a transactional topology have an *owner*, which gives their bodies work. It is told who joins and who is
lost, and what bodies say; what a dead generation says does not reach it. Only the owner knows what a worker was at
when it died. If it was at the owner's work, the owner excuses it: the work has bounds of its own, and a transaction
that kills each worker must not end the run before its tries are used up.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import assert_never

import attrs

from txtopo.errors import JobFailure, StopError, UserCodeError
from txtopo.workers import actions, events, messages
from txtopo.workers.broken_links import BrokenLinks
from txtopo.workers.restart_limit import RestartLimit, first_line

SILENCE_SECS = 5.0
"""A worker that is silent for longer counts as dead, whatever its process does: five heartbeats of a second each, so
that a loaded machine may swallow some."""

STALL_LOGGED_SECS = 10.0
"""A call that keeps a worker's interpreter is logged after this long."""

SLOTS_SECS = 4.0
"""If a worker takes longer to start, a warning says that slots are missing: Spark itself logs nothing."""

REMIND_SECS = 15.0
"""How often that warning is repeated."""

RESTART_SLOTS_SECS = 30.0
"""``SLOTS_SECS`` of a worker that starts again: it had a slot, which is free as soon as Spark has ended its job."""

STOP_SECS = 10.0
"""How long workers may take to end before their jobs are cancelled."""


class WorkerState(enum.Enum):
    """The state of a worker; see the module."""

    STARTING = "starting"
    RUNNING = "running"
    LOST = "lost"
    ENDED = "ended"


class RunPhase(enum.Enum):
    """The phase of a run."""

    WORKING = "working"
    DRAINING = "draining"
    """Spouts are deactivated, and the run waits for pending roots."""
    STOPPING = "stopping"
    """The workers were told to end."""
    OVER = "over"


@attrs.define(eq=False)
class _Worker:
    number: int
    generation: int
    since: float
    state: WorkerState = WorkerState.STARTING
    dead: int = -1
    """Its last generation that was lost."""
    excused: int | None = None
    """Its last generation that was excused."""
    job: int = 0
    channel: int | None = None
    address: messages.Address | None = None
    heard_at: float = 0.0
    stalled_in: str = ""
    """The task whose turn it is while no heartbeat arrives."""
    is_stall_logged: bool = False
    is_cancelled: bool = False
    is_cut_off: bool = False
    """Whether it was ended because a channel to another worker has broken: that is no fault of what it was at."""
    cut_off_from: int | None = None
    """The last worker whose channel it was ended for."""
    has_stopped: bool = False
    told: int = 0
    """How often it was told whether its spouts are called, since its welcome."""
    reminded_at: float = -math.inf
    health: messages.Health | None = None
    health_before: messages.Health | None = None
    error: Exception | None = None
    """The error that ended its last generation; it is kept until the next one has started."""

    @property
    def peer(self) -> messages.Peer:
        return messages.Peer(self.number, self.generation, self.address)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing waits in it, and it did nothing between its last two reports of its health.

        What it reported before it heard all that it was told of its spouts does not count: they may have emitted since.
        """
        health, before = self.health, self.health_before
        return (
            self.state is WorkerState.RUNNING
            and health is not None
            and before is not None
            and health.is_idle
            and health.heard == self.told
            and health.activity == before.activity
        )


class Supervisor:
    """The state machine of one run.

    The run fails after more than ``restarts_max`` restarts in ``period_secs``. A call that keeps a worker from sending
    heartbeats for ``stall_secs_max`` ends the worker; ``component_of`` names the task's component in its error. If the
    workers have an owner (``is_owned``), it is told of them.
    """

    def __init__(  # noqa: PLR0913 - what a run is given
        self,
        workers: int,
        *,
        restarts_max: int,
        period_secs: float,
        is_active: bool,
        now: float,
        stall_secs_max: float = math.inf,
        component_of: Mapping[int, str] | None = None,
        is_owned: bool = False,
    ) -> None:
        self._workers = [_Worker(number, number, now) for number in range(workers)]
        self._next_generation = workers
        self._restart_limit = RestartLimit(restarts_max, period_secs)
        self._stall_secs_max = stall_secs_max
        self._component_of = component_of or {}
        self._is_owned = is_owned
        self._is_active = is_active
        self._phase = RunPhase.WORKING
        self._deadline = 0.0
        self._error: Exception | None = None
        self._broken_links = BrokenLinks[_Worker]()
        self._now = now
        self._actions: list[actions.Action] = []
        self.restarts = 0
        """How many workers were started again."""
        self.killed = 0
        """How many workers died without an error of their own."""
        self.last_error = ""
        """The last error that a worker reported; empty if none has."""
        self.is_exhausted = False
        """Whether every worker was done when the run ended; another start would read the input from its beginning."""

    @property
    def phase(self) -> RunPhase:
        """The phase of the run."""
        return self._phase

    @property
    def health(self) -> list[messages.Health | None]:
        """The last health that each worker reported."""
        return [worker.health for worker in self._workers]

    @property
    def running(self) -> int:
        """How many workers run."""
        return sum(worker.state is WorkerState.RUNNING for worker in self._workers)

    def begin(self) -> list[actions.Action]:
        """Return the first actions."""
        return [actions.StartJob(worker.number, worker.job) for worker in self._workers]

    def handle(self, event: events.Event, now: float) -> list[actions.Action]:
        """Take an event, and return the actions, to be carried out in order.

        ``now`` is the event's time, in seconds of any clock that never goes back.
        """
        self._now = now
        self._actions = []
        if self._phase is not RunPhase.OVER:
            self._take(event)
            self._go_on()
        return self._actions

    def _take(self, event: events.Event) -> None:  # noqa: C901, PLR0912 - one case per event
        match event:
            case events.Received(channel, message):
                self._hear(channel, message)
            case events.Stalled():
                self._tolerate(event)
            case events.ChannelLost(channel):
                for worker in self._on(channel):
                    self._lose(worker)
            case events.JobEnded(number, job, error):
                self._end_job(self._workers[number], job, error)
            case events.ActivationAsked(is_active):
                self._set_active(is_active=is_active)
            case events.StopAsked(wait_secs):
                self._drain(wait_secs)
            case events.TellAsked(number, generation, message):
                if self._workers[number].generation == generation:
                    self._send(self._workers[number], messages.BodyMessage(message))
            case events.EndAsked(number, generation, reason):
                self._end_now(self._workers[number], generation, reason)
            case events.Excused(number, generation):
                if not self._workers[number].is_cut_off:
                    self._workers[number].excused = generation
            case events.Ticked():
                self._tick()
            case _:
                assert_never(event)

    def _on(self, channel: int) -> list[_Worker]:
        """Return the worker of a channel, in a list that is empty if the channel is a dead generation's."""
        return [worker for worker in self._workers if worker.channel == channel]

    def _greet(self, channel: int, hello: messages.Hello) -> None:
        # A hello of an earlier job comes too late: another job runs the worker by now.
        is_known = 0 <= hello.worker < len(self._workers)
        if not is_known or self._phase is RunPhase.STOPPING or hello.job != self._workers[hello.worker].job:
            self._do(actions.Close(channel))
            return
        worker = self._workers[hello.worker]
        if worker.state is WorkerState.RUNNING:  # Spark has started the task again before the channel's end was seen
            self._lose(worker)
        # From LOST a worker may come back in the same job, as the generation that the others were told of: Spark tries
        # a failed task again by itself. A cancelled job may start one more process before Spark hears of it, too; that
        # one must not join, for it is about to be killed.
        if worker.state is WorkerState.ENDED or worker.is_cancelled:
            self._do(actions.Close(channel))
            return
        worker.state, worker.since, worker.error = WorkerState.RUNNING, self._now, None
        worker.channel, worker.address, worker.heard_at, worker.told = channel, hello.address, self._now, 0
        peers = tuple(each.peer for each in self._workers if each is not worker)
        self._do(actions.Send(channel, messages.Welcome(worker.generation, peers, self._is_active)))
        self._tell_others(worker, messages.PeerJoined(worker.peer))
        if self._is_owned:
            self._do(actions.ReportJoined(worker.number, worker.generation))

    def _hear(self, channel: int, message: messages.FromWorker) -> None:
        if isinstance(message, messages.Hello):
            self._greet(channel, message)
            return
        for worker in self._on(channel):
            worker.heard_at, worker.stalled_in, worker.is_stall_logged = self._now, "", False
            if isinstance(message, messages.BodyMessage):
                self._do(actions.Deliver(worker.number, worker.generation, message.message))
                continue
            if isinstance(message, messages.LinkBroken):
                self._broken_links.add(worker.generation, message.peer, self._now, message.why)
                continue
            health = message.health
            if health is not None:
                worker.health_before, worker.health = worker.health, health
                # An ack is progress: the error does not keep the topology from working.
                if health.acked > (0 if worker.health_before is None else worker.health_before.acked):
                    self._restart_limit.progressed()
            if isinstance(message, messages.Failed):
                self._blame(worker, message.error)
            worker.has_stopped |= isinstance(message, messages.Stopped)

    def _blame(self, worker: _Worker, error: Exception) -> None:
        worker.error = error
        self.last_error = f"{type(error).__name__}: {first_line(error)}"
        self._restart_limit.blame(error, lasted_secs=self._now - worker.since)

    def _tolerate(self, stall: events.Stalled) -> None:
        """Tolerate a worker that works but can't send heartbeats; after the limit, end it and blame its call."""
        worker = self._workers[stall.worker]
        if worker.state is not WorkerState.RUNNING or worker.generation != stall.generation:
            return
        component = self._component_of.get(stall.task, "")
        worker.stalled_in = f"task {stall.task} of {component!r}" if component else ""
        # A frozen process is not heard of: it counts as dead after SILENCE_SECS.
        if not stall.is_working:
            return
        worker.heard_at = self._now
        if stall.secs >= self._stall_secs_max:
            error = _stall_error(stall, component, self._stall_secs_max)
            self._blame(worker, error)
            self._end(worker, f"is ended: {first_line(error)}")
        elif stall.secs >= STALL_LOGGED_SECS and not worker.is_stall_logged:
            worker.is_stall_logged = True
            self._do(
                actions.Warn(
                    f"{worker.stalled_in or _NO_TURN} has kept the interpreter of worker {worker.number} for "
                    f"{stall.secs:.0f} s; it is ended after {self._stall_secs_max:g} s"
                )
            )

    def _lose(self, worker: _Worker) -> None:
        """Count a worker as dead, and tell the others which generation follows."""
        if worker.state is not WorkerState.RUNNING:
            return
        if worker.has_stopped:  # it ends in good order: nobody follows, and its last health still counts
            worker.channel = None
            return
        self.killed += worker.error is None
        dead, worker.generation = worker.generation, self._next_generation
        worker.dead = dead
        self._next_generation += 1
        if worker.channel is not None:
            self._do(actions.Close(worker.channel))
        if worker.health is not None:
            self._do(actions.KeepLast(worker.health))
        worker.state, worker.since = WorkerState.LOST, self._now
        worker.stalled_in, worker.is_stall_logged = "", False
        worker.channel = worker.address = worker.health = worker.health_before = None
        self._tell_others(worker, messages.PeerReplaced(dead, worker.peer))
        if self._is_owned:
            self._do(actions.ReportLost(worker.number, dead, "" if worker.error is None else first_line(worker.error)))

    def _end_now(self, worker: _Worker, generation: int, reason: str) -> None:
        if worker.generation == generation and worker.state is WorkerState.RUNNING:
            worker.excused = generation
            self._end(worker, f"is ended: {reason}")

    def _end(self, worker: _Worker, why: str) -> None:
        self._do(actions.Warn(f"worker {worker.number} {why}"))
        self._lose(worker)
        self._cancel(worker)

    def _end_job(self, worker: _Worker, job: int, error: Exception | None) -> None:
        if job != worker.job or worker.state is WorkerState.ENDED:
            return
        self._lose(worker)  # if the end of its channel was not seen yet
        cause = worker.error or error
        if worker.has_stopped or self._phase is RunPhase.STOPPING:
            worker.state = WorkerState.ENDED
            if worker.error is not None:
                self._do(actions.Warn(f"worker {worker.number} did not end in good order: {first_line(worker.error)}"))
            return
        is_fatal = self._restart_limit.count(worker.error, self._now, is_excused=worker.excused == worker.dead)
        if isinstance(error, StopError) or is_fatal:
            self._error = cause or RuntimeError(f"worker {worker.number} ends again and again without an error")
            worker.state = WorkerState.ENDED
            self._stop()
            return
        self.restarts += 1
        fate = "ended" if cause is None else f"died: {first_line(cause)}"
        self._do(actions.Warn(f"worker {worker.number} {fate}; it is started again"))
        worker.state, worker.since, worker.error = WorkerState.STARTING, self._now, None
        worker.is_cancelled = worker.is_cut_off = False
        worker.job += 1
        worker.excused = None  # of one death: a job that does not come up has no excuse
        self._do(actions.StartJob(worker.number, worker.job))

    def _set_active(self, *, is_active: bool) -> None:
        if self._phase is not RunPhase.WORKING:  # spouts stay deactivated
            return
        self._is_active = is_active
        for worker in self._workers:
            worker.told += 1
            self._send(worker, messages.SetActive(is_active))

    def _drain(self, wait_secs: float) -> None:
        """Deactivate the spouts, and wait for pending roots; of several requests, the earliest deadline counts."""
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
            self._send(worker, messages.Stop())
            if worker.state is WorkerState.STARTING:  # its hello would come too late: _greet refuses it
                self._cancel(worker)

    def _tick(self) -> None:
        for worker in self._workers:
            is_due = worker.state is WorkerState.RUNNING and not worker.has_stopped  # then it has said its last word
            if is_due and self._now - worker.heard_at > SILENCE_SECS:
                where = f", in {worker.stalled_in}" if worker.stalled_in else ""
                self._end(worker, f"has said nothing for {SILENCE_SECS:g} s{where}; it is counted as dead")
            elif worker.state is WorkerState.LOST and self._now - worker.since > SILENCE_SECS:
                self._cancel(worker)
            elif worker.state is WorkerState.STARTING:
                self._remind_of_slots(worker)
        self._judge_links()

    def _judge_links(self) -> None:
        """End one of the two ends of each channel that has broken between living workers."""
        while self._phase is not RunPhase.STOPPING:
            living = (worker for worker in self._workers if worker.state is WorkerState.RUNNING)
            verdict = self._broken_links.judge(living, self._now)
            if verdict is None:
                return
            self._cut_off(verdict.ended, verdict.survivor, verdict.why)

    def _cut_off(self, worker: _Worker, survivor: _Worker, why: str) -> None:
        worker.is_cut_off, worker.excused, worker.cut_off_from = True, None, survivor.number
        first, second = sorted((worker.number, survivor.number))
        error = JobFailure(f"the connection between workers {first} and {second} has broken: {why}")
        self._blame(worker, error)
        self._end(worker, f"is ended: {first_line(error)}")

    def _remind_of_slots(self, worker: _Worker) -> None:
        secs = SLOTS_SECS if worker.job == 0 else RESTART_SLOTS_SECS
        # One warning for all: it is the same text whichever worker waits.
        due = max(worker.since + secs, worker.reminded_at + REMIND_SECS)
        if self._now < due or any(each.reminded_at + REMIND_SECS > self._now for each in self._workers):
            return
        worker.reminded_at = self._now
        self._do(
            actions.Warn(
                f"{self.running} of {len(self._workers)} workers have started: each needs a slot of Spark for as long "
                "as the topology runs; if it has no more to give, stop other jobs, lower topology.workers, or give the "
                "session more cores"
            )
        )

    def _go_on(self) -> None:
        """Move the run from one phase to the next if it can."""
        living = [worker for worker in self._workers if worker.state is not WorkerState.ENDED]
        at_rest = self._at_rest(living)
        if self._phase is RunPhase.WORKING and at_rest is not None and all(health.is_done for health in at_rest):
            self._drain(0.0)
        is_drained = at_rest is not None and not any(health.pending for health in at_rest)
        if self._phase is RunPhase.DRAINING and (is_drained or self._now >= self._deadline):
            # By the last health of all workers, those that have ended included: one that is just being replaced has
            # none, and what its spouts had left is unknown.
            self.is_exhausted = all(w.health is not None and w.health.is_done for w in self._workers)
            self._stop()
        if self._phase is RunPhase.STOPPING:
            if self._now >= self._deadline:
                for worker in self._workers:
                    self._cancel(worker)
            # Cancelled jobs hold their slots until Spark says that they have ended, so the run waits for that, too.
            if not living:
                self._phase = RunPhase.OVER
                self._do(actions.Finish(self._error))

    @staticmethod
    def _at_rest(left: Sequence[_Worker]) -> list[messages.Health] | None:
        """Return the health of the workers that are left; None if one is not quiet, or a frame is on its way.

        A frame on its way may wake a worker that is quiet:

        1. Worker 0 sends a frame to worker 1, and is quiet from then on.
        2. Worker 1, which has long been quiet, reports so again before the frame arrives.
        3. If the two reports were enough, the run would end, and the frame's tuples would be lost.
        """
        # One that has not started has taken nothing: it is waited for only if frames wait for it.
        quiet = {
            worker.generation: worker.health or _NOT_STARTED
            for worker in left
            if worker.is_quiet or worker.state is WorkerState.STARTING
        }
        if len(quiet) < len(left):
            return None
        for one, of_one in quiet.items():
            for other, of_other in quiet.items():
                if one != other and of_one.sent.get(other, 0) != of_other.received.get(one, 0):
                    return None
        return list(quiet.values())

    def _cancel(self, worker: _Worker) -> None:
        if worker.state is not WorkerState.ENDED and not worker.is_cancelled:
            worker.is_cancelled = True
            self._do(actions.CancelJob(worker.number, worker.job))

    def _tell_others(self, worker: _Worker, message: messages.ToWorker) -> None:
        for other in self._workers:
            if other is not worker:
                self._send(other, message)

    def _send(self, worker: _Worker, message: messages.ToWorker) -> None:
        if worker.state is WorkerState.RUNNING and worker.channel is not None:
            self._do(actions.Send(worker.channel, message))

    def _do(self, action: actions.Action) -> None:
        self._actions.append(action)


_NOT_STARTED = messages.Health(
    is_done=False, is_idle=True, pending=0, acked=0, activity=0, sent={}, received={}, status=None
)

_NO_TURN = "a thread of a component, or an offloaded call,"
"""What may keep the interpreter while no task has its turn."""


def _stall_error(stall: events.Stalled, component: str, secs_max: float) -> UserCodeError:
    who = f"task {stall.task}: one call" if component else f"{_NO_TURN} while no task had its turn:"
    return UserCodeError(
        f"{who} has kept Python's interpreter lock for longer than topology.message.timeout.secs = {secs_max:g}; a "
        "regular expression or another C function does so: bound its input, or call it in a process of its own",
        component=component,
    )
