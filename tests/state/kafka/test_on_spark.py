"""A topic that a topology writes on real Spark, in both processing modes."""

import pytest

from tests.state.kafka.test_state import Pipeline
from txtopo import Config, run


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_both_modes(spark, kafka, tmp_path, monkeypatch, mode):
    """The states' classes travel to executors, and the driver publishes each transaction once, in either mode."""
    monkeypatch.chdir(tmp_path)
    topic = f"on-spark-{mode}"
    kafka.create_topic(topic, 2)
    pipeline = Pipeline(kafka.servers, topic)
    config = Config(max_spout_pending=6, group_transactions_max=2, processing_mode=mode)
    for _ in range(2):
        run(pipeline(), config, spark=spark)
        pipeline.check()
