"""What a supervisor answers for the page: of each of its topologies what the page of the topology's folder would."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from txtopo.cluster.driver.folder import TopologyPlace
from txtopo.cluster.serving.answers import Json
from txtopo.errors import TxtopoError
from txtopo.inspect.slugs import OF_RUN, slug_of
from txtopo.inspect.source import FolderSource, NotFound
from txtopo.secrecy import without_secrets
from txtopo.ui.app import Page, routes
from txtopo.ui.security import Sessions

_OPEN_MAX = 100


@attrs.frozen
class _Open:
    """The folder of a topology, and the routes that answer from it."""

    place: TopologyPlace
    source: FolderSource
    routes: Sequence[Route]

    @classmethod
    def at(cls, place: TopologyPlace) -> _Open:
        source = FolderSource(Path(place.metadata_dir), may_be_empty=True)
        return cls(place, source, [each for each in routes(Page(source, Sessions())) if isinstance(each, Route)])


class DriverPages:
    """Answers as the page's API; called in any thread.

    Args:
        place_of: where a topology's metadata is; None if no driver of it has run here.
        topologies: those that have a slot.
    """

    def __init__(self, place_of: Callable[[str], TopologyPlace | None], topologies: Callable[[], list[str]]) -> None:
        self._place_of = place_of
        self._topologies = topologies
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}

    def __call__(self, topology: str | None, path: str, query: bytes) -> Response:
        """Answer a GET; see :data:`~txtopo.cluster.supervisor.api.Pages`."""
        try:
            return self._answer(topology, path, query) if topology is not None else self._summaries()
        except HTTPException as error:
            return Json({"error": "HTTPException", "errorMessage": error.detail}, error.status_code)
        except TxtopoError as error:
            status = 404 if isinstance(error, NotFound) else 503
            content = {"error": type(error).__name__, "errorMessage": without_secrets(error.message)}
            return Json(content, status)

    def _summaries(self) -> Response:
        found: dict[str, Any] = {}
        for topology in self._topologies():
            place = self._place_of(topology)
            if place is not None:
                summaries = self._opened(topology, place).source.topologies()["topologies"]
                own = [each for each in summaries if each["id"] == place.topology_id]
                if own:
                    found[topology] = own[0]
        return Json({"topologies": found})

    def _answer(self, topology: str, path: str, query: bytes) -> Response:
        place = self._place_of(topology)
        if place is None:
            raise NotFound("no driver of this topology has run here")
        own = f"/api/v1/topology/{slug_of(place.topology_id)}"
        if path.startswith(OF_RUN):  # an earlier run's: its number comes first
            run, _, path = path.partition("/")
            own += run
        scope = {
            "type": "http",
            "method": "GET",
            "path": f"{own}/{path}" if path else own,
            "query_string": query,
            "headers": [],
        }
        for route in self._opened(topology, place).routes:
            match, found = route.matches(scope)
            if match is Match.FULL:
                answer: Response = route.endpoint(Request({**scope, **found}))
                return answer
        raise NotFound("there is nothing at this address")

    def _opened(self, topology: str, place: TopologyPlace) -> _Open:
        with self._lock:
            found = self._open.get(topology)
            if found is None or found.place != place:
                found = self._open[topology] = _Open.at(place)
                while len(self._open) > _OPEN_MAX:
                    self._open.pop(next(iter(self._open))).source.close()
            return found
