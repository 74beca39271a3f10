"""The example over Kafka, without Spark: its tables say what was produced."""

import pytest
from click.testing import CliRunner

from examples.clickstream import topology
from examples.clickstream_load import main
from txtopo.testing.inline import run_inline


@pytest.mark.slow
def test_the_tables_say_what_was_produced(kafka, tmp_path):
    """Two loads, a run after each; the command that checks the tables finds a wrong one, too."""
    kafka.create_topic("clickstream", 3)
    options = ["--servers", kafka.servers, "--topic", "clickstream", "--output", str(tmp_path)]
    said = []
    for first, count, total in ((0, 6_000, 6_000), (6_000, 4_000, 10_000)):
        load = CliRunner().invoke(main, [*options, "--first", str(first), "--clicks", str(count)])
        assert load.exit_code == 0, load.output
        run_inline(topology(kafka.servers, "clickstream", str(tmp_path), 2, until_end=True))
        for clicks in (total, total - 1):
            check = CliRunner().invoke(main, [*options, "--clicks", str(clicks), "--check"])
            said.append((check.exit_code, check.output.splitlines()[0]))
    assert said == [(0, "the tables are exact"), (1, "the tables differ:")] * 2
