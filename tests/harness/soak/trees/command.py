"""The soak of plain topologies: ``python -m tests.harness.soak trees --messages 1000000 --kills 200``.

Runs a word count over a queue of messages, in a driver process of its own, and kills workers, the driver and, on a
cluster (``--on local-cluster`` or ``--on standalone``), executors at random. In the end every message must be
confirmed, none of them before all its words were written down, and no process may be left.
"""

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

from tests.harness.soak.processes import Member, members, pause
from tests.harness.soak.trees.topology import WORDS, WORKERS
from txtopo.testing.redelivering_queue import RedeliveringQueue

START_SECS = 60.0
END_SECS = 120.0


@attrs.define
class Outcome:
    """The result of a soak."""

    kills: Counter[str] = attrs.field(factory=Counter)
    messages: int = 0
    deliveries: int = 0
    recoveries_secs: dict[str, list[float]] = attrs.field(factory=dict)
    """By what was killed: the seconds from each kill until every worker works again."""
    early: int = 0
    """Messages that were confirmed before all of their words were written."""
    left: int = 0
    """Processes that are left at the end."""
    secs: float = 0.0


@click.command()
@click.option("--messages", default=1_000_000, show_default=True, type=click.IntRange(1))
@click.option("--kills", default=200, show_default=True, type=click.IntRange(0))
@click.option("--seed", type=int, default=None, help="Of the kills; one is drawn if there is none.")
@click.option("--pause", "pause_secs", default=2.0, show_default=True, help="Seconds between two kills, about.")
@click.option(
    "--on",
    "kind",
    type=click.Choice(["local", "local-cluster"]),
    default="local",
    show_default=True,
    help="The Spark; only a cluster has executors to kill.",
)
def main(messages: int, kills: int, seed: int | None, pause_secs: float, kind: str) -> None:
    """Kill, and see that every message is acked, and none too early."""
    drawn = random.randrange(1_000_000) if seed is None else seed
    click.echo(f"seed {drawn}")
    outcome = soak(messages, kills, drawn, pause_secs, "local-cluster[3,1,1024]" if kind == "local-cluster" else None)
    struck = ", ".join(f"{count} x {what}" for what, count in outcome.kills.items()) or "none"
    click.echo(
        f"{outcome.messages:,} messages confirmed after {outcome.deliveries:,} deliveries in {outcome.secs:.0f} s; "
        f"kills: {struck}; confirmed too early: {outcome.early}; processes left: {outcome.left}"
    )
    for what, recoveries in outcome.recoveries_secs.items():
        ordered = sorted(recoveries)
        median, longest = ordered[len(ordered) // 2], ordered[-1]
        click.echo(f"every worker works again after a killed {what}: median {median:.1f} s, longest {longest:.1f} s")
    if outcome.early or outcome.left:
        sys.exit(1)


def soak(messages: int, kills: int, seed: int, pause_secs: float, master: str | None = None) -> Outcome:
    """Run a soak; raise a TimeoutError if the driver does not start, or if messages are not confirmed in the end.

    It kills ``kills`` processes, about ``pause_secs`` apart, and adds messages until it has. ``master`` is Spark's URL;
    None for this machine's cores.
    """
    confirmed: dict[int, int] = {}
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="txtopo-acked-soak-") as name,
        RedeliveringQueue(range(messages), lambda number: confirmed.update({number: time.monotonic_ns()})) as queue,
    ):
        run = _Soak(random.Random(seed), queue, Path(name), master, confirmed)
        run.start_driver()
        try:
            for _ in range(kills):
                run.wait_for_acks()
                time.sleep(run.rng.uniform(0.0, 2 * pause_secs))
                # While kills are left, the queue must not run empty: a kill is to strike work.
                if queue.unconfirmed < 1_000:
                    queue.put(range(len(confirmed) + queue.unconfirmed, len(confirmed) + queue.unconfirmed + 50_000))
                run.kill()
            queue.wait_until_empty(END_SECS + messages / 2_000)
        finally:
            run.stop_driver()
        outcome = run.outcome
        outcome.left = run.processes_left()
        outcome.messages, outcome.deliveries = len(confirmed), queue.deliveries
        outcome.early = _early(Path(name), confirmed)
    outcome.secs = time.monotonic() - began
    return outcome


