"""A coordinator is stopped at any step, others go back and on meanwhile, and it wakes up: nothing promised is gone."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import attrs
import pytest

from tests.fencing.aging_process import call, run
from tests.fencing.zookeeper_view import viewing
from tests.harness.history.clock import SimulatedClock
from tests.harness.soak.changes.story import LAST, MODULE, Undisturbed, points_of
from tests.processes import DEADLINE_SECS, python
from tests.waiting import wait_for
from txtopo.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.long

SESSION_SECS = 5
LOOK_SECS = 400


@attrs.define(eq=False)
class Aging:
    """A topology in a ZooKeeper store, whose clock leaps."""

    folder: Path
    undisturbed: Undisturbed
    settings: dict[str, str]
    clock: SimulatedClock = attrs.field(factory=lambda: SimulatedClock(time.time() - 5 * 24 * 3600))

    @property
    def values(self) -> dict[str, str]:
        """What --set gives."""
        return {"output": str(self.folder), "grown": "yes", "later": "yes", **self.settings}

    def run(self, until: int, look_secs: float = LOOK_SECS) -> None:
        """Run up to a transaction, and compare."""
        run(until, self.clock, look_secs, self.values)
        self.undisturbed.check(self.folder)

    def stopped(self, when: object, failpoint: str = "", **values: object) -> subprocess.Popen[str]:
        """Start another coordinator, and return it once it has stopped where it was told to."""
        self.clock.settle(self.folder)
        pairs = [f"{name}={value}" for name, value in {**self.values, **values}.items()]
        arguments = ("-m", "tests.fencing.aging_process", when, self.clock.now_secs, LOOK_SECS, *pairs)
        process = python(*arguments, failpoints=failpoint, stderr=subprocess.STDOUT)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), process.communicate()
        return process

    def go_back(self, txid: int) -> str:
        """Go back to a point."""
        return call("rewind", MODULE, str(txid), "--yes", values=self.values)

    def check_points(self) -> None:
        """Read each point that is listed, go back to it, and on to the end; the audit finds nothing."""
        points = points_of(self.values)
        self.undisturbed.check_points(self.folder, points)
        call("audit", str(self.folder), values={})
        for point in points:
            self.go_back(point)
            assert self.undisturbed.check(self.folder) == point
        call("audit", str(self.folder), values={})
        self.run(LAST)
        call("audit", str(self.folder), values={})


@pytest.fixture
def aging(undisturbed: Undisturbed, tmp_path: Path, server: ZooKeeperServer, root: str) -> Aging:
    """A topology that has begun."""
    settings = {
        "topology.state.store": "zookeeper",
        "transactional.zookeeper.servers": server.hosts,
        "transactional.zookeeper.root": root,
        "transactional.zookeeper.session.timeout.secs": str(SESSION_SECS),
    }
    aging = Aging(tmp_path / "out", undisturbed, settings)
    aging.run(9)
    return aging


def both_sides(*steps: str, reached: int = 1) -> list[str]:
    """Return what stops a process before and after steps."""
    return [f"{step}.{side}=stop:{reached}" for step in steps for side in ("before", "after")]


IN_ITS_START = both_sides("table.open", "recovery.confirm")
IN_ITS_RUN = [*both_sides("group.journal", "group.decide", reached=2), *both_sides("table.write", reached=9)]
IN_A_DELETION = [f"deletion {number}" for number in (1, 5, 17, 30)]
IN_A_REWIND = both_sides("repair.begin", "repair.table", "repair.journal", "repair.end")


@pytest.mark.parametrize("step", [*IN_ITS_START, *IN_ITS_RUN, *IN_A_DELETION, *IN_A_REWIND])
def test_it_wakes_up_after_a_rewind(aging: Aging, step: str) -> None:
    """Whatever it was about to write, it ends by an error, and tables, journal and points are as if it had not been."""
    rng = random.Random(step)
    if step in IN_A_DELETION:
        process = aging.stopped(LAST - 3, stop_at_deletion=step.split()[1])
    else:
        process = aging.stopped("back-5" if step in IN_A_REWIND else LAST - 3, step)
    try:
        with viewing(
            aging.settings["transactional.zookeeper.servers"], aging.settings["transactional.zookeeper.root"]
        ) as view:
            wait_for("its session ends", lambda: not view.client.exists(f"{view.root}/leads/changing/holder"))
        # It may have stopped after its last write.
        was_done = step == IN_A_REWIND[-1] or (
            step in IN_A_DELETION and aging.undisturbed.check(aging.folder) == LAST - 3
        )
        aging.clock.go_on(40 * LOOK_SECS)
        if step in IN_A_REWIND:  # which is finished first
            aging.go_back(5)
        aging.go_back(rng.choice(points_of(aging.values) or [0]))
        aging.run(
            min(LAST - 3, aging.undisturbed.check(aging.folder) + rng.randint(3, 20)), rng.choice([1, 60, 400, 4000])
        )
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=DEADLINE_SECS)
        assert was_done or process.returncode != 0
    finally:
        process.kill()
    aging.undisturbed.check(aging.folder)
    aging.check_points()
