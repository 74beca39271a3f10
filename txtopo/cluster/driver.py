"""The driver process: runs one topology in one slot of a supervisor.

A supervisor starts it with a folder, which outlives both, and by which a supervisor that is started again finds it::

    launch.json     what to run; written before the process is started
    lock            locked for as long as the process lives: the supervisor locks it, the process inherits it
    pid             the id of its process group; written by the driver
    exit.json       how it ended; written by the driver
    metrics.prom    the metrics of the run; written by the driver every few seconds
    code/           the unpacked archive

What happens in it:

1. The pulse, a thread, writes heartbeats and watches the topology's record: only an ACTIVE topology begins
   transactions, a KILLED one is stopped. It also stops the run when the assignment is taken away, and when ZooKeeper
   has been away for ``supervisor.isolation.secs``, for then nimbus starts the topology elsewhere. If the run does not
   end, the pulse ends the process: there may be no supervisor to do so.
2. The topology's code is unpacked and imported, here and nowhere else. The topology is built with the settings of its
   record, and run.
3. How it ended is written down, and is the exit status, a :class:`~txtopo.cluster.decisions.slots.DriverExit`.

Coordinator state is kept in the cluster's ZooKeeper, below ``ROOT/state``, unless the topology's configuration says
otherwise; so the next driver goes on where this one was, on whatever machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
import sys
import sysconfig
import threading
import time
import traceback
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import attrs

from txtopo.cluster.decisions.assignment import Assignment, Heartbeat
from txtopo.cluster.decisions.lifecycle import Status, Topology as TopologyRecord
from txtopo.cluster.decisions.slots import DriverExit
from txtopo.cluster.logs import Discretion, driver_log
from txtopo.cluster.state import ClusterState
from txtopo.cluster.submission import ARCHIVE_NAME, DESCRIPTION_NAME, Submission, check_archive
from txtopo.config import Config, TopologyKind
from txtopo.engine.control import RunControl
from txtopo.engine.metrics import RunMetrics, written
from txtopo.engine.runner import run
from txtopo.errors import ConfigError, DivergenceError, RuleError, SubmissionError, TxtopoError, Unreachable
from txtopo.plain.run.runner import PlainReport
from txtopo.records import DAMAGE, from_json, to_json
from txtopo.secrecy import without_secrets
from txtopo.topology.loading import Target, load_target
from txtopo.topology.topology import PlainTopology, Topology, TransactionalTopology
from txtopo.transactional.core.actions import StopReason
from txtopo.transactional.run.report import Progress, RunReport

_LOG = logging.getLogger(__name__)
_ERROR_CHARACTERS_MAX = 4_000
_GRACE_SECS = 10.0
"""How long a run that must end may take to do so, before the process is ended."""
_PRIVATE = 0o600
_SHARE_OF_START = 0.5
"""Of the time for a start: after it, the log says where the start hangs."""

STARTING = "starting"
"""The stage of a driver whose topology does not run yet."""


@attrs.frozen
class Launch:
    """What a driver is started with.

    Args:
        id: unique for each launch.
        assignment: what it is for.
        code: the folder with the archive and the description.
        zookeeper_hosts: the cluster's ZooKeeper.
        zookeeper_root: the node above all of the cluster's.
        zookeeper_credentials: ``user:password``, or None.
        session_timeout_secs: of its session.
        supervisor: the id of the supervisor that starts it.
        heartbeat_secs: from one heartbeat to the next.
        isolation_secs: how long it goes on without ZooKeeper.
        log_format: ``text`` or ``json``.
        start_timeout_secs: after which time its supervisor ends it if its topology does not run.
        before: why the start before failed; to show.
    """

    id: str
    assignment: Assignment
    code: str
    zookeeper_hosts: str
    zookeeper_root: str
    zookeeper_credentials: str | None = attrs.field(default=None, repr=False)
    session_timeout_secs: float = 10.0
    supervisor: str = ""
    heartbeat_secs: float = 3.0
    isolation_secs: float = 20.0
    log_format: str = "text"
    start_timeout_secs: float = 120.0
    before: str = ""


@attrs.frozen
class DriverEnd:
    """How a driver ended."""

    status: int
    error: str = ""


@attrs.frozen
class DriverFolder:
    """The folder of one slot's driver."""

    path: Path

    def begin(self, launch: Launch) -> int:
        """Empty the folder, write what to run, and return the file descriptor that the process must inherit."""
        self.remove()
        self.path.mkdir(parents=True)
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, _PRIVATE)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            self._write("launch.json", to_json(launch))
        except BaseException:
            os.close(lock)
            raise
        return lock

    @property
    def metrics(self) -> Path:
        """The file of the metrics."""
        return self.path / "metrics.prom"

    def launch(self) -> Launch | None:
        """Return what was written by :meth:`begin`; None if nothing was."""
        written = self._read("launch.json")
        try:
            return None if written is None else from_json(written, Launch)
        except DAMAGE:
            return None

    def is_locked(self) -> bool:
        """Whether the process lives."""
        try:
            lock = os.open(self.path / "lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            # Shared, as below: those who look do not take each other for the process.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def wait_until_unlocked(self) -> None:
        """Wait until the process has ended.

        Raises:
            FileNotFoundError: there is no such process, and none is recorded.
        """
        lock = os.open(self.path / "lock", os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
        finally:
            os.close(lock)

    def pid(self) -> int | None:
        """Return the process id; None if the process has not written it yet."""
        written = self._read("pid")
        return written if isinstance(written, int) else None

    def end(self) -> DriverEnd | None:
        """Return how it ended; None if it did not say so."""
        written = self._read("exit.json")
        try:
            return None if written is None else from_json(written, DriverEnd)
        except DAMAGE:
            return None

    def write_pid(self) -> None:
        """Write this process' id."""
        self._write("pid", os.getpid())

    def write_end(self, end: DriverEnd) -> None:
        """Write how it ended."""
        self._write("exit.json", to_json(end))

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _read(self, name: str) -> Any:
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.path / name).read_bytes())
        return None

    def _write(self, name: str, content: Any) -> None:
        """Write a file that appears whole, or not at all."""
        draft = self.path / f".{name}"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE), "w") as file:  # noqa: PTH123 - a mode
            json.dump(content, file)
        draft.replace(self.path / name)


