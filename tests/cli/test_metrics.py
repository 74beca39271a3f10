"""``txtopo run --metrics``: what Prometheus sees while a topology runs."""

import contextlib
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.engine.test_metrics import values_of
from tests.processes import DEADLINE_SECS, python

SCRAPES_SECS = 180.0

PACED = """
import time
from spouts import MemoryTransactionalSpout
from state import DeltaState
from txtopo import BatchBolt, FailedException, Fields, ICommitter, TransactionalTopologyBuilder
from txtopo.attempts import epoch_and_try

class Count(BatchBolt, ICommitter):
    def __init__(self, password):
        self.password = password

    def prepare(self, config, context, collector, attempt):
        self.attempt, self.count = attempt, 0
        self.state = context.state("counts")

    def execute(self, tuple):
        self.count += 1

    def finish_batch(self):
        time.sleep(0.05)
        if self.attempt.txid == 3 and epoch_and_try(self.attempt.attempt)[1] == 1:
            raise FailedException(f"the database refuses {self.password}")
        self.state.update("all", lambda old: (old or 0) + self.count)

def topology(password: str, output: str = "out"):
    rows = [[number] for number in range(20_000)]
    builder = TransactionalTopologyBuilder("paced", "numbers", MemoryTransactionalSpout(rows, Fields("n: long"), 10))
    count = builder.set_committer_bolt("count", Count(password), 1).global_grouping("numbers")
    count.add_configuration("database.password", password)
    builder.set_state("counts", DeltaState(output, key=Fields("name: string"), value=Fields("n: long")))
    return builder.build()
"""


@contextlib.contextmanager
def run(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a topology with metrics; give the process and the address."""
    with (folder / "errors").open("w") as errors:
        process = python("-u", "-m", "txtopo", "run", *arguments, "--metrics", "0", cwd=folder, stderr=errors)
    try:
        assert process.stdout is not None
        said = re.fullmatch(r"metrics: (http://127\.0\.0\.1:\d+)/metrics\n", process.stdout.readline())
        assert said is not None, (folder / "errors").read_text()
        yield process, said[1]
    finally:
        process.kill()
        process.communicate()


def scraped_until(address: str, process: subprocess.Popen[str], is_right: Callable[[dict[str, float]], bool]) -> str:
    """Scrape until a page is as it must be; return it."""
    deadline, waits = time.monotonic() + SCRAPES_SECS, threading.Event()
    while process.poll() is None and time.monotonic() < deadline:
        page = httpx.get(f"{address}/metrics", trust_env=False, timeout=DEADLINE_SECS).text
        with contextlib.suppress(KeyError):  # not there yet
            if is_right(values_of(page)):
                return page
        waits.wait(0.05)
    raise AssertionError(f"no page is right; the last one:\n{page}")


@pytest.mark.long
@pytest.mark.slow
def test_transactional_topology(tmp_path: Path) -> None:
    """It is followed while it runs; no secret of it is shown; the port is closed when it ends."""
    (tmp_path / "paced.py").write_text(PACED)
    with run(tmp_path, "paced", "--set", "password=hunter2", "--set", "max_spout_pending=4") as (process, address):
        health = httpx.get(f"{address}/health", trust_env=False, timeout=DEADLINE_SECS).json()
        assert (health["status"], health["topology"]) == ("ok", "paced")
        page = scraped_until(address, process, lambda found: found["txtopo_transactions_committed_total"] >= 8)
        found = values_of(page)
        assert 'topology="paced"' in page
        committed = found["txtopo_transactions_committed_total"]
        assert found["txtopo_attempts_failed_total"] == found["txtopo_attempts_replayed_total"] == 1
        assert found["txtopo_tuples_total{component=numbers}"] == committed * 10
        # Each commit phase sleeps 50 ms; what is begun waits for those before it.
        assert 0.05 * committed <= found["txtopo_commit_seconds_sum"] < found["txtopo_end_to_end_seconds_sum"]
        assert httpx.get(f"{address}/health", trust_env=False, timeout=DEADLINE_SECS).json()["stage"] == "running"
        assert "hunter2" not in page
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=DEADLINE_SECS)
        assert process.returncode == 0, said
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}/metrics", trust_env=False, timeout=DEADLINE_SECS)


@pytest.mark.parametrize("address", ["http", "1:2:x", "127.0.0.1", "70000", "-1", "[::1]"])
def test_bad_addresses(command_line, address: str) -> None:
    assert "is neither PORT nor HOST:PORT" in command_line.refusal(
        "run", "examples.global_count", "--metrics", address, status=2
    )


@pytest.mark.parametrize("address", ["::1", "::1:8000", "fe80::1", "[::1:8000"])
def test_addresses_without_brackets(command_line, address: str) -> None:
    said = command_line.refusal("run", "examples.global_count", "--metrics", address, status=2)
    assert "is neither PORT nor HOST:PORT" in said or "an IPv6 address stands in brackets, as in [::1]:8000" in said


def test_port_that_is_taken(command_line) -> None:
    """It is found before Spark is started."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert f"cannot serve metrics on 127.0.0.1:{port}: Address already in use" in command_line.refusal(
            "run", "examples.global_count", "--metrics", f"127.0.0.1:{port}"
        )
