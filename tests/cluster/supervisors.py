"""Real supervisor processes with real drivers, and the commands that users give."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from state import read_table
from tests.cluster.nimbuses import ROOT, Cluster, DaemonProcess
from tests.cluster.submitted.counting import KEYS, ROWS
from tests.waiting import wait_for
from txtopo.cluster.driver.folder import DriverFolder

SUBMITTED = Path(__file__).parent / "submitted"
TOTAL = 40
START_SECS = 180.0
"""Spark starts on a machine that is busy with other things."""


def expected(total: int = TOTAL) -> dict[int, int]:
    """Return what the table must hold after so many transactions."""
    counts = dict.fromkeys(range(KEYS), 0)
    for number in range(ROWS, (total + 1) * ROWS):
        counts[number % KEYS] += 1
    return counts


def counts_in(output: Path) -> dict[int, int]:
    """Return what the table holds; empty if there is none."""
    if not DeltaTable.is_deltatable(str(output / "counts")):
        return {}
    return {row["key"]: row["count"] for row in read_table(output / "counts").to_pylist()}


class SupervisorProcess(DaemonProcess):
    """A supervisor that can be killed with and without its drivers."""

    kind = "supervisor"

    def start(self, failpoints: str = "", **settings: object) -> SupervisorProcess:
        work = {"supervisor_work_dir": self._cluster.folder / "work"}
        return super().start(failpoints, **{**work, **settings})

    def wait_until_up(self) -> SupervisorProcess:
        """Wait until it is announced."""
        wait_for(f"it is announced: {self.log}", lambda: self.id in self._cluster.state.supervisors())
        return self

    @property
    def id(self) -> str:
        """Its id; empty before it has one."""
        with contextlib.suppress(OSError):
            return (self.folder / "supervisor" / "id").read_text().strip()
        return ""

    def drivers(self) -> dict[str, int]:
        """Return the process ids of its live drivers, by topology."""
        folders = [DriverFolder(path) for path in self.folder.glob("supervisor/*/drivers/*")]
        found = {}
        for folder in folders:
            launch, pid = folder.launch(), folder.pid()
            if launch is not None and pid is not None and folder.is_locked():
                found[launch.assignment.topology] = pid
        return found

    def lose_machine(self) -> None:
        """Kill it and all its drivers at once."""
        if self.is_alive():
            self.signal(signal.SIGSTOP)  # so that it starts none again in between
        for pid in self.drivers().values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self.kill()

    def close(self) -> None:
        """Kill it with its drivers, and give its port back."""
        self.lose_machine()
        super().close()

    def logs(self) -> str:
        """Return what it and its drivers have logged."""
        paths = [self.log, *self.folder.glob("supervisor/*/logs/*/driver.log")]
        return "\n".join(f"== {path}\n{path.read_text(errors='replace')[-4000:]}" for path in paths if path.exists())


class DriverCluster(contextlib.ExitStack):
    """Some nimbuses, some supervisors, and a table."""

    def __init__(
        self, hosts: str, root: str, folder: Path, supervisors: int, nimbuses: int = 1, **settings: object
    ) -> None:
        super().__init__()
        quick = {
            "nimbus.task.timeout.secs": 6,
            "nimbus.task.launch.secs": 120,
            "supervisor.worker.timeout.secs": 20,
            "supervisor.isolation.secs": 4,
            "supervisor.worker.shutdown.sleep.secs": 1,
            "supervisor.monitor.frequency.secs": 0.3,
        }
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.cluster = self.enter_context(Cluster(hosts, root, folder, nimbuses, **{**quick, **given}))
        self._counted: dict[Path, tuple[str, int]] = {}
        self.output = folder / "out"
        self.nimbus = self.cluster.nimbuses[0]
        self.supervisors = [SupervisorProcess(self.cluster, number) for number in range(1, supervisors + 1)]
        for supervisor in self.supervisors:
            self.callback(supervisor.close)
        seeds = json.dumps([nimbus.address for nimbus in self.cluster.nimbuses])
        config = [f'"nimbus.seeds" = {seeds}', f'"cluster.token.file" = "{folder / "token"}"']
        (folder / "cluster.toml").write_text("\n".join(config))

    def start(self) -> DriverCluster:
        """Start all."""
        for nimbus in self.cluster.nimbuses:
            nimbus.start()
        for supervisor in self.supervisors:
            supervisor.start()
        for nimbus in self.cluster.nimbuses:
            nimbus.wait_until_up()
        for supervisor in self.supervisors:
            supervisor.wait_until_up()
        self.cluster.leader()
        return self

    def command(self, *arguments: str, is_right: bool = True) -> str:
        """Run a command of the command line; return its output."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["TXTOPO_CLUSTER_CONFIG"] = str(self.cluster.folder / "cluster.toml")
        ended = subprocess.run(
            [sys.executable, "-m", "txtopo", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=START_SECS,
            check=False,
        )
        assert (ended.returncode == 0) is is_right, ended.stdout + ended.stderr + self.logs()
        return ended.stdout + ended.stderr

    def submit(self, what: Path | str = SUBMITTED, *options: str, is_right: bool = True, **values: object) -> str:
        """Submit the counting topology; return the id, or what the command says if it is refused."""
        given = {"output": self.output, "total": TOTAL, **values}
        pairs = [f"--set={name}={value}" for name, value in given.items()]
        said = self.command("submit", str(what), *options, *pairs, is_right=is_right)
        return said.split()[0] if is_right else said

    def shown(self, name: str = "counting") -> dict[str, Any]:
        """Return a topology, as ``txtopo list`` has it; empty if there is none."""
        found = json.loads(self.command("list", "--format", "json"))
        return next((each for each in found if each["name"] == name), {})

    def status(self) -> str:
        """Return the only topology's status, as ZooKeeper has it; empty if there is none."""
        return next(iter(self.cluster.statuses().values()), "")

    def wait_for(self, what: str, condition: Any) -> Any:
        """Wait for a condition; show all logs if it does not come true."""
        try:
            return wait_for(what, condition, START_SECS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from error

    def wait_until_counted(self, total: int = TOTAL) -> None:
        """Wait until the topology has finished, and see that its table is exact."""
        self.wait_for("it has finished", lambda: self.status() == "FINISHED")
        assert counts_in(self.output) == expected(total)

    def counted(self, output: Path | None = None) -> int:
        """Return how many transactions the table holds; it is read only when it has changed."""
        output = output or self.output
        log = output / "counts" / "_delta_log"
        last = max((path.name for path in log.glob("*.json")), default="") if log.is_dir() else ""
        if last and self._counted.get(output, ("", 0))[0] != last:
            self._counted[output] = (last, sum(counts_in(output).values()) // ROWS)
        return self._counted.get(output, ("", 0))[1]

    def wait_until_committing(self, *outputs: Path) -> None:
        """Wait until each table holds more transactions than now."""
        before = {output: self.counted(output) for output in outputs or (self.output,)}
        self.wait_for("all commit", lambda: all(self.counted(each) > before[each] for each in before))

    def end(self, name: str = "counting", output: Path | None = None) -> int:
        """Kill a topology in good order, and see that its table is exact; return how many transactions it holds."""
        self.command("kill", name, "--wait", "60")
        topology = next((each.id for each in self.cluster.state.topologies().values() if each.name == name), None)
        self.wait_for(
            "its driver ends", lambda: not any(topology in supervisor.drivers() for supervisor in self.supervisors)
        )
        counted = self.counted(output)
        assert counts_in(output or self.output) == expected(counted), f"the table of {name} is wrong"
        return counted

    def figures(self) -> dict[str, float]:
        """Return the figures of the only driver's last heartbeat."""
        return next(iter(self.cluster.state.heartbeats().values())).figures if self.cluster.state.heartbeats() else {}

    def stages(self) -> list[str]:
        """Return the stages of all drivers that beat."""
        return [heartbeat.stage for heartbeat in self.cluster.state.heartbeats().values()]

    def logs(self) -> str:
        """Return all logs."""
        logs = [nimbus.log for nimbus in self.cluster.nimbuses if nimbus.log.exists()]
        nimbuses = "\n".join(f"== {log}\n{log.read_text()[-3000:]}" for log in logs)
        return f"{nimbuses}\n" + "\n".join(supervisor.logs() for supervisor in self.supervisors)

    def copy_of_code(self, **changes: str) -> Path:
        """Return a folder with the submitted code, changed: texts by the texts that replace them."""
        folder = self.cluster.folder / "changed"
        shutil.copytree(SUBMITTED, folder, ignore=shutil.ignore_patterns("__pycache__"))
        path = folder / "counting.py"
        text = path.read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        path.write_text(text)
        return folder