def run_driver(folder: Path) -> int:
    """Run the topology that ``launch.json`` in a folder names; return the exit status."""
    place = DriverFolder(folder)
    launch = place.launch()
    if launch is None:
        _LOG.error("there is no launch.json in %s", folder)
        return DriverExit.ERROR
    place.write_pid()
    with driver_log(launch.log_format) as discretion:
        end = _Driver(launch, place, discretion).run()
    place.write_end(end)
    return end.status


def build(code: Path, unpacked: Path, settings: Mapping[str, str] | None = None) -> Target:
    """Unpack the code of a topology, and build it.

    Args:
        code: the folder with archive and description.
        unpacked: where to unpack it; it goes to the front of ``sys.path``.
        settings: as in the topology's record; None: those that were submitted.

    Raises:
        RuleError: the archive is bad, or does not build the topology that was submitted.
        LoadError: its module or its function fails, perhaps only on this machine.
    """
    submission = Submission.from_bytes((code / DESCRIPTION_NAME).read_bytes())
    check_archive(code / ARCHIVE_NAME)
    unpacked.mkdir(parents=True)
    with zipfile.ZipFile(code / ARCHIVE_NAME) as archive:
        archive.extractall(unpacked)
    given = submission.settings if settings is None else settings
    target = load_target(f"{submission.module}:{submission.attribute}", given, unpacked)
    if target.topology.id != submission.topology_id:
        raise SubmissionError(f"the code builds topology {target.topology.id!r}, not {submission.topology_id!r}")
    target.config.of_kind(kind_of(target.topology))
    return target


def kind_of(topology: Topology) -> TopologyKind:
    """Return a topology's kind."""
    return TopologyKind.PLAIN if isinstance(topology, PlainTopology) else TopologyKind.TRANSACTIONAL


