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
import logging
import os
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from txtopo.cluster.code.distribution import locked_home, open_cluster
from txtopo.cluster.decisions.assignment import Assignment, Ending, SupervisorInfo
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
from txtopo.cluster.driver.folder import DriverFolder, DriverLaunch
from txtopo.cluster.logs import RepeatedWarning
from txtopo.cluster.settings import ClusterConfig
from txtopo.cluster.supervisor.assigned_drivers import AssignedDrivers
from txtopo.cluster.supervisor.driver_logs import DriverLogs
from txtopo.cluster.supervisor.local_code import LocalCode
from txtopo.cluster.supervisor.slot import LocalSlot
from txtopo.errors import Unreachable
from txtopo.failpoints import durable_step
from txtopo.files.durable import is_shortage, paths_in, write_whole

_LOG = logging.getLogger(__name__)

_TIDY_SECS = 10.0
"""How often logs are rotated: a driver that writes 6 MB a second exceeds their limit by as much again."""


class Supervisor:
    """One supervisor, without its HTTP server, which others reach at ``address``.

    Any thread may call ``on_failure``, with an unexpected error: the process must end then.

    Raises:
        ConfigError: a setting does not fit, or another supervisor uses the folder.
        Unreachable: ZooKeeper does not answer.
    """

    def __init__(
        self, config: ClusterConfig, address: str, token: str, version: str, on_failure: Callable[[BaseException], None]
    ) -> None:
        config.check_isolation()
        self.config = config
        self.address = address
        home = Path(config["storm.local.dir"]).expanduser().absolute() / "supervisor"
        self._lock = locked_home(home)
        self.id = _own_id(home / "id")
        self.work_dir = Path(config["supervisor.work.dir"]).expanduser().absolute()
        self.work_dir.mkdir(parents=True, exist_ok=True)
        self._opened = open_cluster(config, home, address, token)
        self.state, self.store = self._opened.state, self._opened.store
        self._folder = self._opened.folder
        self.logs = DriverLogs(self._folder / "logs")
        record = SupervisorInfo(self.id, address, config["supervisor.slots"], time.time(), version)
        self._wanted = AssignedDrivers(self.state, record, self.wake)
        self._code = LocalCode(self._opened, config["nimbus.submission.check.secs"], self.wake, self._fail)
        self._reminder = RepeatedWarning(_LOG)
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
        self._is_away = False
        """Whether ZooKeeper did not answer at the last look."""
        self._tidied_at = 0.0
        self._thread = threading.Thread(target=self._run, name="slots", daemon=True)

    def start(self) -> None:
        """Adopt the drivers that run, announce this supervisor, and start the thread."""
        self.store.check(self.state.manifests())
        for left in paths_in(self._folder, "check-*"):  # a crash during a check leaves its folder
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
        self._code.close()
        self._opened.close()
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

    def topologies(self) -> list[str]:
        """Return the topologies that have a slot here."""
        return [slot.assignment.topology for slot in self.slots() if slot.assignment is not None]

    def check(self, topology: str, settings: Mapping[str, str] | None = None) -> Any:
        """Build a topology to check its code; see :meth:`LocalCode.check`."""
        return self._code.check(topology, settings, self.work_dir)

    # The loop.

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._news.clear()
                # After a change look again at once: the next state may have something to do already.
                is_steady = self._step_all()
                if is_steady:
                    self._news.wait(self._pause_secs())
        except BaseException as error:  # noqa: BLE001 - fail fast: whatever it is, the process ends
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._stopped.is_set():
            self._on_failure(error)

    def _pause_secs(self) -> float:
        """Return the time to the next look: the usual period, or less if a backoff ends sooner."""
        period_secs: float = self.config["supervisor.monitor.frequency.secs"]
        now = time.monotonic()
        waits = [slot.now.until - now for slot in self._slots.values() if slot.now.state is SlotState.WAITING]
        return min([period_secs, *(secs for secs in waits if secs > 0)])  # an overdue one waits for ZooKeeper

    def _step_all(self) -> bool:
        """Step every slot once; return whether all have kept their state."""
        is_read = self._read()
        now = time.monotonic()
        # By the last successful read, not by the connection: never 0 while ZooKeeper is away, for 0 means connected.
        cut_off_secs = 0.0 if is_read else max(now - self._wanted.read_at, 1e-9)
        for number in range(self.config["supervisor.slots"]):  # adopted drivers may have others, of a larger setting
            self._slots.setdefault(number, LocalSlot(number, self._folder / "drivers" / str(number), self.wake))
        is_steady = True
        for _, slot in sorted(self._slots.items()):
            before = slot.now
            try:
                self._step(slot, cut_off_secs)
            except OSError as error:
                if not is_shortage(error):
                    raise
                slot.now = before  # nothing was done yet
                self._reminder.warn(f"slot {before.number}", "slot %d is looked at again: %s", before.number, error)
            if slot.unsent and not cut_off_secs:  # a report that ZooKeeper did not get
                self._report(slot, *slot.unsent)
            if slot.now.state is not before.state:
                is_steady = False
                _log_change(before, slot.now)
        if not cut_off_secs and now - self._tidied_at > _TIDY_SECS:
            self._tidied_at = now
            try:
                self._tidy()
            except OSError as error:
                if not is_shortage(error):
                    raise
                self._reminder.warn("tidy", "logs are not rotated: %s", error)
        return is_steady

    def _read(self) -> bool:
        """Read what ZooKeeper wants here, and the heartbeats that it has; return whether it answered."""
        was_away, self._is_away = self._is_away, not self._wanted.read()
        if self._is_away:
            return False
        for slot in self._slots.values():
            # While ZooKeeper was away no beat could arrive; silence counts from now, or every driver would be ended.
            slot.take_beat(self._wanted.beats, self._wanted.read_at, is_new_time=was_away)
        return True

    def _step(self, slot: LocalSlot, cut_off_secs: float) -> None:
        slot.now, actions = step(slot.now, self._view_of(slot, cut_off_secs), self._limits)
        for action in actions:
            match action:
                case FetchCode(topology):
                    self._code.begin_fetch(topology)
                case Launch(assignment):
                    self._launch(slot, assignment)
                case Terminate():
                    slot.signal(signal.SIGTERM)
                case Kill():
                    slot.signal(signal.SIGKILL)
                case Report(assignment, ending):
                    self._report(slot, assignment, ending)
                case CleanUp() if slot.unsent and slot.now.state is SlotState.ENDED:
                    pass  # the folder alone says that it ended, should this supervisor end, too
                case CleanUp():
                    slot.clean_up()

    def _view_of(self, slot: LocalSlot, cut_off_secs: float) -> Seen:
        is_alive, number = slot.is_alive(), slot.now.number
        is_new = slot.now.state is SlotState.EMPTY
        wanted = self._wanted.on(number) if is_alive else self._wanted.to_start(number, is_new=is_new)
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
            shutdown_secs=config["supervisor.worker.shutdown.sleep.secs"],
            log_format=config["supervisor.driver.log.format"] or "text",
            start_timeout_secs=config["supervisor.worker.start.timeout.secs"],
            before=slot.now.why if slot.now.failed_starts else "",
        )
        try:
            log = self.logs.begin(assignment.topology)
            # A crash before this leaves nothing. One midway may leave a folder without launch.json, which the next
            # start removes; once launch.json is there, the next start adopts the driver, alive or dead.
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
            # The slot's folder goes only after this. So the next start adopts the dead driver and reports again what it
            # finds in the folder; if ZooKeeper had the report already, that changes nothing.
            with durable_step("supervisor.report"):
                self.state.report(assignment.topology, assignment.number, attrs.evolve(ending, at=time.time()))
        except Unreachable as error:
            _LOG.warning("%s", error)
            slot.unsent = (assignment, ending)  # the next look sends it
            return
        slot.clean_up()

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
        # Read the disk first, then ZooKeeper: code is published before it is fetched. The other way round, code that a
        # check of a submission fetches between the two reads would be taken for nobody's.
        here = self.store.topologies()
        published = self.state.manifests()
        used = {slot.now.assignment.topology for slot in self._slots.values() if slot.now.assignment is not None}
        for topology in here:
            if topology not in published and topology not in used:
                self.store.remove(topology)
        self.store.check_next(published)
        self.logs.tidy(used)

    def _end_drivers(self) -> None:
        for slot in self._slots.values():
            slot.signal(signal.SIGTERM)
        deadline = time.monotonic() + self.config["supervisor.worker.shutdown.sleep.secs"]
        while any(slot.is_alive() for slot in self._slots.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for slot in self._slots.values():
            slot.signal(signal.SIGKILL)


def _log_change(before: DriverSlot, after: DriverSlot) -> None:
    assignment = after.assignment or before.assignment
    name = "" if assignment is None else f", {assignment.topology}"
    why = f": {after.why}" if after.why and after.state in {SlotState.STOPPING, SlotState.WAITING} else ""
    _LOG.info("slot %d%s: %s -> %s%s", after.number, name, before.state.value, after.state.value, why)


def _own_id(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        found = path.read_text().strip()
        if found:
            return found
    # Whole or not at all: with half an id the next start would be another supervisor, and its drivers nobody's.
    write_whole(path, f"supervisor-{secrets.token_hex(6)}\n".encode())
    return path.read_text().strip()
