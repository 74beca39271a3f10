"""``txtopo cluster dev``: a whole cluster, and its end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.waiting import DEADLINE_SECS
from txtopo.servers.server import free_port
from txtopo.testing.feeders import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]


def is_gone(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/health", timeout=1.0)
    except httpx.ConnectError:
        return True
    except httpx.HTTPError:
        return False
    return False


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=1.0).is_success
    except httpx.HTTPError:
        return False


def test_cluster_dev(tmp_path: Path) -> None:
    """It runs all daemons, starts one again that is killed, and Ctrl-C ends all of them."""
    nimbus, supervisor, zookeeper = (free_port() for _ in range(3))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = ["cluster", "dev", "--folder", str(tmp_path / "cluster"), "--port", str(nimbus)]
    command += ["--supervisor-port", str(supervisor), "--zookeeper-port", str(zookeeper)]
    command += ["--set", "storm.zookeeper.auth=dev:hunter2"]
    environment["HOME"] = str(tmp_path / "home")
    with (tmp_path / "dev.log").open("w") as log:
        dev = subprocess.Popen(
            [sys.executable, "-u", "-m", "txtopo", *command], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
    try:
        said = (tmp_path / "dev.log").read_text
        assert wait_until(lambda: "the cluster runs" in said() or dev.poll() is not None, DEADLINE_SECS), said()
        assert wait_until(lambda: answers(nimbus), DEADLINE_SECS), "it does not answer"
        shown = subprocess.run(
            [sys.executable, "-m", "txtopo", "leader", "--config", str(tmp_path / "cluster" / "cluster.toml")],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert shown.stdout.strip() == f"127.0.0.1:{nimbus}"
        assert not (tmp_path / "home").exists(), "its folder holds everything, the token too"
        assert (tmp_path / "cluster" / "token").is_file()
        for private in ("token", "zookeeper"):
            assert not (tmp_path / "cluster" / private).stat().st_mode & 0o077, "settings of topologies hold secrets"
        started = subprocess.run(
            ["pgrep", "-P", str(dev.pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in started]
        assert len(commands) >= 3
        assert not any(b"hunter2" in each for each in commands), "everybody on the machine could read it"
        children = subprocess.run(
            ["pgrep", "-P", str(dev.pid), "-f", "txtopo supervisor"], capture_output=True, check=True
        )
        os.kill(int(children.stdout.split()[0]), signal.SIGKILL)
        assert wait_until(lambda: "supervisor-1 ended with status -9" in said(), DEADLINE_SECS), said()
        assert wait_until(lambda: answers(supervisor), DEADLINE_SECS), "it does not answer again"
        dev.send_signal(signal.SIGINT)
        assert dev.wait(DEADLINE_SECS) == 0
    finally:
        dev.kill()
        dev.wait()
    assert (tmp_path / "dev.log").read_text().endswith("the cluster has ended\n")
    assert all(is_gone(port) for port in (nimbus, supervisor, zookeeper))
