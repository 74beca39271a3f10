"""The page's process: how a run starts one beside itself, or finds the one of an earlier run.

A page outlives a run that is killed: whoever looks at it sees that the run is dead, and sees the next run of the same
folder begin. It ends with the run that ends in good order, or when nobody has looked for a while and no run goes on.

1. ``txtopo run --ui`` starts ``txtopo ui`` and gives it, on its standard input, what it cannot know otherwise. The page
   writes ``page.json`` beside the timeline, readable for its user only, and prints its address.
2. The run is killed. The page finds its standard input closed, and goes on.
3. The next ``txtopo run --ui`` finds ``page.json``, and asks that page for an address instead of starting another one.
   The page is now this run's, and ends with it.

Whose page it is, a lock beside it says, which a run holds while it lasts and the kernel frees when the run is killed.
So a second run that finds the page while the first one goes on, as of a plain topology, leaves it to that.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import click

from txtopo.errors import ConfigError
from txtopo.files.durable import why_not_written, write_whole
from txtopo.files.records import DAMAGE, from_json, to_json
from txtopo.settings.kinds import PORT_MAX

BESIDE = "--beside-a-run"
"""The hidden option of ``txtopo ui`` with which it reads a :class:`PageOptions`."""

PAGE_FILE = "page.json"
"""In the folder of a timeline: the :class:`PageFile` of the page that was started for it."""

_LOG = "page.log"
_LOCK = "page.lock"
_PRIVATE = 0o600
_ASK_SECS = 2.0
"""A page of this machine answers in milliseconds; one that does not is another program, or stuck."""
_END_SECS = 3.0
"""How long the end of a run waits for the page, before it is killed."""


class Address(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4 only
    """``PORT`` or ``HOST:PORT``."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Convert a text to host and port."""
        if isinstance(value, tuple):
            return value
        host, _, port = str(value).rpartition(":")
        if not port.isdecimal() or int(port) > PORT_MAX:
            self.fail(f"{value!r} is neither PORT nor HOST:PORT", param, ctx)
        if ":" in host and not (host.startswith("[") and host.endswith("]")):
            self.fail(f"{value!r} is no HOST:PORT: an IPv6 address stands in brackets, as in [::1]:8000", param, ctx)
        return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


@attrs.frozen
class PageOptions:
    """What a run tells its page.

    Args:
        words: that name the topology on a command line, for replays; empty if it can't be replayed.
        arguments: of the topology's function, as texts.
        page_file: where the page says how to reach it.
        storage_options: of the bucket that the page is of; they may hold secrets.
    """

    words: tuple[str, ...]
    arguments: Mapping[str, str]
    page_file: str
    storage_options: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @classmethod
    def from_stdin(cls) -> PageOptions:
        """Read what the run has written."""
        return from_json(json.loads(sys.stdin.readline()), cls)


@attrs.frozen
class PageFile:
    """How to reach a page, and its process; ``page.json``. ``secret`` lets its reader ask the page for an address."""

    url: str
    pid: int
    secret: str = attrs.field(repr=False)

    def write(self, path: Path) -> None:
        """Write it, for this user only; raise ConfigError if that fails, on a full disk for example."""
        with _naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(to_json(self)).encode(), _PRIVATE)

    @classmethod
    def read(cls, path: Path) -> PageFile | None:
        """Return it; None if there is none."""
        try:
            return from_json(json.loads(path.read_text()), cls)
        except (OSError, *DAMAGE):
            return None

    def invitation(self) -> str | None:
        """Ask the page for an address; None if it is there no more."""
        request = urllib.request.Request(  # noqa: S310 - the page's address
            f"{self.url}/api/v1/session", b"", {"Authorization": f"Bearer {self.secret}"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with contextlib.suppress(OSError, ValueError, KeyError), opener.open(request, timeout=_ASK_SECS) as answer:
            return str(json.load(answer)["url"])
        return None


@contextlib.contextmanager
def page_of_run(output: Path | str, address: tuple[str, int], options: PageOptions) -> Iterator[str]:
    """Start the page's process, or find the one that serves this folder already, and yield an address of it, to print.

    At the end the page ends, unless it is that of another run that goes on. If the one that is found has another port
    than was asked for, what is yielded says so behind the address.

    Raises:
        ConfigError: the page could not be started.
    """
    page_file = Path(options.page_file)
    page = PageFile.read(page_file)
    invitation = None if page is None else page.invitation()
    port = address[1]
    with _owned(page_file) as is_own:
        if page is None or invitation is None:
            with _started(output, address, options) as started:
                yield started
            return
        is_elsewhere = port not in {0, urllib.parse.urlsplit(invitation).port}
        try:
            yield f"{invitation} (served there already, not at port {port})" if is_elsewhere else invitation
        finally:
            if is_own and PageFile.read(page_file) == page:  # else it has ended, and its number may be another's
                with contextlib.suppress(ProcessLookupError):
                    os.kill(page.pid, signal.SIGTERM)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Raise an error of the disk as a ConfigError that names the file."""
    try:
        yield
    except OSError as error:
        why = why_not_written(error) or error.strerror or str(error)
        raise ConfigError(f"the page can't write {path}: {why}; mend that, or run without a page") from error


@contextlib.contextmanager
def _owned(page_file: Path) -> Iterator[bool]:
    with _naming(page_file.with_name(_LOCK)):
        page_file.parent.mkdir(parents=True, exist_ok=True)
        lock_file = page_file.with_name(_LOCK).open("w")
    with lock_file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


@contextlib.contextmanager
def _started(output: Path | str, address: tuple[str, int], options: PageOptions) -> Iterator[str]:
    """Start the page's process, yield its address, and end it."""
    host, port = address
    shown = f"[{host}]" if ":" in host else host
    words = ["ui", BESIDE, "--at", f"{shown}:{port}", "--", str(output)]
    log = Path(options.page_file).with_name(_LOG)
    with _naming(log):
        log.write_text("\n")  # on a full disk the process could not say why it ends
    with log.open("a") as errors:
        process = subprocess.Popen(  # noqa: S603 - our command
            [sys.executable, "-m", "txtopo", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,  # a file: nobody reads a pipe while the run goes on, and a full one stops its writer
            start_new_session=True,  # a Ctrl-C is for the run, which ends the page
            text=True,
        )
    assert process.stdin is not None, "it is a pipe"
    assert process.stdout is not None, "it is a pipe"
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{json.dumps(to_json(options))}\n")
            process.stdin.flush()
        first = process.stdout.readline().strip()
        if not first.startswith("http"):
            reason = " ".join(log.read_text().split()).removeprefix("error: ")
            raise ConfigError(f"the page could not be started: {reason or first}")
        yield first
    finally:
        process.terminate()
        try:
            process.wait(_END_SECS)
        except subprocess.TimeoutExpired:
            process.kill()
