"""Large commits: a transaction that touches every key of a table. Does the driver's memory grow with it?

Each size has a driver of its own, and that has its executors in other processes: so what it holds is looked at from
outside, without what another size, the executors or the check of the totals hold.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.harness.benchmarks.inputs import TouchedKeys, check_delta
from tests.harness.benchmarks.measuring import Bench, Contender, Sample, measure
from tests.harness.benchmarks.memory import MemorySampler, jvm_of
from tests.harness.benchmarks.outcome import Outcome, Role, Target, Unit
from tests.harness.benchmarks.session import benchmark_session
from tests.harness.benchmarks.topologies import STATE, BatchSpout, big_state as topology
from tests.harness.benchmarks.txtopo_contender import TXTOPO
from txtopo import Config, run

SIZES = (100_000, 1_000_000, 10_000_000)
"""Keys of the table, and of the transaction."""

PYTHON, JVM = "Python peak MiB", "JVM peak MiB"

_MIRROR_BYTES = 16 * 1024 * 1024
"""What the driver may keep of a table between groups: here the memory of a transaction is measured, not that."""

_EXECUTORS = "local-cluster[1,2,3072]"
"""One executor with two cores, in a process of its own."""


def large_commits(bench: Bench) -> Outcome:
    """Measure the commits of transactions with many keys, and the memory of their driver."""
    measured = measure(_contenders, bench)
    smallest, *_, largest = (_label(bench.times(size, 1_000)) for size in SIZES)
    return Outcome(
        workload="large_commits",
        title="every key of a table touched: commit phase and Delta write",
        unit=Unit("ms, or MiB", is_lower_better=True),
        lines=measured.lines,
        targets=tuple(
            Target(f"{largest} {figure}", f"{smallest} {figure}", most, is_at_most=True)
            for figure, most in ((PYTHON, 1.1), (JVM, 1.2))  # the JVM's garbage takes what room it finds
        ),
        phases=measured.phases,
        notes=(
            "the table has deletion vectors; a first transaction fills it, and a second one touches each key again",
            "the peaks are of the two processes of the driver while it ran both; the executors are others",
        ),
    )


def _contenders(bench: Bench) -> Sequence[Contender]:
    def of(keys: TouchedKeys) -> Contender:
        return Contender(_label(keys.keys), Role.TXTOPO, lambda folder: _run(keys, folder))

    sizes = [bench.times(size, 1_000) for size in SIZES]
    return [of(TouchedKeys(size, size)) for size in sizes]


def _run(keys: TouchedKeys, folder: Path) -> Sample:
    command = [sys.executable, "-m", __spec__.name, str(keys.keys), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        driver.stdout.readline()  # it has a session
        with MemorySampler(driver.pid, is_own=True) as python, MemorySampler(jvm_of(driver.pid)) as jvm:
            driver.stdin.write("go\n")
            driver.stdin.flush()
            said = driver.stdout.readline()
        driver.stdin.close()
    check_delta(topology(folder, BatchSpout(keys, 2), is_reduced=True).plan.topology_id, folder / STATE, keys.totals(2))
    return Sample({"": json.loads(said)["commit_ms"], PYTHON: python.peak_mib(), JVM: jvm.peak_mib()})


def _label(keys: int) -> str:
    return f"{TXTOPO}, {keys:,} keys"


def _drive(keys: int, folder: Path) -> None:
    """Run one size, when the other side says so, and say how long the commits took; end when it is told to."""
    with benchmark_session(master=_EXECUTORS) as spark:
        print("ready", flush=True)
        sys.stdin.readline()
        made = topology(folder, BatchSpout(TouchedKeys(keys, keys), 2), is_reduced=True, deletion_vectors=True)
        # A batch of 10,000,000 rows shows no progress while it is made, which on a busy machine takes a minute.
        report = run(
            made, Config({"topology.message.timeout.secs": 600, "topology.state.bytes.max": _MIRROR_BYTES}), spark=spark
        )
        print(json.dumps({"commit_ms": report.commit_secs * 1000}), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    _drive(int(sys.argv[1]), Path(sys.argv[2]))
