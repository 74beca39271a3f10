"""States in databases on real Spark, in both processing modes."""

import pytest

from tests.state.sql.test_exactly_once import Pipeline
from txtopo import Config, run


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_both_modes(spark, tmp_path, monkeypatch, mode):
    """The states' classes travel to executors, and the driver writes each transaction once, in either mode."""
    monkeypatch.chdir(tmp_path)
    pipeline = Pipeline(f"sqlite:///{tmp_path / 'rows.db'}", None)
    config = Config(max_spout_pending=6, group_transactions_max=2, state_dir="coordinator", processing_mode=mode)
    for _ in range(2):
        run(pipeline(), config, spark=spark)
        pipeline.check()
