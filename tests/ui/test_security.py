"""Who may see a page: sessions of browsers, and the owner by a secret."""

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from txtopo.ui.security import INVITATION_SECS, AccessMiddleware, Sessions, hosts_of

ORIGIN = "http://127.0.0.1:8123"


def browser(secret: str, sessions: Sessions | None = None) -> TestClient:
    """Return a browser without a session, of a page with a secret."""

    def answer(request):
        return PlainTextResponse("yours")

    app = Starlette(routes=[Route(path, answer, methods=["GET", "POST"]) for path in ("/api/v1/session", "/api/v1/x")])
    refuse = lambda _scope, refusal: PlainTextResponse(refusal.text, refusal.status)
    guard = AccessMiddleware(app, sessions or Sessions(), hosts_of(["127.0.0.1"], 8123), 8123, refuse, secret)
    return TestClient(guard, base_url=ORIGIN)


def test_every_login_works() -> None:
    """However many browsers have come before: the newest are let in, and the oldest sessions end."""
    sessions = Sessions()
    begun = [sessions.begin(sessions.invite()) for _ in range(250)]
    assert all(begun)
    assert [sessions.is_session(each) for each in begun] == [False] * 150 + [True] * 100
    assert not sessions.is_session("")


def test_every_invitation_is_good() -> None:
    """However many were given out before: the newest are good, and the oldest are good no more."""
    sessions = Sessions()
    tokens = [sessions.invite(INVITATION_SECS) for _ in range(40)]
    assert [sessions.begin(token) is not None for token in tokens] == [False] * 24 + [True] * 16
    assert sessions.begin("") is None
    assert [sessions.begin(token) for token in tokens] == [None] * 40, "each is good once"


@pytest.mark.parametrize("secs", [0.0, 0.5])
def test_invitation_at_its_end(secs: float) -> None:
    """It is good up to its last moment, and not after it."""
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    token = sessions.invite(INVITATION_SECS)
    now[0] = INVITATION_SECS + secs
    assert (sessions.begin(token) is not None) == (secs == 0.0)


HEADERS: list[dict[str, str]] = [
    {},
    *({"Authorization": given} for given in ("", "Bearer", "Bearer ", "Bearer  x", "x")),
]


@pytest.mark.parametrize("headers", HEADERS, ids=str)
@pytest.mark.parametrize("secret", ["", "the owner's"])
def test_strangers_are_no_owner(secret: str, headers: dict[str, str]) -> None:
    """Without the secret nobody gets a session; a page that has none has no owner either."""
    page = browser(secret)
    assert page.post("/api/v1/session", headers=headers).status_code == 403
    assert page.post("/api/v1/session", headers={**headers, "Origin": ORIGIN}).status_code == 401
    assert page.get("/api/v1/session", headers=headers).status_code == 401


def test_owner() -> None:
    """The secret is for a session's address, and opens nothing else."""
    page, headers = browser("the owner's"), {"Authorization": "Bearer the owner's"}
    assert page.post("/api/v1/session", headers=headers).text == "yours"
    assert page.get("/api/v1/x", headers=headers).status_code == 401


@pytest.mark.parametrize("other", ["a b=c", "x[y]=1", "=", 'a="unclosed', "bare", "txtopo=1; ;"])
def test_a_strange_cookie_beside_ours(other: str) -> None:
    """Another application of this host may have set one that is not as cookies should be, before ours."""
    sessions = Sessions()
    session = sessions.begin(sessions.invite())
    page, ours = browser("", sessions), f"txtopo-8123={session}"
    assert page.get("/api/v1/x", headers={"Cookie": f"{other}; {ours}"}).text == "yours"
    assert page.get("/api/v1/x", headers={"Cookie": f"{ours}; {other}"}).text == "yours"
    assert page.get("/api/v1/x", headers={"Cookie": other}).status_code == 401


def test_a_cookie_in_a_header_of_its_own() -> None:
    """HTTP allows several, and whoever sends them chooses their order."""
    sessions = Sessions()
    ours = ("Cookie", f"txtopo-8123={sessions.begin(sessions.invite())}")
    for headers in ([("Cookie", "a=b"), ours], [ours, ("Cookie", "a=b")]):
        assert browser("", sessions).get("/api/v1/x", headers=headers).text == "yours"


def test_a_token_opens_no_answer() -> None:
    """It is used up by the first page alone, so nothing else lets somebody in who has an address with one."""
    sessions = Sessions()
    for method in ("get", "head"):
        for token in (sessions.invite(), "x"):
            assert getattr(browser("", sessions), method)(f"/api/v1/x?token={token}").status_code == 401


@pytest.mark.parametrize(
    ("host", "status"), [("LOCALHOST:8123", 401), ("localhost", 421), ("localhost:8124", 421), ("evil:8123", 421)]
)
def test_names_of_a_page(host: str, status: int) -> None:
    """It answers to its own, in capitals too, with its port."""
    guard = browser("").app
    guard.hosts = hosts_of(["LocalHost"], 8123)
    assert TestClient(guard, base_url=ORIGIN).get("/api/v1/x", headers={"Host": host}).status_code == status
