"""Who may see the page: it shows keys, values and tracebacks, so it needs a token always, on loopback too.

1. The address that is printed has a token that works once. It becomes a cookie that no script can read and no other
   site can use (HttpOnly, SameSite=Strict); so nobody finds a working token in a history or a log.
2. Other users of the machine have no cookie. A web site in the same browser is another origin: it may send requests,
   and reads no answer. ``Origin`` is checked on every POST, so such a request changes nothing either.
3. A web site that makes its own name point to 127.0.0.1 would be the same origin: ``Host`` must be one of those that
   the page is known by.
4. If a text of the topology's got through as HTML all the same, the Content-Security-Policy would let no script run.

``/health`` and ``/metrics`` need no token: they show what ``txtopo run --metrics`` shows to anybody.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from urllib.parse import parse_qs

import attrs
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from txtopo.files.records import in_camel_case

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
"""The headers of every answer."""

_HEADERS = tuple((name.lower().encode(), value.encode()) for name, value in HEADERS.items())

INVITATION_SECS = 600.0
"""How long the address for another browser is good for; the printed one is good until it is used."""

_SESSIONS_MAX = 100
"""How many browsers may be logged in; the one that came first is logged out."""
_INVITATIONS_MAX = 16
"""How many links may wait for their first use; the oldest are void."""
_OPEN = ("/static/", "/health", "/metrics")


@attrs.frozen(field_transformer=in_camel_case)
class Invitation:
    """A one-time address for another browser."""

    url: str


class Sessions:
    """One-time tokens, and the sessions that they became. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._invitations: dict[str, float] = {}
        self._sessions: list[str] = []
        self.used = clock()
        """When a session was last used."""

    def invite(self, secs: float = float("inf")) -> str:
        """Return a new one-time token, good for some seconds."""
        token = secrets.token_urlsafe(24)
        with self._lock:
            while len(self._invitations) >= _INVITATIONS_MAX:
                self._invitations.pop(next(iter(self._invitations)))
            self._invitations[token] = self._clock() + secs
        return token

    def begin(self, token: str) -> str | None:
        """Use up a token, and return a new session's secret; None if the token is not good, or no more."""
        with self._lock:
            found = [
                invitation
                for invitation in self._invitations
                if hmac.compare_digest(invitation.encode(), token.encode())
            ]
            if not found or self._invitations.pop(found[0]) < self._clock():
                return None
            session = secrets.token_urlsafe(32)
            self._sessions = [*self._sessions, session][-_SESSIONS_MAX:]
            self.used = self._clock()
            return session

    def is_session(self, session: str) -> bool:
        """Whether a secret is that of a session."""
        given = session.encode(errors="replace")
        with self._lock:
            is_one = any(hmac.compare_digest(each.encode(), given) for each in self._sessions)
            if is_one:
                self.used = self._clock()
            return is_one


@attrs.frozen
class Refusal:
    """Why a request is refused, and its status."""

    status: int
    text: str


@attrs.define(eq=False)
class AccessMiddleware:
    """Lets requests through to an application, or refuses them.

    Args:
        app: the application.
        sessions: who may see the page.
        hosts: the values of ``Host`` that it answers to, with the port.
        port: the page's, of which the cookie has its name: cookies know no ports.
        refuse: makes the answer to a refused request.
        secret: lets whoever started the page's process ask for an address: ``Authorization: Bearer``.
    """

    app: ASGIApp
    sessions: Sessions
    hosts: frozenset[str]
    port: int
    refuse: Callable[[Scope, Refusal], ASGIApp]
    secret: str = attrs.field(default="", repr=False)

    @property
    def cookie(self) -> str:
        """The cookie's name."""
        return f"txtopo-{self.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message["headers"], *_HEADERS]
                if all(name.lower() != b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message["headers"] = headers
            await send(message)

        refusal = self._refusal(scope)
        app = self.app if refusal is None else self.refuse(scope, refusal)
        await app(scope, receive, send_safely)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        host = headers.get("Host", "").lower()
        if host not in self.hosts:
            return Refusal(421, "the page does not answer to this name; open the address that was printed")
        if method not in {"GET", "HEAD", "POST"}:
            return Refusal(405, "the page knows GET and POST")
        if method == "POST" and not self._is_owner(headers) and headers.get("Origin") != f"{scope['scheme']}://{host}":
            return Refusal(403, "a POST must come from the page itself: its Origin is another one")
        is_open = path.startswith(_OPEN) or (
            path == "/" and "token" in parse_qs(scope["query_string"].decode("latin-1"))
        )
        if is_open or self._is_session(headers) or (path == "/api/v1/session" and self._is_owner(headers)):
            return None
        return Refusal(
            401,
            "this page needs an address with a token: the printed one is good for one browser. 'txtopo ui OUTPUT' "
            "prints another, and so does the command that has started the page",
        )

    def _is_session(self, headers: Headers) -> bool:
        # Another application on this host may have cookies that are not as they should be, or one of this name for a
        # path of its own: neither hides ours.
        parts = [part for header in headers.getlist("Cookie") for part in header.split(";")]
        found = [cookie_parser(part).get(self.cookie) for part in parts]
        return any(each is not None and self.sessions.is_session(each) for each in found)

    def _is_owner(self, headers: Headers) -> bool:
        given = headers.get("Authorization", "").removeprefix("Bearer ")
        return bool(self.secret) and hmac.compare_digest(given.encode(), self.secret.encode())


def hosts_of(names: Iterable[str], port: int) -> frozenset[str]:
    """Return the values of ``Host`` that name a page: with its port, and without it if that is HTTP's own."""
    shown = [f"[{name}]" if ":" in name else name.lower() for name in names]
    bare = shown if port == 80 else []  # noqa: PLR2004 - HTTP's own
    return frozenset([*(f"{name}:{port}" for name in shown), *bare])
