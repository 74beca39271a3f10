"""The simulated driver: real supervision, and Spark's jobs as far as workers notice them."""

from __future__ import annotations

from collections import deque
from typing import assert_never

from txtopo.testing.simulation.plain.process import Process, Surroundings
from txtopo.workers.actions import (
    Action,
    CancelJob,
    Close,
    Deliver,
    Finish,
    KeepLast,
    ReportJoined,
    ReportLost,
    Send,
    StartJob,
    Warn,
)
from txtopo.workers.events import ChannelLost, Event, JobEnded
from txtopo.workers.messages import PeerReplaced, ToWorker
from txtopo.workers.supervisor import RunPhase, Supervisor

KILLED_AT_ONCE = 0.5
"""How probable it is that a cancelled job's process is killed at once; otherwise it works on for a while."""


class Driver:
    """Carries out what the supervisor decides, as :class:`~txtopo.workers.control.ControlServer` does."""

    def __init__(self, world: Surroundings, workers: int) -> None:
        self.is_over = False
        self._world = world
        # Restarts without bound: a schedule with many kills must not end the run.
        self._supervisor = Supervisor(workers, restarts_max=1 << 30, period_secs=1, is_active=True, now=world.clock())
        self._by_channel: dict[int, Process] = {}
        self._channels = 0
        self._of_job: dict[tuple[int, int], Process | None] = {}
        """The process of each job that Spark runs; None: it has not begun yet."""
        self._ended: deque[JobEnded] = deque()
        """Ends of jobs that Spark has not reported yet."""

    @property
    def phase(self) -> RunPhase:
        """The phase of the run."""
        return self._supervisor.phase

    def begin(self) -> None:
        """Submit the jobs."""
        self._carry_out(self._supervisor.begin())

    def handle(self, event: Event) -> None:
        """Give an event to the supervisor, and carry out its actions; raise the error that ends the run, if any."""
        if isinstance(event, ChannelLost):
            del self._by_channel[event.channel]
        if self._world.is_logged:
            self._world.log(f">> {event}")
        self._carry_out(self._supervisor.handle(event, self._world.clock()))

    def run(self) -> bool:
        """Hear one message, start one job or report one end, whichever is drawn; return False if there is none."""
        spoken = [process for process in self._by_channel.values() if process.to_driver]
        waiting = [job for job, process in self._of_job.items() if process is None]
        # Messages of one process keep their order, as on a socket, and so do the ends of jobs.
        choices: list[Process | JobEnded | tuple[int, int]] = [*spoken, *waiting, *list(self._ended)[:1]]
        if not choices:
            return False
        chosen = self._world.random.choice(choices) if len(choices) > 1 else choices[0]
        match chosen:
            case Process():
                self.handle(chosen.to_driver.popleft())
            case JobEnded():
                self._ended.popleft()
                for process in spoken:  # as the real driver does: it reads a process's last messages before the end
                    if (process.number, process.job) == (chosen.worker, chosen.job):
                        self._hear(process)
                self.handle(chosen)
            case worker, job:
                self._begin_process(worker, job)
        return True

    def hear_all(self) -> None:
        """Hear all messages."""
        for process in list(self._by_channel.values()):
            self._hear(process)

    def process_ended(self, process: Process, error: Exception | None, *, again: bool) -> None:
        """Record the end of a process, which Spark reports later; if ``again``, Spark restarts its task instead."""
        process.to_driver.append(ChannelLost(process.channel))
        job = (process.number, process.job)
        if self._of_job.get(job) is not process:
            return
        if again and not process.is_closed:
            self._of_job[job] = None
        else:
            del self._of_job[job]
            self._ended.append(JobEnded(*job, error))

    def _hear(self, process: Process) -> None:
        while process.to_driver:
            self.handle(process.to_driver.popleft())

    def _begin_process(self, worker: int, job: int) -> None:
        self._channels += 1
        process = Process(self._world, worker, job, self._channels)
        self._of_job[worker, job] = self._by_channel[process.channel] = process
        self._world.processes.append(process)

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case StartJob(worker, job):
                    self._of_job[worker, job] = None
                case CancelJob(worker, job):
                    self._cancel(worker, job)
                case Send(channel, message):
                    self._tell(channel, message)
                case Close(channel):
                    self._close(channel)
                case Warn() | KeepLast():
                    pass
                case ReportJoined() | ReportLost() | Deliver():
                    raise AssertionError("the workers of a plain topology have no owner")
                case Finish(error):
                    self.is_over = True
                    if error is not None:
                        raise error
                case _:
                    assert_never(action)

    def _tell(self, channel: int, message: ToWorker) -> None:
        # The ledger learns of a death no later than any worker: from now on, roots may fail because of it.
        if isinstance(message, PeerReplaced):
            self._world.ledger.dead.add(message.dead)
        if channel in self._by_channel:
            self._by_channel[channel].from_driver.append(message)

    def _close(self, channel: int) -> None:
        process = self._by_channel.get(channel)
        if process is not None:
            process.is_closed = True
            process.from_driver.clear()

    def _cancel(self, worker: int, job: int) -> None:
        """Let Spark cancel a job."""
        if (worker, job) not in self._of_job:
            return
        process = self._of_job[worker, job]
        if process is None:
            del self._of_job[worker, job]
            self._ended.append(JobEnded(worker, job, RuntimeError("cancelled")))
        else:
            process.is_closed = True
            if self._world.random.random() < KILLED_AT_ONCE:  # otherwise it ends when it reads that the driver is gone
                self._world.end_process(process, RuntimeError("cancelled"))
