"""A server of the page with invented answers: what the views and the scripts show can be looked at without a run.

It has the routes and the Content-Security-Policy of the real one, and no security.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import txtopo.ui
from tests.ui.answers import NOW, Answers
from tests.ui.as_json import VIEWS, views

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


@attrs.define(eq=False)
class Stub:
    """The invented run, what was asked for, and what was posted."""

    answers: Answers
    address: str
    asked: list[str] = attrs.field(factory=list)
    posted: list[tuple[str, bytes]] = attrs.field(factory=list)
    is_down: bool = False
    check_state: str = "running"

    def app(self) -> Starlette:
        def html(make) -> Response:
            return HTMLResponse(make(self.answers), headers={"Content-Security-Policy": POLICY})

        def transaction(request: Request) -> dict:
            return self.answers.transaction(request.path_params["txid"])

        def plots(request: Request) -> Response:
            until = request.query_params.get("until", int(NOW))
            return html(lambda a: views.plots_part(a.plots(int(until))))

        async def post(request: Request) -> Response:
            self.posted.append((request.url.path, await request.body()))
            return JSONResponse(
                {"check": 7} if "audit" in request.url.path or "replay" in request.url.path else {}, 202
            )

        def timeline(request: Request) -> Response:
            answer = self.answers.timeline(int(request.query_params.get("since", 0)))
            missing = {"error": "NotFound", "errorMessage": "this run is on another machine"}
            return JSONResponse(answer) if self.answers.kind == "transactional" else JSONResponse(missing, 404)

        return Starlette(
            routes=[
                Mount("/static", StaticFiles(directory=Path(txtopo.ui.__file__).parent / "static")),
                Route("/", lambda _: html(VIEWS["topologies page"])),
                Route("/t/words", lambda _: html(VIEWS["topology page"])),
                Route(
                    "/t/words/tx/{txid:int}",
                    lambda r: html(lambda a: views.transaction_page(a.header(), transaction(r))),
                ),
                Route(
                    "/part/words/transaction/{txid:int}",
                    lambda r: html(lambda _: views.transaction_part(transaction(r))),
                ),
                Route("/part/words/plots", plots),
                Route("/part/words/{name}", lambda r: html(VIEWS[r.path_params["name"]])),
                Route("/part/check/7", lambda _: html(lambda a: views.check_part(a.check(self.check_state)))),
                Route("/part/{name}", lambda r: html(VIEWS[r.path_params["name"]])),
                Route("/api/v1/topology/words/timeline", timeline),
                Route("/api/v1/topology/words/{what:path}", post, methods=["POST"]),
            ],
        )

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http":
            self.asked.append(f"{scope['path']}?{scope['query_string'].decode()}")
            if self.is_down:
                await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
                raise ConnectionResetError  # the connection breaks amid an answer
        await self._app(scope, receive, send)

    def __attrs_post_init__(self) -> None:
        self._app = self.app()

    _app: Starlette = attrs.field(init=False)


@contextmanager
def stub_server(answers: Answers) -> Iterator[Stub]:
    """Serve an invented run in a thread, until the end of the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    stub = Stub(answers, f"http://127.0.0.1:{listener.getsockname()[1]}")
    server = uvicorn.Server(uvicorn.Config(stub, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield stub
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
