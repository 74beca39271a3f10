"""Nimbus: the daemon that leads the cluster, or waits to.

It keeps nothing in memory that matters: started again, it continues where it was. An unexpected error ends the process,
and whatever supervises it starts it again. Three things run beside each other:

1. *The election*, on the elector's thread. It asks :meth:`Nimbus.may_lead`, which compares the code here with
   ZooKeeper's list of topologies.
2. *Code*: every nimbus fetches published code that it lacks, records that it holds what it has checked, and removes
   code that is no longer published. Once it has all code that it needs, it queues for the lead.
3. *The monitor*: the leader applies deadlines that have passed, looks after lost code, assigns drivers, and removes
   leftovers of failed submissions. It looks every ``nimbus.monitor.freq.secs``, and when ZooKeeper reports a change.

The HTTP API calls requests on threads of its own. One lock orders the decisions of requests and monitor. Its holder may
read and write in ZooKeeper, but never waits for a supervisor, for replication or for an upload.

How a submission goes, and what is left when the leader dies after each step:

======================================  ==========================================================
1. the archive is uploaded to a draft   a draft, which the next start removes
2. take a number, and so an id          a number that nobody uses
3. keep the code on this disk           code that is not published, which the next sync removes
4. give it to the distributor           the same; a shared folder may keep files
5. publish the manifest                 a manifest without a topology, which the next leader removes
6. a supervisor builds the topology     the same
7. wait for replication                 the same
8. write the topology's record          a topology that runs; its client may not know it
======================================  ==========================================================
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

import attrs
import httpx

from txtopo.cluster.asking import NobodyAnswers, first_answer
from txtopo.cluster.code.distribution import open_cluster
from txtopo.cluster.code.store import Manifest, describe, is_shortage
from txtopo.cluster.code.submission import ARCHIVE_NAME, DESCRIPTION_NAME, Submission, check_archive
from txtopo.cluster.decisions.assignment import (
    Apply,
    Assign,
    Assignment,
    AssignmentLimits,
    HeartbeatCache,
    Unassign,
    decide,
)
from txtopo.cluster.decisions.lifecycle import NEEDS_CODE, Request, Status, Topology, applied, due, looked_after
from txtopo.cluster.logs import Reminder
from txtopo.cluster.nimbus.election import LeaderElector, ZooKeeperLeaderElector
from txtopo.cluster.settings import ClusterConfig
from txtopo.cluster.state import LeaderWrites, NimbusInfo
from txtopo.errors import (
    AlreadyAlive,
    ClusterError,
    NoLeader,
    NotAlive,
    NotLeader,
    SubmissionError,
    Unreachable,
)
from txtopo.failpoints import durable_step
from txtopo.files.records import DAMAGE

_LOG = logging.getLogger(__name__)

_AWAY_SECS = 1.0
_FULL_SECS = 5.0
"""How long a loop pauses while this machine lacks disk space or file descriptors."""
_LOOK_SECS = 0.2
_CONNECT_SECS = 3.0
_CHECKS_APART_SECS = 10.0
"""After how long a second supervisor is asked to check code: one that hangs must not use up the whole time."""
_WATCHED = ("storms", "code-distributor", "supervisors", "endings", "nimbuses")
_BAD_REQUEST = 400
_SETTINGS_BYTES_MAX = 64 << 10
"""The most bytes of a topology's settings: they are in its record, and ZooKeeper refuses a node of 1 MiB."""


@attrs.frozen
class Submitted:
    """What came of a submission."""

    topology: Topology
    note: str | None
    """What the submission did without: a check, or some replicas."""


@attrs.define(eq=False)
class _Lead:
    """What a leader remembers during its term; a new term begins with nothing."""

    writes: LeaderWrites
    heartbeats: HeartbeatCache = attrs.field(factory=HeartbeatCache)


