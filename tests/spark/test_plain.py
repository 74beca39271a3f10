"""Plain topologies on Spark: long-running workers, killed and stopped, with every root acked in the end."""

import os
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.plain_topologies import SENTENCES, broken, holds, slow, word_count
from tests.variants import variants
from txtopo import Config, RunningTopology, run, start
from txtopo.errors import ConfigError, FieldsError, RuleError, UserCodeError
from txtopo.testing.feeders import wait_until
from txtopo.topology.user_code.output import PRINT, USER_LOGGER
from txtopo.workers.restart_limit import SAME_ERROR_MAX

WAIT_SECS = 240.0


def counted(folder: Path) -> Counter[str]:
    """Return what the counting tasks wrote."""
    counts: Counter[str] = Counter()
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            word, count = line.split()
            counts[word] += int(count)
    return counts


def expected(count: int) -> Counter[str]:
    """Return the words of so many sentences, each task's."""
    words: Counter[str] = Counter()
    for number in range(count):
        words.update(SENTENCES[number % len(SENTENCES)].split())
    return Counter({word: 2 * times for word, times in words.items()})


def pids(folder: Path) -> list[int]:
    """Return the processes of the two slow tasks."""
    return [int((folder / f"pid-{task}").read_text()) for task in range(2)]


def test_word_count(spark: SparkSession, tmp_path: Path) -> None:
    """Two workers count every word once if nothing fails; the run ends by itself, and no listener of its own stays."""
    report = run(word_count(tmp_path, 1_000), Config({"topology.workers": 2}), spark=spark)
    assert "txtopo-lines" not in {thread.name for thread in threading.enumerate()}
    assert counted(tmp_path) == expected(1_000)
    assert (report.emitted, report.acked, report.failed, report.pending) == (2_000, 2_000, 0, 0)
    assert report.components["count"].executed == sum(expected(1_000).values())
    assert report.reason == "every spout is exhausted"
    assert report.latency_p50_secs is not None


def test_processes_are_used_again(spark: SparkSession, tmp_path: Path) -> None:
    """The workers of a later run in the same session need not start Python, nor import what the first ones did."""
    used = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        run(word_count(folder, 10), Config({"topology.workers": 2}), spark=spark)
        used.append({path.name.rpartition("-")[2] for path in folder.iterdir()})
    assert used[1] == used[0]


def test_output_of_tasks(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a bolt prints comes to the driver's log, with its component and task."""
    caplog.set_level(PRINT, USER_LOGGER)
    run(word_count(tmp_path, 10), Config({"topology.workers": 2}), spark=spark)
    lines = [record.getMessage() for record in caplog.records if "the first word" in record.getMessage()]
    assert len(lines) == 2
    assert all("component 'count', task " in line for line in lines)


@pytest.mark.parametrize("kill", variants(signal.SIGKILL, long=[signal.SIGSTOP]))
def test_worker_dies(spark: SparkSession, tmp_path: Path, kill: signal.Signals) -> None:
    """A worker that is killed or stands still is replaced; the other goes on, the same process, and roots are acked."""
    with start(slow(tmp_path, 0.001), Config({"topology.workers": 2}), spark=spark) as running:
        assert wait_until(lambda: running.report().acked > 100, WAIT_SECS), "no acks"
        victim, survivor = pids(tmp_path)
        os.kill(victim, kill)
        assert wait_until(lambda: pids(tmp_path)[0] != victim, WAIT_SECS), "no successor"
        before = running.report().acked
        assert wait_until(lambda: running.report().acked > before + 200, WAIT_SECS), "no more acks"
        assert pids(tmp_path)[1] == survivor
        assert wait_until(lambda: running.report().failed > 0, WAIT_SECS), (
            "no failures of the roots that touched the dead worker"
        )
        assert running.report().restarts == 1
        running.stop()
        assert running.wait().pending == 0


def test_bug_in_a_bolt(spark: SparkSession) -> None:
    """A bug ends its worker; after some restarts the run ends by an error that names component and task."""
    with pytest.raises(
        UserCodeError, match=r"component 'broken'.*task 2: ValueError: cannot work on 'the cow"
    ) as raised:
        run(broken(), Config({"topology.worker.max.restarts": 1}), spark=spark)
    assert "plain_topologies.py" in str(raised.value)


@pytest.mark.long
def test_a_call_that_keeps_the_interpreter(spark: SparkSession) -> None:
    """A C call that lets no other thread run is waited for, up to the message timeout: then it is named, and ended."""
    report = run(
        holds(7.0), Config({"topology.message.timeout.secs": 60, "topology.worker.max.restarts": 0}), spark=spark
    )
    assert (report.acked, report.failed, report.restarts) == (10, 0, 0)
    too_long = Config({"topology.message.timeout.secs": 3, "topology.worker.max.restarts": 0})
    with pytest.raises(UserCodeError, match=r"component 'holds'.*task 2: one call has kept Python's interpreter lock"):
        run(holds(600.0), too_long, spark=spark)


@pytest.mark.long
@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [((), UserCodeError, "ValueError: cannot work on 'the cow"), (("one", "too many"), FieldsError, "2 were emitted")],
)
def test_same_bug_again_and_again(
    spark: SparkSession, values: tuple[object, ...], kind: type[RuleError], message: str
) -> None:
    """A bug that ends each worker before a root is acked ends the run after some deaths, and the report names it."""
    with start(broken(*values), Config({"topology.worker.max.restarts": 1_000}), spark=spark) as running:
        with pytest.raises(kind, match=message):
            running.wait(WAIT_SECS)
        assert message in running.report().last_error
        assert running.report().restarts == SAME_ERROR_MAX - 1


