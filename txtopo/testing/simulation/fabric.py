"""The workers of a run in one process: real supervision and bodies; Spark's jobs and all channels are simulated.

The fabric does in moves, which are drawn, what :mod:`txtopo.workers.control` and :mod:`txtopo.workers.process` do with
threads and sockets. Bytes travel in order between any two processes, and what a process has sent last may die with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, assert_never

from txtopo.errors import TxtopoError
from txtopo.failpoints import ProcessDeath
from txtopo.testing.checkers import Violation
from txtopo.testing.simulation.faults import CrashError
from txtopo.testing.simulation.schedule import Log
from txtopo.workers import actions, events, messages
from txtopo.workers.control import Owner
from txtopo.workers.peer_directory import Arrival, PeerDirectory
from txtopo.workers.process import Body, DriverListener
from txtopo.workers.supervisor import SILENCE_SECS, RunPhase, Supervisor

STEP_SECS = 0.01
ROUNDS_MAX = 2_000
"""Rounds, each of every worker, within which nothing is left to do once the faults stop."""
HEARS = (0.02, 0.05, 0.15, 0.3)
"""How often a worker reads the driver's messages; drawn for each schedule. With a low one, workers know different peers
for long."""
RETRY = 0.3
"""How probable it is that Spark restarts the task of a dead worker without telling the driver."""
KILLED_AT_ONCE = 0.5
"""How probable it is that a cancelled job's process is killed at once; otherwise it works on for a while."""
PAUSES_SECS = (0.5, 2, SILENCE_SECS + 2, 4 * SILENCE_SECS)


class BrokenError(TxtopoError):
    """An exception in a component, raised by the schedule."""


class Process(DriverListener):
    """One process of a worker, without threads and sockets.

    ``job`` has started it, and ``channel`` is its control channel to the driver.
    """

    def __init__(self, fabric: Fabric, number: int, job: int, channel: int) -> None:
        self.number = number
        self.job = job
        self.channel = channel
        self.from_driver: deque[messages.ToWorker] = deque()
        self.to_driver: deque[events.Event] = deque(
            [events.Received(channel, messages.Hello(number, job, "simulated", ("", number)))]
        )
        self.is_alive = True
        self.is_closed = False
        """Whether the driver has closed its control channel."""
        self.wakes_at: float | None = None
        """The time at which it resumes, if it is paused."""
        self.directory = PeerDirectory()
        self._fabric = fabric
        self._activity = 0

    @property
    def generation(self) -> int:
        """Its generation; -1 until the welcome."""
        return self.directory.generation

    # What its body calls.

    def send(self, to: int, frame: bytes) -> None:
        """Send a frame to the generation of a worker that this process knows."""
        generation = self.directory[to].generation
        self.directory.sent[generation] += 1
        self._fabric.send(self.generation, generation, frame)

    def tell(self, message: Any) -> None:
        """Say something to the owner of the workers."""
        self.to_driver.append(events.Received(self.channel, messages.BodyMessage(message)))

    # Its loop.

    def run_pass(self) -> bool:
        """Let the body run one pass; return whether it did anything."""
        if self.body is None:
            return False
        has_worked = self._survives(self.body.run_pass)
        self._activity += has_worked
        return has_worked

    def beat(self) -> None:
        """Send a heartbeat."""
        self.to_driver.append(
            events.Received(self.channel, messages.Heartbeat(None if self.body is None else self._health(self.body)))
        )

    def hear_driver(self) -> bool:
        """Read the next message of the driver, or the end of its channel; return whether there was one."""
        if not self.from_driver:
            if self.is_closed:
                self._fabric.end(self, RuntimeError("the driver is gone"))
            return self.is_closed
        message = self.from_driver.popleft()
        self._survives(lambda: self.obey(message, self.directory))
        return True

    def receive(self, sender: int, frame: bytes) -> None:
        """Hand a frame of another generation to the body."""
        assert self.body is not None, "frames are read after the welcome"
        self.directory.received[sender] += 1
        self.body.receive(frame)

    def lose_link(self, peer: int) -> None:
        """Find that the channel from or to another generation has ended."""
        if self.directory.lose(peer):
            self.to_driver.append(events.Received(self.channel, messages.LinkBroken(peer, "a simulated end")))

    def _survives(self, do: Callable[[], bool | None]) -> bool:
        """Let the body do something, in which it may break or die; return what that returns."""
        try:
            return bool(do())
        except BrokenError as error:
            self.to_driver.append(events.Received(self.channel, messages.Failed(error, None)))
            self._fabric.end(self, error)
        except CrashError:  # of the process that simulates these workers
            raise
        except ProcessDeath:
            self._fabric.kill(self)
        return True

    def _begin(self, welcome: messages.Welcome) -> Body:
        self.directory.welcome(welcome.generation, welcome.peers)
        return self._fabric.welcome(self)

    def _end(self) -> None:
        assert self.body is not None, "a worker is welcomed first"
        self.body.close()
        # Before the process ends: its last message comes before the loss of its channel.
        self.to_driver.append(events.Received(self.channel, messages.Stopped(self._health(self.body))))
        self._fabric.stop(self)

    def _health(self, body: Body) -> messages.Health:
        return messages.Health(
            is_done=body.is_done(),
            is_idle=body.is_idle(),
            pending=body.pending(),
            acked=body.acked(),
            activity=self._activity,
            sent=dict(self.directory.sent),
            received=dict(self.directory.received),
            status=None,
            heard=self.heard,
        )


