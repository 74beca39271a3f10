"""What readers and commands say of a run whose tables all have dead rows is what they say of one without."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from state import read_table, read_tables
from tests.cli.look.test_blame import cells
from tests.state.delta.padded import pad_tables
from tests.state.delta.two_tables import two_tables
from txtopo import Config
from txtopo.testing.inline import run_inline

CONFIG = Config(max_spout_pending=6, group_transactions_max=1)


@pytest.fixture
def outputs(command_line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The outputs of two runs, the second one with dead rows."""
    run_inline(two_tables(tmp_path / "plain"), CONFIG)
    pad_tables(monkeypatch)
    run_inline(two_tables(tmp_path / "padded"), CONFIG)
    return tmp_path / "plain", tmp_path / "padded"


@pytest.mark.slow
def test_dead_rows_are_nowhere(command_line, outputs: tuple[Path, Path]) -> None:
    """Reads of every moment, the audit, the difference, and the history of each key."""
    plain, padded = outputs
    words = DeltaTable(padded / "words")
    assert words.count() > 2 * read_table(padded / "words").num_rows
    for txid in range(1, 5):
        one, other = (read_tables(output, txid).tables for output in outputs)
        for name in ("words", "total"):
            keys = [(one[name].column_names[0], "ascending")]
            assert one[name].sort_by(keys).equals(other[name].sort_by(keys)), (txid, name)
    assert "was committed once, in order, without a gap\n" in command_line.told("audit", str(padded))
    assert command_line("diff", str(plain), str(padded)).exit_code == 0
    for word in read_table(plain / "words")["word"].to_pylist():
        one, other = (cells(command_line.told("blame", str(output), "--state", "words", word)) for output in outputs)
        assert one == other, word