def test_ticks_keep_nothing_running(spark: SparkSession, tmp_path: Path) -> None:
    """A run whose bolts tick ends when its spouts are exhausted: the workers are looked at between two ticks."""
    report = run(slow(tmp_path, 0.0, count=50), Config({"topology.workers": 2}), spark=spark)
    assert report.acked == 100
    assert report.elapsed_secs < WAIT_SECS


@pytest.mark.long
def test_stop_and_pause(spark: SparkSession, tmp_path: Path) -> None:
    """Deactivated spouts emit nothing; a stop waits for what is pending."""
    with start(slow(tmp_path, 0.0), spark=spark) as running:
        assert wait_until(lambda: running.report().acked > 10, WAIT_SECS), "no acks"
        running.deactivate()
        assert wait_until(lambda: running.report().pending == 0, WAIT_SECS), "no rest"
        emitted = wait_until_still(running)
        running.activate()
        assert wait_until(lambda: running.report().emitted > emitted, WAIT_SECS), "no tuples again"
        running.stop()
        report = running.wait()
    assert report.reason == "stopped"
    assert (report.pending, report.emitted) == (0, report.acked)


def wait_until_still(running: RunningTopology) -> int:
    """Wait until nothing is emitted between two looks; return how much was."""
    seen = [-2, -1]

    def is_still() -> bool:
        time.sleep(1.2)  # longer than workers keep their counts to themselves
        seen.append(running.report().emitted)
        return seen[-1] == seen[-2]

    assert wait_until(is_still, WAIT_SECS), "no pause"
    return seen[-1]


@pytest.mark.long
def test_rebalance(spark: SparkSession, tmp_path: Path) -> None:
    """The tasks move to another number of workers, and none is lost."""
    with start(slow(tmp_path, 0.0), spark=spark) as running:
        assert wait_until(lambda: running.report().acked > 10, WAIT_SECS), "no acks"
        running.rebalance(2)
        before = running.report().acked
        assert wait_until(lambda: running.report().acked > before + 100, WAIT_SECS), "no acks"
        one, other = pids(tmp_path)
        assert one != other
        names = [thread.name for thread in threading.enumerate()]
        assert (names.count("txtopo-lines"), names.count("txtopo-accept")) == (1, 1), (
            "those of the first workers remain"
        )
        running.stop()
        report = running.wait()
    assert report.workers == 2
    assert report.emitted == report.acked


@pytest.mark.long
def test_stop_during_a_rebalance(spark: SparkSession, tmp_path: Path) -> None:
    """A stop that comes while a rebalance is under way ends the topology; whoever has asked for that goes on."""
    with start(slow(tmp_path, 0.001), spark=spark) as running, ThreadPoolExecutor() as threads:
        assert wait_until(lambda: running.report().acked > 10, WAIT_SECS), "no acks"
        rebalances = [threads.submit(running.rebalance, workers) for workers in (2, 1, 2)]
        running.stop()
        running.activate()
        report = running.wait(WAIT_SECS)
        assert [rebalance.result(WAIT_SECS) for rebalance in rebalances] == [None] * 3
    assert (report.reason, report.pending) == ("stopped", 0)


def test_rebalance_after_the_end(spark: SparkSession, tmp_path: Path) -> None:
    """A topology whose spouts are exhausted is not started again, whatever is asked for."""
    with start(word_count(tmp_path, 25), spark=spark) as running:
        assert wait_until(lambda: running.report().acked == 50, WAIT_SECS), "no acks"
        running.rebalance(2)
        running.rebalance(1)
        running.deactivate()
        running.activate()
        report = running.wait(WAIT_SECS)
        running.stop()
        running.rebalance(2)
    assert (report.reason, report.emitted, report.acked) == ("every spout is exhausted", 50, 50)
    assert running.wait(0.0).acked == 50
    assert counted(tmp_path) == expected(25)


def test_settings_that_do_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    """What is for transactional topologies only is refused, and what kills long-running workers."""
    topology = word_count(tmp_path, 1)
    with pytest.raises(ConfigError, match=r"topology\.jobs\.in\.flight\.max is for transactional topologies"):
        run(topology, Config(jobs_in_flight_max=3), spark=spark)
    with pytest.raises(ConfigError, match="a worker would run twice"):
        run(topology, Config({"spark.speculation": "true"}), spark=spark)
    with pytest.raises(ConfigError, match="has no transactions to run until"):
        run(topology, spark=spark, until=3)  # type: ignore[call-overload]
