"""What a supervisor answers of the runs of its drivers: what :mod:`txtopo.inspect` reads in their folders."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

import attrs
from starlette.responses import Response

from txtopo.cluster.driver.folder import TopologyPlace
from txtopo.cluster.serving.answers import Json
from txtopo.errors import TxtopoError
from txtopo.files.places import folder_at
from txtopo.files.records import to_json
from txtopo.inspect.backend import FolderBackend, find
from txtopo.inspect.questions import BadQuestion, NotFound
from txtopo.inspect.run.slugs import OF_RUN, slug_of
from txtopo.text.secrecy import without_secrets

_OPEN_MAX = 100
"""For so many topologies the open tables are kept; of more, the one opened first is opened anew."""
_STATUSES: dict[type[TxtopoError], int] = {NotFound: 404, BadQuestion: 400}


@attrs.frozen
class _Open:
    place: TopologyPlace
    backend: FolderBackend


class DriverPages:
    """Answers as the API of the page of a topology's folder does; called in any thread.

    ``place_of`` says where a topology's metadata is, None if no driver of it has run here; ``topologies`` have a slot.
    """

    def __init__(self, place_of: Callable[[str], TopologyPlace | None], topologies: Callable[[], list[str]]) -> None:
        self._place_of = place_of
        self._topologies = topologies
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}

    def __call__(self, topology: str | None, path: str, query: bytes) -> Response:
        """Answer a GET for a path below a topology's; without a topology, with a summary of all."""
        try:
            return self._answer(topology, path, query) if topology is not None else self._summaries()
        except TxtopoError as error:
            content = {"error": type(error).__name__, "errorMessage": without_secrets(error.message)}
            return Json(content, _STATUSES.get(type(error), HTTPStatus.SERVICE_UNAVAILABLE))

    def _summaries(self) -> Response:
        found: dict[str, Any] = {}
        for topology in self._topologies():
            place = self._place_of(topology)
            if place is not None:
                summaries = self._opened(topology, place).topologies().topologies
                own = [summary for summary in summaries if summary.id == place.topology_id]
                if own:
                    found[topology] = to_json(own[0])
        return Json({"topologies": found})

    def _answer(self, topology: str, path: str, query: bytes) -> Response:
        place = self._place_of(topology)
        if place is None:
            raise NotFound("no driver of this topology has run here")
        slug = slug_of(place.topology_id)
        if path.startswith(OF_RUN):  # an earlier run's: its number comes first
            run, _, path = path.partition("/")
            slug += run
        found = find(path)
        if found is None:
            raise NotFound("there is nothing at this address")
        question, txid = found
        texts = parse_qs(query.decode("latin-1"), keep_blank_values=True)
        answer = question.asked(self._opened(topology, place), slug, texts, txid)
        return Response(answer, media_type="application/json") if isinstance(answer, bytes) else Json(to_json(answer))

    def _opened(self, topology: str, place: TopologyPlace) -> FolderBackend:
        with self._lock:
            found = self._open.get(topology)
            if found is None or found.place != place:
                backend = FolderBackend(folder_at(place.metadata_dir), may_be_empty=True)
                found = self._open[topology] = _Open(place, backend)
                while len(self._open) > _OPEN_MAX:
                    self._open.pop(next(iter(self._open))).backend.close()
            return found.backend