def child_environment() -> dict[str, str]:
    """Return the environment of a process that imports this txtopo, wherever it runs."""
    environment = dict(os.environ)
    root = Path(__file__).parents[2]
    if not any(root == Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")):
        before = environment.get("PYTHONPATH", "").split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join([str(root), *(path for path in before if path)])
    return environment


def driver_command(*arguments: str) -> list[str]:
    """Return the command of a driver process; the working folder is not on its search path."""
    return [sys.executable, "-P", "-m", "txtopo.cli", "driver", *arguments]


class _Driver:
    """One life of a driver."""

    def __init__(self, launch: Launch, place: DriverFolder, discretion: Discretion) -> None:
        self._launch = launch
        self._place = place
        self._discretion = discretion
        self._control = RunControl()

    def run(self) -> DriverEnd:
        """Run the topology; return how it ended."""
        try:
            with self._open_state() as state:
                record = state.topology(self._launch.assignment.topology)
                if record is None:
                    return DriverEnd(DriverExit.STOPPED, "its topology is gone")
                self._discretion.settings = record.settings
                with _Pulse(state, self._launch, self._control) as pulse:
                    return self._run(record, pulse)
        except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor must know
            _LOG.error("the driver ends", exc_info=error)
            return DriverEnd(DriverExit.ERROR, self._words(error))

    @contextlib.contextmanager
    def _open_state(self) -> Any:
        launch = self._launch
        state = ClusterState(
            launch.zookeeper_hosts, launch.zookeeper_root, launch.session_timeout_secs, launch.zookeeper_credentials
        )
        try:
            yield state
        finally:
            state.close()

    def _run(self, record: TopologyRecord, pulse: _Pulse) -> DriverEnd:
        _LOG.info("%s: driver %d begins, by assignment %d", record.id, os.getpid(), self._launch.assignment.number)
        pulse.entered("building the topology")
        try:
            target = build(Path(self._launch.code), self._place.path / "code", record.settings)
            config = _configured(target, self._launch)
            self._discretion.settings = {**config.given, **record.settings}
        except (RuleError, DivergenceError) as error:
            _LOG.error("the topology cannot be built", exc_info=error)
            return DriverEnd(DriverExit.BROKEN_RULE, self._words(error))
        topology: Any = target.topology
        try:
            metrics = RunMetrics.of(topology, record.name)
            with written(metrics, self._place.metrics):
                report = run(
                    topology,
                    config,
                    on_progress=pulse.progressed,
                    on_stage=pulse.entered,
                    control=self._control,
                    observer=metrics,
                )
        except (RuleError, DivergenceError) as error:
            _LOG.error("the run has failed", exc_info=error)
            # Before it runs, an error of the configuration may be one of this machine: Java is missing, say.
            is_local = isinstance(error, ConfigError) and not pulse.has_run
            return DriverEnd(DriverExit.ERROR if is_local else DriverExit.BROKEN_RULE, self._words(error))
        _LOG.info("%s: the run has ended: %s", record.id, report.reason)
        return DriverEnd(DriverExit.FINISHED if _is_exhausted(report) else DriverExit.STOPPED, report.reason)

    def _words(self, error: BaseException) -> str:
        """Return an error in words that anybody may read: they are shown without the token."""
        text = str(error) if isinstance(error, TxtopoError) else f"{type(error).__name__}: {error}"
        text = without_secrets(text, self._discretion.settings)
        return text if len(text) <= _ERROR_CHARACTERS_MAX else text[:_ERROR_CHARACTERS_MAX] + " …"


def _configured(target: Target, launch: Launch) -> Config:
    """Return the configuration with the cluster's ZooKeeper as the store, unless it says otherwise."""
    config = target.config
    topology = target.topology
    if not isinstance(topology, TransactionalTopology) or "topology.state.store" in config.given:
        return config
    states = topology.plan.states.values()
    if states and not any(state.is_durable for state in states):
        return config  # its tables begin anew with each driver, so its coordinator state must, too
    defaults: dict[str, Any] = {"topology.state.store": "zookeeper"}
    if "transactional.zookeeper.servers" not in config.given:
        defaults |= {
            "transactional.zookeeper.servers": tuple(launch.zookeeper_hosts.split(",")),
            "transactional.zookeeper.root": f"{launch.zookeeper_root}/state",
            "transactional.zookeeper.auth": launch.zookeeper_credentials,
            "transactional.zookeeper.session.timeout.secs": launch.session_timeout_secs,
        }
    return config.with_settings({**defaults, **config.given})


def _is_exhausted(report: RunReport | PlainReport) -> bool:
    if isinstance(report, RunReport):
        return report.reason == StopReason.EXHAUSTED.value
    return report.reason != "stopped"


class _Pulse:
    """Writes heartbeats, and steers the run by the topology's status."""

    def __init__(self, state: ClusterState, launch: Launch, control: RunControl) -> None:
        self._state = state
        self._launch = launch
        self._control = control
        self._news = threading.Event()
        self._closed = threading.Event()
        self._count = 0
        self._stage = ""
        self._stage_at = self._begun_at = time.monotonic()
        self._has_warned = False
        self._progress: Progress | PlainReport | None = None
        self._has_committed = False
        self._must_end_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def __enter__(self) -> Self:
        self._look()  # before the topology runs, so that a deactivated one begins nothing
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._news.set()
        self._thread.join(self._launch.session_timeout_secs)

    @property
    def has_run(self) -> bool:
        """Whether the topology has run."""
        return self._progress is not None

    def entered(self, stage: str) -> None:
        """Take in what is done before the topology runs."""
        _LOG.info("%s", stage)
        self._stage, self._stage_at = stage, time.monotonic()

    def progressed(self, progress: Progress | PlainReport) -> None:
        """Take in how far the run is."""
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
                    self._look()
            except Unreachable:
                _LOG.warning("ZooKeeper does not answer")
            except Exception as error:  # noqa: BLE001 - without a pulse the process must not go on
                _LOG.error("the pulse has failed", exc_info=error)
                self._must_end("the pulse has failed")
            if self._warning_due_secs() <= 0:
                self._warn_of_slow_start()
            if self._state.session.cut_off_secs > self._launch.isolation_secs:
                self._must_end(f"ZooKeeper has been away for {self._launch.isolation_secs:g} s")
            if self._must_end_at is not None and time.monotonic() > self._must_end_at:
                _LOG.critical("the run does not end: the process ends")
                logging.shutdown()
                os._exit(DriverExit.ERROR)
            self._news.wait(max(0.0, min(self._launch.heartbeat_secs, self._warning_due_secs())))

    def _warn_of_slow_start(self) -> None:
        """Say once where the start hangs, before the supervisor ends it."""
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
        """Return how long it is until a start counts as slow; infinite if the topology runs, or that was said."""
        if self.has_run or self._has_warned:
            return float("inf")
        return self._begun_at + _SHARE_OF_START * self._launch.start_timeout_secs - time.monotonic()

    def _detail(self) -> str:
        """Say what is done before the topology runs."""
        now = f"{self._stage or 'beginning'}, for {time.monotonic() - self._stage_at:.0f} s"
        return f"{now}; the start before failed: {self._launch.before}" if self._launch.before else now

    def _look(self) -> None:
        topology, number = self._launch.assignment.topology, self._launch.assignment.number
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
        self._state.beat(topology, number, self._heartbeat())

    def _obey(self, record: TopologyRecord) -> None:
        match record.status:
            case Status.ACTIVE:
                self._control.activate()
            case Status.INACTIVE | Status.REBALANCING:
                self._control.deactivate()
            case Status.KILLED if not self._control.is_stopping:
                left_secs = 0.0 if record.deadline is None else record.deadline - time.time()
                self._control.stop(min(max(0.0, left_secs), record.wait_secs))
            case Status.KILLED:
                pass
            case Status.FINISHED | Status.FAILED:
                self._must_end(f"the topology is {record.status.value}")

    def _must_end(self, why: str) -> None:
        if self._must_end_at is None:
            _LOG.warning("the run is stopped: %s", why)
            self._must_end_at = time.monotonic() + _GRACE_SECS
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
