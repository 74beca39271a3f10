"""The HTTP API of a nimbus: JSON, on Storm's paths where Storm has them.

Requests that change something, and those for code, need the header ``Authorization: Bearer TOKEN``.

======  ==========================================  ======================================================
method  path                                        answer
======  ==========================================  ======================================================
GET     /health                                     ``{"status": "ok", "isLeader": bool}``; 503 while ZooKeeper is away
GET     /metrics                                    Prometheus' text format
GET     /api/v1/leader                              ``{"leader": "HOST:PORT" or null, "address": "HOST:PORT"}``
GET     /api/v1/cluster/summary                     ``ClusterSummary``
GET     /api/v1/nimbus/summary                      ``{"nimbuses": [NimbusSummary …]}``
GET     /api/v1/supervisor/summary                  ``{"supervisors": [SupervisorSummary …]}``
GET     /api/v1/topology/summary                    ``{"topologies": [TopologySummary …]}``
GET     /api/v1/topology/ID                         ``TopologySummary``; ID may be the name, here and below
GET     /api/v1/code/ID                             ``Manifest``, needs the token
GET     /api/v1/code/ID/FILE                        the file, needs the token
GET     /api/v1/page                                ``{"topologies": {ID: SUMMARY}}``, needs the token
GET     /api/v1/page/ID/PATH                        what the page shows of a topology, needs the token
POST    /api/v1/topology                            201 ``SubmittedTopology``, when enough nimbuses hold its code
POST    /api/v1/topology/ID/activate                DONE
POST    /api/v1/topology/ID/deactivate              DONE
POST    /api/v1/topology/ID/rebalance[/WAIT]        DONE; body ``{"settings": {NAME: TEXT}}`` or empty
POST    /api/v1/topology/ID/kill[/WAIT]             DONE; WAIT in seconds, without it the topology's own
======  ==========================================  ======================================================

The body of a submission is one line of JSON, a ``Submission``, a newline, and the bytes of the archive.

:mod:`txtopo.cluster.summaries` says what is in a summary; in JSON names are in camel case.

::

    DONE        {"topologyOperation": "kill" …, "topologyId": ID, "status": "success", "topology": TopologySummary}
    ERROR       {"error": class of txtopo.errors, "errorMessage": text, "leader": "HOST:PORT" or null}

======  ================================================================
status  errors
======  ================================================================
400     SubmissionError, ConfigError, and a request that cannot be read
401     the token is missing or wrong
404     NotAlive; a path or file that does not exist
409     AlreadyAlive, TransitionError
413     the upload is larger than ``nimbus.upload.bytes.max``
421     NotLeader: ask the nimbus that "leader" names
503     NoLeader, Unreachable, CodeUnavailable, too many submissions: try again
507     the daemon's disk is full, or its machine lacks something else
======  ================================================================

Before a submission becomes active, and before a rebalance with other settings, the leader asks a live supervisor
whether drivers can run it there, and if that one does not answer the next, again and again:
``POST http://SUPERVISOR/api/v1/code/ID/check`` with the token and the body ``{"settings": {NAME: TEXT}}``. The
supervisor fetches the code, builds the topology in a child process with these settings, and answers 200 with
``{"topologyId": text}``, or 400 with an ERROR whose message says why it does not build.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import anyio.to_thread
import attrs
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from txtopo.cluster.code.submission import ARCHIVE_NAME, Submission
from txtopo.cluster.decisions.assignment import Assignment, ClusterView, Heartbeat
from txtopo.cluster.decisions.lifecycle import Event, Request as TopologyRequest, Status, Topology
from txtopo.cluster.nimbus.daemon import Nimbus
from txtopo.cluster.nimbus.pages import DriverPages
from txtopo.cluster.serving import answers
from txtopo.cluster.summaries import (
    AssignmentSummary,
    ClusterSummary,
    HeartbeatSummary,
    NimbusSummary,
    SupervisorSummary,
    TopologySummary,
)
from txtopo.errors import ClusterError, NoLeader, NotLeader, SubmissionError
from txtopo.files.records import to_json
from txtopo.text.secrecy import shown, without_secrets

_DESCRIPTION_BYTES_MAX = 1 << 16
"""A description is a name and settings; it is in memory before anything is checked."""
_READS_MAX = 20
"""How many requests read ZooKeeper at a time: each has a thread."""


class NimbusApi:
    """Serves a started nimbus over HTTP; ``app`` is the ASGI application."""

    def __init__(self, nimbus: Nimbus, token: str, version: str) -> None:
        self._nimbus = nimbus
        self._token = token.encode()
        self._version = version
        # Submissions wait for minutes, so they have separate threads: no other request waits behind them.
        self._submissions = anyio.CapacityLimiter(nimbus.config["nimbus.submissions.max"])
        # Reads need no token. Separate threads keep them from delaying those with it: other nimbuses fetch code.
        self._reads = anyio.CapacityLimiter(_READS_MAX)
        self._metrics = _Metrics()
        pages = DriverPages(nimbus.state, token)
        read, change = ["GET"], ["POST"]
        topology = "/api/v1/topology/{name}"
        self.app = Starlette(
            routes=[
                Route("/health", self._health, methods=read),
                Route("/metrics", self._read(self._show_metrics), methods=read),
                Route("/api/v1/leader", self._read(self._leader), methods=read),
                Route("/api/v1/cluster/summary", self._read(self._cluster), methods=read),
                Route("/api/v1/nimbus/summary", self._read(self._nimbuses), methods=read),
                Route("/api/v1/supervisor/summary", self._read(self._supervisors), methods=read),
                Route("/api/v1/topology/summary", self._read(self._topologies), methods=read),
                Route("/api/v1/page", pages.summaries, methods=read),
                Route("/api/v1/page/{id}/{path:path}", pages.answer, methods=read),
                Route("/api/v1/topology", self._submit, methods=change),
                Route(topology, self._read(self._topology), methods=read),
                Route("/api/v1/code/{id}", self._read(self._manifest, is_guarded=True), methods=read),
                Route("/api/v1/code/{id}/{file}", self._read(self._code, is_guarded=True), methods=read),
                *(
                    Route(f"{topology}/{event.value}{wait}", self._changing(event), methods=change)
                    for event in (Event.ACTIVATE, Event.DEACTIVATE, Event.REBALANCE, Event.KILL)
                    for wait in (("", "/{wait}") if event in {Event.REBALANCE, Event.KILL} else ("",))
                ),
            ],
            **answers.errors_as_json(self._leader_of),
        )

    # What is read.

    async def _health(self, _request: Request) -> Response:
        is_well = self._nimbus.state.session.is_connected
        status = "ok" if is_well else "no connection to ZooKeeper"
        content = {"status": status, "isLeader": self._nimbus.elector.is_leader()}
        return answers.Json(content, 200 if is_well else 503)

    def _show_metrics(self, _request: Request) -> Response:
        state = self._nimbus.state
        self._metrics.update(state.view(), state.heartbeats(), len(state.nimbuses()), self._nimbus.elector.is_leader())
        return PlainTextResponse(generate_latest(self._metrics.registry), media_type="text/plain; version=0.0.4")

    def _leader(self, _request: Request) -> Response:
        return answers.Json({"leader": self._leader_address(), "address": self._nimbus.address})

    def _cluster(self, _request: Request) -> Response:
        view = self._nimbus.state.view()
        total, used = sum(supervisor.slots for supervisor in view.supervisors.values()), len(view.assignments)
        summary = ClusterSummary(
            self._version,
            self._nimbus.address,
            self._leader_address(),
            nimbuses=len(self._nimbus.state.nimbuses()),
            supervisors=len(view.supervisors),
            slots_total=total,
            slots_used=used,
            slots_free=max(0, total - used),
            topologies=len(view.topologies),
        )
        return answers.Json(to_json(summary))

    def _nimbuses(self, _request: Request) -> Response:
        leader, now = self._leader_address(), time.time()
        summaries = []
        for nimbus in self._nimbus.state.nimbuses().values():
            host, _, port = nimbus.address.rpartition(":")
            summary = NimbusSummary(
                nimbus.address,
                host,
                int(port),
                status="Leader" if nimbus.address == leader else "Not a Leader",
                is_leader=nimbus.address == leader,
                started_at=nimbus.started_at,
                uptime_seconds=max(0, int(now - nimbus.started_at)),
                version=nimbus.version,
            )
            summaries.append(to_json(summary))
        return answers.Json({"nimbuses": summaries})

    def _supervisors(self, _request: Request) -> Response:
        view, now = self._nimbus.state.view(), time.time()
        used = [assignment.supervisor for assignment in view.assignments.values()]
        summaries = [
            SupervisorSummary(
                supervisor.id,
                supervisor.address,
                slots_total=supervisor.slots,
                slots_used=used.count(supervisor.id),
                started_at=supervisor.started_at,
                uptime_seconds=max(0, int(now - supervisor.started_at)),
                version=supervisor.version,
            )
            for supervisor in view.supervisors.values()
        ]
        return answers.Json({"supervisors": [to_json(supervisor) for supervisor in summaries]})

    def _topologies(self, request: Request) -> Response:
        state = self._nimbus.state
        holders, live = state.holders(), frozenset(state.nimbuses())
        assignments, beats = state.assignments(), state.heartbeats()
        summaries = []
        for topology in state.topologies().values():
            assignment = assignments.get(topology.id)
            beat = None if assignment is None else beats.get((topology.id, assignment.number))
            summaries.append(_summary(topology, holders.get(topology.id, frozenset()), live, assignment, beat))
        return answers.Json({"topologies": [to_json(self._for(request, topology)) for topology in summaries]})

    def _topology(self, request: Request) -> Response:
        return answers.Json(
            to_json(self._for(request, self._summary_of(self._nimbus.find(request.path_params["name"]))))
        )

    def _manifest(self, request: Request) -> Response:
        manifest = self._nimbus.store.manifest(request.path_params["id"])
        if manifest is None:
            raise HTTPException(404, "this nimbus does not hold its code")
        return answers.Json(to_json(manifest))

    def _code(self, request: Request) -> Response:
        return answers.code_file(self._nimbus.store, request)

    # What is changed.

    def _changing(self, event: Event) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            answers.check_token(request, self._token)
            wait_secs = _wait_of(request)
            body = await answers.body_of(request)
            change = TopologyRequest(event, wait_secs, answers.settings_in(body) if event is Event.REBALANCE else {})
            name = request.path_params["name"]
            return await anyio.to_thread.run_sync(lambda: self._change(name, change))

        return endpoint

    def _change(self, name: str, change: TopologyRequest) -> Response:
        after = self._nimbus.request(name, change)
        return answers.Json(
            {
                "topologyOperation": change.event.value,
                "topologyId": after.id,
                "status": "success",
                "topology": to_json(self._summary_of(after)),
            }
        )

    async def _submit(self, request: Request) -> Response:
        answers.check_token(request, self._token)
        if not self._nimbus.elector.is_leader():  # before the upload, which may be 256 MiB in vain
            raise await anyio.to_thread.run_sync(self._nimbus.leadership.not_leader)
        if self._submissions.available_tokens < 1:
            raise ClusterError("too many submissions are under way; try again in a few seconds")
        with self._nimbus.store.draft() as draft:
            submission = await self._upload(request, draft / f"{ARCHIVE_NAME}.upload")
            submitted = await anyio.to_thread.run_sync(
                self._nimbus.submissions.submit, submission, draft / f"{ARCHIVE_NAME}.upload", limiter=self._submissions
            )
        self._metrics.submissions.inc()
        summary = await anyio.to_thread.run_sync(self._summary_of, submitted.topology)
        return answers.Json({**to_json(summary), "warning": submitted.warning}, 201)

    async def _upload(self, request: Request, path: Path) -> Submission:
        """Write the archive to a file; return the description, the line before it."""
        head = b""
        with path.open("wb") as file:
            is_head = True
            async for chunk in answers.bounded(request, self._nimbus.config["nimbus.upload.bytes.max"]):
                if not is_head:
                    file.write(chunk)
                    continue
                head += chunk
                line, newline, body_start = head.partition(b"\n")
                if newline:
                    is_head, head = False, line
                    file.write(body_start)
                if len(head) > _DESCRIPTION_BYTES_MAX:
                    raise SubmissionError(f"the description is longer than {_DESCRIPTION_BYTES_MAX >> 10} KiB")
        return Submission.from_bytes(head)

    # What all share.

    def _read(
        self, answer: Callable[[Request], Response], *, is_guarded: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that answers on a thread, because ZooKeeper and disks make it wait."""

        async def endpoint(request: Request) -> Response:
            if is_guarded:
                answers.check_token(request, self._token)
            return await anyio.to_thread.run_sync(answer, request, limiter=None if is_guarded else self._reads)

        return endpoint

    def _leader_address(self) -> str | None:
        try:
            return self._nimbus.elector.get_leader_address()
        except NoLeader:
            return None

    def _summary_of(self, topology: Topology) -> TopologySummary:
        state = self._nimbus.state
        assignment = state.assignment(topology.id)
        beat = None if assignment is None else state.heartbeat(topology.id, assignment.number)
        return _summary(topology, state.holders_of(topology.id), frozenset(state.nimbuses()), assignment, beat)

    def _for(self, request: Request, topology: TopologySummary) -> TopologySummary:
        """Return a topology as whoever asks may see it: users' texts may hold keys and values."""
        if answers.has_token(request, self._token):
            return topology
        beat = topology.heartbeat and attrs.evolve(topology.heartbeat, detail="")
        return attrs.evolve(topology, settings={}, reason=None, heartbeat=beat)

    def _leader_of(self, error: Exception) -> str | None:
        if not isinstance(error, NotLeader):
            return None
        return error.leader or self._nimbus.leadership.not_leader().leader


