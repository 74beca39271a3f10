"""The driver process: runs one topology in one slot of a supervisor.

1. The :class:`~txtopo.cluster.driver.heartbeats.HeartbeatWriter` begins: a driver beats and obeys from then on.
2. The driver unpacks and imports the topology's code (no daemon does), builds the topology with the settings of its
   record, and runs it.
3. It writes how the run ended into its folder, and exits with a
   :class:`~txtopo.cluster.decisions.slots.DriverExit`.

Coordinator state is in the cluster's ZooKeeper, below ``ROOT/state``, unless the topology's configuration says
otherwise. So the next driver continues where this one stopped, on whatever machine.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from txtopo.assembly.plain.report import PlainReport
from txtopo.assembly.report import RunReport
from txtopo.cluster.code.submission import ARCHIVE_NAME, DESCRIPTION_NAME, Submission, check_archive
from txtopo.cluster.decisions.lifecycle import Topology as TopologyRecord
from txtopo.cluster.decisions.slots import DriverExit
from txtopo.cluster.driver.folder import DriverEnd, DriverFolder, DriverLaunch, TopologyPlace
from txtopo.cluster.driver.heartbeats import HeartbeatWriter
from txtopo.cluster.logs import driver_log
from txtopo.cluster.state import ClusterState
from txtopo.config import Config
from txtopo.engine.control import RunControl
from txtopo.engine.exposition import metrics_file
from txtopo.engine.metrics import RunMetrics
from txtopo.engine.runner import run
from txtopo.engine.timeline.ends import metadata_dir_if_any
from txtopo.engine.timeline.records import folder_of
from txtopo.errors import ConfigError, DivergenceError, RuleError, SubmissionError, TxtopoError
from txtopo.files.folder import LocalFolder
from txtopo.journal.ending import METADATA_DIR
from txtopo.settings.setting import TopologyKind
from txtopo.text.secrecy import SecretFilter, secrets_kept, without_secrets
from txtopo.topology.topology import PlainTopology, Topology, TransactionalTopology
from txtopo.topology.user_code.loading import Target, load_target
from txtopo.transactional.core.actions import StopReason

_LOG = logging.getLogger(__name__)
_ERROR_CHARACTERS_MAX = 4_000
"""The error is a node in ZooKeeper, and is shown on a page: its beginning names the cause."""


def run_driver(folder: Path) -> int:
    """Run the topology that ``launch.json`` in a folder names; return the exit status."""
    place = DriverFolder(folder)
    launch = place.launch()
    if launch is None:
        _LOG.error("there is no launch.json in %s", folder)
        return DriverExit.ERROR
    place.write_pid()
    with driver_log(launch.log_format) as secret_filter:
        end = _Driver(launch, place, secret_filter).run()
    place.write_end(end)
    return end.status


def build(code: Path, unpacked: Path, settings: Mapping[str, str] | None = None) -> Target:
    """Unpack the code in folder ``code`` into ``unpacked``, put that first on ``sys.path``, and build the topology.

    Without ``settings`` the submitted ones count; a rebalance may have changed them in the topology's record.

    Raises:
        RuleError: the archive is bad, or does not build the topology that was submitted.
        LoadError: its module or its function fails, perhaps only on this machine.
    """
    submission = Submission.from_bytes((code / DESCRIPTION_NAME).read_bytes())
    check_archive(code / ARCHIVE_NAME)
    unpacked.mkdir(parents=True)
    with zipfile.ZipFile(code / ARCHIVE_NAME) as archive:
        archive.extractall(unpacked)
    driver_settings = submission.settings if settings is None else settings
    target = load_target(f"{submission.module}:{submission.attribute}", driver_settings, unpacked)
    if target.topology.id != submission.topology_id:
        raise SubmissionError(f"the code builds topology {target.topology.id!r}, not {submission.topology_id!r}")
    target.config.of_kind(kind_of(target.topology))
    return target


def kind_of(topology: Topology) -> TopologyKind:
    """Return a topology's kind."""
    return TopologyKind.PLAIN if isinstance(topology, PlainTopology) else TopologyKind.TRANSACTIONAL


