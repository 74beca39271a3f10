"""What a supervisor shows of its drivers: metrics, and logs that are followed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import attrs
import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.cluster.conftest import MakeCluster
from tests.cluster.nimbuses import ROOT
from tests.cluster.supervisors import DriverCluster
from tests.engine.test_metrics import PROGRESS, REPORT, values_of
from tests.waiting import DEADLINE_SECS
from txtopo.cluster.driver.folder import DriverFolder
from txtopo.engine.exposition import WrittenMetrics, metrics_file
from txtopo.engine.metrics import RunMetrics

NAME = "counting"


def driver(folder: Path, topology: str, progress: object) -> Path:
    """Write the metrics of a driver as it does; return the file."""
    folder.mkdir()
    metrics = RunMetrics(topology)
    metrics.progressed(progress)
    with metrics_file(metrics, DriverFolder(folder).metrics):
        pass
    return DriverFolder(folder).metrics


def page_of(files: dict[int, Path]) -> str:
    """Return the page of these files."""
    registry = CollectorRegistry()
    registry.register(WrittenMetrics("slot", lambda: files))
    return generate_latest(registry).decode()


def test_drivers_share_a_page(tmp_path: Path) -> None:
    """Each metric is described once, and has the values of all drivers with their topology and slot."""
    one = driver(tmp_path / "0", "words", PROGRESS)
    other = driver(tmp_path / "1", "more words", attrs.evolve(PROGRESS, committed_txid=99))
    plain = driver(tmp_path / "3", "plain", REPORT)
    page = page_of({0: one, 1: other, 3: plain})
    described = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(described) == len(set(described))
    assert 'txtopo_committed_txid{slot="0",topology="words"} 12.0' in page
    assert 'txtopo_committed_txid{slot="1",topology="more words"} 99.0' in page
    assert 'txtopo_roots_acked_total{slot="3",topology="plain"} 4.0' in page
    assert 'txtopo_commit_seconds_bucket{le="+Inf",slot="1",topology="more words"} 0.0' in page


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    """Those of dead drivers, damaged ones and missing ones are left out; the others are shown all the same."""
    good = driver(tmp_path / "0", "good", PROGRESS)
    old = driver(tmp_path / "1", "old", PROGRESS)
    an_hour_ago = time.time() - 3600
    os.utime(old, (an_hour_ago, an_hour_ago))
    damaged = driver(tmp_path / "2", "damaged", PROGRESS)
    damaged.write_bytes(b'txtopo_committed_txid{topology="damaged} twelve\n\xff')
    large = driver(tmp_path / "3", "large", PROGRESS)
    large.write_text('x{a="b"} 1\n' * 1_000_000)
    page = page_of({0: good, 1: old, 2: damaged, 3: large, 4: tmp_path / "4" / "metrics.prom"})
    assert {name for name in ("good", "old", "damaged", "large") if f'topology="{name}"' in page} == {"good"}
    assert "x{" not in page


JSON_LOGS = ("--log-format", "json")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_page_of_a_real_driver(make_cluster: MakeCluster) -> None:
    """It has the metrics of the run, and none of its settings; logs are JSON, and a long one is rotated."""
    cluster = make_cluster(options=JSON_LOGS)
    [supervisor] = cluster.supervisors
    long_log = next(supervisor.folder.glob("supervisor/*/code")).parent / "logs" / "other" / "driver.log"
    long_log.parent.mkdir(parents=True)
    with long_log.open("wb") as file:
        file.truncate(65 << 20)
    cluster.submit()
    address = f"http://127.0.0.1:{supervisor.port}/metrics"
    committed = "txtopo_transactions_committed_total{slot=0}"
    cluster.wait_for(
        "metrics are there", lambda: values_of(httpx.get(address, timeout=DEADLINE_SECS).text).get(committed, 0) >= 1
    )
    page = httpx.get(address, timeout=DEADLINE_SECS).text
    assert values_of(page)["txtopo_end_to_end_seconds_count{slot=0}"] >= 1
    assert f'txtopo_transactions_committed_total{{slot="0",topology="{NAME}"}}' in page
    assert str(cluster.output) not in page
    cluster.wait_until_counted()
    cluster.wait_for("the long log is short", lambda: long_log.stat().st_size == 0)
    assert long_log.with_name("driver.log.1").stat().st_size == 65 << 20
    messages = messages_of(cluster.command("logs", NAME))
    assert any("the run has ended: the spout is exhausted" in message for message in messages)
    assert any("is process" in each for each in messages_of(supervisor.log.read_text()))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_log_is_followed(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """To another supervisor, and to the next driver there, also without nimbus; until it is gone, or Ctrl-C."""
    cluster = make_cluster(2, options=JSON_LOGS)
    topology = cluster.submit(total=4000, pause=0.3)
    cluster.wait_for("it commits", lambda: cluster.counted() >= 2)
    where = cluster.cluster.state.assignments()[topology].supervisor
    [second] = [supervisor for supervisor in cluster.supervisors if supervisor.id != where]
    [first] = [supervisor for supervisor in cluster.supervisors if supervisor.id == where]
    followed = tmp_path / "followed"
    with Following(cluster, followed) as following, Following(cluster, tmp_path / "shortly") as interrupted:
        begun = [f"driver {first.drivers()[topology]} begins"]
        cluster.wait_for("it is followed", lambda: begun[0] in followed.read_text())
        first.lose_machine()
        cluster.wait_for("the other one runs it", lambda: topology in second.drivers())
        pid = second.drivers()[topology]
        begun += [f"driver {pid} begins"]
        cluster.wait_for("it is followed there", lambda: begun[1] in followed.read_text())
        cluster.nimbus.kill()
        os.killpg(pid, signal.SIGKILL)
        cluster.wait_for("it runs again", lambda: second.drivers().get(topology, pid) != pid)
        begun += [f"driver {second.drivers()[topology]} begins"]
        cluster.wait_for("it is followed again", lambda: begun[2] in followed.read_text())
        cluster.nimbus.start()
        cluster.nimbus.wait_until_up()
        interrupted.process.send_signal(signal.SIGINT)
        assert interrupted.process.wait(DEADLINE_SECS) == 130
        cluster.command("kill", NAME, "--wait", "0")
        assert following.process.wait(120) == 0
    lines = followed.read_text().splitlines()
    assert [sum(each in message for message in messages_of("\n".join(lines))) for each in begun] == [1, 1, 1]
    assert len(lines) == len(set(lines)), "no line is shown twice"


def messages_of(log: str) -> list[str]:
    """Return the messages of a log, of which each line is an object."""
    return [json.loads(line)["message"] for line in log.splitlines()]


class Following(contextlib.AbstractContextManager["Following"]):
    """``txtopo logs -f``, which writes to a file."""

    def __init__(self, cluster: DriverCluster, path: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["TXTOPO_CLUSTER_CONFIG"] = str(cluster.cluster.folder / "cluster.toml")
        command = [sys.executable, "-m", "txtopo", "logs", NAME, "-f"]
        with path.open("wb") as out:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out)

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
