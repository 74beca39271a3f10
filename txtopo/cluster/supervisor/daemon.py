"""Supervisor: the daemon that starts, watches, restarts and ends driver processes.

It keeps nothing in memory that matters: started again, it adopts the drivers that still run. It imports no submitted
code; drivers and checks are processes of their own. One thread looks at each slot in turn, and the pure
:func:`~txtopo.cluster.decisions.slots.step` decides::

    FOLDER/id                 this supervisor's id
    FOLDER/lock               locked while a supervisor uses the folder
    FOLDER/CLUSTER/code/      the code of topologies, checked
    FOLDER/CLUSTER/drivers/N/ the folder of slot N's driver; see ``driver.folder``
    FOLDER/CLUSTER/logs/ID/   driver.log, and driver.log.1 before it; place.json, see ``driver.folder``
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs

from txtopo.cluster.code.distribution import open_cluster
from txtopo.cluster.code.store import is_shortage
from txtopo.cluster.decisions.assignment import Assignment, Ending, SupervisorInfo
from txtopo.cluster.decisions.lifecycle import Status
from txtopo.cluster.decisions.slots import (
    CleanUp,
    DriverSlot,
    FetchCode,
    Kill,
    Launch,
    Report,
    Seen,
    SlotLimits,
    SlotState,
    Terminate,
    step,
)
from txtopo.cluster.driver.child import check_code
from txtopo.cluster.driver.folder import DriverFolder, DriverLaunch, TopologyPlace
from txtopo.cluster.logs import Reminder, rotate
from txtopo.cluster.settings import ClusterConfig
from txtopo.cluster.supervisor.slot import LocalSlot
from txtopo.errors import CodeUnavailable, ConfigError, Unreachable
from txtopo.failpoints import durable_step
from txtopo.files.durable import write_whole

_LOG = logging.getLogger(__name__)

_TIDY_SECS = 10.0
_FETCH_AGAIN_SECS = 1.0
_LOG_BYTES_MAX = 64 << 20
_LOGS_MAX = 100
"""The most topologies whose logs are kept; the one written to least recently goes first."""
_FETCHES_MAX = 2
_SHARE_OF_CHECK = 0.8
"""The share of ``nimbus.submission.check.secs`` that a build may take: the rest is for fetching and answering."""


class Supervisor:
    """One supervisor, without its HTTP server, which others reach at ``address``.

    Any thread may call ``on_failure``, with an unexpected error: the process must end then.

    Raises:
        ConfigError: a setting does not fit, or another supervisor uses the folder.
        Unreachable: ZooKeeper does not answer.
    """

    def __init__(
        self,
        config: ClusterConfig,
        address: str,
        token: str,
        version: str,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.config = config
        self.address = address
        home = Path(config["storm.local.dir"]).expanduser().absolute() / "supervisor"
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)  # over HTTP code and logs need the token; the disk must not be a way round it
        self._lock = _locked(home / "lock")
        self.id = _own_id(home / "id")
        self.work_dir = Path(config["supervisor.work.dir"]).expanduser().absolute()
        self.work_dir.mkdir(parents=True, exist_ok=True)
        self.opened = open_cluster(config, home, address, token)
        self.state, self.store = self.opened.state, self.opened.store
        self._folder = self.opened.folder
        self._reminder = Reminder(_LOG)
        self._record = SupervisorInfo(self.id, address, config["supervisor.slots"], time.time(), version)
        self._limits = SlotLimits(
            start_timeout_secs=config["supervisor.worker.start.timeout.secs"],
            silence_secs=config["supervisor.worker.timeout.secs"],
            shutdown_secs=config["supervisor.worker.shutdown.sleep.secs"],
            retries_max=config["supervisor.worker.start.retries"],
            isolation_secs=config["supervisor.isolation.secs"],
            backoff_reset_secs=config["supervisor.worker.backoff.reset.secs"],
        )
        self._on_failure = on_failure
        self._slots: dict[int, LocalSlot] = {}
        self._news = threading.Event()
        self._stopped = threading.Event()
        self._cluster = _Cluster()
        self._tidied_at = 0.0
        self._fetches: dict[str, Future[None]] = {}
        self._fetch_again_at: dict[str, float] = {}
        self._fetch_lock = threading.Lock()
        self._fetchers = ThreadPoolExecutor(_FETCHES_MAX, "fetch")
        self._thread = threading.Thread(target=self._run, name="slots", daemon=True)

    def start(self) -> None:
        """Adopt the drivers that run, announce this supervisor, and start the thread."""
        self.store.check(self.state.manifests())
        for left in self._folder.glob("check-*"):  # a crash during a check leaves its folder
            shutil.rmtree(left, ignore_errors=True)
        self._adopt()
        self.state.session.listen(self.wake)
        self._thread.start()

    def begin_stop(self) -> None:
        """Do nothing: no request here waits for others."""

    def stop(self) -> None:
        """End; the drivers continue, unless ``supervisor.stops.drivers`` is set."""
        self._stopped.set()
        self.wake()
        self._thread.join(self.state.session.patience_secs)
        if self.config["supervisor.stops.drivers"]:
            self._end_drivers()
        self._fetchers.shutdown(wait=False, cancel_futures=True)
        self.opened.close()
        os.close(self._lock)

    def wake(self) -> None:
        """Let the thread look at once."""
        self._news.set()

    def slots(self) -> list[DriverSlot]:
        """Return the slots, to show."""
        # A copy: threads of the HTTP server call this while the loop may add slots.
        return [slot.now for _, slot in sorted(self._slots.copy().items())]

    def metrics_files(self) -> dict[int, Path]:
        """Return the files of metrics of the slots' drivers, by slot; a driver may not have written one yet."""
        return {number: slot.metrics for number, slot in sorted(self._slots.copy().items()) if slot.now.assignment}

    def log_path(self, topology: str) -> Path | None:
        """Return the log of a topology's drivers; None if there is none here."""
        path = self._folder / "logs" / topology / "driver.log"
        # The id comes from a URL: it must not lead out of the folder.
        is_plain = path.parent.parent == self._folder / "logs" and topology not in {"", ".", ".."}
        return path if is_plain and path.is_file() else None

    def place(self, topology: str) -> TopologyPlace | None:
        """Return where a topology's metadata is on this machine; None if no driver of it has run here."""
        log = self.log_path(topology)
        return None if log is None else TopologyPlace.read(log.parent)

    def topologies(self) -> list[str]:
        """Return the topologies that have a slot here."""
        return [slot.assignment.topology for slot in self.slots() if slot.assignment is not None]

    # Code.

    def check(self, topology: str, settings: Mapping[str, str] | None = None) -> Any:
        """Build a topology in a process of its own, by default with the submitted settings; return the API's answer.

        Raises:
            CodeUnavailable: the code cannot be fetched.
            SubmissionError: it is not built in time, or the process died without an answer.
        """
        self._fetch(topology)
        limit = "nimbus.submission.check.secs"
        return check_code(
            self.store.path(topology),
            _SHARE_OF_CHECK * self.config[limit],
            limit=limit,
            settings=settings,
            folder=self._folder,
            work_dir=self.work_dir,
        )

    def _fetch(self, topology: str) -> None:
        with self._fetch_lock:
            if self.store.has(topology):
                return
            manifest = self.state.manifest(topology)
            if manifest is None:
                raise CodeUnavailable(f"no code of {topology!r} is published")
            self.opened.fetch(manifest)
        _LOG.info("the code of %s is here", topology)

    def _begin_fetch(self, topology: str) -> None:
        """Fetch code in the background, unless that is under way or failed a moment ago."""
        running = self._fetches.get(topology)
        now = time.monotonic()
        if (running is not None and not running.done()) or now < self._fetch_again_at.get(topology, 0.0):
            return
        self._fetch_again_at[topology] = now + _FETCH_AGAIN_SECS

        def fetch() -> None:
            try:
                with self.opened.tries_again(topology):
                    self._fetch(topology)
            except BaseException as error:  # noqa: BLE001 - fail fast
                if not self._stopped.is_set():
                    self._on_failure(error)
            self.wake()

        self._fetches[topology] = self._fetchers.submit(fetch)

    # The loop.

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._news.clear()
                # After a change look again at once: the next state may have something to do already.
                is_settled = self._look()
                if is_settled:
                    self._news.wait(self._pause_secs())
        except BaseException as error:  # noqa: BLE001 - fail fast: whatever it is, the process ends
            if not self._stopped.is_set():
                self._on_failure(error)

    def _pause_secs(self) -> float:
        """Return the time to the next look: the usual period, or less if a backoff ends sooner."""
        period_secs: float = self.config["supervisor.monitor.frequency.secs"]
        now = time.monotonic()
        waits = [slot.now.until - now for slot in self._slots.values() if slot.now.state is SlotState.WAITING]
        return min([period_secs, *(secs for secs in waits if secs > 0)])  # an overdue one waits for ZooKeeper

    def _look(self) -> bool:
        """Step every slot once; return whether all have kept their state."""
        is_read = self._read()
        now = time.monotonic()
        # By the last successful read, not by the connection: never 0 while ZooKeeper is away, for 0 means connected.
        cut_off_secs = 0.0 if is_read else max(now - self._cluster.read_at, 1e-9)
        for number in range(self.config["supervisor.slots"]):  # adopted drivers may have others, of a larger setting
            self._slots.setdefault(number, LocalSlot(number, self._folder / "drivers" / str(number), self.wake))
        is_settled = True
        for _, slot in sorted(self._slots.items()):
            before = slot.now
            self._step(slot, cut_off_secs)
            if slot.unsent and not cut_off_secs:  # a report that ZooKeeper did not get
                self._report(slot, *slot.unsent)
            if slot.now.state is not before.state:
                is_settled = False
                _log_change(before, slot.now)
        if not cut_off_secs and now - self._tidied_at > _TIDY_SECS:
            self._tidied_at = now
            try:
                self._tidy()
            except OSError as error:
                if not is_shortage(error):
                    raise
                self._reminder.warn("tidy", "logs are not rotated: %s", error)
        return is_settled

    def _read(self) -> bool:
        """Read what ZooKeeper wants here; keep the last answer if it gives none. Return whether it did."""
        was_away, self._cluster.is_away = self._cluster.is_away, True
        if not self.state.session.is_connected:
            return False
        now = time.monotonic()
        try:
            self.state.announce_supervisor(self._record)
            self.state.watch(("assignments", "storms"), self.wake)  # before the reads: see ``ClusterState.watch``
            assignments = {each.slot: each for each in self.state.assignments().values() if each.supervisor == self.id}
            statuses = {name: each.status for name, each in self.state.topologies().items()}
            beats = {
                each.topology: beat
                for each in assignments.values()
                if (beat := self.state.heartbeat(each.topology, each.number)) is not None
            }
            ended = frozenset(
                each.topology
                for each in assignments.values()
                if self.state.ending(each.topology, each.number) is not None
            )
        except Unreachable as error:
            _LOG.warning("%s", error)
            return False
        self._cluster = _Cluster(now, assignments, statuses, ended)
        for slot in self._slots.values():
            # While ZooKeeper was away no beat could arrive; silence counts from now, or every driver would be ended.
            slot.take_beat(beats, now, is_new_time=was_away)
        return True

    def _step(self, slot: LocalSlot, cut_off_secs: float) -> None:
        slot.now, actions = step(slot.now, self._seen(slot, cut_off_secs), self._limits)
        for action in actions:
            match action:
                case FetchCode(topology):
                    self._begin_fetch(topology)
                case Launch(assignment):
                    self._launch(slot, assignment)
                case Terminate():
                    slot.signal(signal.SIGTERM)
                case Kill():
                    slot.signal(signal.SIGKILL)
                case Report(assignment, ending):
                    self._report(slot, assignment, ending)
                case CleanUp():
                    slot.clean_up()

    def _seen(self, slot: LocalSlot, cut_off_secs: float) -> Seen:
        wanted = self._cluster.assignments.get(slot.now.number)
        is_alive = slot.is_alive()
        if wanted is not None and not is_alive:
            status = self._cluster.statuses.get(wanted.topology)
            is_over = slot.now.state is SlotState.EMPTY and wanted.topology in self._cluster.ended
            # Start nothing for a killed topology, nor after a reported end: a restarted supervisor has forgotten ENDED,
            # and nimbus may not have taken the assignment away yet.
            if status is None or status is Status.KILLED or is_over:
                wanted = None
        exit_status, error = (None, "") if is_alive else slot.end()
        return Seen(
            now=time.monotonic(),
            wanted=wanted,
            has_code=wanted is not None and self._has_sound_code(slot.now, wanted.topology),
            is_process_alive=is_alive,
            exit_status=exit_status,
            has_run=slot.has_run,
            beat_age_secs=None if cut_off_secs else slot.beat_age_secs(),
            cut_off_secs=cut_off_secs,
            error=error,
            detail=slot.detail,
        )

    def _has_sound_code(self, slot: DriverSlot, topology: str) -> bool:
        """Whether the code is here; if the slot may launch now, also whether it is sound, which reads all of it."""
        may_start = slot.state in {SlotState.EMPTY, SlotState.FETCHING} or (
            slot.state is SlotState.WAITING and time.monotonic() >= slot.until
        )
        return self.store.has(topology) and (not may_start or self.store.is_sound(topology))

    def _launch(self, slot: LocalSlot, assignment: Assignment) -> None:
        config = self.config
        launch = DriverLaunch(
            id=secrets.token_hex(8),
            assignment=assignment,
            code=str(self.store.path(assignment.topology)),
            zookeeper_hosts=config.zookeeper_hosts,
            zookeeper_root=config["storm.zookeeper.root"],
            zookeeper_credentials=config["storm.zookeeper.auth"],
            session_timeout_secs=config["storm.zookeeper.session.timeout.secs"],
            supervisor=self.id,
            heartbeat_secs=min(3.0, config["supervisor.worker.timeout.secs"] / 4),
            isolation_secs=config["supervisor.isolation.secs"],
            log_format=config["supervisor.driver.log.format"] or "text",
            start_timeout_secs=config["supervisor.worker.start.timeout.secs"],
            before=slot.now.why if slot.now.failed_starts else "",
        )
        log = self._folder / "logs" / assignment.topology / "driver.log"
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with durable_step("supervisor.launch"):
                slot.launch(launch, log, self.work_dir)
        except OSError as error:
            if not is_shortage(error):
                raise
            # Treat it as a failed start: the slot tries again, and then nimbus elsewhere. The process must not end, for
            # a supervisor that restarts cures no full disk.
            slot.fault = f"the supervisor at {self.address} cannot start it: {error}"
            _LOG.warning("slot %d, %s: %s", slot.now.number, assignment.topology, slot.fault)
            return
        _LOG.info("slot %d: driver %s of %s is process %s", slot.now.number, launch.id, assignment.topology, slot.pid())

    def _report(self, slot: LocalSlot, assignment: Assignment, ending: Ending) -> None:
        _LOG.info("%s on slot %d: %s %s", assignment.topology, slot.now.number, ending.kind.value, ending.reason)
        try:
            with durable_step("supervisor.report"):
                self.state.report(assignment.topology, assignment.number, attrs.evolve(ending, at=time.time()))
        except Unreachable as error:
            _LOG.warning("%s", error)
            slot.unsent = (assignment, ending)  # the next look sends it
            return
        slot.unsent = None

    def _adopt(self) -> None:
        folders = self._folder / "drivers"
        for folder in sorted(folders.iterdir()) if folders.is_dir() else []:
            launch = DriverFolder(folder).launch()
            # Without launch.json no process was started: see ``DriverFolder.begin``.
            if not folder.name.isdecimal() or launch is None:
                shutil.rmtree(folder, ignore_errors=True)
                continue
            slot = LocalSlot(int(folder.name), folder, self.wake)
            beat = self.state.heartbeat(launch.assignment.topology, launch.assignment.number)
            slot.adopt(launch, {} if beat is None else {launch.assignment.topology: beat})
            self._slots[slot.now.number] = slot
            what = f"runs, process {slot.pid()}" if slot.is_alive() else "has ended"
            _LOG.info("slot %d: the driver of %s %s", slot.now.number, launch.assignment.topology, what)

    def _tidy(self) -> None:
        """Remove code and logs that no topology needs; rotate the other logs."""
        published = self.state.manifests()
        used = {slot.now.assignment.topology for slot in self._slots.values() if slot.now.assignment is not None}
        for topology in self.store.topologies():
            if topology not in published and topology not in used:
                self.store.remove(topology)
        self.store.check_next(published)
        logs = sorted((self._folder / "logs").glob("*/driver.log"), key=lambda path: path.stat().st_mtime)
        for path in logs[:-_LOGS_MAX]:
            if path.parent.name not in used:
                shutil.rmtree(path.parent, ignore_errors=True)
        for path in logs:
            rotate(path, _LOG_BYTES_MAX)

    def _end_drivers(self) -> None:
        for slot in self._slots.values():
            slot.signal(signal.SIGTERM)
        deadline = time.monotonic() + self.config["supervisor.worker.shutdown.sleep.secs"]
        while any(slot.is_alive() for slot in self._slots.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for slot in self._slots.values():
            slot.signal(signal.SIGKILL)


@attrs.define
class _Cluster:
    """What this supervisor read in ZooKeeper last."""

    read_at: float = attrs.field(factory=time.monotonic)
    assignments: Mapping[int, Assignment] = attrs.field(factory=dict)
    """By slot."""
    statuses: Mapping[str, Status] = attrs.field(factory=dict)
    ended: frozenset[str] = frozenset()
    is_away: bool = False
    """Whether ZooKeeper has been away since."""


def _log_change(before: DriverSlot, after: DriverSlot) -> None:
    assignment = after.assignment or before.assignment
    name = "" if assignment is None else f", {assignment.topology}"
    why = f": {after.why}" if after.why and after.state in {SlotState.STOPPING, SlotState.WAITING} else ""
    _LOG.info("slot %d%s: %s -> %s%s", after.number, name, before.state.value, after.state.value, why)


def _locked(path: Path) -> int:
    # Two supervisors on one folder would both adopt and launch the same drivers. The kernel frees the lock at the end.
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ConfigError(
            f"another supervisor uses {path.parent}: give this one a storm.local.dir of its own"
        ) from None
    return lock


def _own_id(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        found = path.read_text().strip()
        if found:
            return found
    # Whole or not at all: with half an id the next start would be another supervisor, and its drivers nobody's.
    write_whole(path, f"supervisor-{secrets.token_hex(6)}\n".encode())
    return path.read_text().strip()
