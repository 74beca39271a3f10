"""The load of the clickstream: what is missing is said in one line."""

from click.testing import CliRunner

from examples.clickstream_load import main


def test_without_tables(tmp_path):
    """There is nothing to check before the topology has run."""
    result = CliRunner().invoke(main, ["--check", "--output", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert "run examples.clickstream first" in result.output
    assert result.output.count("\n") == 1
