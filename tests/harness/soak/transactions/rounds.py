"""Rounds: one output folder, and the processes that work on it, one after another."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import attrs

from tests.harness.soak.processes import (
    executors_of,
    java_of,
    kill_process,
    kill_session,
    members,
    pause,
    signal_process,
    workers_of,
)
from tests.harness.soak.transactions.child import DIED
from tests.harness.soak.transactions.kills import DECIDED, UNSETTLED, Kill, Victim
from tests.harness.soak.transactions.subjects import judge_of, topology_of
from tests.harness.soak.transactions.topology import TOPOLOGY_ID, Setup, config_of
from tests.harness.spark_cluster.standalone import StandaloneCluster
from txtopo.assembly.storage import make_store
from txtopo.failpoints import ENVIRONMENT
from txtopo.files.places import folder_at
from txtopo.journal.ending import JournalEnd, read_end
from txtopo.testing.checkers import Violation
from txtopo.transactional.recovery.coordinator_state import CoordinatorState

STALL_SECS = 300.0
"""How long a process may make no progress."""

READ_SECS = 0.1
"""The pause between two reads of the tables while a process runs; it is longer where a read takes long."""

GONE = b"Spark is gone"
"""What a driver prints when its JVM has died."""

_LOG_TAIL_CHARACTERS = 4000


@attrs.frozen
class Death:
    """The end of a driver.

    Args:
        kills: those that struck, in order.
        is_finished: whether it finished its input.
        committed: the last transaction that the journal proves committed.
    """

    kills: tuple[Kill, ...]
    is_finished: bool
    committed: int


class Round:
    """The tables of a topology, and the lives of the processes that write them; ``setup.output`` is set here.

    Args:
        folder: where they are, unless in a bucket, and all else.
        setup: what the processes get.
        cluster: has the executors, unless they are in the driver's session.
        bucket: the address of an object store, if the tables are there; then each life begins with an empty disk.
    """

    def __init__(
        self, folder: Path, setup: Setup, cluster: StandaloneCluster | None = None, bucket: str | None = None
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self.disk = folder / "disk"
        self._is_lost = bucket is not None
        home = folder if bucket is None else f"{bucket}/{folder.name}"
        self.setup = attrs.evolve(setup, output=f"{home}/tables", scratch=str(self.disk))
        self.judge = judge_of(self.setup)
        self.is_group_decided = False
        self.lives = 0
        self.merged: set[str] = set()
        """The names of files that were made of several segments."""
        self._orphans: set[int] = set()
        self._begin_disk()

    def _begin_disk(self) -> None:
        for scratch in ("tmp", "spark"):
            (self.disk / scratch).mkdir(parents=True)

    def live(self, *kills: Kill) -> Death:
        """Run the topology until it is killed or finished, and check the tables meanwhile and afterwards.

        Pass one kill; or one of a worker, which the run survives, and a second one; or none, to finish the input.

        Raises:
            Violation: the run ends in another way, makes no progress, or its tables are wrong.
        """
        self.lives += 1
        driver = _Driver(self, kills)
        earlier, self._orphans = self._orphans, {driver.process.pid}
        try:
            death = driver.run()
        except BaseException:
            self.kill_orphans()
            raise
        finally:  # what an earlier driver has left alone has had the time of this one
            for session in earlier:
                kill_session(session)
        if not driver.spares_others:
            self.kill_orphans()
        self.judge.check_view()
        tables = folder_at(self.setup.output)
        files = (name for table in tables.folders() for name in tables.names(f"{table}/_data"))
        self.merged |= {name for name in files if name.startswith("merged-")}
        if self._is_lost:
            shutil.rmtree(self.disk)
            self._begin_disk()
        self.is_group_decided = self._leaves_group(death)
        return death

    def check_end(self) -> int:
        """Check that all tables are exact once a driver has finished; return the number of transactions."""
        topology, config = topology_of(self.setup), config_of(self.setup)
        store = make_store(topology.plan, config)
        try:
            committed = CoordinatorState(store, None, TOPOLOGY_ID).committed().txid
        finally:
            store.close()
        return self.judge.check_end(committed)

    def kill_orphans(self) -> None:
        """Kill all processes that earlier lives have left."""
        while self._orphans:
            kill_session(self._orphans.pop())

    def committed(self) -> int:
        """Return the last transaction that is surely committed.

        It comes from the journal, which anyone may read. Opening the store instead would carry out the recovery of
        SQLite's log, which is left to the next run.
        """
        end = read_end(self.judge.journal)
        return 0 if end is None else _committed(end)

    def _leaves_group(self, death: Death) -> bool:
        """Whether a run that has ended leaves a group that is decided and not committed."""
        if death.is_finished or not death.kills:
            return False
        failpoint = death.kills[-1].failpoint
        return self.is_group_decided if failpoint in UNSETTLED else failpoint in DECIDED


def _committed(end: JournalEnd) -> int:
    return end.header.committed if end.last is None else end.last.first - 1


class _Driver:
    """One process of the topology, with all that it starts."""

    def __init__(self, owner: Round, kills: tuple[Kill, ...]) -> None:
        self._round = owner
        self._left = list(kills)
        self._struck: list[Kill] = []
        self.spares_others = False
        at_failpoint = next((kill for kill in kills if kill.failpoint), None)
        in_worker = at_failpoint is not None and at_failpoint.victim is Victim.WORKER
        armed = at_failpoint.armed if at_failpoint is not None else ""
        setup = attrs.evolve(owner.setup, worker_failpoints=armed if in_worker else "")
        end = read_end(owner.judge.journal)
        self._epoch_before = 0 if end is None else end.header.epoch
        self._moment_from: int | None = None
        self.log = owner.folder / f"life-{owner.lives:03d}.log"
        command = [sys.executable, "-m", "tests.harness.soak.transactions.child", json.dumps(attrs.asdict(setup))]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
            "TMPDIR": str(owner.disk / "tmp"),
            ENVIRONMENT: "" if in_worker else armed,
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=owner.disk,
                env=environment,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def run(self) -> Death:
        """Carry out the kills as their moments come, until the process ends."""
        while self._left:
            kill = self._left[0]
            self._wait_until(lambda kill=kill: self._is_due(kill))
            if self.process.poll() is not None and not self._strike_failpoint(kill):
                break
            if self.process.poll() is None:
                self._strike(kill)
        self._wait_until(lambda: False)
        return self._judge_end()

    def _is_due(self, kill: Kill) -> bool:
        if not kill.failpoint:
            end = read_end(self._round.judge.journal)
            if end is None or end.header.epoch == self._epoch_before:
                return False  # it has not recovered yet
            since = end.header.committed if self._moment_from is None else self._moment_from
            return _committed(end) >= since + kill.count
        return kill.victim is Victim.WORKER and DIED.encode() in self.log.read_bytes()

    def _strike_failpoint(self, kill: Kill) -> bool:
        """Record that the driver has died at its failpoint; return False if it ended otherwise."""
        if not kill.failpoint or kill.victim is Victim.WORKER or self.process.returncode != -signal.SIGKILL:
            return False
        self._note(kill)
        self.spares_others = kill.victim is Victim.DRIVER
        return True

    def _strike(self, kill: Kill) -> None:
        """Kill or stop the victim while the process runs; an armed worker has killed itself."""
        session = self.process.pid
        match kill.victim:
            case victim if kill.stopped_secs:
                if not self._stop(victim, kill.stopped_secs):
                    pause()
                    return
            case Victim.ALL:
                kill_session(session)
            case Victim.DRIVER:
                self.spares_others = True
                kill_process(session)
            case Victim.JVM:
                java = java_of(session)
                if java is None or not kill_process(java):
                    raise Violation(f"there is no JVM to kill; see {self.log}")
            case victim if not kill.failpoint:
                victims = self._on_executors(workers_of if victim is Victim.WORKER else executors_of)
                if not victims or not kill_process(victims[-1]):
                    pause()  # they come and go: there will be one in a moment
                    return
            case _:
                pass
        self._note(kill)

    def _stop(self, victim: Victim, secs: float) -> bool:
        """Stop a worker, an executor with all round it, or the driver with its JVM; return whether it was there."""
        match victim:
            case Victim.WORKER:
                stopped = self._on_executors(workers_of)[-1:]
            case Victim.EXECUTOR:
                # As if its machine stood still: Spark's worker and the executor, Python's daemon and its workers.
                executors = self._on_executors(executors_of)[-1:]
                stopped = [member.pid for pid in executors for member in members(os.getsid(pid))]
            case _:
                stopped = [member.pid for member in members(self.process.pid)]
        stopped = [pid for pid in stopped if signal_process(pid, signal.SIGSTOP)]
        end = time.monotonic() + secs
        self._wait_until(lambda: not stopped or time.monotonic() >= end)
        for pid in stopped:
            signal_process(pid, signal.SIGCONT)
        return bool(stopped)

    def _on_executors(self, found_in: Callable[[int], list[int]]) -> list[int]:
        """Return processes of executors: in the driver's session, or in those of the cluster's workers."""
        cluster = self._round.cluster
        sessions = [self.process.pid] if cluster is None else [worker.session for worker in cluster.workers]
        return [pid for session in sessions for pid in found_in(session)]

    def _note(self, kill: Kill) -> None:
        self._left.remove(kill)
        self._struck.append(kill)
        self._moment_from = self._round.committed()

    def _wait_until(self, is_due: Callable[[], bool]) -> None:
        """Return when something is due or the process has ended; read the tables meanwhile."""
        deadline, position, read_at = time.monotonic() + STALL_SECS, (-1, 0), 0.0
        while self.process.poll() is None and not is_due():
            if time.monotonic() > read_at:
                began = time.monotonic()
                self._round.judge.check_view()
                ended = time.monotonic()
                read_at = ended + max(READ_SECS, 5 * (ended - began))
            # A commit or a kill is progress, and begins the time limit anew.
            now = (self._round.committed(), len(self._struck))
            if now != position:
                deadline, position = time.monotonic() + STALL_SECS, now
            if time.monotonic() > deadline:
                raise Violation(f"no progress in {STALL_SECS:.0f} s, at transaction {now[0]}; {self._tail()}")
            pause()

    def _judge_end(self) -> Death:
        code = self.process.wait()
        struck = {kill.victim for kill in self._struck if not kill.stopped_secs}
        # A driver that is killed says nothing. One whose JVM is killed must end by itself, with an error that names the
        # cause. One whose worker is killed must go on, so any other end than the input's is a violation.
        is_killed = bool(struck & {Victim.ALL, Victim.DRIVER}) and code == -signal.SIGKILL
        is_bereft = Victim.JVM in struck and code > 0 and GONE in self.log.read_bytes()
        if code != 0 and not is_killed and not is_bereft:
            raise Violation(f"the run ended with exit code {code}; {self._tail()}")
        return Death(tuple(self._struck), code == 0, self._round.committed())

    def _tail(self) -> str:
        return f"the end of {self.log}:\n{self.log.read_text(errors='replace')[-_LOG_TAIL_CHARACTERS:]}"
