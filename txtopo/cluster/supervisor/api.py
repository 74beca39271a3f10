"""The HTTP API of a supervisor. Requests for logs, checks and pages need the header ``Authorization: Bearer TOKEN``.

======  ===========================  ======================================================
method  path                         answer
======  ===========================  ======================================================
GET     /health                      ``{"status": "ok"}``; 503 while ZooKeeper is away
GET     /metrics                     Prometheus' text format: of the supervisor, and of its drivers' runs
GET     /api/v1/supervisor           ``{"id", "address", "slots": [SLOT …]}``
GET     /api/v1/log/ID               a part of the log of the topology's drivers here; needs the token
GET     /api/v1/page                 ``{"topologies": {ID: SUMMARY}}`` of those that have a slot; needs the token
GET     /api/v1/page/ID/PATH         what the page's API answers at PATH of the topology; needs the token
GET     /api/v1/code/ID/FILE         a file of the topology's code, if it is here and sound; needs the token
POST    /api/v1/code/ID/check        whether the topology's code builds it here; see the API of nimbus; needs the token
======  ===========================  ======================================================

``?start=N`` asks for the log from byte N on, and ``?start=-N`` for its last N bytes; at most 1 MiB at a time. The
header ``X-Log-Next`` of the answer is the byte after the last one. If the log was rotated and is shorter than N, the
answer begins at 0.

::

    SLOT   {"number", "state", "topologyId": ID or null, "failures": int}
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio.to_thread
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from txtopo.cluster.decisions.slots import SlotState
from txtopo.cluster.serving.answers import Json, body_of, check_token, code_file, errors_as_json, settings_in
from txtopo.cluster.supervisor.daemon import Supervisor
from txtopo.engine.exposition import WrittenMetrics

Pages = Callable[[str | None, str, bytes], Response]
"""Answers given a topology, a path below its own and the query; without one, a summary of all."""

_READERS_MAX = 4
"""How many requests read logs at a time: each has a thread."""
_LOG_BYTES_MAX = 1 << 20
"""How much of a log is in one answer; a client asks for the rest."""


class SupervisorApi:
    """Serves a started supervisor over HTTP; ``app`` is the ASGI application."""

    def __init__(self, supervisor: Supervisor, token: str, pages: Pages) -> None:
        self._supervisor = supervisor
        self._pages = pages
        # Separate threads: a folder on a disk that hangs keeps them, and nothing else waits behind them.
        self._readers = anyio.CapacityLimiter(_READERS_MAX)
        self._token = token.encode()
        self._checks = anyio.CapacityLimiter(1)  # a check is a process with user code, beside the drivers
        self._registry = CollectorRegistry()
        self._slots = Gauge("txtopo_supervisor_slots", "Slots by state", ["state"], registry=self._registry)
        self._registry.register(WrittenMetrics("slot", supervisor.metrics_files))
        self.app = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/metrics", self._metrics),
                Route("/api/v1/supervisor", self._summary),
                Route("/api/v1/log/{id}", self._log),
                Route("/api/v1/page", self._page),
                Route("/api/v1/page/{id}/{path:path}", self._page),
                Route("/api/v1/code/{id}/check", self._check, methods=["POST"]),
                Route("/api/v1/code/{id}/{file}", self._code),
            ],
            **errors_as_json(),
        )

    async def _health(self, _request: Request) -> Response:
        is_well = self._supervisor.state.session.is_connected
        return Json({"status": "ok" if is_well else "no connection to ZooKeeper"}, 200 if is_well else 503)

    async def _metrics(self, _request: Request) -> Response:
        states = [slot.state for slot in self._supervisor.slots()]
        for state in SlotState:
            self._slots.labels(state.value).set(states.count(state))
        text = await anyio.to_thread.run_sync(generate_latest, self._registry)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def _summary(self, _request: Request) -> Response:
        slots = [
            {
                "number": slot.number,
                "state": slot.state.value,
                "topologyId": None if slot.assignment is None else slot.assignment.topology,
                "failures": slot.failures,
            }
            for slot in self._supervisor.slots()
        ]
        return Json({"id": self._supervisor.id, "address": self._supervisor.address, "slots": slots})

    async def _log(self, request: Request) -> Response:
        check_token(request, self._token)
        path = self._supervisor.logs.path(request.path_params["id"])
        if path is None:
            raise HTTPException(404, "no driver of this topology has run here")
        try:
            start = int(request.query_params.get("start", "0"))
        except ValueError:
            raise HTTPException(400, "start must be a number of bytes") from None
        content, following = await anyio.to_thread.run_sync(_part_of, path, start)
        return Response(content, media_type="text/plain; charset=utf-8", headers={"X-Log-Next": str(following)})

    async def _page(self, request: Request) -> Response:
        check_token(request, self._token)
        named = request.path_params
        query: bytes = request.scope["query_string"]
        return await anyio.to_thread.run_sync(
            self._pages, named.get("id"), named.get("path", ""), query, limiter=self._readers
        )

    async def _code(self, request: Request) -> Response:
        check_token(request, self._token)
        return await anyio.to_thread.run_sync(code_file, self._supervisor.store, request)

    async def _check(self, request: Request) -> Response:
        check_token(request, self._token)
        topology = request.path_params["id"]
        body = await body_of(request)
        settings = settings_in(body) if body else None
        answer = await anyio.to_thread.run_sync(self._supervisor.check, topology, settings, limiter=self._checks)
        return Json(answer, 400 if "error" in answer else 200)


def _part_of(path: Path, start: int) -> tuple[bytes, int]:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        begin = max(0, size + start) if start < 0 else start if start <= size else 0
        file.seek(begin)
        content = file.read(_LOG_BYTES_MAX)
    return content, begin + len(content)
