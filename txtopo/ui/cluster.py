"""The topologies of a cluster: the page's answers come from nimbuses, which have them from supervisors.

The page is a separate process, on any machine, so it outlives every nimbus:

1. A browser asks the page, which asks the nimbus that has answered last; that one asks the supervisor of the topology.
2. The nimbus is killed. The page asks the next one that it knows: a seed, or one that it has learned of since.
3. Until another one leads, changes are refused, with the reason. Topologies run on, and the page shows them.
4. The dead nimbus stays in the list as gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import attrs
import httpx

from txtopo.cluster.client import ClusterClient
from txtopo.cluster.decisions.lifecycle import Status
from txtopo.cluster.summaries import NimbusSummary, SupervisorSummary, TopologySummary
from txtopo.errors import ClusterError, NoLeader, TxtopoError
from txtopo.files.records import from_json
from txtopo.inspect.cluster import Changed, Cluster, Driver, Nimbus, Supervisor
from txtopo.inspect.past.transaction import CanCheck, Transaction
from txtopo.inspect.questions import NotFound, Question
from txtopo.inspect.run import header
from txtopo.inspect.run.known import KnownRun
from txtopo.inspect.run.slugs import OF_RUN, slug_of
from txtopo.inspect.run.status import Can, HasTimeline, Header, Runs, Summary, Topologies, Topology
from txtopo.inspect.timeline.attempts import Timeline
from txtopo.inspect.timeline.timeline import TimelineReader
from txtopo.text.extras import version
from txtopo.transactional.core.record.history import first_line

POLL_SECS = 0.5
"""How old may be what is known of the whole cluster."""

_NIMBUSES_MAX = 32
"""How many nimbuses are remembered when they are away."""
_WORDS = {Status.FAILED.value: "failed", Status.FINISHED.value: "ended", Status.KILLED.value: "ended"}
_GOING_ON = {Status.ACTIVE.value, Status.INACTIVE.value}
_UNREACHED = TimelineReader(Path("/nonexistent"))
"""The timeline of a topology whose supervisor does not answer."""


@attrs.frozen
class _Seen:
    at: float = float("-inf")
    nimbuses: Mapping[str, NimbusSummary] = attrs.field(factory=dict)
    """Those that are alive, by address."""
    supervisors: Sequence[SupervisorSummary] = ()
    topologies: Mapping[str, TopologySummary] = attrs.field(factory=dict)
    """By slug."""
    summaries: Mapping[str, Summary] = attrs.field(factory=dict)
    """What their runs say, by the topology's id."""
    why: str = ""


