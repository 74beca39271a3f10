"""Passes on what supervisors know of their drivers' topologies, so that one address shows all of them.

A supervisor answers from the files of the driver's machine; a nimbus knows which one to ask, and reads nothing itself.
Every nimbus passes on, whether it leads or not: while nobody leads, topologies go on running, and the page shows them.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import anyio.to_thread
import httpx
from starlette.requests import Request
from starlette.responses import Response

from txtopo.cluster.serving.answers import Json, check_token
from txtopo.cluster.state import ClusterState
from txtopo.errors import ClusterError

_TIMEOUT = httpx.Timeout(6.0, connect=1.0)
_SUMMARY_TIMEOUT = httpx.Timeout(2.0, connect=1.0)
"""Shorter than for a question about one topology: the list of all waits for the slowest supervisor."""
_READS_MAX = 4
"""How many requests read ZooKeeper at a time: each has a thread."""


class DriverPages:
    """Answers ``/api/v1/page`` and what is below it."""

    def __init__(self, state: ClusterState, token: str) -> None:
        self._state = state
        self._token = token.encode()
        self._reads = anyio.CapacityLimiter(_READS_MAX)
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}"}, timeout=_TIMEOUT, trust_env=False
        )

    async def summaries(self, request: Request) -> Response:
        """Answer with a summary of each topology that runs; those of a supervisor that does not answer are left out."""
        check_token(request, self._token)
        supervisors = await anyio.to_thread.run_sync(self._state.supervisors, limiter=self._reads)
        questions = [self._ask(supervisor.address, "", _SUMMARY_TIMEOUT) for supervisor in supervisors.values()]
        by_topology: dict[str, Any] = {}
        for answer in await asyncio.gather(*questions):
            if answer is not None and answer.is_success:
                by_topology |= answer.json()["topologies"]
        return Json({"topologies": by_topology})

    async def answer(self, request: Request) -> Response:
        """Answer with what the supervisor that runs the topology says; if none runs it, with what one says that did."""
        check_token(request, self._token)
        topology, path = request.path_params["id"], request.path_params["path"]
        places = await anyio.to_thread.run_sync(self._places, topology, limiter=self._reads)
        query = request.scope["query_string"].decode("latin-1")
        address = f"/{quote(topology, safe='')}/{quote(path)}?{query}"
        answers = [
            response
            for response in await asyncio.gather(*(self._ask(p, address) for p in places))
            if response is not None
        ]
        if not answers:
            raise ClusterError(f"no supervisor answers that has run {topology!r}")
        answer = min(answers, key=lambda answer: answer.status_code)
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("Content-Type"))

    def _places(self, topology: str) -> list[str]:
        """Return the address of the supervisor that runs a topology; those of all if none runs it."""
        assignment = self._state.assignment(topology)
        supervisors = self._state.supervisors()
        if assignment is not None:
            return [supervisor.address for supervisor in supervisors.values() if supervisor.id == assignment.supervisor]
        return [supervisor.address for supervisor in supervisors.values()]

    async def _ask(self, supervisor: str, path: str, within: httpx.Timeout = _TIMEOUT) -> httpx.Response | None:
        try:
            return await self._client.get(f"http://{supervisor}/api/v1/page{path}", timeout=within)
        except httpx.TransportError:
            return None
