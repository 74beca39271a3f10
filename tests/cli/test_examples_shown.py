"""What commands show of a run of each example: on terminals of any kind, and of transactions at its ends."""

import importlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from examples.orders_by_minute_load import ORDERS_A_FILE, write_file
from tests.crashes import Crash, survives
from txtopo import Config
from txtopo.assembly.report import Progress, RunReport
from txtopo.cli.console import Console
from txtopo.cli.display.lines import ProgressLines
from txtopo.cli.display.live import LiveDisplay
from txtopo.engine.runner import run_with
from txtopo.testing.inline import inline_environment
from txtopo.topology.topology import TransactionalTopology

EXAMPLES = ["global_count", "no_reading", "orders", "orders_by_minute", "ring", "transactional_words"]
CRASHES_IN, ENDS_AFTER = 2, 4
CONFIG = Config(max_spout_pending=2, group_transactions_max=1)


@attrs.frozen
class Ran:
    """One example's run that died on its way, and the one that went on to the end."""

    output: Path
    uncommitted: str
    """What ``explain`` says of the transaction that the first run died in."""
    progress: list[Progress]
    report: RunReport


@pytest.fixture(params=EXAMPLES)
def ran(request, tmp_path, command_line) -> Ran:
    """Run an example in the current folder, without Spark."""
    example = importlib.import_module(f"examples.{request.param}")
    output = tmp_path / "out"
    options = {}
    if request.param == "orders_by_minute":
        for number in range(8):
            write_file(tmp_path / "orders", number * ORDERS_A_FILE, ORDERS_A_FILE)
        options = {"folder": str(tmp_path / "orders"), "watch": False}
    elif request.param == "transactional_words":
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "a.txt").write_text("word of [bold]\n" * (3 * 64 * 1024 // 15))  # three transactions
        options = {"input": str(tmp_path / "in")}

    def make() -> TransactionalTopology:
        return example.topology(output=str(output), **options)

    progress: list[Progress] = []

    def run() -> RunReport:
        return run_with(make(), CONFIG, inline_environment(), until=ENDS_AFTER, on_progress=progress.append)

    assert not survives(run, Crash(CRASHES_IN, only="group.journal.after"))
    uncommitted = command_line.told("explain", str(output), str(CRASHES_IN))
    return Ran(output, uncommitted, progress, run())


def terminals() -> Iterator[tuple[str, Callable[[], Console]]]:
    for name, options in (
        ("wide", {"width": 120, "color_system": "truecolor"}),
        ("of 40 columns", {"width": 40}),
        ("without colours", {"width": 80, "no_color": True}),
        ("dumb", {"width": 80, "_environ": {"TERM": "dumb"}}),
    ):
        yield name, lambda options=options: Console(file=io.StringIO(), force_terminal=True, **options)


@pytest.mark.few(1)
def test_a_run_of_an_example_is_shown(ran, command_line, capsys):
    """Live, in lines and by explain: its first, its last and an uncommitted transaction."""
    for name, make in terminals():
        console = make()
        with LiveDisplay(console, CONFIG.max_spout_pending) as display:
            for each in ran.progress:
                display.update(each)
                display._live.refresh()
            display.finish(ran.report)
        assert ran.report.topology_id in console.file.getvalue(), name
    capsys.readouterr()
    lines = ProgressLines()
    for each in ran.progress:
        lines.update(each)
    lines.finish(ran.report)
    assert ran.uncommitted.startswith(f"transaction {CRASHES_IN}: ")
    assert f"the last is {ran.report.committed_txid}" in capsys.readouterr().out
    for txid in {1, ran.report.committed_txid}:
        assert f"transaction {txid}: committed" in command_line.told("explain", str(ran.output), str(txid))
    after = str(ran.report.committed_txid + 1)
    assert "has not begun" in command_line.refusal("explain", str(ran.output), after)