class ClusterBackend:
    """The topologies of a cluster; a :class:`~txtopo.inspect.questions.Backend`."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._last = _Seen()
        self._nimbuses: dict[str, NimbusSummary] = {}
        """All that were ever seen, as they were then."""

    def topologies(self) -> Topologies:
        """See :class:`~txtopo.inspect.questions.Backend`, as for all methods."""
        seen = self._refreshed()
        found = [self._summary(seen, topology) for topology in seen.topologies.values()]
        place = ", ".join(seen.nimbuses) or "a cluster of which no nimbus answers"
        found.sort(key=lambda topology: topology.id)
        return Topologies(version(), place, is_cluster=True, topologies=found)

    def header(self, slug: str) -> Header:
        """See :class:`~txtopo.inspect.questions.Backend`."""
        seen = self._refreshed()
        topology = self._find(seen, slug)
        if OF_RUN in slug:
            return attrs.evolve(from_json(self._ask(slug, "").json(), Header), slug=slug, id=topology.id)
        try:
            found = from_json(self._ask(slug, "").json(), Header)
        except (NotFound, ClusterError, NoLeader) as error:
            found = header.header(_unreached(topology.id))
            found = attrs.evolve(found, timeline=HasTimeline(is_there=False, why=error.message))
        is_going_on = topology.status in _GOING_ON
        return attrs.evolve(
            found,
            **self._own(seen, topology, found),
            is_active=topology.status == Status.ACTIVE.value,
            can=Can(activate=is_going_on, rebalance=is_going_on, kill=True),
        )

    def answer(self, question: Question, slug: str, given: Mapping[str, Any]) -> Any:
        """Return what the topology's supervisor answers, which another version of txtopo may have made."""
        query = {parameter.name: given[parameter.keyword] for parameter in question.parameters}
        answer = self._ask(slug, question.path.format_map(given), **query)
        if question.answer is Timeline:
            return answer.content
        found: Any = from_json(answer.json(), question.answer)
        if isinstance(found, Transaction):
            return attrs.evolve(found, can=CanCheck())
        if isinstance(found, Runs):
            own = slug.partition(OF_RUN)[0]
            runs = [attrs.evolve(run, slug=f"{own}{''.join(run.slug.partition(OF_RUN)[1:])}") for run in found.runs]
            return Runs(runs)
        return found

    def metrics(self) -> bytes:
        """Return nothing: each daemon has its own."""
        return b""

    def health(self) -> dict[str, str]:
        """See :class:`~txtopo.inspect.questions.Backend`: each driver's metrics and health are its supervisor's."""
        return {}

    def cluster(self) -> Cluster:
        """See :class:`~txtopo.inspect.questions.Backend`."""
        seen = self._refreshed()
        topologies = sorted(seen.topologies.values(), key=lambda topology: topology.id)
        nimbuses = [
            Nimbus(
                address,
                is_leader=nimbus.is_leader,
                is_alive=address in seen.nimbuses,
                started_at=nimbus.started_at,
                version=nimbus.version,
                code_held=[topology.id for topology in topologies if address in topology.holders],
            )
            for address, nimbus in sorted(self._nimbuses.items())
        ]
        supervisors = [
            Supervisor(
                supervisor.address,
                started_at=supervisor.started_at,
                slots=supervisor.slots_total,
                used=supervisor.slots_used,
                drivers=[
                    Driver(
                        slug_of(topology.id),
                        topology.id,
                        None if topology.heartbeat is None else topology.heartbeat.pid,
                    )
                    for topology in topologies
                    if topology.assignment is not None and topology.assignment.supervisor == supervisor.id
                ],
            )
            for supervisor in seen.supervisors
        ]
        return Cluster(time.time(), nimbuses, supervisors, seen.why)

    def change(self, slug: str, command: str, settings: Mapping[str, str]) -> Changed:
        """See :class:`~txtopo.inspect.questions.Backend`."""
        name = self._find(self._refreshed(), slug).id
        after = self._client.change(name, command, settings=settings)
        self._last = attrs.evolve(self._last, at=float("-inf"))  # so that the next answer shows it
        return Changed(after.id, after.status, after.seconds_left)

    # What all share.

    def _refreshed(self) -> _Seen:
        """Return what is known of the cluster; if no nimbus answers, what was known last, and why it is no more."""
        with self._lock:
            if time.monotonic() - self._last.at > POLL_SECS:
                try:
                    self._last = self._read()
                except TxtopoError as error:
                    why = f"no nimbus answers: what this page shows is old ({error.message})"
                    self._last = attrs.evolve(self._last, at=time.monotonic(), nimbuses={}, why=why)
            return self._last

    def _read(self) -> _Seen:
        nimbuses = {nimbus.address: nimbus for nimbus in self._client.nimbuses()}
        supervisors = self._client.supervisors()
        topologies = {slug_of(topology.id): topology for topology in self._client.topologies()}
        summaries = self._client.page()
        self._client.learn(nimbuses)
        self._nimbuses |= nimbuses
        while len(self._nimbuses) > _NIMBUSES_MAX:
            self._nimbuses.pop(next(iter(self._nimbuses)))
        told = summaries.json()["topologies"] if summaries.is_success else {}
        by_id = {topology_id: from_json(summary, Summary) for topology_id, summary in told.items()}
        return _Seen(time.monotonic(), nimbuses, supervisors, topologies, by_id)

    @staticmethod
    def _find(seen: _Seen, slug: str) -> TopologySummary:
        topology = slug.partition(OF_RUN)[0]
        if topology not in seen.topologies:
            raise NotFound(f"there is no topology {topology!r} on the cluster{f': {seen.why}' if seen.why else ''}")
        return seen.topologies[topology]

    def _summary(self, seen: _Seen, topology: TopologySummary) -> Summary:
        summary = seen.summaries.get(topology.id) or header.summary(_unreached(topology.id))
        found = attrs.evolve(summary, **self._own(seen, topology, summary))
        is_over = topology.status in _WORDS and not seen.why
        return attrs.evolve(found, status_text=topology.status) if is_over else found

    @staticmethod
    def _own(seen: _Seen, topology: TopologySummary, summary: Topology) -> dict[str, Any]:
        status, beat, reason = topology.status, topology.heartbeat, topology.reason
        now = time.time()
        word, text = summary.status, summary.status_text
        error = first_line(reason) if reason and status == Status.FAILED.value else None
        if status in _WORDS:
            word, text = _WORDS[status], f"{status}{f': {first_line(reason)}' if reason else ''}"
        elif word == "unknown":
            no_driver = "no slot is free" if topology.assignment is None else "no report of its driver yet"
            word, text = "starting", no_driver if beat is None else f"{beat.stage} {beat.detail}".strip()
        if status not in _WORDS and status != Status.ACTIVE.value:
            text = f"{status}; {text}"
        if seen.why:
            word, text = "unknown", seen.why
        return {
            "slug": slug_of(topology.id),
            "id": topology.id,
            "status": word,
            "status_text": text,
            "last_error": summary.last_error or error,
            "started_at": summary.started_at or now - topology.uptime_seconds,
            "updated_at": summary.updated_at or now,
        }

    def _ask(self, slug: str, path: str, **query: Any) -> httpx.Response:
        """Return what the topology's supervisor answers.

        Raises:
            NotFound: nothing is known there.
            ClusterError: it does not answer, or can't read it.
            NoLeader: no nimbus answers.
        """
        name = self._find(self._refreshed(), slug).id
        given = urlencode({key: value for key, value in query.items() if value is not None}, doseq=True)
        run = "".join(slug.partition(OF_RUN)[1:])
        below = quote("/".join(filter(None, (run, path))))
        answer = self._client.page(f"/{quote(name, safe='')}/{below}?{given}")
        if answer.is_success:
            return answer
        try:
            text = str(answer.json()["errorMessage"])
        except (ValueError, KeyError, TypeError):
            text = f"the cluster answers with {answer.status_code}"
        raise NotFound(text) if answer.status_code == HTTPStatus.NOT_FOUND else ClusterError(text)


def _unreached(topology: str) -> KnownRun:
    return KnownRun(topology, _UNREACHED, None, None, None)
