"""The heartbeats of a driver: a thread that writes them and steers the run by the topology's status.

Only an ACTIVE topology begins transactions; the writer stops a KILLED one in good order. It also stops the run when the
assignment is gone, and when ZooKeeper has been away for ``supervisor.isolation.secs``, because nimbus then starts the
topology elsewhere. If the run does not end in time, the writer ends the process: its supervisor may be dead.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from typing import Self

from txtopo.assembly.plain.report import PlainReport
from txtopo.assembly.report import Progress
from txtopo.cluster.decisions.assignment import Heartbeat
from txtopo.cluster.decisions.lifecycle import Status, Topology
from txtopo.cluster.decisions.slots import DriverExit
from txtopo.cluster.driver.folder import STARTING, DriverLaunch
from txtopo.cluster.state import ClusterState
from txtopo.engine.control import RunControl
from txtopo.errors import Unreachable

_LOG = logging.getLogger(__name__)
_SHARE_OF_START = 0.5
"""The share of the start timeout after which the log says where the start hangs."""


class HeartbeatWriter:
    """Writes heartbeats, and steers the run by the topology's status.

    A run that must end may take ``grace_secs``; then the process ends.
    """

    def __init__(
        self, state: ClusterState, launch: DriverLaunch, control: RunControl, grace_secs: float = 10.0
    ) -> None:
        self._state = state
        self._launch = launch
        self._control = control
        self._grace_secs = grace_secs
        self._news = threading.Event()
        self._closed = threading.Event()
        self._count = 0
        self._stage = ""
        self._stage_at = self._begun_at = time.monotonic()
        self._has_warned = False
        self._progress: Progress | PlainReport | None = None
        self._has_committed = False
        self._must_end_at: float | None = None
        self._beat_at = time.monotonic()
        """When the last heartbeat began that ZooKeeper has taken: from no earlier moment does nimbus count silence."""
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def __enter__(self) -> Self:
        self._poll()  # before the topology runs, so that a deactivated one begins nothing
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._news.set()
        self._thread.join(self._launch.session_timeout_secs)  # no longer: ZooKeeper may be away, and the run is over

    @property
    def has_run(self) -> bool:
        """Whether the run has made progress; for a plain topology, whether all workers have run at once."""
        return self._progress is not None

    def entered(self, stage: str) -> None:
        """Record the step that the start has reached."""
        _LOG.info("%s", stage)
        self._stage, self._stage_at = stage, time.monotonic()

    def progressed(self, progress: Progress | PlainReport) -> None:
        """Record the progress of the run."""
        # A plain topology runs once all its workers do; until then its start may still time out.
        if isinstance(progress, PlainReport) and not self.has_run and progress.workers_running < progress.workers:
            return
        is_first, self._progress = not self.has_run, progress
        if is_first:
            _LOG.info("the topology runs")
            self._news.set()
        elif not self._has_committed and isinstance(progress, Progress) and progress.transactions:
            self._has_committed = True
            _LOG.info("transaction %d is committed, the first one of this driver", progress.committed_txid)

    def _run(self) -> None:
        while not self._closed.is_set():
            self._news.clear()
            try:
                if self._state.session.is_connected:
                    self._poll()
            except Unreachable:
                _LOG.warning("ZooKeeper does not answer")  # not yet an end: isolation_secs decides, below
            except Exception as error:  # noqa: BLE001 - without heartbeats the process must not go on
                _LOG.error("the writer of heartbeats has failed", exc_info=error)
                self._must_end("the writer of heartbeats has failed")
            if self._warning_due_secs() <= 0:
                self._warn_of_slow_start()
            if self._isolation_due_secs() <= 0:
                self._must_end(
                    f"ZooKeeper has been away for {self._launch.isolation_secs:g} s", self._launch.shutdown_secs
                )
            if self._must_end_at is not None and time.monotonic() > self._must_end_at:
                _LOG.critical("the run does not end: the process ends")
                logging.shutdown()
                # Not sys.exit: it would end this thread only, and the main thread hangs.
                os._exit(DriverExit.ERROR)
            dues = (self._warning_due_secs(), self._isolation_due_secs(), self._end_due_secs())
            self._news.wait(min(self._launch.heartbeat_secs, *(due for due in dues if due > 0)))

    def _warn_of_slow_start(self) -> None:
        """Log once where the start hangs, before the supervisor ends it."""
        self._has_warned = True
        frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - no other way
        where = "".join(traceback.format_stack(frame))
        _LOG.warning(
            "the topology does not run after %d s; at %d s the driver is stopped. It is at this stage: %s\n%s",
            time.monotonic() - self._begun_at,
            self._launch.start_timeout_secs,
            self._detail(),
            where,
        )

    def _warning_due_secs(self) -> float:
        """Return the time until a start counts as slow; infinite once the topology runs or the warning was given."""
        if self.has_run or self._has_warned:
            return float("inf")
        return self._begun_at + _SHARE_OF_START * self._launch.start_timeout_secs - time.monotonic()

    def _isolation_due_secs(self) -> float:
        return self._beat_at + self._launch.isolation_secs - time.monotonic()

    def _end_due_secs(self) -> float:
        return float("inf") if self._must_end_at is None else self._must_end_at - time.monotonic()

    def _detail(self) -> str:
        now = f"{self._stage or 'beginning'}, for {time.monotonic() - self._stage_at:.0f} s"
        return f"{now}; the start before failed: {self._launch.before}" if self._launch.before else now

    def _poll(self) -> None:
        topology, number = self._launch.assignment.topology, self._launch.assignment.number
        # A watch: a kill or deactivation takes effect at once, not at the next beat.
        record = self._state.topology(topology, self._news.set)
        assignment = self._state.assignment(topology)
        if record is None:
            self._must_end("the topology is gone")
            return
        if assignment is None or assignment.number != number:
            self._must_end("the assignment was taken away")
            return
        self._obey(record)
        self._count += 1
        began = time.monotonic()
        self._state.beat(topology, number, self._heartbeat())
        self._beat_at = began

    def _obey(self, record: Topology) -> None:
        match record.status:
            case Status.ACTIVE if record.revision == self._launch.assignment.revision:
                self._control.activate()
            case Status.ACTIVE | Status.INACTIVE | Status.REBALANCING:
                # ACTIVE in another revision: a rebalance is carried out, and the next driver is about to be assigned.
                self._control.deactivate()
            case Status.KILLED if not self._control.is_stopping:
                # Not until the deadline, which is by nimbus' clock. Nimbus ends the wait: it removes the record.
                self._control.stop()
            case Status.KILLED:
                pass
            case Status.FINISHED | Status.FAILED:
                self._must_end(f"the topology is {record.status.value}")

    def _must_end(self, why: str, grace_secs: float | None = None) -> None:
        if self._must_end_at is None:
            _LOG.warning("the run is stopped: %s", why)
            self._must_end_at = time.monotonic() + (self._grace_secs if grace_secs is None else grace_secs)
            self._control.stop(0.0)

    def _heartbeat(self) -> Heartbeat:
        stage = STARTING
        if self._progress is not None:
            stage = "running" if self._control.is_active else "inactive"
            stage = "stopping" if self._control.is_stopping else stage
        return Heartbeat(
            self._launch.id,
            self._count,
            stage,
            time.time(),
            self._launch.supervisor,
            os.getpid(),
            _figures(self._progress),
            self._detail() if stage == STARTING else "",
        )


def _figures(progress: Progress | PlainReport | None) -> dict[str, float]:
    match progress:
        case None:
            return {}
        case Progress():
            return {
                "committedTxid": progress.committed_txid,
                "transactions": progress.transactions,
                "inFlight": progress.ready + progress.processing + progress.processed + progress.committing,
                "tuples": progress.tuples,
                "failures": progress.failures,
                "deadLetters": progress.dead_letters,
            }
        case PlainReport():
            return {
                "emitted": progress.emitted,
                "acked": progress.acked,
                "failed": progress.failed,
                "pending": progress.pending,
                "workers": progress.workers_running,
                "restarts": progress.restarts,
            }
