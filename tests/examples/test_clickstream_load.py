"""The load of the clickstream: what is missing is said in one line."""

from __future__ import annotations

import sys

from click.testing import CliRunner

from examples.clickstream_load import main


def test_without_the_client(monkeypatch):
    """It says which package to install."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    result = CliRunner().invoke(main, [])
    assert (result.exit_code, result.output) == (
        1,
        "Error: a load needs confluent-kafka: in txtopo's checkout, .venv/bin/pip install '.[kafka]'\n",
    )


def test_without_tables(tmp_path):
    """There is nothing to check before the topology has run."""
    result = CliRunner().invoke(main, ["--check", "--output", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert "run examples.clickstream first" in result.output
    assert result.output.count("\n") == 1
