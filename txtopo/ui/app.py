"""The page's application: its routes, each of which asks a :class:`~txtopo.inspect.source.Source`.

``/api/v1`` answers JSON, ``/part`` the same as a piece of HTML, ``/`` and ``/t`` whole documents.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from txtopo.cluster.serving.answers import Json, body_of, settings_in
from txtopo.errors import NotAlive, TransitionError, TxtopoError
from txtopo.inspect.source import NotFound, Source
from txtopo.secrecy import without_secrets
from txtopo.ui import views
from txtopo.ui.checks import CheckRuns, Checks
from txtopo.ui.openapi import document
from txtopo.ui.security import INVITATION_SECS, Guard, Refusal, Sessions
from txtopo.ui.sharing import Sharing

STATIC = Path(__file__).parent / "static"
CHANGES = ("activate", "deactivate", "rebalance", "kill")
"""What a cluster does with a topology."""

LIMIT_MAX = 1_000
_TXID_MAX = 1 << 62
_SECS_MAX = 1 << 33
_NUMBER = re.compile(r"\d{1,19}")
_LOG = logging.getLogger(__name__)

Answer = dict[str, Any]


@attrs.frozen
class Page:
    """What a page is made of.

    Args:
        source: where the answers come from.
        sessions: who may see it.
        checks: audits and replays; None if it can begin none.
        audit_words: the words of the command line that audits a topology, given its slug; None if it can't.
        replay_words: those that replay a transaction; None if the page does not know the topology's module.
        address: of the page, without a path.
    """

    source: Source
    sessions: Sessions
    checks: Checks | None = None
    audit_words: Callable[[str], Sequence[str]] | None = None
    replay_words: Callable[[str, int], Sequence[str]] | None = None
    address: str = ""

    def header(self, request: Request) -> Answer:
        """Return a topology's header with the last check that the page has made of it."""
        slug = request.path_params["slug"]
        last = None if self.checks is None else self.checks.last_of(slug)
        return {**self.source.header(slug), "check": None if last is None else last.as_json()}

    def begin(self, request: Request) -> Answer:
        """Begin an audit or a replay."""
        slug, txid = request.path_params["slug"], request.path_params.get("txid")
        kind = "audit" if txid is None else "replay"
        number = None if txid is None else _checked("txid", txid, _TXID_MAX)
        can = self.source.header(slug)["can"]
        if self.checks is None or not can[kind]:
            raise HTTPException(404, f"this page can't {kind} it here; use 'txtopo {kind}'")
        words: Sequence[str] = ()
        if number is None and self.audit_words is not None:
            words = self.audit_words(slug)
        elif number is not None and self.replay_words is not None:
            words = self.replay_words(slug, number)
        if not words:
            raise HTTPException(404, f"this page can't {kind} it here; use 'txtopo {kind}'")
        return {"check": self.checks.begin(kind, slug, number, words).number}

    def check(self, request: Request) -> Answer:
        """Return a check."""
        number = _checked("the check", request.path_params["number"], _TXID_MAX)
        found = None if self.checks is None else self.checks.find(number)
        if found is None:
            raise HTTPException(404, f"there is no check {number} any more")
        return found.as_json()

    def invite(self, _request: Request) -> Answer:
        """Return an address for another browser."""
        return {"url": f"{self.address}/?token={self.sessions.invite(INVITATION_SECS)}"}


@attrs.frozen
class _Thing:
    """Something that the API answers as JSON and, if there is a view of it, as HTML."""

    path: str
    answer: Callable[[Request], Answer]
    view: Callable[[Answer], str] | None = None
    part: str = ""
    """The path of the HTML, if it is not the API's."""


def _things(page: Page) -> Iterator[_Thing]:
    source = page.source

    def of(method: Callable[[str], Answer]) -> Callable[[Request], Answer]:
        return lambda request: method(request.path_params["slug"])

    yield _Thing("topology", lambda _: source.topologies(), views.topologies_part, "topologies")
    yield _Thing("cluster", lambda _: source.cluster(), views.cluster_part, "cluster")
    yield _Thing("topology/{slug}", page.header, views.header_part, "{slug}/header")
    yield _Thing("topology/{slug}/errors", of(source.errors), views.errors_part)
    yield _Thing("topology/{slug}/graph", of(source.graph), views.graph_part)
    yield _Thing("topology/{slug}/settings", of(source.settings), views.settings_part)
    yield _Thing("topology/{slug}/runs", of(source.runs), views.runs_part)
    yield _Thing("topology/{slug}/state", of(source.states), views.states_part, "{slug}/states")
    yield _Thing(
        "topology/{slug}/plots",
        lambda request: source.plots(
            request.path_params["slug"],
            _number(request, "secs", 300, 3_600) or 1,
            _number(request, "until", None, _SECS_MAX),
        ),
        views.plots_part,
    )
    yield _Thing("topology/{slug}/state/rows", lambda request: _rows(source, request), views.rows_part, "{slug}/rows")
    yield _Thing(
        "topology/{slug}/transactions", lambda request: _transactions(source, request), views.transactions_part
    )
    yield _Thing(
        "topology/{slug}/transaction/{txid}", lambda request: _transaction(source, request), views.transaction_part
    )
    yield _Thing("check/{number}", page.check, views.check_part, "check/{number}")


