"""Short soaks; ``python -m tests.harness.soak kafka`` and ``tests.harness.soak.kafka.memory`` are the long ones."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.soak.kafka.command import soak_manual, soak_subscribed
from tests.harness.soak.kafka.memory import TENTHS, measure
from txtopo.servers.kafka import KafkaBroker
from txtopo.servers.server import free_port

ROOT = Path(__file__).parents[4]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("soak", [soak_manual, soak_subscribed])
def test_short_soak(soak, kafka: KafkaBroker, tmp_path: Path) -> None:
    """No offset is committed before its record is processed, and in the end all are, whatever was killed."""
    outcome = soak(kafka, 12_000, tmp_path)
    assert outcome.records >= 12_000
    assert outcome.kills >= 2
    assert outcome.looks > 3


@pytest.mark.slow
def test_a_member_ends_with_its_soak(tmp_path: Path) -> None:
    """A soak that crashes leaves no process that asks its dead brokers for ever."""
    module = "tests.harness.soak.kafka.member"
    arguments = [f"127.0.0.1:{free_port()}", "topic", str(tmp_path), "name", "1", "manual", "inline"]
    with subprocess.Popen([sys.executable, "-m", module, *arguments], cwd=ROOT, stdin=subprocess.PIPE) as member:
        try:
            assert member.stdin is not None
            member.stdin.close()  # as the kernel does when the soak's process ends
            assert member.wait(60) == 1
        finally:
            member.kill()


@pytest.mark.long
def test_memory(kafka: KafkaBroker, spark: SparkSession, tmp_path: Path) -> None:
    """Each tenth of a run is measured and printed, and the totals are right."""
    told: list[str] = []
    memory = measure(kafka, spark, tmp_path, 20, 40, told.append)
    assert len(memory.python_mib) == len(memory.heap_mib) == len(told) == TENTHS
    assert min(memory.growth.values()) > 0
