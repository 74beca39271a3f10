"""Nimbus: the daemon that leads the cluster, or waits to.

It keeps nothing in memory that matters: started again, it continues where it was. An unexpected error ends the process,
and whatever supervises it starts it again. Three things run beside each other:

1. *The election*, on the elector's thread. It asks :meth:`CodeSync.may_lead`, which compares the code here with
   ZooKeeper's list of topologies.
2. *Code*: every nimbus fetches published code that it lacks, records that it holds what it has checked, and removes
   code that is no longer published. Once it has all code that it needs, it queues for the lead.
3. *The monitor*: the leader applies deadlines that have passed, looks after lost code, assigns drivers, and removes
   leftovers of failed submissions. It looks every ``nimbus.monitor.freq.secs``, and when ZooKeeper reports a change.

The HTTP API calls requests on threads of its own. One lock, :attr:`Leadership.decisions`, orders the decisions of
requests and monitor.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from txtopo.cluster.code.distribution import locked_home, open_cluster
from txtopo.cluster.decisions.lifecycle import Request, Topology
from txtopo.cluster.logs import RepeatedWarning
from txtopo.cluster.nimbus.code_check import CodeCheck
from txtopo.cluster.nimbus.code_sync import CodeSync
from txtopo.cluster.nimbus.election import LeaderElector, ZooKeeperLeaderElector
from txtopo.cluster.nimbus.lead import Leadership
from txtopo.cluster.nimbus.monitor import Monitor
from txtopo.cluster.nimbus.submissions import Submissions
from txtopo.cluster.settings import ClusterConfig
from txtopo.cluster.state import NimbusInfo
from txtopo.errors import NotAlive, SubmissionError, Unreachable
from txtopo.files.durable import is_shortage

_LOG = logging.getLogger(__name__)

_AWAY_SECS = 1.0
"""The pause after ZooKeeper did not answer."""
_FULL_SECS = 5.0
"""How long a loop pauses while this machine lacks disk space or file descriptors."""
_SETTINGS_BYTES_MAX = 64 << 10
"""The most bytes of a topology's settings: they are in its record, and ZooKeeper refuses a node of 1 MiB."""


class Nimbus:
    """One nimbus, without its HTTP server, which others reach at ``address``.

    Any thread may call ``on_failure``, with an unexpected error: the process must end then.

    Raises:
        ConfigError: a setting does not fit, or another nimbus uses the folder.
        Unreachable: ZooKeeper does not answer.
    """

    def __init__(
        self, config: ClusterConfig, address: str, token: str, version: str, on_failure: Callable[[BaseException], None]
    ) -> None:
        self.config = config
        self.address = address
        home = Path(config["storm.local.dir"]).expanduser() / "nimbus"
        self._lock = locked_home(home)
        self._opened = open_cluster(config, home, address, token)
        self.state, self.store = self._opened.state, self._opened.store
        self.elector: LeaderElector = (
            ZooKeeperLeaderElector(on_failure, self.wake)
            if config["nimbus.leader.elector"] == "zookeeper"
            else config.make("nimbus.leader.elector", LeaderElector)
        )
        self._on_failure = on_failure
        self._reminder = RepeatedWarning(_LOG)
        self._stopped = threading.Event()
        self._code_news = threading.Event()
        self._monitor_news = threading.Event()
        self.leadership = Leadership(self._opened, self.elector, address, self._stopped)
        self._code_check = CodeCheck(self.state, self.leadership, token, config["nimbus.submission.check.secs"])
        self.submissions = Submissions(config, self._opened, self.leadership, self._code_check, self.wake)
        self._code_sync = CodeSync(
            self._opened,
            self.elector,
            NimbusInfo(address, time.time(), version),
            freq_secs=config["nimbus.code.sync.freq.secs"],
            under_way=self.submissions.under_way,
            on_change=self._code_news.set,
        )
        self._monitor = Monitor(
            config,
            self._opened,
            self.leadership,
            under_way=self.submissions.under_way,
            on_change=self._monitor_news.set,
        )
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Check the code here, announce this nimbus, and start the threads."""
        # Before anything counts on this disk: the election and other nimbuses take what is here for sound.
        self.store.check(self.state.manifests())
        self.state.session.listen(self.wake)
        self.elector.prepare(self.state, self.address, self._code_sync.may_lead)
        self._run("code", self._code_news, self._code_sync.step)
        self._run("monitor", self._monitor_news, self._monitor.step)

    def begin_stop(self) -> None:
        """Refuse submissions that wait, and end both loops; safe in a signal handler, for it only sets a flag."""
        self._stopped.set()

    def stop(self) -> None:
        """Give up the lead, and end; running topologies continue."""
        self._stopped.set()
        self.wake()
        for thread in self._threads:
            thread.join(self.state.session.patience_secs)
        self.elector.close()
        self._code_check.close()
        self._opened.close()
        os.close(self._lock)

    def wake(self) -> None:
        """Let both loops look at once."""
        self._code_news.set()
        self._monitor_news.set()

    def find(self, name: str) -> Topology:
        """Return a topology by id or name, which has one at a time; raise NotAlive if there is none."""
        for topology in self.state.topologies().values():
            if name in {topology.id, topology.name}:
                return topology
        raise NotAlive(f"the cluster has no topology {name!r}")

    def request(self, name: str, request: Request) -> Topology:
        """Carry out a user's request.

        Raises:
            NotLeader: this nimbus does not lead.
            NotAlive: there is no such topology.
            TransitionError: its status forbids it.
            SubmissionError: the topology does not build with the settings of a rebalance.
        """
        lead, checked = self.leadership.required(), None
        while True:
            with self.leadership.decisions:
                topology = self.find(name)
                # Another request, or a submission after a kill, may have changed it during the check.
                if not request.settings or checked == (topology.id, topology.settings):
                    after = lead.apply(topology, request)
                    if after is topology:
                        lead.writes.check()  # only a leader may say that nothing has to change
                    break
            settings = {**topology.settings, **request.settings}
            if len(json.dumps(settings)) > _SETTINGS_BYTES_MAX:
                raise SubmissionError(
                    f"{name!r} would have settings of more than {_SETTINGS_BYTES_MAX >> 10} KiB altogether"
                )
            self._code_check.check(lead, topology, settings)  # outside the lock: it may take minutes
            checked = (topology.id, topology.settings)
        self.wake()
        return after or topology

    def _run(self, name: str, news: threading.Event, look: Callable[[], float]) -> None:
        """Start a thread that looks again and again; an unexpected error ends the process."""

        def loop() -> None:
            try:
                is_away = False
                while not self._stopped.is_set():
                    news.clear()  # before the look: news that comes during it calls for another one
                    try:
                        wait_secs = look()
                        is_away = False
                    except Unreachable as error:
                        if not is_away:
                            _LOG.warning("%s", error)
                        is_away, wait_secs = True, _AWAY_SECS
                    except OSError as error:
                        if not is_shortage(error):
                            raise
                        self._reminder.warn(name, "this machine lacks something, so it is tried again: %s", error)
                        wait_secs = _FULL_SECS
                    news.wait(wait_secs)
            except BaseException as error:  # noqa: BLE001 - fail fast: whatever it is, the process ends
                if not self._stopped.is_set():
                    self._on_failure(error)

        thread = threading.Thread(target=loop, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
