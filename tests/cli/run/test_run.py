"""``txtopo run``, as a process of its own."""

import gc
import os
import pathlib
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from state import read_table
from tests.processes import DEADLINE_SECS, python
from txtopo.assembly.assembly import _limits
from txtopo.cli.console import Console
from txtopo.cli.display.lines import ProgressLines
from txtopo.cli.run import run
from txtopo.topology.user_code.loading import load_target

FAILING = """
from examples.global_count import *
from examples.global_count import topology as sound

class Bug(BatchCount):
    def execute(self, tuple):
        raise ValueError("a bug in a bolt" + chr(27) + "[2J")

def topology(output: str = "out"):
    spout = MemoryTransactionalSpout(DATA, Fields("word"), 3)
    builder = TransactionalTopologyBuilder("bug", "spout", spout, 1)
    builder.set_bolt("bug", Bug(), 1).shuffle_grouping("spout")
    return builder.build()
"""


def start(arguments: list[str], folder: pathlib.Path) -> subprocess.Popen[str]:
    command = ["-u", "-m", "txtopo", *arguments]
    return python(*command, cwd=folder, stderr=subprocess.PIPE, start_new_session=True)


def lines_until(process: subprocess.Popen[str], text: str) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line
        if text in line:
            return


@pytest.mark.slow
def test_a_run_is_told_in_plain_lines_and_a_second_one_adds_nothing(tmp_path):
    """Off a terminal: a first line at once, then the figures. A second run commits nothing anew."""
    tables = []
    for transactions in ("3 transactions", "0 transactions"):
        process = start(["run", "examples.global_count", "--set", "spark_master=local[2]"], tmp_path)
        out, err = process.communicate(timeout=DEADLINE_SECS)
        assert (process.returncode, err) == (0, "")
        assert out.startswith("looking at the input …\nrecovering …\nstarting Spark …\n")
        assert f"the spout is exhausted; {transactions} committed, the last is 3;" in out
        assert out.splitlines()[-1] == "19 tuples in total; the table is txtopo-data/global-count/global_count"
        tables.append(read_table(tmp_path / "txtopo-data" / "global-count" / "global_count").to_pylist())
    assert tables == [[{"name": "total", "n": 19, "txid": 3}]] * 2


@pytest.mark.long
@pytest.mark.slow
def test_ctrl_c_stops_in_good_order_and_says_how_to_go_on(tmp_path):
    """SIGINT ends a run with status 0 and the command to go on with, which ends what was begun."""
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "words.txt").write_text("one two two\n" * 100_000)
    arguments = ["run", "examples.transactional_words", "--set", "input=text", "--set", "max_spout_pending=3"]
    arguments += ["--set", "shop.password=sesame"]
    process = start(arguments, tmp_path)
    assert any("nothing committed yet" in line for line in lines_until(process, "nothing committed yet"))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=DEADLINE_SECS)
    assert process.returncode == 0
    assert "a stop was requested" in out
    assert out.splitlines()[-1] == f"stopped; to continue: txtopo {' '.join(arguments[:-1])} 'shop.password=…'"
    process = start(arguments, tmp_path)
    out, _ = process.communicate(timeout=DEADLINE_SECS)
    assert (process.returncode, "the spout is exhausted" in out) == (0, True)
    counts = read_table(tmp_path / "txtopo-data" / "transactional-words" / "word_counts").to_pydict()
    found = dict(zip(counts["word"], counts["count"], strict=True))
    assert found == {"one": 100_000, "two": 200_000}


PLAIN = """
import pathlib
from tests.spark.plain_topologies import slow

def topology():
    return slow(pathlib.Path.cwd(), 0.001)
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transactional", "plain"])
def test_sigterm_to_all_of_a_group_stops_in_good_order(tmp_path, kind):
    """A SIGTERM to the whole process group, as a shell sends it, ends a run as one to the process does: without loss."""
    (tmp_path / "plain.py").write_text(PLAIN)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "words.txt").write_text("one two two\n" * 100_000)
    arguments, first = ["run", "plain"], "emitted"
    if kind == "transactional":
        arguments = ["run", "examples.transactional_words", "--set", "input=text", "--set", "max_spout_pending=3"]
        first = "nothing committed yet"
    process = start(arguments, tmp_path)
    assert any(first in line for line in lines_until(process, first))
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=DEADLINE_SECS)
    assert (process.returncode, "Traceback" in err, "Traceback" in out) == (0, False, False)
    if kind == "plain":
        emitted, acked = re.search(
            r"stopped; ([\d,]+) emitted, ([\d,]+) acked, 0 failed, 0 pending$", out, re.MULTILINE
        ).groups()
        assert emitted == acked
    else:
        assert re.search(r"a stop was requested; .* 0 failures", out)


def test_a_bug_in_a_bolt_names_its_place_and_ends_with_status_1(command_line, spark):
    """The user's traceback is printed, none of txtopo's own; control characters in it do not reach the terminal."""
    command_line.write_module("failing", FAILING)
    result = command_line("run", "failing")
    assert result.exit_code == 1
    assert re.match(r"error: \[component 'bug', txid [1-9], attempt ", result.stderr)  # whichever job was first
    assert r"ValueError: a bug in a bolt\x1b[2J" in result.stderr
    assert "\x1b" not in result.stderr
    assert "command.py" not in result.stderr


@pytest.mark.parametrize("mode", [(), ("--real-time",)], ids=["micro-batch", "real-time"])
def test_until_ends_a_run_and_results_are_shown(command_line, spark, mode):
    """``--until`` stops at that transaction, and what the module shows is shown, in either mode.

    A process that goes on collects garbage afterwards as it did.
    """
    frozen = gc.get_freeze_count()
    result = command_line("run", "examples.global_count", "--until", "2", *mode, "--set", "output=out")
    assert (result.exit_code, result.stderr, gc.get_freeze_count()) == (0, "", frozen)
    assert "the requested transaction is committed; 2 transactions" in result.stdout
    assert result.stdout.endswith("16 tuples in total; the table is out/global_count\n")


@pytest.mark.parametrize("folder", ["words", "s3://bucket/words"])
def test_the_live_display_has_room_for_what_may_be_pending(monkeypatch, folder):
    """By default that is more in a bucket: a bar for fewer would be full, and hide what waits, when half of it is."""
    shown, may_be = [], []

    def run_topology(topology, config, **_):
        may_be.append(_limits(topology.plan, config, None).pending_max)
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "LiveDisplay", lambda _, pending_max: shown.append(pending_max) or ProgressLines())
    monkeypatch.setattr(run, "run_topology", run_topology)
    with pytest.raises(KeyboardInterrupt):
        run._run_transactional(
            load_target("examples.global_count", {"output": folder}),
            None,
            Console(force_terminal=True),
            run._Observed(),
        )
    assert shown == may_be


def test_the_version_is_told(command_line):
    """``--version`` names program and version, and does so from a checkout that is not installed, too."""
    result = command_line("--version")
    assert (result.exit_code, result.output.startswith("txtopo, version ")) == (0, True)