@attrs.define
class _Soak:
    """A running soak: its drivers, and the last kill."""

    rng: random.Random
    _queue: RedeliveringQueue
    _folder: Path
    _master: str | None
    _confirmed: dict[int, int]
    outcome: Outcome = attrs.field(factory=Outcome)
    _drivers: list[subprocess.Popen[bytes]] = attrs.field(factory=list)
    _killed: tuple[str, float] | None = None
    """The last victim and when it was killed; None once messages were acked again."""
    _doomed: set[int] = attrs.field(factory=set)
    """The workers that the last kill must end, perhaps not at once."""

    def start_driver(self) -> None:
        """Start a driver, in a session of its own."""
        host, port = self._queue.address
        command = [sys.executable, "-m", "tests.harness.soak.trees.driver", host, str(port), str(self._folder)]
        command += [self._master] if self._master else []
        root = Path(__file__).parents[4]
        self._drivers.append(subprocess.Popen(command, cwd=root, start_new_session=True))

    def stop_driver(self) -> None:
        """Ask the driver to stop, and kill it if it does not."""
        driver = self._drivers[-1]
        driver.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(END_SECS)
        driver.kill()  # does nothing if the driver has ended

    def kill(self) -> None:
        """Kill a worker, an executor that runs one, or now and then the driver, which is started again."""
        workers = _workers(self._folder)
        drawn = self.rng.random()
        executors = _executors_above(workers)
        if drawn < 0.1 or not workers:
            self._drivers[-1].kill()
            self._drivers[-1].wait()
            self._struck("driver")
            self.start_driver()
            self._doomed = set(workers)
        elif drawn < 0.4 and executors:
            executor = self.rng.choice(executors)
            self._doomed = {worker for worker in workers if executor in _executors_above([worker])}
            self._kill_process("executor", executor)
        else:
            worker = self.rng.choice(workers)
            self._doomed = {worker}
            self._kill_process("worker", worker)

    def wait_for_acks(self) -> None:
        """Wait until every worker works and messages are acked: a kill while nothing runs tests nothing."""
        before, end = len(self._confirmed), time.monotonic() + START_SECS
        while not self._all_work() or len(self._confirmed) < before + 100:
            if not self._queue.unconfirmed:
                break
            code = self._drivers[-1].poll()
            if time.monotonic() > end or code is not None:
                raise TimeoutError(f"no message was acked within {START_SECS:g} s; the driver's exit code: {code}")
            pause()
        if self._killed is not None:
            what, at = self._killed
            self.outcome.recoveries_secs.setdefault(what, []).append(time.monotonic() - at)
            self._killed = None

    def _all_work(self) -> bool:
        """Whether every worker works, and none that the last kill must end is left."""
        workers = _workers(self._folder)
        return len(workers) >= WORKERS and not self._doomed.intersection(workers)

    def processes_left(self) -> int:
        """Wait until all processes of all drivers are gone, and return how many are left."""
        end = time.monotonic() + 30.0
        while time.monotonic() < end:
            of_drivers = [member for driver in self._drivers for member in members(driver.pid)]
            left = len(of_drivers) + len(_workers(self._folder))
            if not left:
                return 0
            pause()
        return left

    def _kill_process(self, what: str, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self._struck(what)

    def _struck(self, what: str) -> None:
        self.outcome.kills[what] += 1
        self._killed = (what, time.monotonic())


def _workers(folder: Path) -> list[int]:
    """Return the processes that have written words and still have their files open."""
    found = []
    # Files of dead workers stay in the folder, and the kernel may give their process ids to others. An open file of the
    # folder tells the workers apart.
    for pid in {int(path.name.partition("-")[0]) for path in folder.iterdir() if path.stat().st_size}:
        with contextlib.suppress(OSError):
            if any(str(link.readlink()).startswith(str(folder)) for link in Path(f"/proc/{pid}/fd").iterdir()):
                found.append(pid)
    return sorted(found)


def _executors_above(workers: list[int]) -> list[int]:
    """Return the executors that run these workers; a local Spark has none but its driver."""
    found = set()
    for worker in workers:
        with contextlib.suppress(OSError):
            pid = worker
            while pid > 1:
                state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                del state
                command = tuple(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0"))
                if _is_executor(Member(pid, int(parent), command)):
                    found.add(pid)
                pid = int(parent)
    return sorted(found)


def _is_executor(process: Member) -> bool:
    return process.is_java and any(word.endswith("CoarseGrainedExecutorBackend") for word in process.command)


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
