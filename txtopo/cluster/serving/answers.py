"""What the APIs of nimbus and supervisor share: the token, bodies, files of code, and errors as JSON."""

from __future__ import annotations

import hmac
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response

from txtopo.cluster.code_store import CodeStore
from txtopo.errors import (
    AlreadyAlive,
    ClusterError,
    NotAlive,
    NotLeader,
    RuleError,
    TransitionError,
    TxtopoError,
    Unreachable,
)
from txtopo.files.durable import is_shortage
from txtopo.files.records import dumped, read_json

_LOG = logging.getLogger(__name__)
_BODY_BYTES_MAX = 1 << 16
"""The bodies of requests, code aside, are a few settings."""

# The first kind that fits counts, so subclasses stand before RuleError and ClusterError.
_STATUSES: tuple[tuple[type[TxtopoError], int], ...] = (
    (NotLeader, 421),
    (NotAlive, 404),
    (AlreadyAlive, 409),
    (TransitionError, 409),
    (RuleError, 400),
    (ClusterError, 503),
    (Unreachable, 503),
)


class Json(JSONResponse):
    """JSON in ASCII: half a surrogate pair, as from the name of a file in an error, has no other encoding."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return dumped(content, separators=(",", ":")).encode()


def code_file(store: CodeStore, request: Request) -> Response:
    """Return a file of code, or 404 if no sound one is here. Reads the whole file first, so call it on a thread."""
    path = store.file(request.path_params["id"], request.path_params["file"])
    if path is None:
        raise HTTPException(404, "this daemon does not hold its code")
    return FileResponse(path, media_type="application/octet-stream")


def has_token(request: Request, token: bytes) -> bool:
    """Whether a request has the cluster's token."""
    # A comparison in constant time: its duration must not tell how much of a guess is right.
    kind, _, token_given = request.headers.get("Authorization", "").partition(" ")
    return kind.lower() == "bearer" and hmac.compare_digest(token_given.strip().encode(), token)


def check_token(request: Request, token: bytes) -> None:
    """Raise HTTPException 401 for a request without the cluster's token."""
    if not has_token(request, token):
        raise HTTPException(401, "this request needs the cluster's token: Authorization: Bearer TOKEN")


def errors_as_json(leader_of: Callable[[Exception], str | None] = lambda _: None) -> dict[str, Any]:
    """Return the arguments of an application that turn each error into an answer; ``leader_of`` tells who leads.

    Starlette's place for unexpected errors raises them once more, so that the server logs them and breaks the
    connection: a client that still sends would not get the answer. Hence a middleware.
    """

    def refused(_request: Request, error: Exception) -> Response:
        assert isinstance(error, TxtopoError), "it was registered for these"
        status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
        return _answer(status, type(error).__name__, error.message, leader_of(error))

    handlers: dict[type[Exception], Callable[[Request, Exception], Response]] = {
        TxtopoError: refused,
        HTTPException: _unreadable,
        OSError: _shortage,
    }
    unexpected = Middleware(ExceptionMiddleware, handlers={Exception: _unexpected})
    return {"exception_handlers": handlers, "middleware": [unexpected]}


def _shortage(request: Request, error: Exception) -> Response:
    """Answer 507 with what the machine lacks, for its owner can mend that."""
    if not isinstance(error, OSError) or not is_shortage(error):
        return _unexpected(request, error)
    _LOG.error("a request failed, for this machine lacks something: %s", error)
    daemon = request.headers.get("Host", "?")
    message = f"the daemon at {daemon} has no room for it: {error.strerror}; make some, then try again"
    return _answer(507, "ClusterError", message)


def _unreadable(_request: Request, error: Exception) -> Response:
    """Answer a malformed request, or one for a path that does not exist."""
    assert isinstance(error, HTTPException), "it was registered for these"
    return _answer(error.status_code, "HTTPException", error.detail)


def _unexpected(_request: Request, error: Exception) -> Response:
    # A daemon does not end on this, unlike on an error of its loops: a request leaves nothing behind in memory.
    if not isinstance(error, ClientDisconnect):
        _LOG.error("a request failed", exc_info=error)
    return _answer(500, "InternalError", "an error of the daemon; see its log")


def _answer(status: int, kind: str, message: str, leader: str | None = None) -> Response:
    return Json({"error": kind, "errorMessage": message, "leader": leader}, status)


async def bounded(request: Request, bytes_max: int) -> AsyncIterator[bytes]:
    """Yield a request's body in chunks; refuse too large a body, by its Content-Length or as soon as it is too long."""
    announced = request.headers.get("Content-Length", "0")
    too_large = HTTPException(413, f"the request is larger than {bytes_max} bytes")
    if not announced.isdecimal() or int(announced) > bytes_max:
        raise too_large
    total = 0
    async for chunk in request.stream():
        total += len(chunk)
        if total > bytes_max:
            raise too_large
        yield chunk


async def body_of(request: Request) -> bytes:
    """Return a request's body of at most 64 KiB."""
    return b"".join([chunk async for chunk in bounded(request, _BODY_BYTES_MAX)])


def settings_in(body: bytes) -> dict[str, str]:
    """Return the settings in a request's body: ``{"settings": {NAME: TEXT}}``, or none; a number is taken for its text.

    Raises:
        HTTPException: it has another form.
    """
    wrong = HTTPException(400, 'the body must be {"settings": {NAME: TEXT}}')
    try:
        content = read_json(body or b"{}")
    except ValueError as error:
        raise HTTPException(400, f"{wrong.detail}: {error}") from error
    if not isinstance(content, dict) or not content.keys() <= {"settings"}:
        raise wrong
    settings = content.get("settings", {})
    if not isinstance(settings, dict) or not all(
        isinstance(setting, str | int | float) for setting in settings.values()
    ):
        raise wrong
    texts = {name: str(value) for name, value in settings.items()}
    try:
        "".join([*texts, *texts.values()]).encode()
    except UnicodeEncodeError as error:
        raise HTTPException(400, f"a setting has a text that is not Unicode: {error}") from error
    return texts
