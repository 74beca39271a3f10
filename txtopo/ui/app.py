"""The page's application: its routes, each of which asks a :class:`~txtopo.inspect.questions.Backend`.

``/api/v1`` answers JSON, ``/part`` the same as a piece of HTML, ``/`` and ``/t`` whole documents.
"""

from __future__ import annotations

import logging
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
from txtopo.files.records import to_json
from txtopo.inspect.backend import OF_TRANSACTION, QUESTIONS
from txtopo.inspect.questions import Backend, BadQuestion, NotFound, Question, whole
from txtopo.text.secrecy import without_secrets
from txtopo.ui import views
from txtopo.ui.checks import Begun, Check, CheckRuns, Checks, PageHeader
from txtopo.ui.openapi import document
from txtopo.ui.response_cache import ResponseCache
from txtopo.ui.security import INVITATION_SECS, AccessMiddleware, Invitation, Refusal, Sessions

STATIC = Path(__file__).parent / "static"
CHANGES = ("activate", "deactivate", "rebalance", "kill")
"""What a cluster does with a topology."""

_LOG = logging.getLogger(__name__)


@attrs.frozen
class Page:
    """What a page is made of.

    Args:
        backend: where the answers come from.
        sessions: who may see it.
        checks: audits and replays; None if it can begin none.
        audit_words: what follows ``txtopo audit`` for a topology, given its slug; None if the page can't audit.
        replay_words: what follows ``txtopo replay``; None if the page does not know the topology's module.
        address: of the page, without a path.
    """

    backend: Backend
    sessions: Sessions
    checks: Checks | None = None
    audit_words: Callable[[str], Sequence[str]] | None = None
    replay_words: Callable[[str, int], Sequence[str]] | None = None
    address: str = ""

    def header(self, slug: str) -> PageHeader:
        """Return a topology's header with the last check that the page has made of it."""
        last, header = None if self.checks is None else self.checks.last_of(slug), self.backend.header(slug)
        return PageHeader(**attrs.asdict(header, recurse=False), check=last)

    def begin(self, request: Request) -> Begun:
        """Begin an audit or a replay."""
        slug, txid = request.path_params["slug"], request.path_params.get("txid")
        kind = "audit" if txid is None else "replay"
        number = None if txid is None else whole("txid", txid)
        can = self.backend.header(slug).can
        if self.checks is None or not (can.audit if number is None else can.replay):
            raise HTTPException(404, f"this page can't {kind} it here; use 'txtopo {kind}'")
        words: Sequence[str] = ()
        if number is None and self.audit_words is not None:
            words = self.audit_words(slug)
        elif number is not None and self.replay_words is not None:
            words = self.replay_words(slug, number)
        if not words:
            raise HTTPException(404, f"this page can't {kind} it here; use 'txtopo {kind}'")
        return Begun(self.checks.begin(kind, slug, number, words).number)

    def cancel(self, request: Request) -> Begun:
        """End the check of a topology that runs."""
        if self.checks is None:
            raise HTTPException(404, "this page can begin no check")
        return Begun(self.checks.cancel(request.path_params["slug"]).number)

    def check(self, request: Request) -> Check:
        """Return a check."""
        number = whole("the check", request.path_params["number"])
        found = None if self.checks is None else self.checks.find(number)
        if found is None:
            raise HTTPException(404, f"there is no check {number} any more")
        return found

    def invite(self, _request: Request) -> Invitation:
        """Return an address for another browser."""
        return Invitation(f"{self.address}/?token={self.sessions.invite(INVITATION_SECS)}")


_VIEWS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "": ("header", views.header_part),
    "errors": ("errors", views.errors_part),
    "graph": ("graph", views.graph_part),
    "settings": ("settings", views.settings_part),
    "runs": ("runs", views.runs_part),
    "state": ("states", views.states_part),
    "plots": ("plots", views.plots_part),
    "state/rows": ("rows", views.rows_part),
    "transactions": ("transactions", views.transactions_part),
    "transaction/{txid}": ("transaction/{txid}", views.transaction_part),
}
"""The view of an answer and the path of its HTML, by the path of the question."""


