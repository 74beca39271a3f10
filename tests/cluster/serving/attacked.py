"""A daemon's server round a small application, for tests that attack it: ``python -m tests.cluster.serving.attacked FILES``."""

import os
import resource
import sys

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from txtopo.cluster.logs import log_to
from txtopo.cluster.serving.server import listen, serve


async def files(_request: Request) -> Response:
    """Open as many files as followers and ZooKeeper may need."""
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(40)]
    for each in opened:
        os.close(each)
    return PlainTextResponse("opened")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
    log_to(None, "text")
    with listen("127.0.0.1", 0) as listener:
        print(listener.getsockname()[1], flush=True)
        serve(Starlette(routes=[Route("/files", files)]), listener, lambda: None, lambda: None)
