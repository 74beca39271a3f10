"""A real Spark standalone cluster on this machine: a master and workers on 127.0.0.1, from the pip-installed pyspark."""

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.harness.soak.processes import Member, kill_session, members, pause

HOST = "127.0.0.1"
START_SECS = 120.0

_FOREIGN = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "TXTOPO")
"""The beginnings of environment variables that the cluster's processes must not inherit."""

_MASTER_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER_REGISTERED = re.compile(r"Successfully registered with master")


class Daemon:
    """A process of the cluster, in a session of its own with all that it starts; its log lies beside its folder."""

    def __init__(self, folder: Path, *command: str) -> None:
        folder.mkdir(parents=True)
        scratch = folder.parent / "scratch"
        scratch.mkdir(exist_ok=True)
        self.log = folder.with_suffix(".log")
        specification = importlib.util.find_spec("pyspark")
        assert specification is not None
        assert specification.origin is not None
        home = Path(specification.origin).parent
        # A PYTHONPATH of this checkout would let executors import txtopo before it is shipped.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)} | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(scratch),
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": java_options(scratch),
            "TMPDIR": str(scratch),
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_for(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Return the first match in its log.

        Raises:
            RuntimeError: it ended, or logged nothing like that in time; the message has the end of its log.
        """
        deadline = time.monotonic() + START_SECS
        while time.monotonic() < deadline and self._process.poll() is None:
            found = pattern.search(self.log.read_text(errors="replace"))
            if found is not None:
                return found
            pause()
        raise RuntimeError(f"Spark does not start: {self.log.read_text(errors='replace')[-2000:]}")

    @property
    def session(self) -> int:
        """The session of all its processes."""
        return self._process.pid

    def processes(self) -> list[Member]:
        """Return its own process and those that it has started, such as executors and their Python."""
        return members(self._process.pid)

    def kill(self) -> list[Member]:
        """Kill all its processes, as ``kill -9`` does; return them when they are gone."""
        killed = self.processes()
        kill_session(self._process.pid)
        self._process.wait()
        return killed


class StandaloneCluster:
    """A master with workers of one core each."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._size = workers
        self.workers: list[Daemon] = []
        self._master: Daemon | None = None
        self.url = ""

    def start(self) -> None:
        """Start all processes; return when the master knows all workers, or raise a RuntimeError."""
        ports = ("--port", "0", "--webui-port", "0")
        self._master = Daemon(self._folder / "master", "org.apache.spark.deploy.master.Master", "--host", HOST, *ports)
        self.url = self._master.wait_for(_MASTER_STARTED)[1]
        bounds = ("--cores", "1", "--memory", "1g")
        for number in range(1, self._size + 1):
            work = self._folder / f"worker-{number}"
            place = ("--host", HOST, *ports, "--work-dir", str(work))
            self.workers.append(Daemon(work, "org.apache.spark.deploy.worker.Worker", *place, *bounds, self.url))
        for worker in self.workers:
            worker.wait_for(_WORKER_REGISTERED)

    def kill(self) -> None:
        for daemon in [*self.workers, *([self._master] if self._master else [])]:
            daemon.kill()


@contextlib.contextmanager
def running_cluster(folder: Path, workers: int = 2) -> Iterator[StandaloneCluster]:
    cluster = StandaloneCluster(folder, workers)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def java_options(scratch: Path | str) -> str:
    """Return JVM options for a quick start, which leave nothing outside a folder."""
    return f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djava.io.tmpdir={scratch}"


def settings_on(url: str, scratch: Path | str) -> dict[str, str]:
    """Return the settings of a run on the cluster, whose driver leaves nothing outside a folder."""
    return {
        "topology.spark.master": url,
        "spark.driver.defaultJavaOptions": java_options(scratch),
        "spark.executor.extraJavaOptions": java_options(scratch),
        "spark.executor.memory": "600m",
        "spark.driver.host": HOST,
    }


def why_not() -> str | None:
    """Return why no cluster can run on this machine; None if one can."""
    if not sys.platform.startswith("linux"):
        return "it looks for the cluster's processes in /proc, which only Linux has"
    return None
