"""The soak of plain topologies: ``python -m tests.acked_soak --messages 1000000 --kills 200``.

Runs a word count over a queue of messages, in a driver process of its own, and kills workers and the driver at
random. In the end every message must be confirmed, none of them before all its words were written down, and no
process may be left.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import attrs
import click

from tests.acked_soak.topology import WORDS
from txtopo.testing.redelivering_queue import RedeliveringQueue

START_SECS = 60.0
END_SECS = 120.0
_LOOK_SECS = 0.05


@attrs.define
class Outcome:
    """What a soak came to."""

    kills: Counter[str] = attrs.field(factory=Counter)
    messages: int = 0
    deliveries: int = 0
    early: int = 0
    """Messages that were confirmed before all of their words were written down."""
    left: int = 0
    """Processes that were there after the end."""
    secs: float = 0.0


@click.command()
@click.option("--messages", default=1_000_000, show_default=True, type=click.IntRange(1))
@click.option("--kills", default=200, show_default=True, type=click.IntRange(0))
@click.option("--seed", type=int, default=None, help="Of the kills; one is drawn if there is none.")
@click.option("--pause", default=2.0, show_default=True, help="Seconds between two kills, about.")
def main(messages: int, kills: int, seed: int | None, pause: float) -> None:
    """Kill, and see that every message is acked, and none too early."""
    drawn = random.randrange(1_000_000) if seed is None else seed
    click.echo(f"seed {drawn}")
    outcome = soak(messages, kills, drawn, pause)
    struck = ", ".join(f"{count} x {what}" for what, count in outcome.kills.items()) or "none"
    click.echo(
        f"{outcome.messages:,} messages confirmed after {outcome.deliveries:,} deliveries in {outcome.secs:.0f} s; kills: {struck}; "
        f"confirmed too early: {outcome.early}; processes left: {outcome.left}"
    )
    if outcome.early or outcome.left:
        sys.exit(1)


def soak(messages: int, kills: int, seed: int, pause_secs: float) -> Outcome:
    """Run a soak.

    Args:
        messages: how many there are.
        kills: how many processes are killed; more messages are added until they were.
        seed: of the kills.
        pause_secs: about how long to wait between two of them.

    Raises:
        TimeoutError: the driver does not start, or messages are not confirmed in the end.
    """
    rng = random.Random(seed)
    outcome = Outcome()
    confirmed: dict[int, int] = {}
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="txtopo-acked-soak-") as name,
        RedeliveringQueue(range(messages), lambda number: confirmed.update({number: time.monotonic_ns()})) as queue,
    ):
        folder = Path(name)
        driver = _start(queue, folder)
        try:
            for _ in range(kills):
                _wait_for_acks(queue, confirmed, driver)
                time.sleep(rng.uniform(0.0, 2 * pause_secs))
                if queue.unconfirmed < 1_000:
                    queue.put(range(len(confirmed) + queue.unconfirmed, len(confirmed) + queue.unconfirmed + 50_000))
                driver = _kill(rng, driver, queue, folder, outcome)
            queue.wait_until_empty(END_SECS + messages / 2_000)
        finally:
            driver.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(END_SECS)
            driver.kill()
        outcome.left = _wait_for_end(folder)
        outcome.messages, outcome.deliveries = len(confirmed), queue.deliveries
        outcome.early = _early(folder, confirmed)
    outcome.secs = time.monotonic() - began
    return outcome


def _start(queue: RedeliveringQueue, folder: Path) -> subprocess.Popen[bytes]:
    host, port = queue.address
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.acked_soak.driver", host, str(port), str(folder)]
    return subprocess.Popen(command, cwd=root, start_new_session=True)


def _kill(
    rng: random.Random, driver: subprocess.Popen[bytes], queue: RedeliveringQueue, folder: Path, outcome: Outcome
) -> subprocess.Popen[bytes]:
    """Kill a worker, or now and then the driver; return the driver that runs then."""
    workers = _workers(folder)
    if rng.random() < 0.1 or not workers:
        outcome.kills["driver"] += 1
        driver.kill()
        driver.wait()
        return _start(queue, folder)
    outcome.kills["worker"] += 1
    with contextlib.suppress(ProcessLookupError):
        os.kill(rng.choice(workers), signal.SIGKILL)
    return driver


def _wait_for_acks(queue: RedeliveringQueue, confirmed: dict[int, int], driver: subprocess.Popen[bytes]) -> None:
    """Wait until messages are acked again: a kill while nothing runs shows nothing."""
    before, end = len(confirmed), time.monotonic() + START_SECS
    while len(confirmed) < before + 100 and queue.unconfirmed:
        if time.monotonic() > end or driver.poll() is not None:
            raise TimeoutError(f"no message was acked within {START_SECS:g} s; the driver's exit code: {driver.poll()}")
        time.sleep(_LOOK_SECS)


def _workers(folder: Path) -> list[int]:
    """Return the processes of workers that live: those whose files are open."""
    found = []
    for pid in {int(path.name.partition("-")[0]) for path in folder.iterdir()}:
        with contextlib.suppress(OSError):
            if any(str(link.readlink()).startswith(str(folder)) for link in Path(f"/proc/{pid}/fd").iterdir()):
                found.append(pid)
    return sorted(found)


def _wait_for_end(folder: Path) -> int:
    """Wait until the workers are gone, and return how many are left."""
    end = time.monotonic() + 30.0
    while (left := len(_workers(folder))) and time.monotonic() < end:
        time.sleep(_LOOK_SECS)
    return left


def _early(folder: Path, confirmed: dict[int, int]) -> int:
    """Return how many messages were confirmed before each of their words was written down once at least."""
    first: dict[tuple[int, int], int] = {}
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            parts = line.split()
            if len(parts) == 3:
                number, position, at = map(int, parts)
                first[number, position] = min(at, first.get((number, position), at))
    return sum(
        any(first.get((number, position), at + 1) > at for position in range(WORDS)) for number, at in confirmed.items()
    )


if __name__ == "__main__":
    main()