def _rows(source: Source, request: Request) -> Answer:
    query = request.query_params
    if "name" not in query:
        raise HTTPException(400, "name the state: ?name=NAME")
    return source.rows(
        request.path_params["slug"],
        query["name"],
        [key for key in query.getlist("key") if key],
        _number(request, "txid", None, _TXID_MAX),
        _number(request, "limit", 50, LIMIT_MAX) or 0,
    )


def _transactions(source: Source, request: Request) -> Answer:
    return source.transactions(
        request.path_params["slug"],
        _number(request, "from", 0, _TXID_MAX) or 0,
        _number(request, "to", None, _TXID_MAX),
        _number(request, "limit", 200, LIMIT_MAX) or 0,
        failed=_number(request, "failed", 0, 1) == 1,
    )


def _transaction(source: Source, request: Request) -> Answer:
    txid = _checked("txid", request.path_params["txid"], _TXID_MAX)
    try:
        return source.transaction(request.path_params["slug"], txid)
    except NotFound:
        raise
    except TxtopoError as error:  # it has not begun, or nothing is known of it
        raise HTTPException(404, without_secrets(error.message)) from error


def routes(page: Page) -> list[Route | Mount]:
    """Return the routes of a page."""
    found: list[Route | Mount] = []
    for thing in _things(page):
        found.append(Route(f"/api/v1/{thing.path}", _as_json(thing.answer)))
        if thing.view is not None:
            part = thing.part or thing.path.removeprefix("topology/")
            found.append(Route(f"/part/{part}", _as_html(thing.answer, thing.view)))

    def timeline(request: Request) -> Response:
        since = _number(request, "since", 0, _TXID_MAX) or 0
        content = page.source.timeline(request.path_params["slug"], since)
        return Response(content, media_type="application/json")

    def begun(request: Request) -> Response:
        return Json(page.begin(request), 202)

    async def change(request: Request) -> Response:
        what = request.url.path.rpartition("/")[2]
        settings = settings_in(await body_of(request))
        return Json(await run_in_threadpool(page.source.change, request.path_params["slug"], what, settings))

    def metrics(_request: Request) -> Response:
        return Response(page.source.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    def health(_request: Request) -> Response:
        runs = page.source.health()
        dead = [f"the run of {name!r} has {status}" for name, status in runs.items() if status in {"failed", "killed"}]
        status = "; ".join(dead).replace("has killed", "was killed") or "ok"
        return Json({"status": status, "runs": runs}, 503 if dead else 200)

    return [
        *found,
        Route("/api/v1/topology/{slug}/timeline", timeline),
        Route("/api/v1/topology/{slug}/audit", begun, methods=["POST"]),
        Route("/api/v1/topology/{slug}/replay/{txid}", begun, methods=["POST"]),
        *(Route(f"/api/v1/topology/{{slug}}/{what}", change, methods=["POST"]) for what in CHANGES),
        Route("/api/v1/session", _as_json(page.invite), methods=["POST"]),
        Route("/openapi.json", lambda _: Json(document())),
        Route("/health", health),
        Route("/metrics", metrics),
        *_documents(page),
        Mount("/static", _Static(directory=STATIC, check_dir=False)),
    ]


def _documents(page: Page) -> list[Route]:
    def topology(request: Request) -> Response:
        return HTMLResponse(views.topology_page(page.header(request)))

    def transaction(request: Request) -> Response:
        return HTMLResponse(views.transaction_page(page.header(request), _transaction(page.source, request)))

    def begin(request: Request) -> Response:
        token = request.query_params.get("token")
        if token is not None:
            return _with_session(page, request, token)
        found = page.source.topologies()
        if len(found["topologies"]) == 1 and not found["isCluster"]:
            return RedirectResponse(f"/t/{quote(found['topologies'][0]['slug'])}", 303)
        return HTMLResponse(views.topologies_page(found, page.source.cluster() if found["isCluster"] else None))

    return [Route("/", begin), Route("/t/{slug}", topology), Route("/t/{slug}/tx/{txid}", transaction)]


_GO_ON = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>txtopo</title>"
    '<link rel=icon href="/static/icon.svg">'
    '<meta http-equiv=refresh content="0; url=/"><p><a href="/">Go on to the page</a>'
)
"""Not a redirect: a browser that was led here by another site would not send a strict cookie with it."""