class _Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.submissions = Counter("txtopo_submissions", "Topologies submitted here", registry=self.registry)
        self._leader = Gauge("txtopo_nimbus_is_leader", "1 on the nimbus that leads", registry=self.registry)
        self._nimbuses = Gauge("txtopo_nimbuses", "Live nimbuses", registry=self.registry)
        self._supervisors = Gauge("txtopo_supervisors", "Live supervisors", registry=self.registry)
        self._slots = Gauge("txtopo_slots", "Driver slots of live supervisors", registry=self.registry)
        self._assigned = Gauge("txtopo_topologies_assigned", "Topologies that have a slot", registry=self.registry)
        self._by_status = Gauge("txtopo_topologies", "Topologies by status", ["status"], registry=self.registry)
        self._figures = Gauge(
            "txtopo_topology_figure", "What a driver's heartbeat says", ["topology", "figure"], registry=self.registry
        )

    def update(
        self,
        view: ClusterView,
        beats: Mapping[tuple[str, int], Heartbeat],
        nimbuses: int,
        is_leader: bool,  # noqa: FBT001 - a fact
    ) -> None:
        """Set every metric to what ZooKeeper says now."""
        self._figures.clear()  # or topologies that are gone would stay
        for (topology, _), beat in beats.items():
            if topology in view.topologies:
                for figure, value in beat.figures.items():
                    self._figures.labels(view.topologies[topology].name, figure).set(value)
        self._leader.set(is_leader)
        self._nimbuses.set(nimbuses)
        self._supervisors.set(len(view.supervisors))
        self._slots.set(sum(supervisor.slots for supervisor in view.supervisors.values()))
        self._assigned.set(len(view.assignments))
        statuses = [topology.status for topology in view.topologies.values()]
        for status in Status:
            self._by_status.labels(status.value).set(statuses.count(status))


