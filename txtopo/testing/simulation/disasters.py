"""What the faults of a schedule do where they strike: at failpoints, between two moves, at the answers of a job."""

from __future__ import annotations

from abc import abstractmethod

from spouts.opaque_memory import OpaqueMemoryTransactionalSpout
from txtopo.errors import FailedException, JobFailure, StopError
from txtopo.failpoints import ProcessDeath
from txtopo.testing.simulation.durable import Durable
from txtopo.testing.simulation.faults import ANSWERING, MOVING, UPKEEP, CrashError, Fault, is_at
from txtopo.testing.simulation.lives import TIMEOUT_MS, Lives
from txtopo.testing.simulation.process import Process, Surroundings
from txtopo.testing.simulation.threads import Delivery
from txtopo.topology.plans.plan import Plan
from txtopo.transactional.core.events import JobEnded, JobLost, Processed

UPKEEP_PAUSES = 10
"""How much more often than elsewhere a process is paused in its upkeep."""
PAUSED_MOVES_MAX = 80
"""How many moves others make while a process is paused, with the one before it goes on."""
PROCESSES_MAX = 40


class Scene(Surroundings):
    """A schedule as the faults find it that strike it."""

    durable: Durable
    processes: list[Process]
    acting: list[Process]
    """A stack: the last process is acting, inside failpoints of the others, which are paused."""

    @property
    def moving(self) -> Process:
        """The process that is acting."""
        return self.acting[-1]

    @abstractmethod
    def start(self) -> None:
        """Start one more process."""

    @abstractmethod
    def go_on(self, moves: int, *, paused_too: bool) -> None:
        """Make so many moves, fewer if a promise is broken or if all is done; ``paused_too``: by paused ones, too."""

    @property
    @abstractmethod
    def can_fork(self) -> bool:
        """Whether a fork may be made."""

    @abstractmethod
    def fork(self, *, is_beside: bool) -> None:
        """Make a fork, and let it live to its end.

        Args:
            is_beside: whether others go on while it is made, and may die and go back; else somebody is in an upkeep.
        """