def _with_session(page: Page, request: Request, token: str) -> Response:
    session = None if request.method == "HEAD" else page.sessions.begin(token)  # a HEAD uses no token up
    if session is None:
        raise HTTPException(
            401, "this address was used already, or is too old: each works once; ask the page for another one"
        )
    answer = HTMLResponse(_GO_ON)
    name = f"txtopo-{request.url.port or 80}"
    answer.set_cookie(name, session, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return answer


def application(page: Page, hosts: frozenset[str], port: int, secret: str = "") -> ASGIApp:
    """Return the ASGI application of a page; see :class:`~txtopo.ui.security.Guard` for the rest."""
    handlers: dict[Any, Any] = {
        HTTPException: _refused,
        NotFound: _not_found,
        NotAlive: _not_found,
        CheckRuns: _conflict,
        TransitionError: _conflict,
        TxtopoError: _unreadable,
    }
    unexpected = Middleware(ExceptionMiddleware, handlers={Exception: _unexpected})
    app = Starlette(routes=routes(page), exception_handlers=handlers, middleware=[unexpected])
    return Guard(Sharing(app, shared_secs), page.sessions, hosts, port, _refusal, secret)


_SHARED_SECS = {
    "timeline": 0.1,
    "header": 0.5,
    "topologies": 1.0,
    "cluster": 1.0,
    "plots": 1.0,
    "errors": 1.0,
    "graph": 2.0,
    "state": 2.0,
    "states": 2.0,
    "settings": 2.0,
    "runs": 2.0,
    "transactions": 0.5,
}


def shared_secs(path: str) -> float:
    """Return how old the answer to a path may be, by the last word of the path: pages ask for it less often."""
    is_shared = path.startswith(("/part/", "/api/v1/topology/", "/api/v1/cluster"))
    return _SHARED_SECS.get(path.rpartition("/")[2], 0.0) if is_shared else 0.0


class _Static(StaticFiles):
    """Static files, which a browser asks for again each time, so that an update shows."""

    def file_response(self, *arguments: Any, **keywords: Any) -> Response:
        answer = super().file_response(*arguments, **keywords)
        answer.headers["Cache-Control"] = "no-cache"
        return answer


def _as_json(answer: Callable[[Request], Answer]) -> Callable[[Request], Response]:
    return lambda request: Json(answer(request))


def _as_html(answer: Callable[[Request], Answer], view: Callable[[Answer], str]) -> Callable[[Request], Response]:
    return lambda request: HTMLResponse(view(answer(request)))


def _number(request: Request, name: str, default: int | None, most: int) -> int | None:
    """Return a number of the query."""
    text = request.query_params.get(name, "")
    return default if not text else _checked(name, text, most)


def _checked(name: str, text: str, most: int) -> int:
    if _NUMBER.fullmatch(text) is None or not text.isascii() or int(text) > most:
        raise HTTPException(400, f"{name} must be a whole number up to {most}")
    return int(text)


# Errors.


def _error(scope: Scope, status: int, kind: str, text: str) -> Response:
    path = scope["path"]
    if path.startswith("/part/"):
        return HTMLResponse(views.message_part(text), status)
    if path == "/" or path.startswith("/t/"):
        return HTMLResponse(views.message_page(_TITLES.get(status, "This did not work"), text), status)
    return Json({"error": kind, "errorMessage": text}, status)


_TITLES: Mapping[int, str] = {401: "No entry", 404: "Not found", 421: "Another name"}


def _refusal(scope: Scope, refusal: Refusal) -> ASGIApp:
    return _error(scope, refusal.status, "Refused", refusal.text)


def _refused(request: Request, error: HTTPException) -> Response:
    text = error.detail if error.detail != "Not Found" else "there is nothing at this address"
    return _error(request.scope, error.status_code, "HTTPException", text)


def _not_found(request: Request, error: TxtopoError) -> Response:
    return _error(request.scope, 404, "NotFound", error.message)


def _conflict(request: Request, error: TxtopoError) -> Response:
    return _error(request.scope, 409, type(error).__name__, error.message)


def _unreadable(request: Request, error: TxtopoError) -> Response:
    return _error(request.scope, 503, type(error).__name__, without_secrets(error.message))


def _unexpected(request: Request, error: Exception) -> Response:
    _LOG.error("a request failed", exc_info=error)
    return _error(request.scope, 500, "InternalError", "an error of the page; see its log")
