"""The topologies of a cluster: the page's answers come from nimbuses, which have them from supervisors.

The page is a process of its own, on any machine, so it outlives every nimbus:

1. A browser asks the page, which asks the nimbus that has answered last; that one asks the supervisor of the topology.
2. The nimbus is killed. The page asks the next one that it knows: a seed, or one that it has learned of since.
3. Until another one leads, changes are refused, with the reason. Topologies run on, and the page shows them.
4. The dead nimbus stays in the list as gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import attrs
import httpx

from txtopo.cluster.client import ClusterClient
from txtopo.cluster.decisions.lifecycle import Status
from txtopo.errors import ClusterError, NoLeader, TxtopoError
from txtopo.extras import version
from txtopo.inspect import header
from txtopo.inspect.facts import Facts
from txtopo.inspect.slugs import OF_RUN, slug_of
from txtopo.inspect.source import NotFound
from txtopo.inspect.timeline import TimelineReader
from txtopo.transactional.core.history import first_line

LOOK_SECS = 0.5
"""How old may be what is known of the whole cluster."""

_NIMBUSES_MAX = 32
_NOT_FOUND = 404
_WORDS = {
    Status.FAILED.value: "failed",
    Status.FINISHED.value: "ended",
    Status.KILLED.value: "ended",
}
_GOING_ON = {Status.ACTIVE.value, Status.INACTIVE.value}
_UNREACHED = TimelineReader(Path("/nonexistent"))
"""The timeline of a topology whose supervisor does not answer."""


@attrs.frozen
class _Look:
    """What nimbuses have said of the cluster; ``why`` they say nothing more, or empty."""

    at: float = float("-inf")
    nimbuses: Mapping[str, dict[str, Any]] = attrs.field(factory=dict)
    """Those that are alive, by address."""
    supervisors: Sequence[dict[str, Any]] = ()
    topologies: Mapping[str, dict[str, Any]] = attrs.field(factory=dict)
    """By slug."""
    summaries: Mapping[str, dict[str, Any]] = attrs.field(factory=dict)
    """What their runs say, by the topology's id."""
    why: str = ""