class Disasters:
    """The faults of a schedule of a topology, in its processes' lives."""

    def __init__(self, scene: Scene, lives: Lives, plan: Plan) -> None:
        self.paused = 0
        """How many processes are paused."""
        self._scene = scene
        self._lives = lives
        self._striking: dict[str, list[Fault]] = {}
        """By failpoint, the kinds that can strike there."""
        self._moving = [fault for fault in lives.faults if fault in MOVING]
        self._answering = [fault for fault in lives.faults if fault in ANSWERING]
        spouts = (spout.component for spout in plan.spouts)
        self._switchable = [spout for spout in spouts if isinstance(spout, OpaqueMemoryTransactionalSpout)]

    def end(self) -> None:
        """End what outlives a fault: the checks at the end expect the input of every partition."""
        for spout in self._switchable:
            for partition in spout.rows.lengths():
                spout.set_disabled(partition, False)

    # At failpoints.

    def strike_at(self, failpoint: str) -> None:
        """Strike, perhaps, at a failpoint: raise, or let something else happen first."""
        striking = self._striking.get(failpoint)
        if striking is None:
            striking = self._striking[failpoint] = [fault for fault in self._lives.faults if is_at(fault, failpoint)]
        for fault in striking:
            # What is deleted is of no matter until somebody has gone back to it meanwhile.
            for _ in range(UPKEEP_PAUSES if (fault, failpoint) == (Fault.PAUSES, UPKEEP) else 1):
                if self._can(fault) and self._scene.strikes(fault, "at", failpoint):
                    self._happen_at(fault)

    def _happen_at(self, fault: Fault) -> None:
        match fault:
            case Fault.CRASHES:
                self._kill(self._scene.moving)
                raise CrashError
            case Fault.PAUSES:
                self._pause(self._scene.moving)
            case Fault.FORKS:
                self._scene.fork(is_beside=False)
            case Fault.STOREERRORS:
                raise StopError("the simulator told the store not to answer")
            case Fault.TABLEERRORS:
                raise FailedException("the simulator told the table not to answer")
            case Fault.DEADWORKERS:
                raise ProcessDeath
            case _:
                raise FailedException("the simulator told it to fail")

    def _kill(self, process: Process) -> None:
        """Kill a process; its lead becomes free, as the system frees an flock."""
        process.die()
        self._scene.durable.free_lead()

    def _pause(self, process: Process) -> None:
        """Pause a process, let others work for a while, and resume it."""
        process.is_paused = True
        self.paused += 1
        # Without its lead a successor can start, and the process is a zombie when it resumes:
        # 1. it has passed a check, such as that of a table's fence; 2. it is paused; 3. a successor takes the lead and
        # writes; 4. it resumes behind the check.
        self._scene.durable.free_lead()
        self._scene.go_on(self._scene.random.randrange(1, PAUSED_MOVES_MAX), paused_too=False)
        process.is_paused = False
        self.paused -= 1
        if process.is_over:
            raise CrashError

    # Between two moves.

    def strike_between(self) -> None:
        """Strike, perhaps, before the next move."""
        for fault in self._moving:
            if self._can(fault) and self._scene.strikes(fault, MOVING[fault]):
                self._happen_between(fault)

    def _happen_between(self, fault: Fault) -> None:
        scene = self._scene
        clock, random, process = scene.clock, scene.random, scene.moving
        match fault:
            case Fault.CRASHES:
                self._kill(process)
            case Fault.LOSTLEADS:  # behind its holder's back
                scene.durable.free_lead()
                scene.start()
            case Fault.CLOCKJUMPS:
                clock.now_ms += random.randrange(2 * TIMEOUT_MS)
            case Fault.SLOWWORK:  # the run loop reads a later clock while work waits
                clock.now_ms += random.randrange(TIMEOUT_MS)
                process.tick()
            case Fault.STOPREQUESTS:
                process.request_stop()
            case Fault.AGES:
                secs = self._lives.age_secs(random)
                scene.log(f"{secs} s pass")
                clock.aged_secs += secs
            case Fault.FORKS:
                scene.fork(is_beside=True)
            case _:
                spout = random.choice(self._switchable)
                spout.set_disabled(random.choice(list(spout.rows.lengths())), random.choice((True, False)))

    def _can(self, fault: Fault) -> bool:
        scene = self._scene
        match fault:
            case Fault.LOSTLEADS | Fault.PAUSES:  # another process starts beside this one
                return scene.has_faults and not self.paused and len(scene.processes) < PROCESSES_MAX
            case Fault.FORKS:
                return scene.can_fork
            case Fault.SLOWWORK:
                return bool(scene.moving.threads.works)
            case Fault.OTHERTUPLES:
                return bool(self._switchable)
            case Fault.AGES:  # tables are the same however much time passes
                return not scene.clock.stands_still
            case _:
                return True

    # At jobs.

    def lose_job(self, *, is_done: bool) -> None:
        """Lose a job, perhaps, before its work or after it."""
        scene = self._scene
        if scene.strikes(Fault.LOSTJOBS, "after it was done" if is_done else "before it was done"):
            raise JobFailure("the simulator lost the job")
        if not is_done and scene.strikes(Fault.DEADEXECUTORS, "with this job and all that wait"):
            scene.moving.threads.lose_jobs()
            raise JobFailure("the simulator killed an executor")

    def strike_answers(self, delivery: Delivery, job_id: int) -> None:
        """Strike, perhaps, at the answers of a job: change the delivery, or add another one."""
        for fault in self._answering:
            if self._scene.strikes(fault, "of job", job_id):
                self._happen_to(delivery, fault, job_id)

    def _happen_to(self, delivery: Delivery, fault: Fault, job_id: int) -> None:
        now_ms, random = self._scene.clock.now_ms, self._scene.random
        match fault:
            case Fault.LATEANSWERS:
                delivery.due_ms = now_ms + random.randrange(3 * TIMEOUT_MS)
            case Fault.LOSTANSWERS:
                # Some event must end the job: the thread of a real job ends when the job is cancelled.
                delivery.events = (JobLost(job_id, "its answers were lost"),)
                delivery.due_ms = now_ms + 2 * TIMEOUT_MS
            case _:
                events = tuple(event for event in delivery.events if isinstance(event, (Processed, JobEnded)))
                due_ms = now_ms + random.randrange(2 * TIMEOUT_MS)
                self._scene.moving.threads.deliveries.append(Delivery(events, None, due_ms))
