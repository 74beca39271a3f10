"""Serves a page for a folder or a cluster until it is told to end."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from txtopo.cluster.serving.server import serve
from txtopo.engine.page import PageFile, PageOptions
from txtopo.errors import ConfigError
from txtopo.files.folder import Folder
from txtopo.inspect.backend import FolderBackend
from txtopo.ui.app import Page, application
from txtopo.ui.checks import Checks
from txtopo.ui.security import Sessions, hosts_of

if TYPE_CHECKING:
    from txtopo.cluster.client import ClusterClient

IDLE_SECS = 600.0
"""How long the page of a run that was killed waits for somebody to look at it."""

_POLL_SECS = 5.0
"""How much later than it might the page's process ends."""
_BACKLOG = 64
"""A browser opens some six connections at a time."""


def served(output: Folder, host: str, port: int, options: PageOptions | None, announce: Callable[[str], None]) -> None:
    """Serve the page of a folder, and ``announce`` its address; raise ConfigError if it can't be, or without a run."""
    words = () if options is None else options.words
    arguments = {} if options is None else dict(options.arguments)
    backend = FolderBackend(output, can_replay=bool(words), arguments=arguments, may_be_empty=options is not None)
    checks = Checks(Path.cwd())
    page = Page(
        backend,
        Sessions(),
        checks,
        lambda slug: (f"--topology={backend.header(slug).id}", "--", str(backend.output)),
        None if not words else lambda _, txid: (*words, str(txid)),
    )
    page_file = None if options is None else Path(options.page_file)
    if page_file is not None:
        threading.Thread(target=_outlive, args=(page.sessions, backend), name="beside", daemon=True).start()

    def stop() -> None:
        checks.close()
        backend.close()

    _serve(page, host, port, announce, stop, page_file)


def served_cluster(client: ClusterClient, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve the page of a cluster, as :func:`served` does."""
    # A cluster's client is in an extra that the page of a folder goes without.
    from txtopo.ui.cluster import ClusterBackend  # noqa: PLC0415

    _serve(Page(ClusterBackend(client), Sessions()), host, port, announce, lambda: None)


def _serve(  # noqa: PLR0913, PLR0917 - of a folder and of a cluster
    page: Page,
    host: str,
    port: int,
    announce: Callable[[str], None],
    stop: Callable[[], None],
    page_file: Path | None = None,
) -> None:
    os.environ["TZ"] = "UTC"  # as the page says of all its times
    time.tzset()
    listener = _listen(host, port)
    port = listener.getsockname()[1]
    names = _names(host)
    address = f"http://{f'[{names[0]}]' if ':' in names[0] else names[0]}:{port}"
    secret = secrets.token_urlsafe(24)
    page = attrs.evolve(page, address=address)
    if page_file is not None:
        PageFile(address, os.getpid(), secret).write(page_file)
    announce(f"{address}/?token={page.sessions.invite()}")
    sys.stdout.flush()

    def end() -> None:
        stop()
        if page_file is not None:
            page_file.unlink(missing_ok=True)

    serve(application(page, hosts_of(names, port), port, secret), listener, lambda: None, end)


def _outlive(sessions: Sessions, backend: FolderBackend) -> None:
    """Wait until the run that started this page is dead and nobody looks; the next run of the folder takes it over."""
    sys.stdin.read()
    began = time.monotonic()
    while time.monotonic() - max(began, sessions.used) < IDLE_SECS or backend.is_live:
        time.sleep(_POLL_SECS)
    os.kill(os.getpid(), signal.SIGTERM)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        why = str(error.strerror).partition(" (while ")[0]  # which says the address once more
        raise ConfigError(f"cannot serve the page on {host}:{port}: {why}") from error


def _names(host: str) -> list[str]:
    """Return the names that a browser may use, the one to print first."""
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        return [socket.gethostname(), socket.getfqdn(), "localhost", "127.0.0.1", "::1"]
    loopback = ["localhost"] if host in {"127.0.0.1", "::1", "localhost"} else []
    return [host, *loopback]
