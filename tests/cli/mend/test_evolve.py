"""``txtopo evolve``: deletion vectors are turned on and off; new columns are in tests/state/delta/log/test_growth.py."""

import pytest
from deltalake import DeltaTable

from state import read_table
from tests.state.delta.two_tables import Reader
from txtopo import Config
from txtopo.errors import DivergenceError
from txtopo.testing.inline import run_inline
from txtopo.topology.user_code.loading import load_target

MODULE = """
from tests.state.delta.two_tables import pathlib, two_tables
def topology(vectors: str = ""):
    return two_tables(pathlib.Path("out"), deletion_vectors=bool(vectors))
"""


@pytest.mark.slow
def test_on_and_off(command_line, tmp_path):
    """A run refuses, and names the command; the command says what it has done, and the run goes on."""
    command_line.write_module("words", MODULE)

    def run(until=None, *, vectors):
        plan = load_target("words", values={"vectors": "on" if vectors else ""}).topology
        run_inline(plan, Config(group_transactions_max=1, max_spout_pending=1), until=until)

    run(1, vectors=False)
    with pytest.raises(DivergenceError, match=r"it has no deletion vectors, .*'txtopo evolve MODULE' turns them on"):
        run(2, vectors=True)
    told = command_line.told("evolve", "words", "--set", "vectors=on")
    for name in ("words", "total"):
        assert f"state '{name}': deletion vectors are on; its readers must know them\n" in told
        assert DeltaTable(tmp_path / "out" / name).protocol().reader_features == ["deletionVectors"]
    assert command_line.told("evolve", "words", "--set", "vectors=on").startswith("nothing to do")
    run(3, vectors=True)
    with pytest.raises(DivergenceError, match=r"it has deletion vectors, .*'txtopo evolve MODULE' turns them off"):
        run(4, vectors=False)
    told = command_line.told("evolve", "words")
    assert "state 'words': deletion vectors are off; what is kept up to transaction 3 may have them\n" in told
    assert DeltaTable(tmp_path / "out" / "words").protocol().min_reader_version == 1
    run(vectors=False)
    reader = Reader(tmp_path / "out")
    reader()
    assert reader.txid == 4
    assert read_table(tmp_path / "out" / "total", 2).num_rows == 1
    command_line.told("audit", "out")