def _summary(
    topology: Topology,
    holders: frozenset[str],
    live: frozenset[str],
    assignment: Assignment | None,
    beat: Heartbeat | None,
) -> TopologySummary:
    now = time.time()
    slot = None if assignment is None else AssignmentSummary(assignment.supervisor, assignment.slot, assignment.number)
    heartbeat = None
    if beat is not None:
        detail = without_secrets(beat.detail, topology.settings)
        heartbeat = HeartbeatSummary(beat.stage, detail, beat.pid, beat.count, beat.figures)
    return TopologySummary(
        topology.id,
        topology.name,
        topology.topology_id,
        status=topology.status.value,
        uptime_seconds=max(0, int(now - topology.launched_at)),
        settings={name: shown(name, value) for name, value in topology.settings.items()},
        reason=None if topology.reason is None else without_secrets(topology.reason, topology.settings),
        seconds_left=None if topology.deadline is None else max(0.0, topology.deadline - now),
        replication_count=len(holders & live),
        holders=sorted(holders),
        assignment=slot,
        heartbeat=heartbeat,
    )


def _wait_of(request: Request) -> float | None:
    text = request.path_params.get("wait")
    try:
        wait_secs = None if text is None else float(text)
    except ValueError:
        wait_secs = -1.0
    if wait_secs is not None and not 0 <= wait_secs < float("inf"):
        raise HTTPException(400, f"the wait is {text!r}; it must be a number of seconds")
    return wait_secs