def routes(page: Page) -> list[Route | Mount]:
    """Return the routes of a page."""
    backend = page.backend

    def begun(request: Request) -> Response:
        return Json(to_json(page.begin(request)), 202)

    async def change(request: Request) -> Response:
        command = request.url.path.rpartition("/")[2]
        settings = settings_in(await body_of(request))
        return Json(to_json(await run_in_threadpool(backend.change, request.path_params["slug"], command, settings)))

    def metrics(_request: Request) -> Response:
        return Response(backend.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    def health(_request: Request) -> Response:
        runs = backend.health()
        dead = [f"the run of {name!r} has {status}" for name, status in runs.items() if status in {"failed", "killed"}]
        status = "; ".join(dead).replace("has killed", "was killed") or "ok"
        return Json({"status": status, "runs": runs}, 503 if dead else 200)

    return [
        *_answers(page),
        Route("/api/v1/topology/{slug}/audit", begun, methods=["POST"]),
        Route("/api/v1/topology/{slug}/replay/{txid}", begun, methods=["POST"]),
        Route("/api/v1/topology/{slug}/cancel", _as_json(page.cancel), methods=["POST"]),
        *(Route(f"/api/v1/topology/{{slug}}/{command}", change, methods=["POST"]) for command in CHANGES),
        Route("/api/v1/session", _as_json(page.invite), methods=["POST"]),
        Route("/openapi.json", lambda _: Json(document())),
        Route("/health", health),
        Route("/metrics", metrics),
        *_documents(page),
        Mount("/static", _Static(directory=STATIC, check_dir=False)),
    ]


def _answers(page: Page) -> Iterator[Route]:
    """Yield the routes of what is answered as JSON, and as a piece of HTML if there is a view of it."""

    def of(question: Question) -> Callable[[Request], Any]:
        def answer(request: Request) -> Any:
            slug, query = request.path_params["slug"], request.query_params
            if not question.path:
                return page.header(slug)
            texts = {name: query.getlist(name) for name in query}
            return question.asked(page.backend, slug, texts, request.path_params.get("txid"))

        return answer

    for question in QUESTIONS:
        yield Route(f"/api/v1/topology/{{slug}}/{question.path}".removesuffix("/"), _as_json(of(question)))
        if question.path in _VIEWS:
            part, view = _VIEWS[question.path]
            yield Route(f"/part/{{slug}}/{part}", _as_html(of(question), view))
    others: Sequence[tuple[str, Callable[[Request], Any], Callable[[Any], str], str]] = (
        ("topology", lambda _: page.backend.topologies(), views.topologies_part, "topologies"),
        ("cluster", lambda _: page.backend.cluster(), views.cluster_part, "cluster"),
        ("check/{number}", page.check, views.check_part, "check/{number}"),
    )
    for path, answer, view, part in others:
        yield Route(f"/api/v1/{path}", _as_json(answer))
        yield Route(f"/part/{part}", _as_html(answer, view))


def _documents(page: Page) -> list[Route]:
    def topology(request: Request) -> Response:
        return HTMLResponse(views.topology_page(page.header(request.path_params["slug"])))

    def transaction(request: Request) -> Response:
        slug, txid = request.path_params["slug"], request.path_params["txid"]
        return HTMLResponse(
            views.transaction_page(page.header(slug), OF_TRANSACTION.asked(page.backend, slug, {}, txid))
        )

    def begin(request: Request) -> Response:
        token = request.query_params.get("token")
        if token is not None:
            return _with_session(page, request, token)
        found = page.backend.topologies()
        if len(found.topologies) == 1 and not found.is_cluster:
            return RedirectResponse(f"/t/{quote(found.topologies[0].slug)}", 303)
        return HTMLResponse(views.topologies_page(found, page.backend.cluster() if found.is_cluster else None))

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
    """Return the ASGI application of a page; see :class:`~txtopo.ui.security.AccessMiddleware` for the rest."""
    handlers: dict[Any, Any] = {
        HTTPException: _refused,
        NotFound: _not_found,
        BadQuestion: _bad,
        NotAlive: _not_found,
        CheckRuns: _conflict,
        TransitionError: _conflict,
        TxtopoError: _unreadable,
    }
    unexpected = Middleware(ExceptionMiddleware, handlers={Exception: _unexpected})
    app = Starlette(routes=routes(page), exception_handlers=handlers, middleware=[unexpected])
    return AccessMiddleware(ResponseCache(app, shared_secs), page.sessions, hosts, port, _refusal, secret)


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


def _as_json(answer: Callable[[Request], Any]) -> Callable[[Request], Response]:
    def respond(request: Request) -> Response:
        found = answer(request)
        return Response(found, media_type="application/json") if isinstance(found, bytes) else Json(to_json(found))

    return respond


def _as_html(answer: Callable[[Request], Any], view: Callable[[Any], str]) -> Callable[[Request], Response]:
    return lambda request: HTMLResponse(view(answer(request)))


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


def _bad(request: Request, error: TxtopoError) -> Response:
    return _error(request.scope, 400, "BadQuestion", error.message)


def _conflict(request: Request, error: TxtopoError) -> Response:
    return _error(request.scope, 409, type(error).__name__, error.message)


def _unreadable(request: Request, error: TxtopoError) -> Response:
    return _error(request.scope, 503, type(error).__name__, without_secrets(error.message))


def _unexpected(request: Request, error: Exception) -> Response:
    _LOG.error("a request failed", exc_info=error)
    return _error(request.scope, 500, "InternalError", "an error of the page; see its log")