class ClusterSource:
    """The topologies of a cluster; a :class:`~txtopo.inspect.source.Source`."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._last = _Look()
        self._nimbuses: dict[str, dict[str, Any]] = {}
        """All that were ever seen, as they were then."""

    def topologies(self) -> dict[str, Any]:
        """See :class:`~txtopo.inspect.source.Source`, as for all methods."""
        look = self._look()
        found = [self._summary(look, each) for each in look.topologies.values()]
        place = ", ".join(look.nimbuses) or "a cluster of which no nimbus answers"
        found.sort(key=lambda each: str(each["id"]))
        return {"version": version(), "place": place, "isCluster": True, "topologies": found}

    def header(self, slug: str) -> dict[str, Any]:
        """See :class:`~txtopo.inspect.source.Source`."""
        look = self._look()
        topology = self._find(look, slug)
        if OF_RUN in slug:
            return {**self._json(slug, ""), "slug": slug, "id": topology["id"]}
        status = topology["status"]
        try:
            found = self._ask(slug, "").json()
        except (NotFound, ClusterError, NoLeader) as error:
            found = header.header(_unreached(topology["id"]), {})
            found["timeline"]["why"] = error.message
        change = {"activate": status in _GOING_ON, "rebalance": status in _GOING_ON, "kill": True}
        return {
            **found,
            **self._own(look, topology, found),
            "isActive": status == Status.ACTIVE.value,
            "can": {"audit": False, "replay": False, **change},
        }

    def timeline(self, slug: str, since: int) -> bytes:
        """See :class:`~txtopo.inspect.source.Source`."""
        return self._ask(slug, "timeline", since=since).content

    def transactions(self, slug: str, first: int, last: int | None, limit: int, *, failed: bool) -> dict[str, Any]:
        """See :class:`~txtopo.inspect.source.Source`."""
        query = {"from": first, "to": last, "limit": limit, "failed": int(failed)}
        return self._json(slug, "transactions", **query)

    def transaction(self, slug: str, txid: int) -> dict[str, Any]:
        """See :class:`~txtopo.inspect.source.Source`."""
        return {**self._json(slug, f"transaction/{txid}"), "can": {"audit": False, "replay": False}}

    def errors(self, slug: str) -> dict[str, Any]:
        """See :class:`~txtopo.inspect.source.Source`."""
        return self._json(slug, "errors")

    def states(self, slug: str) -> dict[str, Any]:
        """See :class:`~txtopo.inspect.source.Source`."""
        return self._json(slug, "state")

    def rows(self, slug: str, name: str, keys: Sequence[str], txid: int | None, limit: int) -> dict[str, Any]:
        """See :class:`~txtopo.inspect.source.Source`."""
        return self._json(slug, "state/rows", name=name, key=list(keys), txid=txid, limit=limit)

    def graph(self, slug: str) -> dict[str, Any]:
        """See :class:`~txtopo.inspect.source.Source`."""
        return self._json(slug, "graph")

    def plots(self, slug: str, secs: int, until: int | None = None) -> dict[str, Any]:
        """See :class:`~txtopo.inspect.source.Source`."""
        return self._json(slug, "plots", secs=secs, until=until)

    def settings(self, slug: str) -> dict[str, Any]:
        """See :class:`~txtopo.inspect.source.Source`."""
        return self._json(slug, "settings")

    def runs(self, slug: str) -> dict[str, Any]:
        """See :class:`~txtopo.inspect.source.Source`."""
        own = slug.partition(OF_RUN)[0]
        runs = self._json(own, "runs")["runs"]
        return {"runs": [{**each, "slug": f"{own}{''.join(each['slug'].partition(OF_RUN)[1:])}"} for each in runs]}

    def metrics(self) -> bytes:
        """Return nothing: each daemon has its own."""
        return b""

    def health(self) -> dict[str, str]:
        """See :class:`Source`: each driver's metrics and health are its supervisor's."""
        return {}

    def cluster(self) -> dict[str, Any]:
        """See :class:`~txtopo.inspect.source.Source`."""
        look = self._look()
        topologies = sorted(look.topologies.values(), key=lambda each: str(each["id"]))
        nimbuses = [
            {
                "address": address,
                "isLeader": each["isLeader"],
                "isAlive": address in look.nimbuses,
                "startedAt": each["startedAt"],
                "version": each["version"],
                "codeHeld": [topology["id"] for topology in topologies if address in topology["holders"]],
            }
            for address, each in sorted(self._nimbuses.items())
        ]
        supervisors = [
            {
                "host": each["address"],
                "startedAt": each["startedAt"],
                "slots": each["slotsTotal"],
                "used": each["slotsUsed"],
                "drivers": [
                    {
                        "slug": slug_of(topology["id"]),
                        "id": topology["id"],
                        "pid": (topology["heartbeat"] or {}).get("pid"),
                    }
                    for topology in topologies
                    if (topology["assignment"] or {}).get("supervisor") == each["id"]
                ],
            }
            for each in look.supervisors
        ]
        return {"now": time.time(), "nimbuses": nimbuses, "supervisors": supervisors, "why": look.why}

    def change(self, slug: str, what: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """See :class:`~txtopo.inspect.source.Source`."""
        name = self._find(self._look(), slug)["id"]
        after = self._client.change(name, what, settings=settings)
        self._last = attrs.evolve(self._last, at=float("-inf"))  # so that the next answer shows it
        return {"id": after["id"], "status": after["status"], "secondsLeft": after["secondsLeft"]}

    # What all share.

    def _look(self) -> _Look:
        """Return what is known of the cluster; if no nimbus answers, what was known last, and why it is no more."""
        with self._lock:
            if time.monotonic() - self._last.at > LOOK_SECS:
                try:
                    self._last = self._looked()
                except TxtopoError as error:
                    why = f"no nimbus answers: what this page shows is old ({error.message})"
                    self._last = attrs.evolve(self._last, at=time.monotonic(), nimbuses={}, why=why)
            return self._last

    def _looked(self) -> _Look:
        nimbuses = {each["address"]: each for each in self._client.get("nimbus/summary")["nimbuses"]}
        supervisors = self._client.get("supervisor/summary")["supervisors"]
        topologies = {slug_of(each["id"]): each for each in self._client.topologies()}
        summaries = self._client.page()
        self._client.learn(nimbuses)
        self._nimbuses |= nimbuses
        while len(self._nimbuses) > _NIMBUSES_MAX:
            self._nimbuses.pop(next(iter(self._nimbuses)))
        said = summaries.json()["topologies"] if summaries.is_success else {}
        return _Look(time.monotonic(), nimbuses, supervisors, topologies, said)

    @staticmethod
    def _find(look: _Look, slug: str) -> dict[str, Any]:
        own = slug.partition(OF_RUN)[0]
        if own not in look.topologies:
            raise NotFound(f"there is no topology {own!r} on the cluster{f': {look.why}' if look.why else ''}")
        return look.topologies[own]

    def _summary(self, look: _Look, topology: dict[str, Any]) -> dict[str, Any]:
        said = look.summaries.get(topology["id"]) or header.summary(_unreached(topology["id"]))
        found = {**said, **self._own(look, topology, said)}
        return {**found, "statusText": topology["status"]} if topology["status"] in _WORDS and not look.why else found

    @staticmethod
    def _own(look: _Look, topology: dict[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the cluster knows better than the run: its name, whether it is to run, and why it failed."""
        status, beat, reason = topology["status"], topology["heartbeat"] or {}, topology["reason"]
        now = time.time()
        word, text = said["status"], said["statusText"]
        if status in _WORDS:
            word, text = _WORDS[status], f"{status}{f': {first_line(reason)}' if reason else ''}"
        elif word == "unknown":
            no_driver = "no slot is free" if topology["assignment"] is None else "no report of its driver yet"
            word, text = "starting", " ".join(filter(None, [beat.get("stage", no_driver), beat.get("detail")]))
        if status not in _WORDS and status != Status.ACTIVE.value:
            text = f"{status}; {text}"
        if look.why:
            word, text = "unknown", look.why
        return {
            "slug": slug_of(topology["id"]),
            "id": topology["id"],
            "status": word,
            "statusText": text,
            "lastError": said["lastError"] or (first_line(reason) if reason else None),
            "startedAt": said["startedAt"] or now - topology["uptimeSeconds"],
            "updatedAt": said["updatedAt"] or now,
        }

    def _ask(self, slug: str, path: str, **query: Any) -> httpx.Response:
        """Return what the topology's supervisor answers.

        Raises:
            NotFound: nothing is known there.
            ClusterError: it does not answer, or can't read it.
            NoLeader: no nimbus answers.
        """
        name = self._find(self._look(), slug)["id"]
        given = urlencode({key: value for key, value in query.items() if value is not None}, doseq=True)
        run = "".join(slug.partition(OF_RUN)[1:])
        place = quote("/".join(filter(None, (run, path))))
        answer = self._client.page(f"/{quote(name, safe='')}/{place}?{given}")
        if answer.is_success:
            return answer
        try:
            text = str(answer.json()["errorMessage"])
        except (ValueError, KeyError, TypeError):
            text = f"the cluster answers with {answer.status_code}"
        raise NotFound(text) if answer.status_code == _NOT_FOUND else ClusterError(text)

    def _json(self, slug: str, path: str, **query: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._ask(slug, path, **query).json()
        return found


def _unreached(topology: str) -> Facts:
    return Facts(topology, _UNREACHED, None, None, None)