class Nimbus:
    """One nimbus, without its HTTP server, which others reach at ``address``.

    Any thread may call ``on_failure``, with an unexpected error: the process must end then.

    Raises:
        ConfigError: a setting does not fit.
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
        self.opened = open_cluster(config, Path(config["storm.local.dir"]).expanduser() / "nimbus", address, token)
        self.state, self.store, self.distributor = self.opened.state, self.opened.store, self.opened.distributor
        self.elector: LeaderElector = (
            ZooKeeperLeaderElector(on_failure, self.wake)
            if config["nimbus.leader.elector"] == "zookeeper"
            else config.made("nimbus.leader.elector", LeaderElector)
        )
        self.limits = AssignmentLimits(
            config["nimbus.task.timeout.secs"], config["nimbus.task.launch.secs"], config["nimbus.task.moves.max"]
        )
        self._record = NimbusInfo(address, time.time(), version)
        self._on_failure = on_failure
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(config["nimbus.submission.check.secs"], connect=_CONNECT_SECS),
            trust_env=False,  # otherwise httpx goes through the proxy that HTTP_PROXY names
        )
        self._reminder = Reminder(_LOG)
        self._checked_at = time.monotonic()
        self._decisions = threading.RLock()
        self._lead: _Lead | None = None
        self._under_way: set[str] = set()
        """The name, ``id:`` with the topology id, and the cluster's id of each submission under way. No other
        submission may use them, and no loop removes their code."""
        self._stopped = threading.Event()
        self._code_news = threading.Event()
        self._monitor_news = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Check the code here, announce this nimbus, and start the threads."""
        # Before anything counts on this disk: the election and other nimbuses take what is here for sound.
        self.store.check(self.state.manifests())
        self.state.session.listen(self.wake)
        self.elector.prepare(self.state, self.address, self.may_lead)
        self._run("code", self._code_news, self.sync_code, self.config["nimbus.code.sync.freq.secs"])
        self._run("monitor", self._monitor_news, self.monitor, self.config["nimbus.monitor.freq.secs"])

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
        self._client.close()
        self.opened.close()

    def wake(self) -> None:
        """Let both loops look at once."""
        self._code_news.set()
        self._monitor_news.set()

    @property
    def is_leader(self) -> bool:
        """Whether this nimbus leads, as far as it knows."""
        return self.elector.is_leader()

    # Code.

    def may_lead(self) -> bool:
        """Whether this nimbus has all needed code that any live nimbus has."""
        return not self._lacking()

    def sync_code(self) -> None:
        """Fetch missing code, remove old code, record what is held; queue for the lead when nothing lacks."""
        # Watched before anything is read: what changes afterwards wakes this loop again.
        self.state.watch(("code-distributor", "nimbuses"), self._code_news.set)
        # Read the disk first, then ZooKeeper. A submission that ends between the two reads is under way in the first
        # and published in the second; the other way round, this loop would take its code for nobody's and remove it.
        here = set(self.store.topologies()) - self._under_way
        published, holders = self.state.manifests(), self.state.holders()
        if time.monotonic() - self._checked_at >= self.config["nimbus.code.sync.freq.secs"]:
            self._checked_at = time.monotonic()
            self.store.check_next(published)
        said = {topology for topology, addresses in holders.items() if self.address in addresses}
        for topology in sorted(said - set(self.store.topologies())):
            # This disk lost the code. The record must go before the announcement below makes this nimbus count as a
            # live holder: others would wait for code that nobody has.
            self.state.drop(topology, self.address)
            said.discard(topology)
        self.state.announce_nimbus(self._record)
        for topology in sorted(here - set(published)):
            _LOG.info("the code of %s is not needed any more", topology)
            self.store.remove(topology)
        for topology, manifest in sorted(published.items()):
            if self._has_fetched(topology, manifest) and topology not in said:
                # Only after the code is durable here. A crash in between is harmless: the next sync records it.
                with durable_step("nimbus.hold"):
                    self.state.hold(topology, self.address)
        if not self.elector.is_queued() and not self._lacking():
            self.elector.add_to_leader_lock_queue()

    def _has_fetched(self, topology: str, manifest: Manifest) -> bool:
        if not self.store.has(topology):
            with self.opened.tries_again(topology), durable_step("nimbus.keep"):
                self.opened.fetch(manifest)
        return self.store.has(topology)

    def _lacking(self) -> list[str]:
        """Return the topologies whose code this nimbus needs and can fetch.

        Code that no live nimbus holds does not count: otherwise nobody could lead, and nobody could report the loss.
        """
        needed = {each.id for each in self.state.topologies().values() if each.status in NEEDS_CODE}
        fetchable = {topology for topology, holders in self.state.live_holders().items() if holders}
        return sorted((needed & fetchable) - set(self.store.topologies()))

    # The leader's work.

    def monitor(self) -> None:
        """Do a leader's round of work; nothing if this nimbus does not lead."""
        lead = self._leading()
        if lead is None:
            return
        self.state.watch(_WATCHED, self._monitor_news.set)  # before the reads, as in ``sync_code``
        try:
            with self._decisions:
                # Deadlines first: what they remove or rebalance is assigned in the same round.
                live = self.state.live_holders()
                self._apply_deadlines(lead)
                self._look_after_code(lead, live)
                self._assign(lead, live)
                self._remove_orphans(lead)
        except NotLeader as error:
            _LOG.warning("%s", error)
            self._lead = None

    def next_deadline_secs(self) -> float:
        """Return the time until the next topology's wait is over; infinite if none waits or another nimbus leads."""
        if self._lead is None:
            return float("inf")
        deadlines = [each.deadline for each in self.state.topologies().values() if each.deadline is not None]
        return max(0.0, min(deadlines, default=float("inf")) - time.time())

    def _leading(self) -> _Lead | None:
        """Return the memory of the present term; None if this nimbus does not lead."""
        term = self.elector.term()
        with self._decisions:
            if term is None:
                self._lead = None
            elif self._lead is None or self._lead.writes.term != term:
                self._lead = _Lead(LeaderWrites(self.state, term))
            return self._lead

    def _apply_deadlines(self, lead: _Lead) -> None:
        for topology in self.state.topologies().values():
            event = due(topology, time.time())
            if event is not None:
                self._apply(lead, topology, Request(event))

    def _look_after_code(self, lead: _Lead, live: Mapping[str, frozenset[str]]) -> None:
        """Fail topologies whose code no live nimbus has held for long; restore them when one holds it again."""
        lost_secs = self.config["nimbus.code.lost.secs"]
        running = self._alive(lead, self.state.assignments())
        for topology in self.state.topologies().values():
            marked = looked_after(
                topology,
                is_held=bool(live.get(topology.id)),
                is_running=topology.id in running,
                now=time.time(),
                lost_secs=lost_secs,
            )
            if marked is not topology:
                if marked.status is not topology.status:
                    _LOG.info("%s: %s -> %s", topology.id, topology.status.value, marked.status.value)
                with durable_step("nimbus.store"):
                    lead.writes.store(marked)

    def _alive(self, lead: _Lead, assignments: Mapping[str, Assignment]) -> set[str]:
        now = time.monotonic()
        lead.heartbeats.update(assignments, self.state.heartbeats(), now)
        return {each.topology for each in assignments.values() if lead.heartbeats.is_alive(each, self.limits, now)}

    def _assign(self, lead: _Lead, live: Mapping[str, frozenset[str]]) -> None:
        view = self.state.view()
        alive = self._alive(lead, view.assignments)
        ready = {topology for topology, holders in live.items() if holders}
        for decision in decide(view, alive, self.limits, time.time(), ready):
            match decision:
                case Assign(assignment, why):
                    _LOG.info("%s goes to %s, slot %d: %s", assignment.topology, *attrs.astuple(assignment.place), why)
                    with durable_step("nimbus.assign"):
                        lead.writes.assign(assignment)
                case Unassign(assignment, why):
                    _LOG.info("%s leaves %s: %s", assignment.topology, assignment.supervisor, why)
                    lead.writes.unassign(assignment.topology)
                case Apply(topology, request):
                    self._apply(lead, view.topologies[topology], request)

    def _remove_orphans(self, lead: _Lead) -> None:
        """Remove published code without a topology, which a failed submission or a leader's death has left."""
        topologies = self.state.topologies()
        for topology in self.state.manifests():
            if topology not in topologies and topology not in self._under_way:
                _LOG.info("the code of %s is published, but no such topology was submitted: removed", topology)
                # The manifest goes last: after a crash in between, the next leader finds it and cleans up again.
                self.distributor.cleanup(topology)
                lead.writes.remove(topology)

    def _apply(self, lead: _Lead, topology: Topology, request: Request) -> Topology | None:
        """Apply an event and store what comes of it; the caller holds the lock."""
        after = applied(topology, request, time.time())
        if after is topology:
            return after
        status = "removed" if after is None else after.status.value
        _LOG.info("%s: %s: %s -> %s", topology.id, request.event.value, topology.status.value, status)
        if after is None:
            with durable_step("nimbus.remove"):
                # The record goes last: a crash in between leaves a topology whose deadline has passed, so the next
                # leader removes it again.
                self.distributor.cleanup(topology.id)
                lead.writes.remove(topology.id)
        else:
            with durable_step("nimbus.store"):
                lead.writes.store(after)
        return after

    # Requests.

    def find(self, name: str) -> Topology:
        """Return a topology by id or name; a name has one topology at a time, for the next one replaces it.

        Raises:
            NotAlive: there is none.
        """
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
        lead = self._must_lead()
        if request.settings:
            topology = self.find(name)
            settings = {**topology.settings, **request.settings}
            if len(json.dumps(settings)) > _SETTINGS_BYTES_MAX:
                raise SubmissionError(
                    f"{name!r} would have settings of more than {_SETTINGS_BYTES_MAX >> 10} KiB altogether"
                )
            self._check_code(lead, topology, settings)  # outside the lock: it may take minutes
        with self._decisions:
            topology = self.find(name)  # again: it may have changed during the check
            after = self._apply(lead, topology, request)
            if after is topology:
                lead.writes.check()  # only a leader may say that nothing has to change
        self.wake()
        return after or topology

    def submit(self, submission: Submission, archive: Path) -> Submitted:
        """Take in a topology, and return when it is active; may wait for minutes.

        ``archive`` is the uploaded file, in a draft of this nimbus' store. The module's docstring says what a crash
        leaves after each step.

        Raises:
            NotLeader: this nimbus does not lead, or led no more before the topology began.
            SubmissionError: the archive is bad, or its code does not build the topology.
            AlreadyAlive: the name or the topology id is in use.
        """
        lead = self._must_lead()
        check_archive(archive)
        with self._reserved(lead, submission) as topology:
            (archive.parent / DESCRIPTION_NAME).write_bytes(submission.to_bytes())
            archive.rename(archive.parent / ARCHIVE_NAME)
            manifest = describe(topology.id, archive.parent)
            with durable_step("nimbus.keep"):
                self.store.keep(archive.parent, manifest)
            with durable_step("nimbus.upload"):
                self.distributor.upload(self.store.path(topology.id), manifest)
            with durable_step("nimbus.publish"):
                lead.writes.publish(manifest)
            with durable_step("nimbus.check"):
                unchecked = self._check_code(lead, topology, topology.settings)
            with durable_step("nimbus.replicate"):
                unreplicated = self._wait_for_replication(lead, topology.id)
            with self._decisions:
                replaced = self._check_free(submission)  # again: a failed topology may be back since, with its name
                with durable_step("nimbus.start"):
                    for ended in replaced:  # before its manifest goes, by which alone code without a topology is found
                        self.distributor.cleanup(ended)
                    lead.writes.start(topology, replaced)
        _LOG.info("%s was submitted and is %s", topology.id, topology.status.value)
        return Submitted(topology, "; ".join(filter(None, (unchecked, unreplicated))) or None)

    def _must_lead(self) -> _Lead:
        lead = self._leading()
        if lead is None:
            raise self.not_leader()
        return lead

    def not_leader(self) -> NotLeader:
        """Return the error that says that another nimbus leads, and which."""
        try:
            leader = self.elector.get_leader_address()
        except (NoLeader, Unreachable):
            leader = None
        known = "nobody leads at the moment" if leader in {None, self.address} else f"{leader} does"
        error = NotLeader(f"the nimbus at {self.address} does not lead; {known}")
        error.leader = None if leader == self.address else leader
        return error

    @contextmanager
    def _reserved(self, lead: _Lead, submission: Submission) -> Iterator[Topology]:
        """Take a number, and reserve name, topology id and code for this submission until it is over."""
        keys = (submission.name, f"id:{submission.topology_id}")
        with self._decisions:
            self._check_free(submission)
            if not self._under_way.isdisjoint(keys):
                raise AlreadyAlive(f"{submission.name!r} or its topology id is being submitted already")
            self._under_way.update(keys)
        topology_id = ""
        try:
            with durable_step("nimbus.number"):
                number = lead.writes.next_number()
            now = time.time()
            topology_id = f"{submission.name}-{number}-{int(now)}"
            self._under_way.add(topology_id)  # before any code is kept under that id
            status = Status.ACTIVE if submission.is_active else Status.INACTIVE
            yield Topology(
                topology_id,
                submission.name,
                submission.topology_id,
                status,
                now,
                wait_secs=submission.wait_secs,
                settings=dict(submission.settings),
            )
        finally:
            # The loops remove what a failed submission leaves, as after a crash: one way to clean up, used often.
            with self._decisions:
                self._under_way.difference_update((*keys, topology_id))
            self.wake()

    def _check_free(self, submission: Submission) -> list[str]:
        """Return the ids of the ended topologies that a submission replaces.

        Raises:
            AlreadyAlive: one that has not ended has the same name or topology id.
        """
        same = [
            each
            for each in self.state.topologies().values()
            if submission.name == each.name or submission.topology_id == each.topology_id
        ]
        for each in same:
            if each.holds_name:
                what = f"name {each.name!r}" if each.name == submission.name else f"topology id {each.topology_id!r}"
                raise AlreadyAlive(
                    f"the {what} is in use by {each.id}, which is {each.status.value}: kill it first, or wait until it "
                    "is gone"
                )
        return [each.id for each in same]

    def _check_code(self, lead: _Lead, topology: Topology, settings: Mapping[str, str]) -> str | None:
        """Let a supervisor build the topology with some settings; return a note if the cluster has no supervisor.

        Ask again until one answers, for a supervisor may be busy or starting. While the cluster has one, unchecked code
        does not get in.

        Raises:
            SubmissionError: it does not build, or builds another topology.
            ClusterError: no supervisor has checked it in time.
            NotLeader: this nimbus leads no more.
        """
        deadline = time.monotonic() + self.config["nimbus.submission.check.secs"]
        # With every supervisor away for a moment, assignments show that the cluster has some.
        has_supervisors = bool(self.state.assignments())
        why = ""
        while (left_secs := deadline - time.monotonic()) > 0:
            supervisors = list(self.state.supervisors().values())
            has_supervisors |= bool(supervisors)
            if not has_supervisors:
                return "no supervisor is there to check the code"
            asks = [partial(self._built_by, each.address, topology, settings) for each in supervisors]
            try:
                built = first_answer(asks, (ClusterError,), apart_secs=_CHECKS_APART_SECS, secs=left_secs)
            except NobodyAnswers as error:
                # The last round may have only timeouts, for lack of time; an earlier error says more.
                if not why or not all(isinstance(each, TimeoutError) for each in error.errors):
                    why = str(error)
                self._reminder.warn(f"check {topology.id}", "the code of %s was not checked: %s", topology.id, why)
            else:
                if built != topology.topology_id:
                    raise SubmissionError(f"the code builds topology {built!r}, not {topology.topology_id!r}")
                return None
            self._wait_as_leader(lead)
        secs = self.config["nimbus.submission.check.secs"]
        raise ClusterError(
            f"no supervisor has checked the code within {secs:g} s, so it was not let in: "
            f"{why or 'no supervisor is there'}; see that supervisors run, then try again"
        )

    def _built_by(self, supervisor: str, topology: Topology, settings: Mapping[str, str]) -> str:
        """Return the id of the topology that a supervisor builds from the code.

        SubmissionError: the code does not build. ClusterError: this supervisor cannot say; another may.
        """
        url = f"http://{supervisor}/api/v1/code/{quote(topology.id, safe='')}/check"
        try:
            answer = self._client.post(url, json={"settings": dict(settings)})
            found = answer.json()
            said = str(found["topologyId"]) if answer.is_success else str(found["errorMessage"])
        except (httpx.HTTPError, *DAMAGE) as error:
            raise ClusterError(f"the supervisor at {supervisor}: {error!r}") from error
        if answer.status_code == _BAD_REQUEST:
            raise SubmissionError(f"the code does not run where drivers do: {said}")
        if not answer.is_success:
            raise ClusterError(f"the supervisor at {supervisor}: {said}")
        return said

    def _wait_for_replication(self, lead: _Lead, topology: str) -> str | None:
        """Wait until enough nimbuses hold the code; return a note if the time is over before."""
        wanted, wait_secs = (
            self.config["topology.min.replication.count"],
            self.config["topology.max.replication.wait.time.sec"],
        )
        deadline = float("inf") if wait_secs < 0 else time.monotonic() + wait_secs
        while (count := self.distributor.get_replication_count(topology)) < wanted:
            if time.monotonic() >= deadline:
                note = f"{count} of {wanted} nimbuses hold the code after {wait_secs:g} s"
                _LOG.warning("%s: %s", topology, note)
                return note
            self._wait_as_leader(lead)
        return None

    def _wait_as_leader(self, lead: _Lead) -> None:
        """Wait a moment; raise NotLeader if this nimbus leads no more, or ends."""
        if self._stopped.wait(_LOOK_SECS) or self.elector.term() != lead.writes.term:
            # The elector also drops the term for a short break of the connection; ZooKeeper knows whether it is over.
            lead.writes.check()
            if self._stopped.is_set():
                raise self.not_leader()

    # Threads.

    def _run(self, name: str, news: threading.Event, work: Callable[[], None], period_secs: float) -> None:
        """Start a thread that works again and again; an unexpected error ends the process."""

        def loop() -> None:
            try:
                is_away = False
                while not self._stopped.is_set():
                    news.clear()  # before the work: news that comes during it calls for another round
                    try:
                        work()
                        wait_secs = min(period_secs, self.next_deadline_secs()) if work == self.monitor else period_secs
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