class _Driver:
    def __init__(self, launch: DriverLaunch, place: DriverFolder, secret_filter: SecretFilter) -> None:
        self._launch = launch
        self._place = place
        self._secret_filter = secret_filter
        self._control = RunControl()

    def run(self) -> DriverEnd:
        launch = self._launch
        try:
            state = ClusterState(
                launch.zookeeper_hosts, launch.zookeeper_root, launch.session_timeout_secs, launch.zookeeper_credentials
            )
            with contextlib.closing(state):
                record = state.topology(launch.assignment.topology)
                if record is None:
                    return DriverEnd(DriverExit.STOPPED, "its topology is gone")
                self._secret_filter.settings = record.settings
                with HeartbeatWriter(state, launch, self._control) as heartbeats:
                    return self._run(record, heartbeats)
        except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor must know
            _LOG.error("the driver ends", exc_info=error)
            return DriverEnd(DriverExit.ERROR, self._words(error))

    def _run(self, record: TopologyRecord, heartbeats: HeartbeatWriter) -> DriverEnd:
        _LOG.info("%s: driver %d begins, by assignment %d", record.id, os.getpid(), self._launch.assignment.number)
        heartbeats.entered("building the topology")
        try:
            target = build(Path(self._launch.code), self._place.path / "code", record.settings)
            config = configured(target.topology, target.config, self._launch)
            self._secret_filter.settings = {**config.given, **record.settings}
        except (RuleError, DivergenceError) as error:
            _LOG.error("the topology cannot be built", exc_info=error)
            return DriverEnd(DriverExit.BROKEN_RULE, self._words(error))
        topology: Any = target.topology
        try:
            metrics = RunMetrics.of(topology, record.name)
            with secrets_kept({**target.arguments, **record.settings}), metrics_file(metrics, self._place.metrics):
                report = run(
                    topology,
                    config,
                    on_progress=heartbeats.progressed,
                    on_stage=heartbeats.entered,
                    control=self._control,
                    observer=metrics,
                    timeline=self._timeline(topology, config),
                )
        except (RuleError, DivergenceError) as error:
            _LOG.error("the run has failed", exc_info=error)
            # Before the topology runs, a ConfigError may be this machine's fault, such as a missing Java: another
            # supervisor may succeed, so it must not fail the topology for good.
            is_local = isinstance(error, ConfigError) and not heartbeats.has_run
            return DriverEnd(DriverExit.ERROR if is_local else DriverExit.BROKEN_RULE, self._words(error))
        _LOG.info("%s: the run has ended: %s", record.id, report.reason)
        return DriverEnd(exit_of(report), report.reason)

    def _timeline(self, topology: Topology, config: Config) -> Path:
        """Return the folder of the run's timeline, and write for the supervisor where that is.

        Without a metadata directory, as of plain topologies, it lies beside the log: on a cluster nobody is there who
        could have asked for a page before the run.
        """
        log_dir = self._place.log_dir(self._launch.assignment.topology)
        metadata_dir = metadata_dir_if_any(topology, config)
        folder = metadata_dir.root if isinstance(metadata_dir, LocalFolder) else log_dir / METADATA_DIR
        timeline = folder_of(folder, topology.id).absolute()
        TopologyPlace(str(timeline.parent), topology.id).write(log_dir)
        return timeline

    def _words(self, error: BaseException) -> str:
        """Return an error without secrets, bounded: anybody may read it by HTTP, and a node must stay below 1 MiB."""
        text = str(error) if isinstance(error, TxtopoError) else f"{type(error).__name__}: {error}"
        text = without_secrets(text, self._secret_filter.settings)
        return text if len(text) <= _ERROR_CHARACTERS_MAX else text[:_ERROR_CHARACTERS_MAX] + " …"


def configured(topology: Topology, config: Config, launch: DriverLaunch) -> Config:
    """Return the configuration with the cluster's ZooKeeper as the default store."""
    if not isinstance(topology, TransactionalTopology) or "topology.state.store" in config.given:
        return config
    states = topology.plan.states.values()
    if states and not any(state.is_durable for state in states):
        return config  # states in memory begin empty with each driver, so coordinator state must, too
    defaults: dict[str, Any] = {"topology.state.store": "zookeeper"}
    if "transactional.zookeeper.servers" not in config.given:
        defaults |= {
            "transactional.zookeeper.servers": tuple(launch.zookeeper_hosts.split(",")),
            "transactional.zookeeper.root": f"{launch.zookeeper_root}/state",
            "transactional.zookeeper.auth": launch.zookeeper_credentials,
            "transactional.zookeeper.session.timeout.secs": launch.session_timeout_secs,
        }
    return config.with_settings({**defaults, **config.given})


def exit_of(report: RunReport | PlainReport) -> DriverExit:
    """Return FINISHED if the input is exhausted, STOPPED if the run was asked to end."""
    is_plain = isinstance(report, PlainReport)
    is_exhausted = report.reason != "stopped" if is_plain else report.reason == StopReason.EXHAUSTED.value
    return DriverExit.FINISHED if is_exhausted else DriverExit.STOPPED
