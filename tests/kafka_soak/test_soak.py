"""A short soak of KafkaSpout; ``python -m tests.kafka_soak`` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka_soak.__main__ import soak_manual, soak_subscribed
from txtopo.testing.kafka import KafkaBroker


@pytest.mark.slow
@pytest.mark.parametrize("soak", [soak_manual, soak_subscribed])
def test_short_soak(soak, kafka: KafkaBroker, tmp_path: Path) -> None:
    """Nothing is committed ahead of what was processed; in the end everything is, whatever was killed meanwhile."""
    outcome = soak(kafka, 12_000, tmp_path)
    assert outcome.records >= 12_000
    assert outcome.kills >= 2
    assert outcome.looks > 3
