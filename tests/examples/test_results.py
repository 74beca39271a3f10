"""What the examples print after a run, however far it came."""

import importlib
import io

import pytest
from rich.console import Console

from txtopo.testing.inline import run_inline


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", ["global_count", "no_reading", "orders", "orders_by_minute", "payments", "ring", "transactional_words"]
)
def test_results_of_tables_without_a_row(name, tmp_path, monkeypatch):
    """``txtopo run --until 0`` has tables to show, with nothing in them."""
    monkeypatch.chdir(tmp_path)
    example = importlib.import_module(f"examples.{name}")
    run_inline(example.topology(output=str(tmp_path / "out")), until=0)
    console = Console(file=io.StringIO())
    example.show_results(console, str(tmp_path / "out"))
    assert console.file.getvalue()
