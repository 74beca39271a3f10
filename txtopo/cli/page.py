"""The page's process: how a run starts one beside itself, or finds the one of an earlier run.

A page outlives a run that is killed: whoever looks at it sees that the run is dead, and sees the next run of the same
folder begin. It ends with a run that ends in good order, if that has started it, or when nobody has looked for a while.

1. ``txtopo run --ui`` starts ``txtopo ui`` and gives it, on its standard input, what it cannot know otherwise. The page
   writes ``page.json`` beside the timeline, readable for its user only, and prints its address.
2. The run is killed. The page finds its standard input closed, and goes on.
3. The next ``txtopo run --ui`` finds ``page.json``, and asks that page for an address instead of starting another one.
"""

from __future__ import annotations

import contextlib
import json
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
from txtopo.files.durable import write_whole
from txtopo.files.records import DAMAGE, from_json, to_json

BESIDE = "--beside-a-run"
"""The hidden option of ``txtopo ui`` with which it reads a :class:`Beside`."""

PAGE_FILE = "page.json"
"""In the folder of a timeline: the :class:`PageFile` of the page that was started for it."""

_LOG = "page.log"
_PORT_MAX = 65_535
_PRIVATE = 0o600
_ASK_SECS = 2.0
_END_SECS = 3.0


class Address(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4 only
    """``PORT`` or ``HOST:PORT``."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Convert a text to host and port."""
        if isinstance(value, tuple):
            return value
        host, _, port = str(value).rpartition(":")
        if not port.isdecimal() or int(port) > _PORT_MAX:
            self.fail(f"{value!r} is neither PORT nor HOST:PORT", param, ctx)
        return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


@attrs.frozen
class Beside:
    """What a run tells its page.

    Args:
        words: that name the topology on a command line, for replays; empty if it can't be replayed.
        arguments: of the topology's function, as texts.
        page_file: where the page says how to reach it.
    """

    words: tuple[str, ...]
    arguments: Mapping[str, str]
    page_file: str

    @classmethod
    def from_stdin(cls) -> Beside:
        """Read what the run has written."""
        return from_json(json.loads(sys.stdin.readline()), cls)


@attrs.frozen
class PageFile:
    """How to reach a page, and its process; ``page.json``. ``secret`` lets its reader ask the page for an address."""

    url: str
    pid: int
    secret: str = attrs.field(repr=False)

    def write(self, path: Path) -> None:
        """Write it, for this user only."""
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
        request = urllib.request.Request(  # noqa: S310 - the page's own address
            f"{self.url}/api/v1/session", b"", {"Authorization": f"Bearer {self.secret}"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with contextlib.suppress(OSError, ValueError, KeyError), opener.open(request, timeout=_ASK_SECS) as answer:
            return str(json.load(answer)["url"])
        return None


@contextlib.contextmanager
def page_beside(output: Path, address: tuple[str, int], beside: Beside) -> Iterator[str]:
    """Start the page's process, or find the one that serves this folder already, and yield an address of it, to print.

    If the one that is found has another port than was asked for, what is yielded says so behind the address.

    Raises:
        ConfigError: the page could not be started.
    """
    known = PageFile.read(Path(beside.page_file))
    found = None if known is None else known.invitation()
    host, port = address
    if found is not None:
        is_elsewhere = port not in {0, urllib.parse.urlsplit(found).port}
        yield f"{found} (served there already, not at port {port})" if is_elsewhere else found
        return
    shown = f"[{host}]" if ":" in host else host
    words = ["ui", BESIDE, "--at", f"{shown}:{port}", "--", str(output)]
    log = Path(beside.page_file).with_name(_LOG)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as errors:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "txtopo.cli", *words],
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
            process.stdin.write(f"{json.dumps(to_json(beside))}\n")
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
