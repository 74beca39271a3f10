"""Run small transactions without and with an open page, in turns, and print what the page costs the run.

``python -m tests.harness.timeline.small [TRANSACTIONS [ROUNDS]]``: those of the benchmark ``small``, in this process. A
page is ``txtopo ui`` in a process of its own, which a third one asks as a browser does. The cost is processor time, so
that it counts on a busy machine, too: of this process with the timeline's thread, and of the process of the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import httpx

from tests.harness.benchmarks.inputs import DrawnWords
from tests.harness.benchmarks.topologies import WordSpout, fused
from tests.harness.benchmarks.txtopo_contender import check_run
from tests.harness.timeline.pages import OpenPage, cpu_secs
from tests.waiting import wait_for
from txtopo import Config, Topology
from txtopo.assembly.parts import Observers
from txtopo.engine.exposition import written
from txtopo.engine.metrics import RunMetrics
from txtopo.engine.page import PAGE_FILE, PageFile, PageOptions, page_beside
from txtopo.engine.runner import run_with
from txtopo.engine.timeline.ends import place_of
from txtopo.engine.timeline.observer import Timeline
from txtopo.engine.timeline.records import METRICS
from txtopo.inspect.run.slugs import slug_of
from txtopo.testing.inline import inline_environment

RATIO_MIN = 0.98
"""The processor time without a page must be so much of that with one."""

WORDS = DrawnWords(tuples=1_000)
FOR_EVER_SECS = 1e9


@attrs.frozen
class Cost:
    """Seconds of a processor."""

    of_run: float
    of_page: float = 0.0


def bare(folder: Path, transactions: int) -> Cost:
    """Run without a page, and without what it shows: no timeline and no metrics."""
    topology = fused(folder, WordSpout(WORDS, transactions), is_ready_made=False)
    began = time.process_time()
    report = run_with(topology, Config(), inline_environment())
    cost = Cost(time.process_time() - began)
    check_run(report, topology, folder, WORDS, transactions)
    return cost


def watched(folder: Path, transactions: int) -> Cost:
    """Run with an open page."""
    topology = fused(folder, WordSpout(WORDS, transactions), is_ready_made=False)
    place = place_of(topology, Config())
    assert place is not None, "the topology has a table"
    metrics = RunMetrics.of(topology)
    with (
        Timeline(topology, Config(), place) as timeline,
        page_of(folder, topology, place) as page,
        written(metrics, place / METRICS),
    ):
        observers = Observers(metrics, timeline)
        environment = attrs.evolve(inline_environment(), observer=observers)
        began, of_page = time.process_time(), cpu_secs(page)
        report = run_with(topology, Config(), environment, on_progress=observers.progressed)
        cost = Cost(time.process_time() - began, cpu_secs(page) - of_page)
    check_run(report, topology, folder, WORDS, transactions)
    return cost


@contextlib.contextmanager
def page_of(folder: Path, topology: Topology, timeline: Path) -> Iterator[int]:
    """Serve the page as ``txtopo run --ui`` does, and look at it; yield the id of its process."""
    page_file = timeline / PAGE_FILE
    with page_beside(folder, ("127.0.0.1", 0), PageOptions((), {}, str(page_file))) as url:
        page = PageFile.read(page_file)
        assert page is not None, "the page says how to reach it"
        cookie = httpx.get(url).headers["Set-Cookie"].partition(";")[0]
        looker = multiprocessing.get_context("spawn").Process(
            target=look, args=(page.url, cookie, slug_of(topology.id)), daemon=True
        )
        looker.start()
        try:
            yield page.pid
        finally:
            looker.kill()
            looker.join()


def look(address: str, cookie: str, slug: str) -> None:
    """Ask as an open page does, from when the topology is there."""

    def is_there() -> bool:
        headers = {"Cookie": cookie}
        return httpx.get(httpx.URL(address).join(f"/api/v1/topology/{slug}"), headers=headers).is_success

    wait_for("the topology", is_there)
    asyncio.run(OpenPage(httpx.URL(address), cookie, slug).stay(time.monotonic() + FOR_EVER_SECS, 0.0))


def main(transactions: int, rounds: int) -> None:
    """Measure, and print the ratios."""
    costs: dict[str, list[Cost]] = {"without": [], "with": []}
    for number in range(rounds + 1):
        for name, run in (("without", bare), ("with", watched)):
            with tempfile.TemporaryDirectory() as scratch:
                cost = run(Path(scratch), transactions)
            if number:  # the first ones warm up
                costs[name].append(cost)
                each = 1000 * cost.of_run / transactions
                print(f"{name:>8} a page: {each:.3f} ms each, the page {cost.of_page:.2f} s", flush=True)
    without, with_page = ([each.of_run for each in costs[name]] for name in ("without", "with"))
    median = statistics.median(one / other for one, other in zip(without, with_page, strict=True))
    print(
        f"ratio {median:.4f}, the median of rounds, {sum(without) / sum(with_page):.4f} of all; the aim is {RATIO_MIN}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000, int(sys.argv[2]) if len(sys.argv) > 2 else 5)