class Fabric:
    """The workers of one run, with what supervises and connects them; ``random`` draws what comes next.

    ``make_body`` makes the body of a process that was welcomed; ``is_owned``: whether an :attr:`owner` gives the bodies
    work; ``arrive`` takes a process, the generation of a sender, and a frame; ``on_stop`` a process that is to stop.
    """

    def __init__(  # noqa: PLR0913 - everything that it depends on
        self,
        workers: int,
        random: Random,
        make_body: Callable[[Process], Body],
        *,
        is_owned: bool = False,
        log: Log | None = None,
        arrive: Callable[[Process, int, bytes], None] = Process.receive,
        on_stop: Callable[[Process], None] = lambda _process: None,
    ) -> None:
        self.now = 0.0
        """The time, in seconds."""
        self.has_faults = True
        """Whether faults may still strike."""
        self.is_over = False
        self.owner: Owner | None = None
        """Gives the bodies their work, if the workers have an owner; it must be set before :meth:`begin`."""
        self.processes: list[Process] = []
        """The living ones."""
        self.by_generation: dict[int, Process] = {}
        self.dead: set[int] = set()
        """The dead generations that the driver has announced."""
        self.cut: set[tuple[int, int]] = set()
        """The links that are broken, by the generations of sender and receiver: what is sent on them is lost."""
        self._random = random
        self._make_body = make_body
        self._log = log
        self._arrive = arrive
        self._on_stop = on_stop
        self._hears = random.choice(HEARS)
        # Restarts without bound: a schedule with many kills must not end the run.
        self._supervisor = Supervisor(
            workers, restarts_max=1 << 30, period_secs=1, is_active=True, now=self.now, is_owned=is_owned
        )
        self._by_channel: dict[int, Process] = {}
        self._channels = 0
        self._posted: deque[events.Event] = deque()
        self._of_job: dict[tuple[int, int], Process | None] = {}
        """The process of each job that Spark runs; None: it has not begun yet."""
        self._ended: deque[events.JobEnded] = deque()
        """Ends of jobs that Spark has not reported yet."""
        self._links: dict[tuple[int, int], deque[bytes]] = {}
        """By the generations of sender and receiver, the frames in transit."""
        self._unnoticed: list[tuple[int, tuple[int, int]]] = []
        """The ends of broken links, each with its link, that are about to notice it."""

    @property
    def phase(self) -> RunPhase:
        """The phase of the run."""
        return self._supervisor.phase

    def begin(self) -> None:
        """Submit the jobs."""
        self._carry_out(self._supervisor.begin())

    def post(self, event: events.Event) -> None:
        """Give an event to the supervisor in one of the next moves."""
        self._posted.append(event)

    def handle(self, event: events.Event) -> None:
        """Give an event to the supervisor, and carry out its actions; raise the error that ends the run, if any."""
        if isinstance(event, events.ChannelLost):
            del self._by_channel[event.channel]
        if self._log is not None:
            self._log(f">> {event}")
        self._carry_out(self._supervisor.handle(event, self.now))

    # What processes ask.

    def welcome(self, process: Process) -> Body:
        """Return the body of a process that knows its generation."""
        body = self._make_body(process)
        self.by_generation[process.generation] = process
        if self._log is not None:
            self._log(f"worker {process.number} begins as generation {process.generation}")
        return body

    def send(self, sender: int, receiver: int, frame: bytes) -> None:
        """Put a frame in transit, or lose it with its link."""
        if (sender, receiver) not in self.cut:
            self._links.setdefault((sender, receiver), deque()).append(frame)

    def stop(self, process: Process) -> None:
        """End a process that was told to stop."""
        self._on_stop(process)
        self.end(process, None)

    def end(self, process: Process, error: Exception | None) -> None:
        """End a process, cleanly or by an error; Spark reports the end of its job or starts the job again."""
        if not process.is_alive:
            return
        process.is_alive = False
        self.processes.remove(process)
        again = error is not None and self.has_faults and self._random.random() < RETRY
        process.to_driver.append(events.ChannelLost(process.channel))
        job = (process.number, process.job)
        if self._of_job.get(job) is not process:
            return
        if again and not process.is_closed:
            self._of_job[job] = None
        else:
            del self._of_job[job]
            self._ended.append(events.JobEnded(*job, error))

    # Faults.

    def kill(self, process: Process) -> None:
        """Kill a process; of the frames that it has sent on a link, the first ones arrive."""
        for (sender, _), frames in self._links.items():
            # From the end: a broken connection loses the last frames, never one in the middle.
            if sender == process.generation and self._random.random() < 0.5:  # noqa: PLR2004 - a coin
                self._lose_last(frames)
        if self.owner is not None:  # an owner must bear that what a body has said last is lost with it
            self._lose_last(process.to_driver)
        self.end(process, RuntimeError("killed"))

    def pause(self, process: Process) -> None:
        """Pause a process, for so long that it counts as dead, or not."""
        process.wakes_at = self.now + self._random.choice(PAUSES_SECS)

    def break_link(self, sender: Process) -> None:
        """Break the link to another process; of the frames on it, the first ones arrive."""
        receivers = [process for process in self.processes if process is not sender and process.generation >= 0]
        if sender.generation < 0 or not receivers:
            return
        link = sender.generation, self._random.choice(receivers).generation
        self.cut.add(link)
        self._lose_last(self._links.get(link, deque()))
        self._unnoticed.append((link[1], link))  # who reads always notices, who sends perhaps
        if self._random.random() < 0.5:  # noqa: PLR2004 - a coin
            self._unnoticed.append((link[0], link))

    def _lose_last(self, sent: deque[Any]) -> None:
        for _ in range(self._random.randint(0, len(sent))):
            sent.pop()

    # Moves.

    def step(self) -> None:
        """Let the driver do something, perhaps, and a process."""
        if self._random.random() < 0.3 or not self.processes:  # noqa: PLR2004 - here and below: how often each is drawn
            self.run()
        if self.processes:
            process = self._random.choice(self.processes)
            if self._is_awake(process):
                self._move(process)

    def run(self) -> bool:
        """Let the driver hear one message, start one job or hear of one end; return False if there is none."""
        spoken = [process for process in self._by_channel.values() if process.to_driver]
        waiting = [job for job, process in self._of_job.items() if process is None]
        # Messages of one process keep their order, as on a socket, and so do the ends of jobs, and what the owner says.
        choices: list[Process | events.Event | tuple[int, int]] = [
            *spoken,
            *waiting,
            *list(self._ended)[:1],
            *list(self._posted)[:1],
        ]
        if not choices:
            return False
        chosen = self._random.choice(choices) if len(choices) > 1 else choices[0]
        match chosen:
            case Process():
                self.handle(chosen.to_driver.popleft())
            case events.JobEnded():
                self._ended.popleft()
                for process in spoken:  # as the real driver does: it reads a process's last messages before the end
                    if (process.number, process.job) == (chosen.worker, chosen.job):
                        self._hear(process)
                self.handle(chosen)
            case worker, job:
                self._begin_process(worker, job)
            case _:
                self.handle(self._posted.popleft())
        return True

    def let_pass(self, secs: float) -> None:
        """Advance the clock; every process that is not paused sends heartbeats meanwhile."""
        while secs > 0:
            # In steps below the limit of silence: only a paused process may seem dead.
            step = min(secs, SILENCE_SECS / 2)
            secs -= step
            self.now += step
            for process in self.processes:
                if process.wakes_at is None or process.wakes_at <= self.now:
                    process.beat()
            for process in list(self._by_channel.values()):
                self._hear(process)
            self.handle(events.Ticked())
            if self.owner is not None:
                self.owner.ticked()

    def end_faults(self) -> None:
        """Let no further fault strike, and paused processes go on."""
        self.has_faults = False
        for process in self.processes:
            process.wakes_at = None

    def rest(self, *, may_end: bool) -> bool:
        """Deliver everything, and run until no process does anything; return whether the run goes on.

        If ``may_end``, workers report that nothing happens any more, so that the run may end by itself.
        """
        for _ in range(ROUNDS_MAX):
            is_working = self._notice()
            while self.run():
                is_working = True
            for process in list(self.processes):
                while process.is_alive and process.hear_driver():
                    is_working = True
                is_working |= process.is_alive and process.run_pass()
            for link in list(self._links):
                while link in self._links and self._deliver(link):
                    is_working = True
            is_ending = may_end or self.phase is not RunPhase.WORKING
            if not is_working and not (is_ending and self._report_idleness()):
                return not self.is_over
        raise Violation(f"all comes to rest within {ROUNDS_MAX} rounds once the faults stop")

    def _report_idleness(self) -> bool:
        """Let workers report twice, since two equal reports show that one is idle; return whether the driver acted."""
        before = self.phase
        for _ in range(2):
            for process in self.processes:
                process.beat()
            while self.run():
                pass
        return self.phase is not before or any(process.from_driver for process in self.processes)

    def _is_awake(self, process: Process) -> bool:
        """Whether a process is not paused; while one is, time passes."""
        if process.wakes_at is None:
            return True
        if self.now < process.wakes_at:
            if self._random.random() < 0.2:  # noqa: PLR2004
                self.let_pass(0.5)
            return False
        process.wakes_at = None
        if self._log is not None:
            self._log(f"worker {process.number}, generation {process.generation}, goes on")
        return True

    def _move(self, process: Process) -> None:
        """Let a process run a pass, deliver a frame, read the driver's message or send a heartbeat."""
        chance = self._random.random()
        if chance < 0.5:  # noqa: PLR2004
            process.run_pass()
        if chance > 0.3 and self._links:  # noqa: PLR2004
            self._deliver(self._random.choice(list(self._links)))
        if (chance < self._hears or process.body is None) and process.is_alive:
            process.hear_driver()
        if chance > 0.95 and process.is_alive:  # noqa: PLR2004
            process.beat()
        if self._unnoticed and chance < 0.1:  # noqa: PLR2004
            self._notice()

    def _deliver(self, link: tuple[int, int]) -> bool:
        """Deliver the next frame of a link, or drop frames that the receiver finds stale; return whether it did."""
        sender, receiver = link
        process = self.by_generation.get(receiver)
        if receiver in self.dead and (process is None or not process.is_alive):
            del self._links[link]
            return False
        if process is None or not process.is_alive or process.wakes_at is not None or not self._links[link]:
            return False
        match process.directory.judge(sender, receiver):
            case Arrival.READ:
                self._arrive(process, sender, self._links[link].popleft())
            case Arrival.STALE:
                del self._links[link]
            case Arrival.EARLY:
                return False
            case verdict:
                assert_never(verdict)
        return True

    def _notice(self) -> bool:
        """Let one end of a broken link notice it; return whether one has."""
        for broken in self._unnoticed:
            end, (sender, receiver) = broken
            process = self.by_generation[end]
            if process.is_alive and process.wakes_at is not None:
                continue
            if process.is_alive and end == receiver and process.directory.judge(sender, receiver) is Arrival.EARLY:
                continue  # not read yet
            self._unnoticed.remove(broken)
            if end == receiver:
                self._links.pop((sender, receiver), None)
            if process.is_alive:
                process.lose_link(sender if end == receiver else receiver)
            return True
        return False

    # The driver.

    def _hear(self, process: Process) -> None:
        while process.to_driver:
            self.handle(process.to_driver.popleft())

    def _begin_process(self, worker: int, job: int) -> None:
        self._channels += 1
        process = Process(self, worker, job, self._channels)
        self._of_job[worker, job] = self._by_channel[process.channel] = process
        self.processes.append(process)

    def _carry_out(self, decided: list[actions.Action]) -> None:
        for action in decided:
            match action:
                case actions.StartJob(worker, job):
                    self._of_job[worker, job] = None
                case actions.CancelJob(worker, job):
                    self._cancel(worker, job)
                case actions.Send(channel, message):
                    self._tell(channel, message)
                case actions.Close(channel):
                    self._close(channel)
                case actions.Warn() | actions.KeepLast():
                    pass
                case actions.ReportJoined() | actions.ReportLost() | actions.Deliver():
                    self._report(action)
                case actions.Finish(error):
                    self.is_over = True
                    if error is not None:
                        raise error
                case _:
                    assert_never(action)

    def _report(self, news: actions.ReportJoined | actions.ReportLost | actions.Deliver) -> None:
        assert self.owner is not None, "the supervisor reports to an owner only"
        excused = self.owner.report(news)
        if excused is not None:
            self.handle(excused)

    def _tell(self, channel: int, message: messages.ToWorker) -> None:
        # Whoever checks learns of a death no later than any worker: from now on, roots may fail because of it.
        if isinstance(message, messages.PeerReplaced):
            self.dead.add(message.dead)
        if channel in self._by_channel:
            self._by_channel[channel].from_driver.append(message)

    def _close(self, channel: int) -> None:
        process = self._by_channel.get(channel)
        if process is not None:
            process.is_closed = True
            process.from_driver.clear()

    def _cancel(self, worker: int, job: int) -> None:
        if (worker, job) not in self._of_job:
            return
        process = self._of_job[worker, job]
        if process is None:
            del self._of_job[worker, job]
            self._ended.append(events.JobEnded(worker, job, RuntimeError("cancelled")))
        else:
            process.is_closed = True
            if self._random.random() < KILLED_AT_ONCE:  # otherwise it ends when it reads that the driver is gone
                self.end(process, RuntimeError("cancelled"))
