"""Open many pages of a busy run, and print what they cost the process that serves them.

``python -m tests.harness.timeline.pages [PAGES [SECONDS]]``: ``txtopo ui`` of a run with 500 transactions a second. Each
page asks as its script does: four times a second for the timeline after what it has, once for the header. The cost is
the server's processor time as a share of a core.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from tests.acceptance.topologies import make_data, words_topology
from tests.harness.timeline.__main__ import fed
from txtopo import Config
from txtopo.engine.timeline.observer import Timeline
from txtopo.engine.timeline.records import folder_of
from txtopo.inspect.run.slugs import slug_of
from txtopo.journal.ending import METADATA_DIR

RATE = 500
TIMELINE_SECS, TIMELINES_A_HEADER = 0.25, 4
BEGIN_SECS = 5.0
"""Before the measuring begins: pages first ask for the whole timeline."""


def feed(output: Path, secs: float) -> None:
    """Write a timeline as a busy run would."""
    topology = words_topology(str(output), make_data(2, 20))
    with Timeline(topology, Config(), folder_of(output / METADATA_DIR, topology.id)) as timeline:
        timeline.leads("measured", 1)
        fed(timeline, RATE, secs)


class OpenPage:
    """A page in a browser, as far as its server sees it: one connection, on which it asks."""

    def __init__(self, address: httpx.URL, cookie: str, slug: str) -> None:
        self._address, self._cookie, self._slug = address, cookie, slug
        self.answers = 0

    async def stay(self, until: float, after: float) -> None:
        """Ask until a time; the first request comes after some seconds."""
        await asyncio.sleep(after)
        reader, writer = await asyncio.open_connection(self._address.host, self._address.port)
        head, number = 0, 0
        while time.monotonic() < until:
            began = time.monotonic()
            said = await self._get(reader, writer, f"/api/v1/topology/{self._slug}/timeline?since={head}")
            head = int(re.search(rb'"head":(\d+)', said)[1])  # type: ignore[index]  # its absence ends the measuring
            if number % TIMELINES_A_HEADER == 0:
                await self._get(reader, writer, f"/part/{self._slug}/header")
            number += 1
            await asyncio.sleep(max(0.0, began + TIMELINE_SECS - time.monotonic()))
        writer.close()

    async def _get(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> bytes:
        place = f"{self._address.host}:{self._address.port}"
        headers = [f"Host: {place}", f"Cookie: {self._cookie}", *BROWSERS]
        writer.write("\r\n".join([f"GET {path} HTTP/1.1", *headers, "", ""]).encode())
        top = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in top, top
        self.answers += 1
        return await reader.readexactly(int(re.search(rb"content-length: (\d+)", top)[1]))  # type: ignore[index]


BROWSERS = (
    "Connection: keep-alive",
    'sec-ch-ua: "Chromium";v="140"',
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
    "Accept: */*",
    "Sec-Fetch-Site: same-origin",
    "Sec-Fetch-Mode: cors",
    "Sec-Fetch-Dest: empty",
    "Accept-Encoding: gzip, deflate, br",
    "Accept-Language: en-US,en;q=0.9",
)
"""The headers that a browser sends besides."""


async def polled(pages: list[OpenPage], until: float) -> None:
    """Let pages ask until a time, each at its own moment."""
    await asyncio.gather(*(page.stay(until, TIMELINE_SECS * at / len(pages)) for at, page in enumerate(pages)))


def cpu_secs(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(count: int, secs: float) -> None:
    """Measure, and print the share."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch)
        feeder = multiprocessing.get_context("spawn").Process(target=feed, args=(output, 2 * BEGIN_SECS + secs))
        feeder.start()
        while not list(output.glob(f"{METADATA_DIR}/*/*.run")):
            time.sleep(0.1)
        command = [sys.executable, "-m", "txtopo", "ui", scratch]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            address = httpx.URL(server.stdout.readline().strip())
            cookie = httpx.get(address).headers["Set-Cookie"].partition(";")[0]
            pages = [OpenPage(address, cookie, slug_of("words")) for _ in range(count)]
            asyncio.run(polled(pages, time.monotonic() + BEGIN_SECS))
            before, cpu, began = sum(page.answers for page in pages), cpu_secs(server.pid), time.monotonic()
            asyncio.run(polled(pages, began + secs))
            elapsed = time.monotonic() - began
            share, answers = (cpu_secs(server.pid) - cpu) / elapsed, sum(page.answers for page in pages) - before
            print(f"{count} pages: {answers / elapsed:.0f} answers a second, {100 * share:.2f} % of a core")
            server.terminate()
        feeder.join()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50, float(sys.argv[2]) if len(sys.argv) > 2 else 20.0)
